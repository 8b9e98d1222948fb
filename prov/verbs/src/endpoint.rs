//! fi_endpoint(3): an endpoint on a queue pair.

mod connected;
mod datagrams;
mod enabling;

use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use fabric_abi::{FI_OPT_CM_DATA_SIZE, FI_SHARED_CONTEXT, fi_addr_t};
use prov_base::errno::{Errno, Result};
use prov_base::process::Process;
use prov_device::posting::{ATOMICS, operation};
use prov_device::{EndpointProgress, Keys, Local as _, Posted, Sizes};
use prov_util::attr::Info;
use prov_util::endpoint::{self, Bindings, OptionValue};
use prov_util::ffi::Handle;
use prov_util::ffi::ep::EndpointObject;
use prov_util::progress::Progress;
use prov_util::request::{Atomic, Receive, RemoteAccess, Transmit};

use crate::device::{Gather, QueuePair, Verb};
use crate::lane::{Seat, Seats, SharedReceive, Work};
use crate::manager::{DATA_LIMIT, XRC_DATA_LIMIT, XrcEnd};
use crate::resources::Resources;
use connected::{Connected, End, id_of_passive};
use datagrams::Datagrams;

/// An endpoint.
pub struct Endpoint {
    domain: Arc<Resources>,
    sizes: Sizes,
    /// Whether its receives are shared.
    is_sharing: bool,
    kind: Kind,
    /// Its members in lanes, once it is enabled.
    place: OnceLock<Seats>,
    /// A forked child does not use the device and the connection.
    process: Process,
    /// Its queue pair, until it is closed.
    pair: Mutex<Option<Arc<QueuePair>>>,
    /// Its XRC objects, once it is enabled.
    xrc: OnceLock<XrcEnd>,
}

/// The kind of communication.
enum Kind {
    Connected(Box<Connected>),
    Datagrams(Datagrams),
}

/// Returns the sizes of an endpoint with these attributes.
fn sizes_of(domain: &Resources, info: &Info, longest: usize) -> Sizes {
    let params = &domain.params;
    let or = |size: usize, usual: usize| if size == 0 { usual } else { size };
    let most = domain.limits.requests_per_pair;
    Sizes {
        sends: or(info.tx.size, params.tx_size).min(most),
        receives: or(info.rx.size, params.rx_size).min(most),
        send_pieces: or(info.tx.iov_limit, params.tx_iov_limit).min(domain.limits.pieces),
        receive_pieces: or(info.rx.iov_limit, params.rx_iov_limit).min(domain.limits.pieces),
        inline: info.tx.inject_size,
        longest,
    }
}

impl Endpoint {
    /// Creates an endpoint that is connected to a single peer.
    pub fn connected(domain: Arc<Resources>, info: &Info) -> Result<Self> {
        let kind = Kind::Connected(Box::new(Connected::open(&*domain, info, id_of_passive)?));
        let longest = domain.port.longest_message;
        Ok(Self::of_kind(domain, info, kind, longest))
    }

    /// Creates an endpoint that sends datagrams to many peers.
    pub fn datagrams(domain: Arc<Resources>, info: &Info) -> Result<Self> {
        let kind = Kind::Datagrams(Datagrams::open(&domain, info)?);
        let longest = domain.port.mtu;
        Ok(Self::of_kind(domain, info, kind, longest))
    }

    fn of_kind(domain: Arc<Resources>, info: &Info, kind: Kind, longest: usize) -> Self {
        Endpoint {
            sizes: sizes_of(&domain, info, longest),
            is_sharing: info.ep.rx_ctx_cnt == FI_SHARED_CONTEXT,
            domain,
            kind,
            place: OnceLock::new(),
            process: Process::current(),
            pair: Mutex::new(None),
            xrc: OnceLock::new(),
        }
    }

    fn place(&self) -> Result<&Seats> {
        self.place.get().ok_or(Errno::EOPBADSTATE)
    }

    #[inline(always)]
    fn send_seat(&self) -> Result<&Seat> {
        let place = self.place.get().ok_or(Errno::EOPBADSTATE)?;
        place.sender()
    }

    /// Returns the data that a connection needs. `-FI_EOPBADSTATE` until the endpoint is enabled.
    fn end(&self) -> Result<End> {
        let pair = self.pair.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(End {
            pair: pair.clone().ok_or(Errno::EOPBADSTATE)?,
            seats: self.place()?.clone(),
            is_shared: self.is_sharing,
            xrc: self.xrc.get().cloned(),
        })
    }

    /// Returns the peers of a datagram endpoint.
    fn datagrams_of(&self) -> Option<&Datagrams> {
        match &self.kind {
            Kind::Connected(_) => None,
            Kind::Datagrams(datagrams) => Some(datagrams),
        }
    }

    fn connected_of(&self) -> Result<&Connected> {
        match &self.kind {
            Kind::Connected(connected) => Ok(connected),
            Kind::Datagrams(_) => Err(Errno::ENOSYS),
        }
    }

    /// Sends a message of several segments or no bytes, or a datagram.
    #[cold]
    #[inline(never)]
    fn transmit_specially(&self, message: &mut Transmit) -> Result {
        if let Some(datagrams) = self.datagrams_of() {
            return self.send_datagram(message.peer, datagrams, message);
        }
        self.place()?.transmit(&self.sizes, message)
    }

    #[inline(always)]
    fn send_connected(
        &self,
        message: &mut Transmit,
        local: &mut Gather,
        keys: Keys,
        len: usize,
    ) -> Result {
        let seat = self.send_seat()?;
        seat.lane.send(
            seat.name,
            operation(message),
            Work {
                verb: Verb::Send,
                local,
                keys,
                len,
                immediate: message.immediate().map(|data| data as u32),
            },
        )
    }

    #[cold]
    #[inline(never)]
    fn send_datagram(
        &self,
        to: fi_addr_t,
        datagrams: &Datagrams,
        message: &mut Transmit,
    ) -> Result {
        let seat = self.send_seat()?;
        let peer = datagrams.peer(&self.domain, seat, to)?;
        let buffers = datagrams.without_prefix(&message.buffers)?;
        self.sizes.check(buffers.pieces().len(), buffers.len())?;
        let gone = message.buffers.pieces().len() - buffers.pieces().len();
        let mut local = Gather::empty();
        let keys = local.fill_behind(gone, &buffers, &message.desc)?;
        seat.lane.send(
            seat.name,
            operation(message),
            Work {
                verb: Verb::SendTo {
                    handle: &peer.handle,
                    pair: peer.pair,
                    key: datagrams::KEY,
                },
                local: &mut local,
                keys,
                len: buffers.len(),
                immediate: message.immediate().map(|data| data as u32),
            },
        )
    }
}

impl endpoint::Endpoint for Endpoint {
    type SharedReceive = SharedReceive;

    fn enable(
        this: &Handle<EndpointObject<Self>>,
        bindings: &Bindings<SharedReceive>,
    ) -> Result<Arc<dyn Progress>> {
        let (link, manager) = match &this.kind {
            Kind::Connected(connected) => {
                connected.tell(this.named(), bindings);
                (
                    Some(connected.link().clone()),
                    Some(this.domain.manager.clone() as Arc<dyn Progress>),
                )
            }
            Kind::Datagrams(datagrams) => {
                datagrams.enable(bindings)?;
                (None, None)
            }
        };
        let (pair, place) = this.make(bindings, link)?;
        if let Kind::Datagrams(datagrams) = &this.kind {
            datagrams.named(&this.domain, &pair)?;
            this.domain.manager.attend(this.domain.context);
        }
        let progress = EndpointProgress::new(&place, bindings, manager);
        *this.pair.lock().unwrap_or_else(PoisonError::into_inner) = Some(pair.clone());
        if let Err(place) = this.place.set(place) {
            // It was enabled before; the seam excludes that.
            place.leave(|| ());
            return Err(Errno::EOPBADSTATE);
        }
        let (context, place) = (this.domain.context, this.place()?.clone());
        this.domain.manager.enabled(context, pair, place);
        Ok(Arc::new(progress))
    }

    /// The device's queues are fixed when it is enabled: none can be added.
    fn rebind(this: &Handle<EndpointObject<Self>>, bindings: &Bindings<SharedReceive>) -> Result {
        let place = this.place()?;
        place.rebind(bindings, |cq| this.domain.lane(cq))?;
        if let Kind::Connected(connected) = &this.kind {
            connected.tell(this.named(), bindings);
        }
        Ok(())
    }

    fn receive_limit(&self) -> usize {
        self.sizes.receives
    }

    fn close(this: &Handle<EndpointObject<Self>>) -> Result {
        if !this.process.is_current() {
            return Ok(());
        }
        match &this.kind {
            Kind::Connected(connected) => connected.close(&this.domain),
            Kind::Datagrams(datagrams) => datagrams.close(),
        }
        let pair = this
            .pair
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let Some(pair) = pair else {
            return Ok(());
        };
        this.domain.manager.closed(&pair);
        if let Err(error) = pair.end() {
            log::debug!(target: crate::LOG.ep_ctrl, "a queue pair does not end: {error}");
        }
        if let Some(place) = this.place.get() {
            match pair.initiator() {
                Some(initiator) => place.leave_initiator(&initiator, || drop(pair)),
                None => place.leave(|| drop(pair)),
            }
        }
        Ok(())
    }

    #[inline]
    fn transmit(&self, message: &mut Transmit) -> Result {
        let (Kind::Connected(_), Some(piece)) = (&self.kind, message.buffers.single()) else {
            return self.transmit_specially(message);
        };
        // The direct path to the device, which most messages take.
        let len = message.buffers.len();
        if len > self.sizes.longest {
            return Err(Errno::EMSGSIZE);
        }
        let (mut local, keys) = Gather::of_piece(piece, &message.desc)?;
        self.send_connected(message, &mut local, keys, len)
    }

    #[inline]
    fn receive(&self, receive: &mut Receive) -> Result {
        let Kind::Datagrams(datagrams) = &self.kind else {
            return self.place()?.receive(&self.sizes, receive);
        };
        let seat = self.place()?.receiver()?;
        if receive.buffers.pieces().len() > self.sizes.receive_pieces {
            return Err(Errno::EINVAL);
        }
        let posted = Posted::of(receive);
        let mut local = Gather::empty();
        local.fill(&mut receive.buffers, &receive.desc)?;
        datagrams.receive_into(&mut local)?;
        seat.lane.receive(seat.name, &mut local, posted)
    }

    #[inline]
    fn access(&self, access: &mut RemoteAccess) -> Result {
        self.connected_of()?;
        self.place()?.access(&self.sizes, access)
    }

    fn atomic(&self, atomic: &mut Atomic) -> Result {
        self.connected_of()?;
        let scratch = || {
            let mut local = Gather::empty();
            local.lead_by(self.domain.scratch()?, ATOMICS.bytes)?;
            Ok(local)
        };
        self.place()?.atomic(atomic, scratch)
    }

    fn cancel(&self, _: *mut c_void) -> Result {
        Err(Errno::ENOSYS)
    }

    fn name(&self) -> Result<Vec<u8>> {
        match &self.kind {
            Kind::Connected(connected) => connected.name(&self.domain),
            Kind::Datagrams(datagrams) => datagrams.name(),
        }
    }

    fn set_name(&self, name: &[u8]) -> Result {
        self.connected_of()?.set_name(&self.domain, name)
    }

    fn peer_name(&self) -> Result<Vec<u8>> {
        self.connected_of()?.peer_name(&self.domain)
    }

    fn connect(&self, address: &[u8], data: &[u8]) -> Result {
        let end = self.end()?;
        self.connected_of()?
            .connect(&self.domain, end, address, data)
    }

    fn accept(&self, data: &[u8]) -> Result {
        let end = self.end()?;
        self.connected_of()?.accept(&self.domain, end, data)
    }

    fn shutdown(&self) -> Result {
        self.connected_of()?.shut_down(&self.domain)
    }

    fn option(&self, name: c_int) -> Result<OptionValue> {
        match (name, &self.kind) {
            (FI_OPT_CM_DATA_SIZE, Kind::Connected(_)) => {
                Ok(OptionValue::Size(match self.domain.xrc {
                    Some(_) => XRC_DATA_LIMIT,
                    None => DATA_LIMIT,
                }))
            }
            _ => Err(Errno::ENOPROTOOPT),
        }
    }

    fn transmit_room(&self) -> Result<usize> {
        let seat = self.send_seat()?;
        seat.lane.send_room(seat.name)
    }

    fn receive_room(&self) -> Result<usize> {
        let seat = self.place()?.receiver()?;
        seat.lane.receive_room(seat.name)
    }
}
