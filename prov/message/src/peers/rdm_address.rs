//! Addresses of RDM endpoints that listen at a port, among them the contexts of scalable endpoints
//! (fi_endpoint(3)).

use std::fmt;
use std::net::SocketAddr;
use std::sync::Weak;

use prov_base::sockaddr;
use prov_util::av::{Av, Observer};
use prov_util::ffi::Use;

use super::AddressVector;
use crate::attributes::MOST_CONTEXTS;

/// Where an RDM endpoint listens, and which context of a scalable endpoint it is: 0 is the first
/// one, and any other endpoint. The contexts listen at ports in a row, so that the first port,
/// which is in the scalable endpoint's address, leads to all of them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RdmAddress {
    pub at: SocketAddr,
    pub context: u8,
}

impl RdmAddress {
    /// Returns the address of an endpoint that announces itself as this context at this address;
    /// `None` if there can be no such context.
    pub fn new(at: SocketAddr, context: u8) -> Option<Self> {
        let place = RdmAddress { at, context };
        let is_context = usize::from(context) < MOST_CONTEXTS && place.base().is_some();
        (context == 0 || is_context).then_some(place)
    }

    /// A context of the scalable endpoint with this address; `None` where there is none.
    fn of_context(mut base: SocketAddr, context: u32) -> Option<Self> {
        let context = u8::try_from(context).ok()?;
        base.set_port(base.port().checked_add(context.into())?);
        RdmAddress::new(base, context)
    }

    /// The address of the scalable endpoint that it is a context of.
    fn base(&self) -> Option<SocketAddr> {
        let port = self.at.port().checked_sub(self.context.into());
        let mut base = self.at;
        base.set_port(port.filter(|port| *port != 0 || self.context == 0)?);
        Some(base)
    }
}

impl RdmAddress {
    /// The same without the scope of its internet address; `None` if it has none.
    pub fn without_scope(&self) -> Option<Self> {
        let at = sockaddr::without_scope(&self.at)?;
        Some(RdmAddress { at, ..*self })
    }
}

impl From<SocketAddr> for RdmAddress {
    fn from(at: SocketAddr) -> Self {
        RdmAddress { at, context: 0 }
    }
}

impl fmt::Display for RdmAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.context {
            0 => write!(f, "{}", self.at),
            context => write!(f, "{} (context {context})", self.at),
        }
    }
}

/// An address vector of such addresses, whose indexes may include a context (`fi_rx_addr(3)`).
pub struct RdmVector(pub Use<Av>);

impl AddressVector for RdmVector {
    type Address = RdmAddress;

    fn lookup(&self, fi_addr: u64) -> Option<RdmAddress> {
        let base = Av::lookup(&self.0, fi_addr)?;
        RdmAddress::of_context(base, self.0.context_of(fi_addr))
    }

    fn find(&self, place: &RdmAddress) -> Option<u64> {
        Av::find(&self.0, &place.base()?)
    }

    fn only_calls(&self, fi_addr: u64) -> bool {
        Av::only_calls(&self.0, fi_addr)
    }

    fn len(&self) -> usize {
        Av::len(&self.0)
    }

    fn observe(&self, observer: Weak<dyn Observer>) {
        Av::observe(&self.0, observer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_listen_at_the_ports_after_the_first() {
        let base = SocketAddr::from(([10, 0, 0, 1], 5000));
        for context in [0, 1, 63] {
            let place = RdmAddress::of_context(base, context).unwrap();
            assert_eq!(u32::from(place.at.port()), 5000 + context);
            assert_eq!(place.base(), Some(base));
            assert_eq!(RdmAddress::new(place.at, context as u8), Some(place));
        }
        for none in [MOST_CONTEXTS as u32, 256, u32::MAX] {
            assert_eq!(RdmAddress::of_context(base, none), None);
        }
    }

    #[test]
    fn no_context_is_at_a_port_that_has_none_in_front_of_it() {
        let at = |port| SocketAddr::from(([10, 0, 0, 1], port));
        assert_eq!(RdmAddress::new(at(3), 3), None);
        assert_eq!(RdmAddress::new(at(2), 3), None);
        assert!(RdmAddress::new(at(4), 3).is_some());
        assert_eq!(RdmAddress::new(at(5000), MOST_CONTEXTS as u8), None);
        assert_eq!(RdmAddress::of_context(at(u16::MAX), 1), None);
    }
}
