//! fi_passive_ep(3): listening for connected endpoints.

use std::ffi::c_int;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prov_util::attr::{Info, Opaque};
use prov_util::endpoint;
use prov_util::eq::{ConnectionEvents, Eq};
use prov_util::errno::{Errno, Result};
use prov_util::ffi::pep::PassiveObject;
use prov_util::ffi::{Handle, Use};
use prov_util::process::Process;
use prov_util::progress::Progress;

use super::requests::{Requests, Unanswered};

/// What a provider adds to passive endpoints: how one listens, and how a request
/// is refused.
pub trait Listening: Send + Sync + Sized + 'static {
    /// What it has of a peer that asks for a connection.
    type Incomer: Send + 'static;
    /// What an endpoint has until it listens, such as a bound socket.
    type Setup: Send;
    /// What listens.
    type Listener: Send;

    /// Where the endpoint logs, such as `tcp::ep_ctrl`.
    const LOG_TARGET: &'static str;

    /// Connections that may wait to be noticed, unless the application says
    /// otherwise.
    const BACKLOG: c_int;

    /// Most bytes of connection data.
    const DATA_LIMIT: usize;

    /// The same of this one.
    fn data_limit(&self) -> usize {
        Self::DATA_LIMIT
    }

    /// What event queues drive for the listeners.
    fn progress(&self) -> Arc<dyn Progress>;

    /// `fi_listen`; whoever asks then comes to the door.
    ///
    /// # Errors
    /// `-FI_EOPBADSTATE` without an address, and those of the system.
    fn listen(
        &self,
        setup: &mut Self::Setup,
        door: Door<Self::Incomer>,
        backlog: c_int,
    ) -> Result<Self::Listener>;

    /// `fi_close`: lets go of what the endpoint has. Nobody may come to the door
    /// any more.
    fn close(&self, setup: &mut Self::Setup, listener: Option<Self::Listener>);

    /// The endpoint's own address.
    fn name(&self, setup: &Self::Setup, listener: Option<&Self::Listener>) -> Result<Vec<u8>>;

    /// `fi_setname`, of an endpoint that does not listen yet. Returns the
    /// address for the endpoints that are opened for its requests.
    fn set_name(&self, setup: &mut Self::Setup, name: &[u8]) -> Result<Vec<u8>>;

    /// Tells who asks that it is rejected, with connection data.
    fn refuse(&self, incomer: Self::Incomer, data: &[u8]);
}

/// A passive endpoint of a software provider.
pub struct SoftPassive<P: Listening> {
    own: P,
    requests: Arc<Requests<P::Incomer>>,
    state: Mutex<State<P>>,
    /// A forked child can only close it.
    process: Process,
}

struct State<P: Listening> {
    /// What endpoints for its requests are opened with.
    info: Info,
    setup: P::Setup,
    listener: Option<P::Listener>,
    eq: Option<Use<Eq>>,
    /// What tells of requests, once it listens.
    events: Option<ConnectionEvents>,
    backlog: c_int,
}

impl<P: Listening> SoftPassive<P> {
    /// An endpoint with these attributes that does not listen yet; its requests
    /// are among those of the fabric.
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

    /// Looks at what it has until it listens, or takes something of that, for an
    /// endpoint that is opened with this one as its handle (fi_endpoint(3)).
    pub fn with_setup<R>(&self, look: impl FnOnce(&mut P::Setup) -> R) -> R {
        look(&mut self.state().setup)
    }

    /// `-FI_EOPBADSTATE` in a child of the process that opened it.
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
        let door = Door {
            events: events.clone(),
            info: state.info.clone(),
            requests: this.requests.clone(),
            unanswered: Unanswered::default(),
            target: P::LOG_TARGET,
        };
        let listener = this.own.listen(&mut state.setup, door, state.backlog)?;
        state.listener = Some(listener);
        state.events = Some(events);
        Ok(())
    }

    #[allow(clippy::indexing_slicing, reason = "limited to the data")]
    fn reject(&self, handle: Opaque, data: &[u8]) -> Result {
        self.check_process()?;
        let data = &data[..data.len().min(self.own.data_limit())];
        // Also where an endpoint is open for the request, which cannot accept it then.
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
        // They name the endpoint, which would keep itself.
        state.events = None;
        if let Some(eq) = state.eq.take() {
            eq.remove_source(&this.own.progress());
            eq.forget(this.fid());
        }
        Ok(())
    }
}

/// Unanswered requests of a passive endpoint beyond which no more should come.
const UNANSWERED_LIMIT: usize = 256;

/// Tells the application of requests.
pub struct Door<I> {
    events: ConnectionEvents,
    /// What endpoints for them are opened with.
    info: Info,
    requests: Arc<Requests<I>>,
    unanswered: Unanswered,
    target: &'static str,
}

impl<I: Send + 'static> Door<I> {
    /// Whether the application keeps up with its answers. If not, no more
    /// connections should be taken from the system; those that were taken before
    /// and have not sent their request yet may add to the requests.
    pub fn has_room(&self) -> bool {
        self.unanswered() < UNANSWERED_LIMIT
    }

    /// Requests that have no answer.
    pub fn unanswered(&self) -> usize {
        self.unanswered.count()
    }

    /// A peer with this address asks for a connection, with connection data
    /// (`FI_CONNREQ`).
    pub fn request(&self, incomer: I, address: &[u8], data: &[u8]) {
        self.request_with(incomer, address, data, &|_, _| ());
    }

    /// As [`Door::request`]; `adapt` says in what the endpoint for such a peer
    /// differs from the passive one, such as its device.
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
