//! Resolves names of nodes and services to addresses: a safe interface to getaddrinfo(3).

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, CString};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::ptr::NonNull;

use crate::errno::{Errno, Result};
use crate::sockaddr;
use crate::uncancelled::Uncancelled;

/// What to look up.
#[derive(Clone, Copy, Debug, Default)]
pub struct Query<'a> {
    /// Host name or address; `None` means the local node.
    pub node: Option<&'a CStr>,
    /// Service name or port number; `None` means port 0.
    pub service: Option<&'a CStr>,
    /// `AF_INET`, `AF_INET6`, or 0 for either.
    pub family: i32,
    /// Whether the address is to be listened at (`FI_SOURCE`): without a node it is the wildcard
    /// address, not the loopback one.
    pub passive: bool,
    /// Whether `node` must be an address, so that no name server is contacted (`FI_NUMERICHOST`).
    pub numeric: bool,
}

thread_local! {
    /// How many [`Memory`]s this thread has.
    static MEMORIES: Cell<usize> = const { Cell::new(0) };
    /// What was looked up since the first of them.
    static KNOWN: RefCell<Vec<Known>> = const { RefCell::new(Vec::new()) };
}

/// A query and its outcome.
struct Known {
    node: Option<CString>,
    service: Option<CString>,
    rest: (i32, bool, bool),
    outcome: Result<Vec<SocketAddr>>,
}

impl Known {
    fn answers(&self, query: &Query<'_>) -> bool {
        self.node.as_deref() == query.node
            && self.service.as_deref() == query.service
            && self.rest == (query.family, query.passive, query.numeric)
    }
}

/// While it lives, this thread asks for each name at most once: name servers that do not answer
/// take seconds, and several providers of one call of fi_getinfo(3) ask for the same name.
#[must_use]
pub struct Memory(());

impl Memory {
    /// Begins; one within another one has no effect.
    pub fn begin() -> Self {
        MEMORIES.set(MEMORIES.get() + 1);
        Memory(())
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        MEMORIES.set(MEMORIES.get() - 1);
        if MEMORIES.get() == 0 {
            let _ = KNOWN.try_with(RefCell::take);
        }
    }
}

/// [`look_up`], or what it has returned before.
fn remembered(query: &Query<'_>) -> Result<Vec<SocketAddr>> {
    // A thread whose variables are gone remembers nothing.
    let known = |known: &RefCell<Vec<Known>>| {
        let known = known.borrow();
        let found = known.iter().find(|known| known.answers(query));
        found.map(|found| found.outcome.clone())
    };
    if MEMORIES.get() == 0 {
        return look_up(query);
    }
    if let Ok(Some(outcome)) = KNOWN.try_with(known) {
        return outcome;
    }
    let outcome = look_up(query);
    let new = Known {
        node: query.node.map(CStr::to_owned),
        service: query.service.map(CStr::to_owned),
        rest: (query.family, query.passive, query.numeric),
        outcome: outcome.clone(),
    };
    let _ = KNOWN.try_with(|known| known.borrow_mut().push(new));
    outcome
}

/// Returns the addresses of a query, best first; `-FI_ENODATA` if there are none, `-FI_EAGAIN` if
/// the name server did not answer.
///
/// The node may be the string form of an address (`FI_ADDR_STR`), which is complete: a service
/// together with it is `-FI_EINVAL`.
pub fn resolve(query: &Query<'_>) -> Result<Vec<SocketAddr>> {
    if let Some(node) = query.node.and_then(|node| node.to_str().ok())
        && sockaddr::is_uri(node)
    {
        if query.service.is_some() {
            return Err(Errno::EINVAL);
        }
        let addr = sockaddr::parse(node).ok_or(Errno::ENODATA)?;
        let family = if addr.is_ipv4() {
            libc::AF_INET
        } else {
            libc::AF_INET6
        };
        return match query.family {
            0 => Ok(vec![addr]),
            asked if asked == family => Ok(vec![addr]),
            _ => Err(Errno::ENODATA),
        };
    }
    if query.node.is_none() && query.service.is_none() {
        return Err(Errno::EINVAL);
    }
    // The C library would take a port modulo 65536.
    if let Some(Ok(service)) = query.service.map(CStr::to_str)
        && service.parse::<u16>().is_err()
        && service.bytes().all(|byte| byte.is_ascii_digit())
        && !service.is_empty()
    {
        return Err(Errno::ENODATA);
    }
    remembered(query)
}

/// Asks the system.
fn look_up(query: &Query<'_>) -> Result<Vec<SocketAddr>> {
    let found = AddrInfo::look_up(query)?;
    let mut addrs = Vec::new();
    for addr in found.addresses() {
        if !addrs.contains(&addr) {
            addrs.push(addr);
        }
    }
    if addrs.is_empty() {
        Err(Errno::ENODATA)
    } else {
        Ok(addrs)
    }
}

/// Returns the local address, with port 0, from which packets to `dest` are sent.
pub fn source_towards(dest: &SocketAddr) -> Result<SocketAddr> {
    let any: IpAddr = match dest {
        SocketAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
    };
    // Connecting a datagram socket sends nothing; it only looks up the route. Port 0 is not a valid
    // destination; any other is.
    let mut dest = *dest;
    if dest.port() == 0 {
        dest.set_port(9);
    }
    let socket = UdpSocket::bind(SocketAddr::new(any, 0))?;
    socket.connect(dest)?;
    let mut source = socket.local_addr()?;
    source.set_port(0);
    Ok(source)
}

/// The IPv4 address, with port 0, that this host's name leads to.
///
/// # Errors
/// `-FI_ENODATA` where it leads to none.
pub fn own_address() -> Result<SocketAddr> {
    let host = rustix::system::uname();
    let found = resolve(&Query {
        node: Some(host.nodename()),
        family: libc::AF_INET,
        ..Query::default()
    })?;
    found.first().copied().ok_or(Errno::ENODATA)
}

/// A list that getaddrinfo(3) allocated.
struct AddrInfo(Option<NonNull<libc::addrinfo>>);

impl AddrInfo {
    fn look_up(query: &Query<'_>) -> Result<Self> {
        // SAFETY: the structure consists of integers and pointers, for which zero is a valid value.
        let mut hints: libc::addrinfo = unsafe { std::mem::zeroed() };
        hints.ai_family = query.family;
        hints.ai_socktype = libc::SOCK_STREAM;
        if query.passive {
            hints.ai_flags |= libc::AI_PASSIVE;
        }
        if query.numeric {
            hints.ai_flags |= libc::AI_NUMERICHOST;
        }
        let mut list = std::ptr::null_mut();
        let _uncancelled = Uncancelled::begin();
        let as_ptr = |text: Option<&CStr>| text.map_or(std::ptr::null(), CStr::as_ptr);
        // SAFETY: the names are terminated or null, and the caller passes at least one of them;
        // `hints` is initialized, and `list` is writable.
        let status = unsafe {
            libc::getaddrinfo(as_ptr(query.node), as_ptr(query.service), &hints, &mut list)
        };
        match status {
            0 => Ok(AddrInfo(NonNull::new(list))),
            libc::EAI_MEMORY => Err(Errno::ENOMEM),
            libc::EAI_AGAIN => Err(Errno::EAGAIN),
            libc::EAI_SYSTEM => Err(Errno::last_os_error()),
            _ => Err(Errno::ENODATA),
        }
    }

    fn addresses(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        let mut next = self.0;
        std::iter::from_fn(move || {
            // SAFETY: the pointer is an entry of the list, which lives until `self` is dropped.
            let entry = unsafe { next?.as_ref() };
            next = NonNull::new(entry.ai_next);
            let bytes = if entry.ai_addr.is_null() {
                &[][..]
            } else {
                // SAFETY: getaddrinfo(3) returns entries whose `ai_addr` points to `ai_addrlen`
                // bytes.
                unsafe {
                    std::slice::from_raw_parts(entry.ai_addr.cast(), entry.ai_addrlen as usize)
                }
            };
            Some(sockaddr::decode(bytes))
        })
        .flatten()
    }
}

impl Drop for AddrInfo {
    fn drop(&mut self) {
        if let Some(list) = self.0 {
            // SAFETY: the list is from getaddrinfo(3), is freed once, and has no borrowers left.
            unsafe { libc::freeaddrinfo(list.as_ptr()) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numeric_nodes_and_services_resolve() {
        let query = Query {
            node: Some(c"127.0.0.1"),
            service: Some(c"4711"),
            numeric: true,
            ..Query::default()
        };
        assert_eq!(
            resolve(&query).unwrap(),
            ["127.0.0.1:4711".parse().unwrap()]
        );
    }

    #[test]
    fn a_name_is_no_numeric_node() {
        let query = Query {
            node: Some(c"localhost"),
            numeric: true,
            ..Query::default()
        };
        assert_eq!(resolve(&query), Err(Errno::ENODATA));
    }

    #[test]
    fn a_port_beyond_the_last_is_no_service() {
        let query = Query {
            node: Some(c"127.0.0.1"),
            service: Some(c"65536"),
            ..Query::default()
        };
        assert_eq!(resolve(&query), Err(Errno::ENODATA));
    }

    #[test]
    fn a_passive_service_is_the_wildcard_address() {
        let query = Query {
            service: Some(c"4711"),
            family: libc::AF_INET,
            passive: true,
            ..Query::default()
        };
        assert_eq!(resolve(&query).unwrap(), ["0.0.0.0:4711".parse().unwrap()]);
    }

    #[test]
    fn a_string_address_stands_alone() {
        let mut query = Query {
            node: Some(c"fi_sockaddr_in://10.0.0.1:9"),
            ..Query::default()
        };
        assert_eq!(resolve(&query).unwrap(), ["10.0.0.1:9".parse().unwrap()]);
        query.family = libc::AF_INET6;
        assert_eq!(resolve(&query), Err(Errno::ENODATA));
        query.service = Some(c"9");
        assert_eq!(resolve(&query), Err(Errno::EINVAL));
    }

    #[test]
    fn the_source_towards_loopback_is_loopback() {
        let source = source_towards(&"127.0.0.1:0".parse().unwrap()).unwrap();
        assert_eq!(source, "127.0.0.1:0".parse().unwrap());
    }
}
