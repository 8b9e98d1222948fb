//! fi_passive_ep(3): listening for connection requests.

use std::ffi::c_int;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prov_base::errno::{Errno, Result};
use prov_base::process::Process;
use prov_util::attr::{Info, Opaque};
use prov_util::endpoint;
use prov_util::eq::{ConnectionEvents, Eq};
use prov_util::ffi::pep::PassiveObject;
use prov_util::ffi::{Handle, Use};
use prov_util::progress::Progress;

use super::requests::{Requests, Unanswered};

/// What a provider adds to passive endpoints: how to listen, and how to refuse a request.
pub trait Listening: Send + Sync + Sized + 'static {
    /// The provider's data of a peer that asks for a connection.
    type Incomer: Send + 'static;
    /// The endpoint's data until it listens, such as a bound socket.
    type Setup: Send;
    /// The endpoint's data while it listens.
    type Listener: Send;

    /// The target of its log messages, such as `tcp::ep_ctrl`.
    const LOG_TARGET: &'static str;

    /// Default backlog of listen(2): connections that the system keeps until the provider accepts
    /// them. The application can set another one.
    const BACKLOG: c_int;

    /// Largest connection data in bytes.
    const DATA_LIMIT: usize;

    /// Largest connection data of this endpoint in bytes.
    fn data_limit(&self) -> usize {
        Self::DATA_LIMIT
    }

    /// Returns what event queues drive for the listeners.
    fn progress(&self) -> Arc<dyn Progress>;

    /// Implements fi_listen(3). Requests are then delivered to `reporter`.
    ///
    /// # Errors
    /// `-FI_EOPBADSTATE` without an address, and those of the system.
    fn listen(
        &self,
        setup: &mut Self::Setup,
        reporter: RequestReporter<Self::Incomer>,
        backlog: c_int,
    ) -> Result<Self::Listener>;

    /// Implements fi_close(3): releases the endpoint's data. No request may be delivered to the
    /// reporter afterwards.
    fn close(&self, setup: &mut Self::Setup, listener: Option<Self::Listener>);

    /// Returns the endpoint's own address.
    fn name(&self, setup: &Self::Setup, listener: Option<&Self::Listener>) -> Result<Vec<u8>>;

    /// Implements fi_setname(3) for an endpoint that does not listen. Returns the address for the
    /// endpoints that are opened for its requests.
    fn set_name(&self, setup: &mut Self::Setup, name: &[u8]) -> Result<Vec<u8>>;

    /// Rejects a request, with connection data.
    fn refuse(&self, incomer: Self::Incomer, data: &[u8]);
}

/// A passive endpoint of a software provider.
pub struct SoftPassive<P: Listening> {
    own: P,
    requests: Arc<Requests<P::Incomer>>,
    state: Mutex<State<P>>,
    /// The process that opened it: a forked child can only close it.
    process: Process,
}

struct State<P: Listening> {
    /// The attributes for endpoints that are opened for its requests.
    info: Info,
    setup: P::Setup,
    listener: Option<P::Listener>,
    eq: Option<Use<Eq>>,
    /// Reports the requests, once it listens.
    events: Option<ConnectionEvents>,
    backlog: c_int,
}

impl<P: Listening> SoftPassive<P> {
    /// Creates a passive endpoint with these attributes. Its requests are added to those of the
    /// fabric.
    pub fn new(own: P, setup: P::Setup, requests: Arc<Requests<P::Incomer>>, info: &Info) -> Self {
        SoftPassive {
            own,
            requests,
            process: Process::current(),
            state: Mutex::new(State {
                info: info.clone(),
                setup,
                listener: None,
                eq: None,
                events: None,
                backlog: P::BACKLOG,
            }),
        }
    }

    /// Gives access to the data of an endpoint that does not listen, for an endpoint that is opened
    /// with this one as its handle (fi_endpoint(3)).
    pub fn with_setup<R>(&self, look: impl FnOnce(&mut P::Setup) -> R) -> R {
        look(&mut self.state().setup)
    }

    /// Returns `-FI_EOPBADSTATE` in a child of the process that opened the endpoint.
    fn check_process(&self) -> Result {
        let is_current = self.process.is_current();
        is_current.then_some(()).ok_or(Errno::EOPBADSTATE)
    }

    fn state(&self) -> MutexGuard<'_, State<P>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<P: Listening> endpoint::PassiveEndpoint for SoftPassive<P> {
    fn bind(&self, eq: Use<Eq>) -> Result {
        let mut state = self.state();
        eq.add_source(self.own.progress())?;
        if let Some(events) = &state.events {
            events.redirect(eq.clone());
        }
        if let Some(before) = state.eq.replace(eq) {
            before.remove_source(&self.own.progress());
        }
        Ok(())
    }

    fn listen(this: &Handle<PassiveObject<Self>>) -> Result {
        this.check_process()?;
        let state = &mut *this.state();
        let Some(eq) = state.eq.clone() else {
            return Err(Errno::ENOEQ);
        };
        if state.listener.is_some() {
            return Err(Errno::EINVAL);
        }
        let events = ConnectionEvents::new(this.named(), eq);
        let reporter = RequestReporter {
            events: events.clone(),
            info: state.info.clone(),
            requests: this.requests.clone(),
            unanswered: Unanswered::default(),
            target: P::LOG_TARGET,
        };
        let listener = this.own.listen(&mut state.setup, reporter, state.backlog)?;
        state.listener = Some(listener);
        state.events = Some(events);
        Ok(())
    }

    #[allow(clippy::indexing_slicing, reason = "limited to the data")]
    fn reject(&self, handle: Opaque, data: &[u8]) -> Result {
        self.check_process()?;
        let data = &data[..data.len().min(self.own.data_limit())];
        // This succeeds even if an endpoint is open for the request, which then cannot accept it.
        if let Some(incomer) = self.requests.reject(handle.0)? {
            self.own.refuse(incomer, data);
        }
        Ok(())
    }

    fn name(&self) -> Result<Vec<u8>> {
        let state = self.state();
        self.own.name(&state.setup, state.listener.as_ref())
    }

    fn set_name(&self, name: &[u8]) -> Result {
        let mut state = self.state();
        if state.listener.is_some() {
            return Err(Errno::EOPBADSTATE);
        }
        state.info.src_addr = self.own.set_name(&mut state.setup, name)?;
        Ok(())
    }

    fn set_backlog(&self, backlog: c_int) -> Result {
        if backlog < 0 {
            return Err(Errno::EINVAL);
        }
        self.state().backlog = backlog;
        Ok(())
    }

    fn connection_data_limit(&self) -> usize {
        self.own.data_limit()
    }

    fn close(this: &Handle<PassiveObject<Self>>) -> Result {
        let state = &mut *this.state();
        this.own.close(&mut state.setup, state.listener.take());
        // The events refer to the endpoint, which would otherwise keep itself alive.
        state.events = None;
        if let Some(eq) = state.eq.take() {
            eq.remove_source(&this.own.progress());
            eq.forget(this.fid());
        }
        Ok(())
    }
}

/// Limit of unanswered requests of a passive endpoint, beyond which the provider stops accepting
/// connections.
const UNANSWERED_LIMIT: usize = 256;

/// Delivers connection requests to the application.
pub struct RequestReporter<I> {
    events: ConnectionEvents,
    /// The attributes for endpoints that are opened for the requests.
    info: Info,
    requests: Arc<Requests<I>>,
    unanswered: Unanswered,
    target: &'static str,
}

impl<I: Send + 'static> RequestReporter<I> {
    /// Returns whether the number of unanswered requests is below the limit. If not, the provider
    /// should accept no connections from the system; connections that were accepted earlier may
    /// still add their requests.
    pub fn has_room(&self) -> bool {
        self.unanswered() < UNANSWERED_LIMIT
    }

    /// Returns the number of unanswered requests.
    pub fn unanswered(&self) -> usize {
        self.unanswered.count()
    }

    /// Reports that a peer with this address asks for a connection, with connection data
    /// (`FI_CONNREQ`).
    pub fn request(&self, incomer: I, address: &[u8], data: &[u8]) {
        self.request_with(incomer, address, data, &|_, _| ());
    }

    /// Like [`RequestReporter::request`]; `adapt` changes the attributes of the endpoint for this peer where
    /// they differ from those of the passive one, such as its device.
    pub fn request_with(
        &self,
        incomer: I,
        address: &[u8],
        data: &[u8],
        adapt: &dyn Fn(&I, &mut Info),
    ) {
        let mut offered = self.info.clone();
        offered.dest_addr = address.to_vec();
        adapt(&incomer, &mut offered);
        let handle = self.requests.add(incomer, &self.unanswered);
        offered.handle = Opaque(handle);
        let (requests, address) = (self.requests.clone(), handle.addr());
        let unread = move || requests.forget_unread(address);
        if let Err(error) = self.events.requested(&offered, data, unread) {
            log::warn!(target: self.target, "a connection request is lost: {error}");
            self.requests.forget(handle);
        }
    }
}
