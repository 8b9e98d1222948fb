//! Addresses of endpoints: those of their datagram endpoints, whose format only the provider below
//! knows.

use std::fmt::{self, Display, Formatter};
use std::sync::Weak;

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
