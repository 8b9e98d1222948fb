//! Addresses of endpoints: those of their datagram endpoints, whose format only the provider below
//! knows.

use std::fmt::{self, Display, Formatter};
use std::net::SocketAddr;
use std::sync::Weak;

use prov_base::errno::Result;
use prov_base::resolve::source_towards;
use prov_base::sockaddr;
use prov_message::peers::AddressVector;
use prov_util::av::format::{self, Layout};
use prov_util::av::{Av, Observer};
use prov_util::ffi::Use;

use crate::protocol::{NAME_LEN, Name};

/// An address, as endpoints name themselves in the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Address(pub Name);

impl Address {
    /// Returns the address with these bytes; `None` if the protocol has no room for it.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        let mut name = [0; NAME_LEN];
        name.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(Address(name))
    }

    /// Returns the address as an endpoint with the address `own` reaches it. A link-local one has that
    /// endpoint's interface, since peers name themselves with the number of theirs; bytes that do not
    /// belong to the address are zero, so that a peer has one name and not as many as it likes.
    pub fn seen_from(&self, own: &[u8]) -> Self {
        if own.is_empty() {
            return *self;
        }
        let Some(own_addr) = sockaddr::decode(own) else {
            return Address::of(self.bytes(own.len())).unwrap_or(*self);
        };
        let Some(mut peer) = sockaddr::decode(&self.0) else {
            return *self;
        };
        if let SocketAddr::V6(peer) = &mut peer {
            peer.set_flowinfo(0);
            match own_addr {
                _ if !peer.ip().is_unicast_link_local() => peer.set_scope_id(0),
                SocketAddr::V6(own) if own.scope_id() != 0 => peer.set_scope_id(own.scope_id()),
                _ => {}
            }
        }
        Address::of(sockaddr::encode(&peer).as_bytes()).unwrap_or(*self)
    }

    /// Returns what the addresses of one host have in common: the address without the port, of IPv6 the
    /// network of 64 bits, of which somebody has all addresses. Of another format, all of it.
    pub fn host(&self) -> Self {
        let Some(mut addr) = sockaddr::decode(&self.0) else {
            return *self;
        };
        addr.set_port(0);
        if let SocketAddr::V6(addr) = &mut addr {
            let network = u128::from(*addr.ip()) & !u128::from(u64::MAX);
            addr.set_ip(network.into());
        }
        Address::of(sockaddr::encode(&addr).as_bytes()).unwrap_or(*self)
    }

    /// Returns the first bytes, which are the address in a format with addresses of this length.
    pub fn bytes(&self, len: usize) -> &[u8] {
        self.0.get(..len).unwrap_or(&self.0)
    }
}

impl Display for Address {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Some(addr) = sockaddr::decode(&self.0) {
            return addr.fmt(f);
        }
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// What an endpoint calls itself.
#[derive(Clone, Default)]
pub struct OwnName {
    /// The address that its datagram endpoint is bound to.
    pub bound: Vec<u8>,
    /// The address that fi_getname(3) returns.
    pub told: Vec<u8>,
}

impl OwnName {
    /// The name of an endpoint with this address. If that is every address of the host, others need one
    /// to send to: that which `host` returns.
    pub fn of(bound: Vec<u8>, host: impl FnOnce() -> Result<Vec<u8>>) -> Self {
        let at = |port| host().map(|host| sockaddr::at_port(&host, port)).ok();
        let told = port_of_wildcard(&bound).and_then(at);
        OwnName {
            told: told.unwrap_or_else(|| bound.clone()),
            bound,
        }
    }

    /// Returns the name that a peer with this address is told, if it is not the same for all: the source
    /// of the datagrams that it gets, so that it recognises them.
    pub fn towards(&self, peer: &Name) -> Option<Name> {
        let port = port_of_wildcard(&self.bound)?;
        let mut source = source_towards(&sockaddr::decode(peer)?).ok()?;
        source.set_port(port);
        Some(Address::of(sockaddr::encode(&source).as_bytes())?.0)
    }
}

/// Returns the port of the internet address that stands for every address of the host; `None` for any
/// other address.
fn port_of_wildcard(addr: &[u8]) -> Option<u16> {
    let addr = sockaddr::decode(addr)?;
    addr.ip().is_unspecified().then_some(addr.port())
}

/// An address vector (fi_av(3)) whose addresses are those of the provider below.
pub struct Vector(pub Use<Av>);

impl AddressVector for Vector {
    type Address = Address;

    fn lookup(&self, fi_addr: u64) -> Option<Address> {
        let read = |addr: format::Address<'_>| match addr {
            format::Address::Internet(addr) => Address::of(sockaddr::encode(&addr).as_bytes()),
            format::Address::Bytes(bytes) => Address::of(bytes),
        };
        self.0.with_address(fi_addr, read).flatten()
    }

    fn find(&self, addr: &Address) -> Option<u64> {
        let bytes = match self.0.format().layout() {
            Layout::Internet | Layout::InternetText => {
                let addr = sockaddr::decode(&addr.0)?;
                // The application may have inserted a link-local address without its interface.
                let anywhere = || self.0.find(&sockaddr::without_scope(&addr)?);
                return self.0.find(&addr).or_else(anywhere);
            }
            Layout::Fixed(len) => addr.bytes(len),
            Layout::Text { .. } | Layout::Composite { .. } => {
                let end = addr.0.iter().position(|byte| *byte == 0);
                addr.bytes(end.unwrap_or(NAME_LEN))
            }
        };
        self.0.find_address(format::Address::Bytes(bytes))
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn observe(&self, observer: Weak<dyn Observer>) {
        self.0.observe(observer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Address {
        let addr: SocketAddr = text.parse().unwrap();
        Address::of(sockaddr::encode(&addr).as_bytes()).unwrap()
    }

    #[test]
    fn a_link_local_peer_is_reached_through_the_endpoints_own_interface() {
        let own = address("[fe80::1%7]:1");
        for (peer, seen) in [
            ("[fe80::2%3]:9", "[fe80::2%7]:9"),
            ("[fe80::2]:9", "[fe80::2%7]:9"),
            ("[fd00::2]:9", "[fd00::2]:9"),
            ("10.0.0.2:9", "10.0.0.2:9"),
        ] {
            assert_eq!(address(peer).seen_from(&own.0), address(seen), "{peer}");
        }
        let other = address("[fe80::2%3]:9");
        assert_eq!(other.seen_from(&address("[fd00::1]:1").0), other);
        assert_eq!(other.seen_from(&[]), other);
    }

    #[test]
    fn a_host_has_one_address_whatever_the_port_and_a_network_of_its_own() {
        for (one, other) in [
            ("10.0.0.2:9", "10.0.0.2:10"),
            ("[fd00::1]:9", "[fd00::8000:0:0:1]:10"),
        ] {
            assert_eq!(address(one).host(), address(other).host());
        }
        for (one, other) in [
            ("10.0.0.2:9", "10.0.0.3:9"),
            ("[fd00:0:0:1::1]:9", "[fd00::1]:9"),
        ] {
            assert_ne!(address(one).host(), address(other).host());
        }
        let other = Address([9; NAME_LEN]);
        assert_eq!(other.host(), other);
    }

    #[test]
    fn bytes_that_do_not_belong_to_an_address_make_no_other_one_of_it() {
        for (own, peer, junk) in [
            ("10.0.0.1:1", "10.0.0.2:9", 8..NAME_LEN),
            ("[fd00::1]:1", "[fd00::2]:9", 4..8),
            ("[fd00::1]:1", "[fd00::2]:9", 24..NAME_LEN),
        ] {
            let (own, peer) = (address(own), address(peer));
            let mut other = peer;
            other.0[junk].fill(7);
            assert_eq!(other.seen_from(&own.0), peer);
        }
        // An address of another format has as many bytes as the endpoint's own.
        let (peer, mut other) = (Address::of(&[9; 20]).unwrap(), [9; NAME_LEN]);
        other[20..].fill(7);
        assert_eq!(Address(other).seen_from(&[8; 20]), peer);
    }

    #[test]
    fn an_address_has_the_bytes_of_its_format_and_no_more_than_the_protocol() {
        let ipv4 = address("10.0.0.2:9");
        let len = sockaddr::encode(&"10.0.0.2:9".parse().unwrap())
            .as_bytes()
            .len();
        assert_eq!(Address::of(ipv4.bytes(len)), Some(ipv4));
        assert_eq!(ipv4.to_string(), "10.0.0.2:9");
        assert!(Address::of(&[1; NAME_LEN]).is_some());
        assert_eq!(Address::of(&[1; NAME_LEN + 1]), None);
        assert_eq!(
            Address::of(&[0xab; 2]).unwrap().to_string().len(),
            2 * NAME_LEN
        );
    }
}
