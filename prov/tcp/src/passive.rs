//! fi_passive_ep(3): listening for connected endpoints.

use std::ffi::c_int;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fabric_abi::{FI_CONNREQ, fid};
use prov_util::attr::{Info, Opaque};
use prov_util::endpoint;
use prov_util::eq::{Eq, Event, EventBody, EventInfo};
use prov_util::errno::{Errno, Result};
use prov_util::ffi::pep::PassiveObject;
use prov_util::ffi::{AnyFid, Handle, Use, info};
use prov_util::progress::Progress;
use prov_util::sockaddr;

use crate::connreq::{Requests, UNANSWERED_LIMIT, Unanswered};
use crate::engine::keys::ListenerKey;
use crate::engine::listener::{Incomer, ListenerKind, RequestSink};
use crate::engine::{Engine, socket};
use crate::params::Params;
use crate::wire::authentication::Key;
use crate::wire::handshake::MAX_DATA;

/// Connections that may wait to be taken from the system.
const BACKLOG: i32 = 4096;

/// A passive endpoint.
pub struct PassiveEndpoint {
    engine: Arc<Engine>,
    params: Arc<Params>,
    requests: Arc<Requests>,
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
        engine: Arc<Engine>,
        params: Arc<Params>,
        requests: Arc<Requests>,
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
            engine,
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
        self.engine.clone()
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
        let sink = Sink {
            fid: Fid(this.fid()),
            eq,
            info: state.info.clone(),
            requests: this.requests.clone(),
            unanswered: Unanswered::default(),
        };
        let kind = ListenerKind::Passive(Box::new(sink));
        let listener =
            this.engine
                .core()
                .add_listener(socket, kind, state.auth_key.clone(), state.backlog)?;
        state.listener = Some(listener);
        Ok(())
    }

    fn reject(&self, handle: AnyFid, data: &[u8]) -> Result {
        if data.len() > MAX_DATA {
            return Err(Errno::EINVAL);
        }
        if self.requests.reject(handle.as_ptr().cast(), data) {
            Ok(())
        } else {
            Err(Errno::EINVAL)
        }
    }

    fn name(&self) -> Result<Vec<u8>> {
        let state = self.state();
        let addr = match (&state.socket, state.listener) {
            (Some(socket), _) => socket::name(socket.as_fd())?,
            (None, Some(listener)) => {
                let core = self.engine.core();
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
            this.engine.core().remove_listener(listener);
        }
        state.socket = None;
        if let Some(eq) = state.eq.take() {
            eq.remove_source(&this.progress());
            eq.forget(this.fid());
        }
        Ok(())
    }
}

/// The passive endpoint as events name it.
struct Fid(*mut fid);

// SAFETY: the pointer is handed to the application and never followed here.
unsafe impl Send for Fid {}

/// Tells the application of requests.
struct Sink {
    fid: Fid,
    eq: Use<Eq>,
    info: Info,
    requests: Arc<Requests>,
    unanswered: Unanswered,
}

impl RequestSink for Sink {
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
        let list = match info::to_c(&[offered]) {
            Ok(list) => list,
            Err(error) => {
                log::warn!("a connection request is lost: {error}");
                self.requests.forget(handle);
                return;
            }
        };
        // SAFETY: the list was made for this and has no other owner.
        let mut event_info = unsafe { EventInfo::new(list, free_info) };
        let requests = self.requests.clone();
        let address = handle.addr();
        event_info.if_unread(move || requests.drop_unread(address));
        let written = self.eq.write(Event {
            kind: FI_CONNREQ,
            body: EventBody::Connection {
                fid: self.fid.0,
                info: Some(event_info),
                data,
            },
        });
        if let Err(error) = written {
            log::warn!("a connection request is lost: {error}");
        }
    }
}

unsafe extern "C" fn free_info(list: *mut fabric_abi::fi_info) {
    // SAFETY: called with what `info::to_c` made and nobody uses any more.
    unsafe { info::free(list) }
}
