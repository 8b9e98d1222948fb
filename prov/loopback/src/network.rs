//! The endpoints of the process, by address, and operations between them.

use prov_base::errno::{Errno, Result};
use prov_message::{Action, Core, Endpoints, EpKey, Far, NoErrand, Own, Sources, Within};
use prov_util::request::{Atomic, RemoteAccess, Transmit};
use slotmap::{Key, KeyData};

use crate::SIZES;

const PREFIX: &str = "fi_loopback://";
/// Length of the longest address in bytes, without the zero at the end.
pub const LONGEST_ADDRESS: usize = PREFIX.len() + 20;

/// Returns the address of an endpoint: its key in the lane, as text.
pub fn address(ep: EpKey) -> String {
    format!("{PREFIX}{}", ep.data().as_ffi())
}

/// Returns the endpoint that has, had or could have an address.
pub fn endpoint_at(address: &[u8]) -> Option<EpKey> {
    let number = str::from_utf8(address).ok()?.strip_prefix(PREFIX)?;
    Some(KeyData::from_ffi(number.parse().ok()?).into())
}

/// See the [module](self) description.
#[derive(Default)]
pub struct Network {
    endpoints: Endpoints<Within>,
    own: Own,
}

impl Network {
    /// Returns the endpoint to which `fi_addr` refers for endpoint `ep`, if there is one.
    fn find(&self, ep: EpKey, fi_addr: u64) -> Result<Option<Far>> {
        let from = self.endpoints.get(ep).ok_or(Errno::EOPBADSTATE)?;
        let key = from.own.names.with(fi_addr, endpoint_at);
        Ok(key.ok_or(Errno::EINVAL)?.and_then(|far| {
            let names = &self.endpoints.get(far)?.own.names;
            let src = names.source(address(ep).as_bytes());
            Some(Far { ep: far, src })
        }))
    }
}

impl Core for Network {
    type Transport = Within;
    type Errand = NoErrand;
    type Sources = Names;
    const IS_DRIVEN: bool = false;

    fn endpoints(&mut self) -> &mut Endpoints<Within> {
        &mut self.endpoints
    }

    fn transmit(&mut self, ep: EpKey, message: &mut Transmit) -> Result {
        SIZES.check_message(message)?;
        let far = self.find(ep, message.peer)?;
        let endpoints = &mut self.endpoints;
        self.own.transmit(endpoints, message, ep, far)?;
        self.follow_up();
        Ok(())
    }

    fn access(&mut self, ep: EpKey, access: &mut RemoteAccess) -> Result {
        SIZES.check_access(access)?;
        let far = self.find(ep, access.peer)?;
        Own::access(&mut self.endpoints, ep, far, access);
        Ok(())
    }

    fn atomic(&mut self, ep: EpKey, atomic: &mut Atomic) -> Result {
        SIZES.check_atomic(atomic)?;
        let far = self.find(ep, atomic.peer)?;
        Own::atomic(&mut self.endpoints, ep, far, atomic);
        Ok(())
    }

    fn act(&mut self, action: Action<Within>) {
        self.own.act(&mut self.endpoints, action);
    }

    fn close(&mut self, ep: EpKey) {
        self.own.close(&mut self.endpoints, ep);
    }
}

/// The sources of messages: endpoints, as the address vectors refer to them.
pub enum Names {}

impl Sources<Network> for Names {
    fn expects(network: &mut Network, ep: EpKey) -> bool {
        Own::follow(&mut network.endpoints, ep, address);
        network.follow_up();
        false
    }
}
