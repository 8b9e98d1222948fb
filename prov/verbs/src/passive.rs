//! fi_passive_ep(3): listening, on all devices or on one.

use std::sync::Arc;

use prov_message::objects::{Door, Listening, Requests, SoftPassive};
use prov_util::attr::Info;
use prov_util::errno::{Errno, Result};
use prov_util::progress::Progress;

use crate::LOG;
use crate::address::{SocketAddress, space_of};
use crate::bases::adapt;
use crate::device::{Id, PortSpace};
use crate::manager::{DATA_LIMIT, EndKey, Incomer, Manager};
use crate::params::Params;

/// Connections that may wait to be noticed.
const BACKLOG: i32 = 128;

/// What a passive endpoint has.
pub struct Passive {
    params: Arc<Params>,
    manager: Arc<Manager>,
    space: PortSpace,
}

/// A passive endpoint.
pub type PassiveEndpoint = SoftPassive<Passive>;

/// What it has until it listens: an identifier that is bound.
#[derive(Default)]
pub struct Setup {
    pub id: Option<Id>,
}

impl Passive {
    /// An endpoint that is bound to the source address in `info`, where there is
    /// one.
    pub fn endpoint(
        params: Arc<Params>,
        manager: Arc<Manager>,
        requests: Arc<Requests<Incomer>>,
        info: &Info,
    ) -> Result<PassiveEndpoint> {
        let own = Passive {
            params,
            manager,
            space: space_of(info.addr_format),
        };
        let mut setup = Setup::default();
        if !info.src_addr.is_empty() {
            own.set_name(&mut setup, &info.src_addr)?;
        }
        Ok(SoftPassive::new(own, setup, requests, info))
    }
}

impl Listening for Passive {
    type Incomer = Incomer;
    type Setup = Setup;
    type Listener = EndKey;

    const LOG_TARGET: &'static str = LOG.ep_ctrl;
    const BACKLOG: i32 = BACKLOG;
    const DATA_LIMIT: usize = DATA_LIMIT;

    fn progress(&self) -> Arc<dyn Progress> {
        self.manager.clone()
    }

    fn listen(&self, setup: &mut Setup, door: Door<Incomer>, backlog: i32) -> Result<EndKey> {
        let id = setup.id.take().ok_or(Errno::EOPBADSTATE)?;
        let params = self.params.clone();
        let describe = move |incomer: &Incomer, info: &mut Info| {
            if let Some(context) = incomer.id.context() {
                adapt(info, &params, context);
            }
            if let Some(own) = incomer.id.local_address() {
                info.addr_format = own.format();
                info.src_addr = own.encode();
            }
        };
        self.manager.listen(id, door, backlog, Box::new(describe))
    }

    fn close(&self, setup: &mut Setup, listener: Option<EndKey>) {
        if let Some(key) = listener {
            self.manager.remove(key);
        }
        setup.id = None;
    }

    fn name(&self, setup: &Setup, listener: Option<&EndKey>) -> Result<Vec<u8>> {
        let address = match (&setup.id, listener) {
            (Some(id), _) => id.local_address(),
            (None, Some(&key)) => self.manager.with_id(key, Id::local_address).flatten(),
            (None, None) => None,
        };
        let address = address.ok_or(Errno::EADDRNOTAVAIL)?;
        Ok(address.encode())
    }

    fn set_name(&self, setup: &mut Setup, name: &[u8]) -> Result<Vec<u8>> {
        let address = SocketAddress::decode(name).ok_or(Errno::EINVAL)?;
        if address.space() != self.space {
            return Err(Errno::EINVAL);
        }
        // The one before may have the same port.
        setup.id = None;
        let mut id = Id::waiting(self.space)?;
        id.bind(&address)?;
        let bound = id.local_address().unwrap_or(address);
        setup.id = Some(id);
        Ok(bound.encode())
    }

    fn refuse(&self, incomer: Incomer, data: &[u8]) {
        self.manager.refuse(incomer, data);
    }
}
