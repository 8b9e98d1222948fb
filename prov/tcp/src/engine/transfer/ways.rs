//! How a message leaves by the socket of an open connection: eager, or announced (rendezvous). It is decided
//! here and nowhere else.

use prov_util::request::{Tag, Transmit};

use crate::engine::Core;
use crate::engine::link::connection::Connection;
use crate::engine::link::detours::Detour;
use crate::engine::link::endpoint::Kind;
use crate::engine::link::keys::ConnKey;
use crate::engine::link::post::COPY_LIMIT;
use crate::wire::handshake::Features;

/// Number of bytes in a connection's queue beyond which messages are announced.
const QUEUE_LIMIT: u64 = 4 << 20;
/// Length in bytes up to which messages are announced only to a peer that throttles: such messages
/// are copied to the queue, which accepts only few of them.
const WORTH_ANNOUNCING: usize = COPY_LIMIT;
/// Length in bytes beyond which messages are always announced, since the peer could buffer only few
/// of them.
pub(crate) const ALWAYS_ANNOUNCED: usize = 2 << 20;

/// How a message leaves.
pub(crate) enum SendPath {
    /// The payload follows the header.
    Eager,
    /// To a peer of this library, which requests the payload.
    Announced,
    /// To a C peer, which requests the payload by this name.
    AnnouncedToC(u8),
    /// To a C peer, once one of the names for announcements is free again.
    Later,
}

impl Core {
    /// Chooses the method by which a message is sent.
    #[inline]
    pub(crate) fn way(&self, key: ConnKey, message: &Transmit) -> SendPath {
        let len = message.buffers.len();
        let Some(conn) = self.conns.get(key) else {
            return SendPath::Eager;
        };
        if conn.is_msg() {
            // A message behind announced ones would be received before their payloads have arrived.
            return SendPath::Eager;
        }
        let is_throttled = conn.detours.has(Detour::Throttled);
        if len <= WORTH_ANNOUNCING && !is_throttled {
            return SendPath::Eager;
        }
        if !conn.features.has(Features::RENDEZVOUS) {
            return self.way_to_c(conn, matches!(message.tag, Tag::Value(_)), len);
        }
        let is_wanted = is_throttled || len > ALWAYS_ANNOUNCED || conn.outbox.len() >= QUEUE_LIMIT;
        match is_wanted && len > 0 && !self.leads_to_itself(conn, key) {
            true => SendPath::Announced,
            false => SendPath::Eager,
        }
    }

    /// Whether the far end of a connection is the same endpoint, which keeps all that it sends to
    /// itself until it posts receives: it may wait for its sends to complete before.
    fn leads_to_itself(&self, conn: &Connection, key: ConnKey) -> bool {
        match conn
            .ep()
            .and_then(|ep| self.endpoints.get(ep))
            .map(|ep| &ep.own.kind)
        {
            Some(Kind::Rdm(rdm)) => rdm.peers.own_link() == Some(key),
            _ => false,
        }
    }

    /// As in the C library: messages that are too long for the peer to buffer are announced, and no
    /// others. A C peer keeps no more announcements than messages, and an announced message
    /// completes only when it is received, which applications that know the C library may not
    /// expect.
    fn way_to_c(&self, conn: &Connection, tagged: bool, len: usize) -> SendPath {
        match &conn.ops.narrow {
            Some(narrow) if tagged && len > self.params.max_saved_size => narrow
                .free_name()
                .map_or(SendPath::Later, SendPath::AnnouncedToC),
            _ => SendPath::Eager,
        }
    }
}
