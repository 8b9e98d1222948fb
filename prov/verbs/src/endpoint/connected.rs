//! The connections of endpoints (`FI_EP_MSG`): those of the fabric's manager.

use std::sync::Arc;

use prov_base::errno::{Errno, Result};
use prov_device::connected::{self, Connections, Parts};
use prov_device::link::EndKey;
use prov_message::objects::Requests;
use prov_util::attr::Info;
use prov_util::ffi::pep::PassiveObject;

use crate::address::{SocketAddress, space_of};
use crate::device::{Id, QueuePair};
use crate::lane::Seats;
use crate::manager::{EndConfig, EndParts, Incomer, XRC_DATA_LIMIT, XrcEnd};
use crate::passive::PassiveEndpoint;
use crate::resources::Resources;

/// The state of a connected endpoint besides its queue pair.
pub type Connected = connected::Connected<Resources>;

/// What an endpoint provides for a connection.
pub struct End {
    /// Its queue pair.
    pub pair: Arc<QueuePair>,
    /// Its lane members.
    pub seats: Seats,
    /// Whether its receives are shared.
    pub is_shared: bool,
    /// Its XRC objects.
    pub xrc: Option<XrcEnd>,
}

impl Connections for Resources {
    type Bound = Id;
    type Incomer = Incomer;
    type End = End;

    fn requests(&self) -> &Requests<Incomer> {
        &self.requests
    }

    fn bind(&self, info: &Info, address: &[u8]) -> Result<Id> {
        let address = decode(info, address)?;
        let mut bound = Id::waiting(address.space())?;
        bound.bind(&address)?;
        Ok(bound)
    }

    fn bound_address(&self, bound: &Id) -> Option<Vec<u8>> {
        encode(bound.local_address())
    }

    fn incoming_addresses(&self, incomer: &Incomer) -> [Option<Vec<u8>>; 2] {
        let id = &incomer.id;
        [encode(id.local_address()), encode(id.peer_address())]
    }

    fn connect(
        &self,
        parts: Parts<End>,
        info: &Info,
        bound: &mut Option<Id>,
        peer: &[u8],
        data: &[u8],
    ) -> Result<EndKey> {
        let peer = decode(info, peer)?;
        let own = SocketAddress::decode(&info.src_addr);
        let (parts, xrc) = self.parts(parts);
        match xrc {
            None => (self.manager).connect(parts, bound.take(), own.as_ref(), &peer, data),
            Some(_) if data.len() > XRC_DATA_LIMIT => Err(Errno::EINVAL),
            Some(xrc) => {
                // Identifiers are created when they are needed: the address is sufficient.
                let bound = bound.take().and_then(|id| id.local_address());
                let own = bound.or(own);
                (self.manager).connect_xrc(parts, xrc, own.as_ref(), &peer, data)
            }
        }
    }

    fn accept(
        &self,
        parts: Parts<End>,
        incomer: Incomer,
        data: &[u8],
    ) -> std::result::Result<EndKey, (Errno, Option<Incomer>)> {
        let (parts, xrc) = self.parts(parts);
        match xrc {
            None => self.manager.accept(parts, incomer, data),
            Some(_) if data.len() > XRC_DATA_LIMIT => Err((Errno::EINVAL, Some(incomer))),
            Some(xrc) => self.manager.accept_xrc(parts, xrc, incomer, data),
        }
    }

    fn shut_down(&self, key: EndKey) -> Result {
        self.manager.shut_down(key)
    }

    fn remove(&self, key: EndKey) {
        self.manager.remove(key);
    }

    fn addresses(&self, key: EndKey) -> [Option<Vec<u8>>; 2] {
        let manager = &self.manager;
        [
            encode(manager.local_address(key)),
            encode(manager.peer_address(key)),
        ]
    }
}

impl Resources {
    fn parts(&self, parts: Parts<End>) -> (EndParts, Option<XrcEnd>) {
        let Parts { end, link, events } = parts;
        let parts = EndParts {
            pair: end.pair,
            seats: end.seats,
            link,
            events,
            config: EndConfig {
                context: self.context,
                is_shared: end.is_shared,
                terms: self.terms(),
            },
        };
        (parts, end.xrc)
    }
}

/// Decodes an address for an endpoint with these attributes. `-FI_EINVAL` for another kind of
/// address.
fn decode(info: &Info, address: &[u8]) -> Result<SocketAddress> {
    let address = SocketAddress::decode(address).ok_or(Errno::EINVAL)?;
    match address.space() == space_of(info.addr_format) {
        true => Ok(address),
        false => Err(Errno::EINVAL),
    }
}

fn encode(address: Option<SocketAddress>) -> Option<Vec<u8>> {
    Some(address?.encode())
}

/// Returns the bound identifier of a passive endpoint that does not listen.
pub fn id_of_passive(info: &Info) -> Result<Id> {
    let passive = PassiveObject::<PassiveEndpoint>::of_info(info)?;
    let id = passive.with_setup(|setup| setup.id.take());
    id.ok_or(Errno::EOPBADSTATE)
}
