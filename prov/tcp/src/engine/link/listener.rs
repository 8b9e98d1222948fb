//! Listening sockets.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use crate::engine::link::keys::{ConnKey, EpKey};
use crate::wire::authentication::Key;
use crate::wire::handshake::Message;

/// Bound of connections that wait in the kernel to be accepted (listen(2)).
pub const BACKLOG: i32 = 4096;

/// A listening socket.
pub struct Listener {
    pub socket: OwnedFd,
    pub kind: ListenerKind,
    /// The key that peers must prove.
    pub auth_key: Option<Key>,
    /// Connections that have not sent their whole request, oldest first.
    pub half_open: VecDeque<ConnKey>,
}

impl Listener {
    /// Whether further requests are accepted.
    pub fn has_room(&self) -> bool {
        match &self.kind {
            ListenerKind::Rdm(_) | ListenerKind::Subflows => true,
            ListenerKind::Passive(sink) => sink.has_room(),
        }
    }
}

/// The owner of the requests.
pub enum ListenerKind {
    /// An RDM endpoint.
    Rdm(EpKey),
    /// A passive endpoint.
    Passive(Box<dyn RequestSink>),
    /// Connections of the lane, to which subflows are added.
    Subflows,
}

/// The queue for a passive endpoint's connection requests.
pub trait RequestSink: Send {
    /// Whether further requests are accepted.
    fn has_room(&self) -> bool;
    /// Reports a peer that requests a connection (`FI_CONNREQ`).
    fn request(&self, incomer: Incomer);
}

/// A peer that requests a connection.
pub struct Incomer {
    pub socket: OwnedFd,
    pub message: Message,
    /// The key that it has proved.
    pub auth_key: Option<Key>,
}
