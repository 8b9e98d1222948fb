//! fi_endpoint(3): endpoints on queue pairs.

use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use fabric_abi::{FI_OPT_CM_DATA_SIZE, FI_SHARED_CONTEXT};
use prov_base::errno::{Errno, Result};
use prov_base::process::Process;
use prov_device::lanes::{Membership, Sides};
use prov_device::mock::{Bound, Connector, Lent, Mock, Pair, PairConfig};
use prov_device::{Connected, EndpointProgress, Local as _, Seats, SharedReceive, Sizes};
use prov_message::Reports;
use prov_message::objects::Listening as _;
use prov_util::attr::Info;
use prov_util::endpoint::{self, Bindings, OptionValue};
use prov_util::ffi::Handle;
use prov_util::ffi::ep::EndpointObject;
use prov_util::ffi::pep::PassiveObject;
use prov_util::progress::Progress;
use prov_util::request::{Atomic, Receive, RemoteAccess, Transmit};

use crate::attributes::{QUEUE, SIZES};
use crate::passive::{Passive, PassiveEndpoint};
use crate::resources::Resources;

/// An endpoint.
pub struct Endpoint {
    domain: Arc<Resources>,
    sizes: Sizes,
    /// Whether its receives are shared.
    is_sharing: bool,
    /// The state of its connection.
    connected: Connected<Connector>,
    /// Its members in lanes, once it is enabled.
    seats: OnceLock<Seats<Mock>>,
    /// Its queue pair, until it is closed.
    pair: Mutex<Option<Arc<Pair>>>,
    /// A forked child does not use the device.
    process: Process,
}

impl Endpoint {
    /// Opens an endpoint with these attributes.
    pub fn open(domain: &Arc<Resources>, info: &Info) -> Result<Self> {
        let or = |size: usize, usual: usize| if size == 0 { usual } else { size };
        Ok(Endpoint {
            sizes: Sizes {
                sends: or(info.tx.size, QUEUE),
                receives: or(info.rx.size, QUEUE),
                send_pieces: info.tx.iov_limit,
                receive_pieces: info.rx.iov_limit,
                inline: SIZES.inject,
                longest: SIZES.message,
            },
            is_sharing: info.ep.rx_ctx_cnt == FI_SHARED_CONTEXT,
            connected: Connected::open(&*domain.device.connector, info, bound_of_passive)?,
            domain: domain.clone(),
            seats: OnceLock::new(),
            pair: Mutex::default(),
            process: Process::current(),
        })
    }

    fn seats(&self) -> Result<&Seats<Mock>> {
        self.seats.get().ok_or(Errno::EOPBADSTATE)
    }

    fn connector(&self) -> &Connector {
        &self.domain.device.connector
    }

    /// Returns the queue pair. `-FI_EOPBADSTATE` until the endpoint is enabled.
    fn pair(&self) -> Result<Arc<Pair>> {
        let pair = self.pair.lock().unwrap_or_else(PoisonError::into_inner);
        pair.clone().ok_or(Errno::EOPBADSTATE)
    }
}

/// Returns the bound address of a passive endpoint that does not listen.
fn bound_of_passive(info: &Info) -> Result<Bound> {
    let passive = PassiveObject::<PassiveEndpoint>::of_info(info)?;
    passive.with_setup(Option::take).ok_or(Errno::EOPBADSTATE)
}

impl endpoint::Endpoint for Endpoint {
    type SharedReceive = SharedReceive<Mock>;

    fn enable(
        this: &Handle<EndpointObject<Self>>,
        bindings: &Bindings<Self::SharedReceive>,
    ) -> Result<Arc<dyn Progress>> {
        this.connected.tell(this.named(), bindings);
        let sides = Sides::of(bindings, |cq| this.domain.lane(cq))?;
        let shared = bindings.shared.as_ref().map(|shared| shared.shared());
        let shared = shared.filter(|_| this.is_sharing);
        let pair = Pair::new(
            &this.domain.device.adapter,
            &PairConfig {
                send_queue: sides.send_queue(),
                receive_queue: sides.receive_queue(),
                shared: shared.map(|shared| shared.queue()).transpose()?,
                sends: this.sizes.sends,
                receives: this.sizes.receives,
            },
        );
        let link = this.connected.link();
        let seats = sides.join(
            &Reports::to(bindings),
            Membership {
                pair: &pair,
                sizes: &this.sizes,
                shared,
                link: Some(link.clone()),
                receive_link: Some(link.clone()),
                skipped: 0,
                is_shared_pair: false,
            },
        )?;
        let events: Arc<dyn Progress> = this.domain.device.connector.clone();
        let progress = EndpointProgress::new(&seats, bindings, Some(events));
        *this.pair.lock().unwrap_or_else(PoisonError::into_inner) = Some(pair);
        // The seam enables an endpoint once.
        let _ = this.seats.set(seats);
        Ok(Arc::new(progress))
    }

    fn rebind(
        this: &Handle<EndpointObject<Self>>,
        bindings: &Bindings<Self::SharedReceive>,
    ) -> Result {
        this.seats()?.rebind(bindings, |cq| this.domain.lane(cq))?;
        this.connected.tell(this.named(), bindings);
        Ok(())
    }

    fn receive_limit(&self) -> usize {
        self.sizes.receives
    }

    fn close(this: &Handle<EndpointObject<Self>>) -> Result {
        if !this.process.is_current() {
            return Ok(());
        }
        this.connected.close(this.connector());
        let mut pair = this.pair.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Some(pair), Some(seats)) = (pair.take(), this.seats.get()) {
            pair.end();
            seats.leave(|| drop(pair));
        }
        Ok(())
    }

    fn transmit(&self, message: &mut Transmit) -> Result {
        self.seats()?.transmit(&self.sizes, message)
    }

    fn receive(&self, receive: &mut Receive) -> Result {
        self.seats()?.receive(&self.sizes, receive)
    }

    fn access(&self, access: &mut RemoteAccess) -> Result {
        self.seats()?.access(&self.sizes, access)
    }

    fn atomic(&self, atomic: &mut Atomic) -> Result {
        self.seats()?.atomic(atomic, || Ok(Lent::empty()))
    }

    /// A device does not give a receive back.
    fn cancel(&self, _: *mut c_void) -> Result {
        Err(Errno::ENOSYS)
    }

    fn name(&self) -> Result<Vec<u8>> {
        self.connected.name(self.connector())
    }

    fn set_name(&self, name: &[u8]) -> Result {
        self.connected.set_name(self.connector(), name)
    }

    fn peer_name(&self) -> Result<Vec<u8>> {
        self.connected.peer_name(self.connector())
    }

    fn connect(&self, address: &[u8], data: &[u8]) -> Result {
        let pair = self.pair()?;
        self.connected
            .connect(self.connector(), pair, address, data)
    }

    fn accept(&self, data: &[u8]) -> Result {
        self.connected.accept(self.connector(), self.pair()?, data)
    }

    fn shutdown(&self) -> Result {
        self.connected.shut_down(self.connector())
    }

    fn option(&self, name: c_int) -> Result<OptionValue> {
        match name {
            FI_OPT_CM_DATA_SIZE => Ok(OptionValue::Size(Passive::DATA_LIMIT)),
            _ => Err(Errno::ENOPROTOOPT),
        }
    }

    fn transmit_room(&self) -> Result<usize> {
        let seat = self.seats()?.sender()?;
        seat.lane.send_room(seat.name)
    }

    fn receive_room(&self) -> Result<usize> {
        let seat = self.seats()?.receiver()?;
        seat.lane.receive_room(seat.name)
    }
}
