//! fi_getinfo(3) for providers with internet addresses.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use fabric_abi::*;

use super::mismatch::{DOMAIN_NAME, FABRIC_NAME};
use super::*;
use prov_base::errno::{Errno, Result};
use prov_base::netif::{self, Interface};
use prov_base::resolve::{self, Query};
use prov_base::sockaddr;

/// Returns the address to which an endpoint with these attributes is bound.
pub fn source(info: &Info) -> SocketAddr {
    match sockaddr::decode(&info.src_addr) {
        Some(addr) => addr,
        None => any(info.addr_format != FI_SOCKADDR_IN6),
    }
}

/// Returns the address from which it connects, of the address family of its destination.
pub fn source_towards_destination(info: &Info) -> SocketAddr {
    let own = source(info);
    match sockaddr::decode(&info.dest_addr) {
        Some(dest) if dest.is_ipv4() != own.is_ipv4() => any(dest.is_ipv4()),
        _ => own,
    }
}

/// The wildcard address.
fn any(is_ipv4: bool) -> SocketAddr {
    match is_ipv4 {
        true => (Ipv4Addr::UNSPECIFIED, 0).into(),
        false => (Ipv6Addr::UNSPECIFIED, 0).into(),
    }
}

/// Returns the endpoints out of `bases` that match, with their addresses: one for each base entry
/// if node, service or hints name an address, otherwise one for each base entry and interface, best
/// interface first. `iface` is the only interface to use, if the user has chosen one.
///
/// # Errors `-FI_ENODATA` if nothing matches.
pub fn getinfo(request: &Request<'_>, bases: &[Base], iface: Option<&str>) -> Result<Vec<Info>> {
    let fitting = request.fitting(bases)?;
    let ends = ends(request)?;
    let interfaces = netif::interfaces(iface);
    if interfaces.is_empty() {
        log::warn!(
            target: request.target,
            "no usable address on interface {}",
            iface.unwrap_or("(any)")
        );
        return Err(Errno::ENODATA);
    }
    let mut infos = Vec::new();
    for info in &fitting {
        match ends.src {
            None if ends.dest.is_none() => {
                // If loopback is the only interface, it reaches everything.
                let alone = interfaces.iter().all(|interface| interface.loopback);
                infos.extend(
                    interfaces
                        .iter()
                        .filter_map(|interface| on_interface(request, info, interface, alone)),
                );
            }
            _ => infos.extend(between(request, info.clone(), &ends, &interfaces)),
        }
    }
    if infos.is_empty() {
        if let (Some(hints), Some(info)) = (request.hints, fitting.first()) {
            request.refuse(&no_interface(hints, info, &ends, &interfaces));
        }
        Err(Errno::ENODATA)
    } else {
        Ok(infos)
    }
}

/// Returns the two addresses of a request, as far as it names them. If it names only the
/// destination, the source is the address from which the system routes to it.
fn ends(request: &Request<'_>) -> Result<Ends<SocketAddr>> {
    let mut ends = request.ends(|| look_up(request), sockaddr::decode)?;
    if let (None, Some(dest)) = (ends.src, ends.dest) {
        ends.src = resolve::source_towards(&dest)
            .inspect_err(|error| {
                request.refuse(&format_args!("no route to {dest}: {error}"));
            })
            .ok();
    }
    Ok(ends)
}

/// Returns the address of node and service: in the requested format if there is one, otherwise in
/// any.
fn look_up(request: &Request<'_>) -> Result<SocketAddr> {
    let family = match request
        .hints
        .map_or(FI_FORMAT_UNSPEC, |hints| hints.addr_format)
    {
        FI_SOCKADDR_IN => libc::AF_INET,
        FI_SOCKADDR_IN6 => libc::AF_INET6,
        _ => 0,
    };
    let query = Query {
        node: request.node,
        service: request.service,
        family: 0,
        passive: request.flags & FI_SOURCE != 0,
        numeric: request.flags & FI_NUMERICHOST != 0,
    };
    // One question for both families: each may take seconds to fail.
    let mut found = resolve::resolve(&query);
    if found.is_err() && query.numeric {
        found = resolve::resolve(&Query {
            numeric: false,
            ..query
        });
        if found.is_ok() {
            log::warn!(
                target: request.target,
                "FI_NUMERICHOST is set, and node {:?} is a name",
                request.node
            );
        }
    }
    match found {
        Ok(addrs) => {
            let asked = addrs.iter().find(|addr| match family {
                libc::AF_INET => addr.is_ipv4(),
                libc::AF_INET6 => addr.is_ipv6(),
                _ => true,
            });
            asked.or(addrs.first()).copied().ok_or(Errno::ENODATA)
        }
        Err(error) => {
            request.refuse(&format_args!(
                "cannot resolve node {:?} service {:?}: {error}",
                request.node, request.service
            ));
            Err(match error {
                Errno::EINVAL => Errno::EINVAL,
                _ => Errno::ENODATA,
            })
        }
    }
}

/// Returns the entry for the address of one interface; `None` if the hints exclude it.
fn on_interface(
    request: &Request<'_>,
    info: &Info,
    interface: &Interface,
    alone: bool,
) -> Option<Info> {
    let reach = if interface.loopback && !alone {
        FI_LOCAL_COMM
    } else {
        FI_LOCAL_COMM | FI_REMOTE_COMM
    };
    if let Some(hints) = request.hints {
        let asked = hints.caps & (FI_LOCAL_COMM | FI_REMOTE_COMM);
        if asked & !reach != 0
            || !address_format_fits(hints.addr_format, sockaddr::format_of(&interface.addr))
            || !names_fit(hints, &info.fabric.name, &info.domain.name, Some(interface))
        {
            return None;
        }
    }
    let mut info = info.clone();
    info.caps = info.caps & !(FI_LOCAL_COMM | FI_REMOTE_COMM) | reach;
    info.src_addr = sockaddr::encode(&interface.addr).as_bytes().to_vec();
    info.addr_format = sockaddr::format_of(&interface.addr);
    name_after(&mut info, request, interface);
    Some(info)
}

/// Returns the attribute of the hints that leaves no interface for an entry that fits otherwise.
fn no_interface(
    hints: &Hints,
    info: &Info,
    ends: &Ends<SocketAddr>,
    interfaces: &[Interface],
) -> Mismatch {
    let at_source = |interface: &&Interface| {
        let source = ends.src.filter(|src| !src.ip().is_unspecified());
        source.is_none_or(|src| is_at(&interface.addr, &src))
    };
    let mut left: Vec<&Interface> = interfaces.iter().filter(at_source).collect();
    if let Some(asked) = hints.fabric_name() {
        let networks = left.iter().map(|interface| &interface.network);
        let names = networks.chain(&info.fabric.name);
        if let Some(mismatch) = Mismatch::of_name(FABRIC_NAME, asked, names) {
            return mismatch;
        }
        left.retain(|interface| interface.network.eq_ignore_ascii_case(asked));
    }
    if let Some(asked) = hints.domain_name() {
        let names = left.iter().map(|interface| &interface.name);
        let names = names.chain(&info.domain.name);
        if let Some(mismatch) = Mismatch::of_name(DOMAIN_NAME, asked, names) {
            return mismatch;
        }
        left.retain(|interface| interface.name.eq_ignore_ascii_case(asked));
    }
    let format = |interface: &&Interface| sockaddr::format_of(&interface.addr);
    let fits = |format: u32| address_format_fits(hints.addr_format, format);
    if let Some(other) = left.first()
        && !left.iter().map(format).any(fits)
    {
        return Mismatch {
            attribute: "addr_format",
            asked: Value::Named(hints.addr_format.into(), FI_TYPE_ADDR_FORMAT),
            supported: Value::Named(format(other).into(), FI_TYPE_ADDR_FORMAT),
            change: Change::Choose,
        };
    }
    Mismatch {
        attribute: "caps",
        asked: Value::Named(hints.caps, FI_TYPE_CAPS),
        supported: Value::Named(hints.caps & !FI_REMOTE_COMM | FI_LOCAL_COMM, FI_TYPE_CAPS),
        change: Change::Drop(Value::Named(FI_REMOTE_COMM, FI_TYPE_CAPS)),
    }
}

/// Returns the entry for given addresses. Its format is that of the addresses, whatever other
/// format of internet addresses was requested.
fn between(
    request: &Request<'_>,
    mut info: Info,
    ends: &Ends<SocketAddr>,
    interfaces: &[Interface],
) -> Option<Info> {
    let bytes = |addr: Option<SocketAddr>| {
        addr.map_or_else(Vec::new, |addr| sockaddr::encode(&addr).as_bytes().to_vec())
    };
    info.src_addr = bytes(ends.src);
    info.dest_addr = bytes(ends.dest);
    if let Some(addr) = ends.dest.or(ends.src) {
        info.addr_format = sockaddr::format_of(&addr);
    }

    let at = |src: SocketAddr| interfaces.iter().find(|i| is_at(&i.addr, &src));
    let interface = ends.src.and_then(at);
    if let Some(hints) = request.hints
        && !names_fit(hints, &info.fabric.name, &info.domain.name, interface)
    {
        // The wildcard address is on every interface, including the named one.
        let wildcard = ends.src.is_none_or(|src| src.ip().is_unspecified());
        let named = interfaces
            .iter()
            .find(|i| names_fit(hints, &None, &None, Some(i)));
        let named = named.filter(|_| wildcard)?;
        name_after(&mut info, request, named);
        return Some(info);
    }
    if let Some(interface) = interface {
        name_after(&mut info, request, interface);
        // The same as in the list of interfaces, so that the result is a valid hint without its
        // address, too.
        let remote = request.hints.is_some_and(|h| h.caps & FI_REMOTE_COMM != 0);
        if interface.loopback && !remote {
            info.caps &= !FI_REMOTE_COMM;
        }
    }
    Some(info)
}

/// Returns whether an address belongs to an interface. Two interfaces may have the same link-local
/// address, and differ in the scope.
fn is_at(interface: &SocketAddr, addr: &SocketAddr) -> bool {
    let has_scope = |addr: &SocketAddr| match addr {
        SocketAddr::V6(v6) => Some(v6.scope_id()).filter(|scope| *scope != 0),
        SocketAddr::V4(_) => None,
    };
    let same_scope = match (has_scope(interface), has_scope(addr)) {
        (Some(one), Some(other)) => one == other,
        _ => true,
    };
    interface.ip() == addr.ip() && same_scope
}

/// Gives an entry the names of its interface, unless the hints contain the provider's own names:
/// these occur in entries whose address is on no interface, which must be found by them again.
fn name_after(info: &mut Info, request: &Request<'_>, interface: &Interface) {
    let fabric = request.hints.and_then(|hints| hints.fabric.as_ref());
    let domain = request.hints.and_then(|hints| hints.domain.as_ref());
    if info.fabric.name.is_none() || fabric.is_none_or(|asked| asked.name != info.fabric.name) {
        info.fabric.name = Some(interface.network.clone());
    }
    if info.domain.name.is_none() || domain.is_none_or(|asked| asked.name != info.domain.name) {
        info.domain.name = Some(interface.name.clone());
    }
}

/// Returns whether fabric and domain in the hints, if they are named, are those of the interface or
/// the provider's own names for any interface, in upper or lower case.
fn names_fit(
    hints: &Hints,
    fabric: &Option<String>,
    domain: &Option<String>,
    interface: Option<&Interface>,
) -> bool {
    let fits = |asked: Option<&String>, own: &Option<String>, name: Option<&String>| {
        let is = |name: &String| asked.is_none_or(|asked| asked.eq_ignore_ascii_case(name));
        asked.is_none() || name.is_some_and(is) || own.as_ref().is_some_and(is)
    };
    let asked_fabric = hints.fabric.as_ref().and_then(|attr| attr.name.as_ref());
    let asked_domain = hints.domain.as_ref().and_then(|attr| attr.name.as_ref());
    fits(asked_fabric, fabric, interface.map(|i| &i.network))
        && fits(asked_domain, domain, interface.map(|i| &i.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(format: u32, source: &str, dest: &str) -> Info {
        let bytes = |text: &str| match text.parse::<SocketAddr>() {
            Ok(addr) => sockaddr::encode(&addr).as_bytes().to_vec(),
            Err(_) => Vec::new(),
        };
        Info {
            addr_format: format,
            src_addr: bytes(source),
            dest_addr: bytes(dest),
            ..Info::default()
        }
    }

    #[test]
    fn the_scope_tells_interfaces_with_one_link_local_address_apart() {
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        assert!(is_at(&at("[fe80::1%3]:0"), &at("[fe80::1%3]:7")));
        assert!(is_at(&at("[fe80::1%3]:0"), &at("[fe80::1]:7")));
        assert!(!is_at(&at("[fe80::1%3]:0"), &at("[fe80::1%4]:7")));
        assert!(!is_at(&at("[fe80::1%3]:0"), &at("[fe80::2%3]:7")));
        assert!(is_at(&at("10.0.0.1:0"), &at("10.0.0.1:7")));
    }

    /// The socket is returned before it is connected (`FI_GET_FD`), so it must have the family of
    /// its destination.
    #[test]
    fn an_endpoint_connects_from_an_address_that_reaches_its_peer() {
        let (four, six) = ("127.0.0.1:7", "[::1]:7");
        for (info, expected) in [
            (info(FI_SOCKADDR, "", four), "0.0.0.0:0"),
            (info(FI_SOCKADDR, "", six), "[::]:0"),
            (info(FI_SOCKADDR_IN, "", six), "[::]:0"),
            (info(FI_SOCKADDR_IN6, "", six), "[::]:0"),
            (info(FI_SOCKADDR_IN6, "", four), "0.0.0.0:0"),
            // The peer is unknown.
            (info(FI_SOCKADDR_IN6, "", ""), "[::]:0"),
            (info(FI_SOCKADDR_IN, "", ""), "0.0.0.0:0"),
            // The application's address is kept if it can be used.
            (info(FI_SOCKADDR, "127.0.0.2:9", four), "127.0.0.2:9"),
            (info(FI_SOCKADDR, "[::1]:9", six), "[::1]:9"),
            (info(FI_SOCKADDR, "127.0.0.2:9", six), "[::]:0"),
        ] {
            let source = source_towards_destination(&info);
            assert_eq!(source, expected.parse().unwrap(), "{info:?}");
        }
    }

    #[test]
    fn the_interfaces_that_there_are_are_named_where_none_fits() {
        let named = |name: &str| Hints {
            domain: Some(DomainAttr {
                name: Some(name.into()),
                ..DomainAttr::default()
            }),
            ..Hints::default()
        };
        let none = Ends {
            src: None,
            dest: None,
        };
        let interface = |name: &str, addr: &str| Interface {
            name: name.into(),
            network: format!("network of {name}"),
            addr: addr.parse().unwrap(),
            speed: 0,
            loopback: name == "lo",
        };
        let here = [
            interface("eth0", "10.0.0.1:0"),
            interface("lo", "127.0.0.1:0"),
        ];
        let text = |hints: &Hints| no_interface(hints, &Info::default(), &none, &here).to_string();
        assert_eq!(
            text(&named("no-such-domain")),
            "domain_attr->name: asked for \"no-such-domain\", supported is \"eth0\", \"lo\"; ask \
             for \"eth0\", \"lo\" or leave it unset"
        );
        let mut hints = named("lo");
        hints.addr_format = FI_SOCKADDR_IN6;
        assert!(
            text(&hints).starts_with("addr_format: asked for "),
            "{}",
            text(&hints)
        );
        hints.addr_format = FI_FORMAT_UNSPEC;
        hints.caps = FI_MSG | FI_REMOTE_COMM;
        assert!(
            text(&hints).starts_with("caps: asked for "),
            "{}",
            text(&hints)
        );
    }
}
