//! fi_getinfo(3): the matching endpoints, with their addresses.
//!
//! Connected endpoints have the addresses of their devices that RDMA CM reports; it also finds the
//! device that leads to a peer.

mod datagrams;

use fabric_abi::*;
use prov_base::errno::{Errno, Result};
use prov_base::netif;
use prov_base::resolve::{self, Query};
use prov_device::modes;
use prov_util::attr::{Base, Ends, Hints, Info, Request, address_format_fits};

use crate::address::SocketAddress;
use crate::bases::{bases, datagrams_domain, xrc_domain};
use crate::device::Id;
use crate::params::{Params, is_listed};

/// Time limit in milliseconds for RDMA CM to find the device that leads to a peer.
const RESOLVING_MS: i32 = 2000;

/// An address of this host that connections can use as their source.
#[derive(Clone, Debug)]
struct Own {
    address: SocketAddress,
    device: String,
}

/// See the [module](self) description.
pub fn getinfo(request: &Request<'_>, params: &Params) -> Result<Vec<Info>> {
    let bases = bases(params);
    if bases.is_empty() {
        request.refuse(&"there is no RDMA device that can be used");
        return Err(Errno::ENODATA);
    }
    let bases = modes::for_request(request, bases);
    let (connected, datagrams): (Vec<Base>, Vec<Base>) = bases
        .into_iter()
        .partition(|base| base.limits.ep.ep_type == FI_EP_MSG);
    let connected = getinfo_connected(request, params, &connected);
    let datagrams = datagrams::getinfo(request, params, &datagrams);
    match (connected, datagrams) {
        (Ok(connected), Ok(datagrams)) => Ok([connected, datagrams].concat()),
        (Ok(infos), Err(_)) | (Err(_), Ok(infos)) => Ok(infos),
        (Err(error), Err(_)) => Err(error),
    }
}

fn getinfo_connected(request: &Request<'_>, params: &Params, bases: &[Base]) -> Result<Vec<Info>> {
    let bases = with_shared_receives(request.hints, bases);
    let fitting = request.fitting(&bases)?;
    let ends = request.ends(|| look_up(request), SocketAddress::decode)?;
    let own = own_addresses(params);
    let mut infos = Vec::new();
    match reach(&ends, &own)? {
        // The caller names no address.
        None => {
            for info in &fitting {
                let here = own.iter().filter(|own| is_of(info, &own.device));
                infos.extend(here.map(|own| with(info, &ends, Some(&own.address))));
            }
        }
        Some(source) => {
            for info in &fitting {
                if source
                    .device
                    .as_deref()
                    .is_none_or(|device| is_of(info, device))
                {
                    infos.push(with(info, &ends, source.address.as_ref()));
                }
            }
        }
    }
    infos.retain(|info| fits(request.hints, info));
    if infos.is_empty() {
        request.refuse(&format_args!(
            "no address of an RDMA device fits the hints' fabric, domain and address format; \
             fi_info -p verbs lists what there is"
        ));
        return Err(Errno::ENODATA);
    }
    Ok(infos)
}

/// Adds XRC for callers that request shared receives, or that give no hints at all.
fn with_shared_receives(hints: Option<&Hints>, bases: &[Base]) -> Vec<Base> {
    let ep = hints.map(|hints| hints.ep.clone().unwrap_or_default());
    let wants_xrc = ep.is_none_or(|ep| {
        ep.rx_ctx_cnt == FI_SHARED_CONTEXT || ep.protocol == FI_PROTO_RDMA_CM_IB_XRC
    });
    let mut bases = bases.to_vec();
    bases.retain(|base| wants_xrc || base.limits.ep.protocol != FI_PROTO_RDMA_CM_IB_XRC);
    bases
}

fn is_of(info: &Info, device: &str) -> bool {
    let name = info.domain.name.as_deref();
    match is_xrc(info) {
        true => name == Some(&xrc_domain(device)),
        false => name == Some(device),
    }
}

fn is_xrc(info: &Info) -> bool {
    info.ep.protocol == FI_PROTO_RDMA_CM_IB_XRC
}

/// The device that the named addresses determine.
struct SourceDevice {
    /// The only possible device; `None` if any is.
    device: Option<String>,
    address: Option<SocketAddress>,
}

fn is_any(address: &SocketAddress) -> bool {
    match address {
        SocketAddress::Internet(address) => address.ip().is_unspecified(),
        SocketAddress::Infiniband(_) => false,
    }
}

fn reach(ends: &Ends<SocketAddress>, own: &[Own]) -> Result<Option<SourceDevice>> {
    match (&ends.src, &ends.dest) {
        (None, None) => Ok(None),
        (Some(src), None) if is_any(src) => Ok(Some(SourceDevice {
            device: None,
            address: Some(src.clone()),
        })),
        (Some(src), None) => {
            let device = own
                .iter()
                .find(|own| is_at(own, src))
                .map(|own| own.device.clone());
            let device = match device {
                Some(device) => device,
                None => device_of(None, src, false)?.device,
            };
            Ok(Some(SourceDevice {
                device: Some(device),
                address: Some(src.clone()),
            }))
        }
        (src, Some(dest)) => {
            let found = device_of(src.as_ref(), dest, true)?;
            Ok(Some(SourceDevice {
                device: Some(found.device),
                address: src.clone().or(found.address),
            }))
        }
    }
}

fn is_at(own: &Own, address: &SocketAddress) -> bool {
    match (&own.address, address) {
        (SocketAddress::Internet(own), SocketAddress::Internet(address)) => {
            own.ip() == address.ip()
        }
        (own, address) => own == address,
    }
}

/// Returns the domain for datagrams of the port with the node that the caller names as its own
/// (`FI_SOURCE`); `None` if any will do. `-FI_ENODATA` if there is none.
fn datagrams_source(request: &Request<'_>) -> Result<Option<String>> {
    if request.node.is_none() || request.flags & FI_SOURCE == 0 {
        return Ok(None);
    }
    let address = look_up(request)?;
    if is_any(&address) {
        return Ok(None);
    }
    let found = device_of(None, &address, false)?;
    Ok(Some(datagrams_domain(&found.device, found.port)))
}

/// The device of an address.
struct Found {
    device: String,
    port: u8,
    /// The source address.
    address: Option<SocketAddress>,
}

/// Returns the device that has an address, or that leads to it. `-FI_ENODATA` if there is none.
fn device_of(own: Option<&SocketAddress>, address: &SocketAddress, is_peer: bool) -> Result<Found> {
    let find = || {
        let mut id = Id::waiting(address.space())?;
        match is_peer {
            true => id.resolve(own, address, RESOLVING_MS)?,
            false => id.bind(&without_port(address))?,
        }
        let context = id.context().ok_or(Errno::ENODATA)?;
        Ok(Found {
            device: context.name(),
            port: id.port(),
            address: id.local_address().map(|own| without_port(&own)),
        })
    };
    find().map_err(|error: Errno| {
        log::info!(target: crate::LOG.fabric, "no device for {address:?}: {error}");
        Errno::ENODATA
    })
}

fn without_port(address: &SocketAddress) -> SocketAddress {
    match address {
        SocketAddress::Internet(address) => {
            let mut address = *address;
            address.set_port(0);
            SocketAddress::Internet(address)
        }
        other => other.clone(),
    }
}

/// Returns an entry with its addresses.
fn with(info: &Info, ends: &Ends<SocketAddress>, own: Option<&SocketAddress>) -> Info {
    let mut info = info.clone();
    let encode =
        |address: Option<&SocketAddress>| address.map_or_else(Vec::new, SocketAddress::encode);
    info.src_addr = encode(own);
    info.dest_addr = encode(ends.dest.as_ref());
    if let Some(address) = ends.dest.as_ref().or(own) {
        info.addr_format = address.format();
    }
    info
}

/// Whether names and address format are those that the caller requests.
fn fits(hints: Option<&Hints>, info: &Info) -> bool {
    let Some(hints) = hints else {
        return true;
    };
    let fabric = hints.fabric.as_ref().and_then(|attr| attr.name.as_ref());
    let domain = hints.domain.as_ref().and_then(|attr| attr.name.as_ref());
    let is = |asked: Option<&String>, own: &Option<String>| {
        asked.is_none_or(|asked| {
            let own = own.as_ref();
            own.is_some_and(|own| own.eq_ignore_ascii_case(asked))
        })
    };
    is(fabric, &info.fabric.name)
        && is(domain, &info.domain.name)
        && address_format_fits(hints.addr_format, info.addr_format)
        && !(is_xrc(info) && info.addr_format == FI_SOCKADDR_IB)
}

/// Returns the addresses of interfaces that belong to devices, as RDMA CM reports them.
fn own_addresses(params: &Params) -> Vec<Own> {
    let listed = |interface: &netif::Interface| is_listed(params.iface.as_deref(), &interface.name);
    let interfaces = netif::interfaces(None).into_iter();
    let usable = interfaces.filter(|interface| !interface.loopback && listed(interface));
    let mut own: Vec<Own> = usable
        .filter_map(|interface| {
            let address = SocketAddress::Internet(interface.addr);
            let device = device_of(None, &address, false).ok()?.device;
            Some(Own { address, device })
        })
        .collect();
    // Addresses of one device together, the preferred ones first.
    let mut devices = Vec::new();
    for own in &own {
        if !devices.contains(&own.device) {
            devices.push(own.device.clone());
        }
    }
    own.sort_by_key(|own| devices.iter().position(|device| *device == own.device));
    own
}

fn look_up(request: &Request<'_>) -> Result<SocketAddress> {
    let format = request.hints.map_or(0, |hints| hints.addr_format);
    if format == FI_SOCKADDR_IB {
        return crate::address::infiniband_named(request.node, request.service);
    }
    let family = match format {
        FI_SOCKADDR_IN => libc::AF_INET,
        FI_SOCKADDR_IN6 => libc::AF_INET6,
        _ => 0,
    };
    let found = resolve::resolve(&Query {
        node: request.node,
        service: request.service,
        family,
        passive: request.flags & FI_SOURCE != 0,
        numeric: request.flags & FI_NUMERICHOST != 0,
    });
    let found = found.map_err(|error| {
        log::info!(
            target: request.target,
            "cannot resolve node {:?} service {:?}: {error}",
            request.node,
            request.service
        );
        match error {
            Errno::EINVAL => Errno::EINVAL,
            _ => Errno::ENODATA,
        }
    })?;
    let first = found.into_iter().next().ok_or(Errno::ENODATA)?;
    Ok(SocketAddress::Internet(first))
}

#[cfg(test)]
mod tests {
    use prov_util::attr::EpAttr;

    use super::*;

    #[test]
    fn xrc_is_for_those_who_share_receives_or_name_it() {
        let base = |protocol| {
            let mut base = Base::default();
            base.limits.ep.protocol = protocol;
            base
        };
        let bases = [FI_PROTO_RDMA_CM_IB_RC, FI_PROTO_RDMA_CM_IB_XRC].map(base);
        let offered = |hints: Option<&Hints>| with_shared_receives(hints, &bases).len();
        let hints = |rx_ctx_cnt, protocol| Hints {
            ep: Some(EpAttr {
                rx_ctx_cnt,
                protocol,
                ..EpAttr::default()
            }),
            ..Hints::default()
        };
        assert_eq!(offered(None), 2);
        assert_eq!(offered(Some(&Hints::default())), 1);
        assert_eq!(offered(Some(&hints(1, FI_PROTO_UNSPEC))), 1);
        let shared = hints(FI_SHARED_CONTEXT, FI_PROTO_UNSPEC);
        assert_eq!(offered(Some(&shared)), 2);
        assert_eq!(offered(Some(&hints(0, FI_PROTO_RDMA_CM_IB_XRC))), 2);
    }
}
