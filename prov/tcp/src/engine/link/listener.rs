//! Listening sockets.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use crate::engine::link::keys::{ConnKey, EpKey};
use crate::wire::authentication::Key;
use crate::wire::handshake::Message;

/// Connections that may wait to be taken from the system.
pub const BACKLOG: i32 = 4096;

/// A socket that strangers connect to.
pub struct Listener {
    pub socket: OwnedFd,
    pub kind: ListenerKind,
    /// What peers must prove to know.
    pub auth_key: Option<Key>,
    /// Connections that have not sent their whole request, oldest first.
    pub half_open: VecDeque<ConnKey>,
}

impl Listener {
    /// Whether more requests may come.
    pub fn has_room(&self) -> bool {
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
