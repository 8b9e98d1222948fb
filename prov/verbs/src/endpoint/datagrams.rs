//! Endpoints that send datagrams to many (`FI_EP_DGRAM`).

mod peers;

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use fabric_abi::{FI_MSG_PREFIX, fi_addr_t};
use prov_base::buffer::{AppIov, Part};
use prov_base::errno::{Errno, Result};
use prov_device::QueuePair as _;
use prov_util::attr::Info;
use prov_util::av::Av;
use prov_util::av::format::Address;
use prov_util::endpoint::Bindings;
use prov_util::ffi::Use;

use crate::device::{AddressHandle, Destination, Gather, PREFIX, QueuePair, Scratch};
use crate::lane::{Seat, SharedReceive};
use crate::name::Name;
use crate::name_server;
use crate::resources::Resources;

use peers::{Peer, Peers};

/// The key (Q_Key) of all endpoints, also of the C library's.
pub const KEY: u32 = 0x1111_1111;

/// The state of a datagram endpoint besides its queue pair.
pub struct Datagrams {
    gid_index: u8,
    service: u16,
    /// The port of the name server to which it is announced.
    name_server: Option<u16>,
    /// Memory for the device's header if messages have no space for it.
    scratch: Option<Scratch>,
    av: OnceLock<Use<Av>>,
    name: OnceLock<Name>,
    /// The peers that it has sent to, by their indexes in the address vector, which may refer to
    /// other peers since.
    peers: Mutex<Peers>,
}

impl Datagrams {
    /// Creates an endpoint with these attributes.
    pub fn open(domain: &Resources, info: &Info) -> Result<Self> {
        let own = Name::decode(&info.src_addr);
        let leaves_room = (info.mode | info.rx.mode) & FI_MSG_PREFIX != 0;
        let scratch = match leaves_room {
            true => None,
            false => Some(Scratch::new(&domain.pd)?),
        };
        Ok(Datagrams {
            gid_index: u8::try_from(domain.params.gid_idx).map_err(|_| Errno::EINVAL)?,
            service: own.map_or(0, |name| name.service),
            name_server: domain.params.name_server(),
            scratch,
            av: OnceLock::new(),
            name: OnceLock::new(),
            peers: Mutex::default(),
        })
    }

    /// Stores the address vector. `-FI_ENOAV` without one.
    pub fn enable(&self, bindings: &Bindings<SharedReceive>) -> Result {
        let av = bindings.av.clone().ok_or(Errno::ENOAV)?;
        self.av.get_or_init(|| av);
        Ok(())
    }

    /// Makes the queue pair send and receive.
    pub fn open_pair(&self, domain: &Resources, pair: &QueuePair) -> Result {
        pair.open_for_datagrams(domain.port_number, KEY)
    }

    /// Sets the endpoint's name, which contains the number of this queue pair.
    pub fn named(&self, domain: &Resources, pair: &QueuePair) -> Result {
        let port = domain.port_number;
        // The domain may have been opened while the link was down.
        let now = domain.context.port(port)?;
        let name = Name {
            gid: domain.context.gid(port, self.gid_index.into())?,
            pair: pair.number(),
            lid: now.lid,
            partition: domain.context.partition_key(port, 0)?,
            service: self.service,
            service_level: now.service_level,
        };
        self.name.get_or_init(|| name);
        if let Some(port) = self.name_server {
            name_server::announce(port, self.service, &name, false);
        }
        Ok(())
    }

    /// Handles the closing of the endpoint.
    pub fn close(&self) {
        if let (Some(port), Some(name)) = (self.name_server, self.name.get()) {
            name_server::announce(port, self.service, name, true);
        }
    }

    /// Returns the number of bytes before messages that the application does not get.
    pub fn skipped(&self) -> usize {
        match self.scratch {
            Some(_) => PREFIX,
            None => 0,
        }
    }

    /// Adds the space for the device's header to the memory of a receive.
    pub fn receive_into(&self, local: &mut Gather) -> Result {
        match &self.scratch {
            Some(scratch) => local.lead_by(scratch, PREFIX),
            None => Ok(()),
        }
    }

    /// Returns the endpoint's own address. `-FI_EOPBADSTATE` until it is enabled.
    pub fn name(&self) -> Result<Vec<u8>> {
        let name = self.name.get().ok_or(Errno::EOPBADSTATE)?;
        Ok(name.encode().to_vec())
    }

    /// Returns the peer with this index in the address vector, for sends of `seat`.
    pub fn peer(&self, domain: &Resources, seat: &Seat, number: fi_addr_t) -> Result<Arc<Peer>> {
        let av = self.av.get().ok_or(Errno::EOPBADSTATE)?;
        let decode = |address: Address<'_>| match address {
            Address::Bytes(bytes) => Name::decode(bytes),
            Address::Internet(_) => None,
        };
        let name = av.with_address(number, decode).flatten();
        let name = name.ok_or(Errno::EINVAL)?;
        let mut peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(peer) = peers.find(number, &name) {
            return Ok(peer.clone());
        }
        let to = Destination {
            gid: name.has_gid().then_some(name.gid),
            lid: name.lid,
            service_level: name.service_level,
            port: domain.port_number,
            gid_index: self.gid_index,
        };
        let handle = AddressHandle::new(&domain.pd, &to)?;
        Ok(peers.add(number, name, handle, seat))
    }

    /// Returns a message without its prefix (`FI_MSG_PREFIX`). `-FI_EINVAL` for one that is shorter
    /// than the prefix.
    pub fn without_prefix<'a>(&self, message: &'a AppIov) -> Result<Part<'a, 'static>> {
        if self.scratch.is_some() {
            return Ok(message.view());
        }
        match message.len().checked_sub(PREFIX) {
            Some(len) => Ok(message.slice(PREFIX, len)),
            None => Err(Errno::EINVAL),
        }
    }
}
