//! fi_passive_ep(3): listening for connected endpoints.

use std::ffi::c_int;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prov_message::objects::{Requests, Unanswered};
use prov_util::attr::{Info, Opaque};
use prov_util::endpoint;
use prov_util::eq::{ConnectionEvents, Eq};
use prov_util::errno::{Errno, Result};
use prov_util::ffi::pep::PassiveObject;
use prov_util::ffi::{AnyFid, Handle, Use};
use prov_util::progress::Progress;
use prov_util::sockaddr;

use crate::domain::BACKLOG;
use crate::engine::Lane;
use crate::engine::link::keys::ListenerKey;
use crate::engine::link::listener::{Incomer, ListenerKind, RequestSink};
use crate::engine::link::socket;
use crate::params::Params;
use crate::wire::authentication::Key;
use crate::wire::handshake::{Features, Kind, MAX_DATA, Message};

/// Unanswered requests of a passive endpoint beyond which no more connections
/// are taken from the system. Those that were taken before and have not sent
/// their request yet may add to them.
const UNANSWERED_LIMIT: usize = 256;

/// A passive endpoint.
pub struct PassiveEndpoint {
    lane: Arc<Lane>,
    params: Arc<Params>,
    requests: Arc<Requests<Incomer>>,
    state: Mutex<State>,
}

struct State {
    /// What peers must prove to know.
    auth_key: Option<Key>,
    /// What endpoints for its requests are opened with.
    info: Info,
    /// Bound, and not listening yet.
    socket: Option<OwnedFd>,
    listener: Option<ListenerKey>,
    eq: Option<Use<Eq>>,
    backlog: i32,
}

impl PassiveEndpoint {
    /// Bound to the source address in `info`, where there is one.
    pub fn new(
        lane: Arc<Lane>,
        params: Arc<Params>,
        requests: Arc<Requests<Incomer>>,
        info: &Info,
    ) -> Result<Self> {
        let auth_key = match (info.ep.authorization()?, info.domain.authorization()?) {
            (Some(key), _) | (None, Some(key)) => Key::new(key),
            (None, None) => params.auth_key()?,
        };
        let socket = match sockaddr::decode(&info.src_addr) {
            Some(addr) => Some(socket::bound(&addr, &params)?),
            None => None,
        };
        Ok(PassiveEndpoint {
            lane,
            params,
            requests,
            state: Mutex::new(State {
                auth_key,
                info: info.clone(),
                socket,
                listener: None,
                eq: None,
                backlog: BACKLOG,
            }),
        })
    }

    /// Its bound socket, for an endpoint that is opened with this one as its
    /// handle (fi_endpoint(3)).
    pub fn take_socket(&self) -> Option<OwnedFd> {
        self.state().socket.take()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn progress(&self) -> Arc<dyn Progress> {
        self.lane.clone()
    }
}

impl endpoint::PassiveEndpoint for PassiveEndpoint {
    fn bind(&self, eq: Use<Eq>, _flags: u64) -> Result {
        let mut state = self.state();
        if state.eq.is_some() {
            return Err(Errno::EINVAL);
        }
        eq.add_source(self.progress())?;
        state.eq = Some(eq);
        Ok(())
    }

    fn listen(this: &Handle<PassiveObject<Self>>) -> Result {
        let mut state = this.state();
        let Some(eq) = state.eq.clone() else {
            return Err(Errno::ENOEQ);
        };
        let Some(socket) = state.socket.take() else {
            return Err(if state.listener.is_some() {
                Errno::EINVAL
            } else {
                Errno::EOPBADSTATE
            });
        };
        let door = Door {
            events: ConnectionEvents::new(this.named(), eq),
            info: state.info.clone(),
            requests: this.requests.clone(),
            unanswered: Unanswered::default(),
        };
        let kind = ListenerKind::Passive(Box::new(door));
        let listener =
            this.lane
                .core()
                .add_listener(socket, kind, state.auth_key.clone(), state.backlog)?;
        state.listener = Some(listener);
        Ok(())
    }

    fn reject(&self, handle: AnyFid, data: &[u8]) -> Result {
        if data.len() > MAX_DATA {
            return Err(Errno::EINVAL);
        }
        if let Some(incomer) = self.requests.reject(handle.as_ptr().cast())? {
            let answer = Message::new(Kind::Reject, Features::default(), 0, data);
            // If it does not reach the peer, the end of the connection does.
            let _ = socket::send(incomer.socket.as_fd(), &answer.encode());
            socket::end(incomer.socket);
        }
        Ok(())
    }

    fn name(&self) -> Result<Vec<u8>> {
        let state = self.state();
        let addr = match (&state.socket, state.listener) {
            (Some(socket), _) => socket::name(socket.as_fd())?,
            (None, Some(listener)) => {
                let core = self.lane.core();
                let listener = core.listeners.get(listener).ok_or(Errno::EOPBADSTATE)?;
                socket::name(listener.socket.as_fd())?
            }
            (None, None) => return Err(Errno::EADDRNOTAVAIL),
        };
        Ok(sockaddr::encode(&addr).as_bytes().to_vec())
    }

    fn set_name(&self, name: &[u8]) -> Result {
        let mut state = self.state();
        if state.listener.is_some() {
            return Err(Errno::EOPBADSTATE);
        }
        let addr = sockaddr::decode(name).ok_or(Errno::EINVAL)?;
        // The old address first: it may be the same.
        state.socket = None;
        state.socket = Some(socket::bound(&addr, &self.params)?);
        state.info.src_addr = sockaddr::encode(&addr).as_bytes().to_vec();
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
        MAX_DATA
    }

    fn close(this: &Handle<PassiveObject<Self>>) -> Result {
        let mut state = this.state();
        if let Some(listener) = state.listener.take() {
            this.lane.core().remove_listener(listener);
        }
        state.socket = None;
        if let Some(eq) = state.eq.take() {
            eq.remove_source(&this.progress());
            eq.forget(this.fid());
        }
        Ok(())
    }
}

/// Tells the application of requests.
struct Door {
    events: ConnectionEvents,
    /// What endpoints for them are opened with.
    info: Info,
    requests: Arc<Requests<Incomer>>,
    unanswered: Unanswered,
}

impl RequestSink for Door {
    fn has_room(&self) -> bool {
        self.unanswered.count() < UNANSWERED_LIMIT
    }

    fn request(&self, incomer: Incomer) {
        let mut offered = self.info.clone();
        let Ok(peer) = socket::peer_name(incomer.socket.as_fd()) else {
            return;
        };
        offered.dest_addr = sockaddr::encode(&peer).as_bytes().to_vec();
        let data = incomer.message.data.clone();
        let handle = self.requests.add(incomer, &self.unanswered);
        offered.handle = Opaque(handle);
        let (requests, address) = (self.requests.clone(), handle.addr());
        let unread = move || requests.forget_unread(address);
        if let Err(error) = self.events.requested(&offered, &data, unread) {
            log::warn!("a connection request is lost: {error}");
            self.requests.forget(handle);
        }
    }
}
