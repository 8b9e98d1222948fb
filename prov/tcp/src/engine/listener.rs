//! Listening sockets.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use prov_util::errno::{Errno, Result};

use super::connection::{Connection, Door, Owner, Stage};
use super::keys::{ConnKey, EpKey, ListenerKey, Source};
use super::timers::Target;
use super::{Core, socket};
use crate::wire::authentication::Key;
use crate::wire::handshake::Message;

/// A socket that strangers connect to.
pub struct Listener {
    pub socket: OwnedFd,
    pub kind: ListenerKind,
    /// What peers must prove to know.
    pub auth_key: Option<Key>,
    /// Connections that have not sent their whole request, oldest first.
    half_open: VecDeque<ConnKey>,
}

impl Listener {
    fn has_room(&self) -> bool {
        match &self.kind {
            ListenerKind::Rdm(_) => true,
            ListenerKind::Passive(sink) => sink.has_room(),
        }
    }
}

/// Who takes the requests.
pub enum ListenerKind {
    /// An RDM endpoint.
    Rdm(EpKey),
    /// A passive endpoint.
    Passive(Box<dyn RequestSink>),
}

/// Where a passive endpoint's connection requests go.
pub trait RequestSink: Send {
    /// Whether more requests may come.
    fn has_room(&self) -> bool;
    /// A peer asks for a connection (`FI_CONNREQ`).
    fn request(&self, incomer: Incomer);
}

/// A peer that asks for a connection.
pub struct Incomer {
    pub socket: OwnedFd,
    pub message: Message,
    /// What it has proved to know.
    pub auth_key: Option<Key>,
}

/// How long a peer may take for its request.
const REQUEST_TIME: Duration = Duration::from_secs(10);
/// Connections without a request at one listener; the oldest has to go for one
/// more.
const HALF_OPEN_LIMIT: usize = 512;
/// Connections taken from the system at once.
const ACCEPTS_PER_TURN: usize = 64;
/// How long a listener rests when the system has no descriptors left, or the
/// application too many requests to answer.
const REST: Duration = Duration::from_millis(100);

impl Core {
    /// Listens at a bound socket.
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

    /// Stops listening; connections without a request end.
    pub fn remove_listener(&mut self, key: ListenerKey) {
        if let Some(listener) = self.listeners.remove(key) {
            self.poller.forget(listener.socket.as_fd());
            for conn in listener.half_open {
                self.remove_connection(conn);
            }
        }
    }

    /// Takes the connections that wait at a listener.
    pub(super) fn accept(&mut self, key: ListenerKey) {
        for _ in 0..ACCEPTS_PER_TURN {
            let Some(listener) = self.listeners.get(key) else {
                return;
            };
            if !listener.has_room() {
                log::info!("too many connection requests without an answer; others wait");
                self.rest(key);
                return;
            }
            match socket::accept(listener.socket.as_fd(), &self.params) {
                Ok(socket) => self.accepted(key, socket),
                Err(Errno::EAGAIN) => return,
                Err(Errno::ECONNABORTED | Errno::EINTR | Errno::EPROTO) => {}
                Err(error) => {
                    // Most likely there are no descriptors. The connections
                    // wait in the kernel meanwhile.
                    log::warn!("cannot accept connections for the moment: {error}");
                    self.rest(key);
                    return;
                }
            }
        }
    }

    /// Leaves a listener alone for a while.
    fn rest(&mut self, key: ListenerKey) {
        if let Some(listener) = self.listeners.get(key) {
            self.poller.forget(listener.socket.as_fd());
            let again = Instant::now() + REST;
            self.timers.set(again, Target::Listener(key));
            self.poller.wake_at(again);
        }
    }

    /// A listener has rested.
    pub(super) fn wake_listener(&mut self, key: ListenerKey) {
        if let Some(listener) = self.listeners.get(key) {
            // If this fails now, the next attempt may not.
            let source = Source::Listener(key);
            if self
                .poller
                .watch_listener(listener.socket.as_fd(), source)
                .is_err()
            {
                self.rest(key);
            }
        }
    }

    fn accepted(&mut self, key: ListenerKey, socket: OwnedFd) {
        let keyed = self
            .listeners
            .get(key)
            .is_some_and(|listener| listener.auth_key.is_some());
        let stage = Stage::Accepted {
            request: Vec::new(),
            deadline: Instant::now() + REQUEST_TIME,
            door: if keyed { Door::Closed } else { Door::Open },
        };
        let Ok(conn) = self.add_connection(Connection::new(socket, Owner::Listener(key), stage))
        else {
            return;
        };
        let Some(listener) = self.listeners.get_mut(key) else {
            return;
        };
        listener.half_open.push_back(conn);
        if listener.half_open.len() > HALF_OPEN_LIMIT
            && let Some(oldest) = listener.half_open.pop_front()
        {
            log::info!("too many connections without a request; the oldest is closed");
            self.remove_connection(oldest);
        }
    }

    /// A connection has sent its request, or has ended.
    pub(super) fn no_longer_half_open(&mut self, key: ConnKey, listener: ListenerKey) {
        if let Some(listener) = self.listeners.get_mut(listener) {
            listener.half_open.retain(|&other| other != key);
        }
    }
}
