//! Accepting connections at listening sockets.

use prov_base::bounded;
use prov_base::bounds::{OBJECTS, PEERS};
use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use prov_base::errno::{Errno, Result};
use prov_message::strangers::Hosting as _;

use crate::engine::Core;
use crate::engine::link::connection::{AuthState, Connection, Owner, Stage};
use crate::engine::link::keys::Due;
use crate::engine::link::keys::{ConnKey, ListenerKey, Source};
use crate::engine::link::listener::{Listener, ListenerKind};
use crate::engine::link::socket;
use crate::wire::authentication::Key;

/// Time within which a peer must send its whole request: long enough for a slow network.
const REQUEST_TIME: Duration = Duration::from_secs(10);
/// Largest number of connections without a request at one listener; the oldest is closed for
/// another one.
const HALF_OPEN_LIMIT: usize = 512;
/// Largest number of connections accepted in one progress call.
const ACCEPTS_PER_TURN: usize = 64;

impl Core {
    /// Starts listening at a bound socket.
    #[allow(clippy::indexing_slicing, reason = "the listener was just added")]
    pub fn add_listener(
        &mut self,
        socket: OwnedFd,
        kind: ListenerKind,
        auth_key: Option<Key>,
        backlog: i32,
    ) -> Result<ListenerKey> {
        socket::listen(socket.as_fd(), backlog)?;
        let key = self.listeners.insert(Listener {
            socket,
            kind,
            auth_key,
            half_open: VecDeque::new(),
        });
        bounded!(self.listeners, OBJECTS);
        let source = Source::Listener(key);
        let watched = self
            .poller
            .watch_listener(self.listeners[key].socket.as_fd(), source);
        if let Err(error) = watched {
            self.listeners.remove(key);
            return Err(error);
        }
        Ok(key)
    }

    /// Stops listening; connections without a request are closed.
    pub fn remove_listener(&mut self, key: ListenerKey) {
        if let Some(listener) = self.listeners.remove(key) {
            self.poller.forget(listener.socket.as_fd());
            for conn in listener.half_open {
                self.remove_connection(conn);
            }
        }
    }

    /// Accepts the pending connections of a listener.
    pub(crate) fn accept(&mut self, key: ListenerKey) {
        for _ in 0..ACCEPTS_PER_TURN {
            let Some(listener) = self.listeners.get(key) else {
                return;
            };
            if !listener.has_room() {
                log::info!(
                    target: crate::LOG.ep_ctrl,
                    "too many connection requests without an answer; others wait"
                );
                self.rest(key);
                return;
            }
            match socket::accept(listener.socket.as_fd(), &self.params) {
                Ok(socket) => self.accepted(key, socket),
                Err(Errno::EAGAIN) => return,
                Err(Errno::ECONNABORTED | Errno::EINTR | Errno::EPROTO) => {}
                Err(error) => {
                    // Most likely there are no descriptors. The connections wait in the kernel
                    // meanwhile.
                    self.close_idle_stranger();
                    log::warn!(
                        target: crate::LOG.ep_ctrl,
                        "cannot accept connections for the moment: {error}"
                    );
                    self.rest(key);
                    return;
                }
            }
        }
    }

    /// Pauses a listener.
    fn rest(&mut self, key: ListenerKey) {
        if let Some(listener) = self.listeners.get(key) {
            let socket = listener.socket.as_fd();
            self.poller.rest(socket, Due::Listener(key));
        }
    }

    /// Resumes a listener after a pause.
    pub(crate) fn wake_listener(&mut self, key: ListenerKey) {
        if let Some(listener) = self.listeners.get(key) {
            let socket = listener.socket.as_fd();
            self.poller
                .rested(socket, Source::Listener(key), Due::Listener(key));
        }
    }

    fn accepted(&mut self, key: ListenerKey, socket: OwnedFd) {
        let keyed = self
            .listeners
            .get(key)
            .is_some_and(|listener| listener.auth_key.is_some());
        let is_for_subflows = self
            .listeners
            .get(key)
            .is_some_and(|listener| matches!(listener.kind, ListenerKind::Subflows));
        let stage = Stage::Accepted(match (is_for_subflows, keyed) {
            (true, _) => AuthState::Joining,
            (false, true) => AuthState::Closed,
            (false, false) => AuthState::Open,
        });
        let deadline = Some(Instant::now() + REQUEST_TIME);
        let conn = Connection::new(socket, Owner::Listener(key), stage, deadline);
        let Ok(conn) = self.add_connection(conn) else {
            return;
        };
        let Some(listener) = self.listeners.get_mut(key) else {
            return;
        };
        listener.half_open.push_back(conn);
        bounded!(listener.half_open, PEERS);
        self.count_half_open(conn);
        let Some(listener) = self.listeners.get_mut(key) else {
            return;
        };
        if listener.half_open.len() > HALF_OPEN_LIMIT
            && let Some(oldest) = listener.half_open.pop_front()
        {
            log::info!(
                target: crate::LOG.ep_ctrl,
                "too many connections without a request; the oldest is closed"
            );
            self.remove_connection(oldest);
        }
    }

    /// Handles that a connection has sent its request, or has ended.
    pub(crate) fn no_longer_half_open(&mut self, key: ConnKey, listener: ListenerKey) {
        self.half_open.remove(key);
        if let Some(listener) = self.listeners.get_mut(listener) {
            listener.half_open.retain(|&other| other != key);
        }
    }
}
