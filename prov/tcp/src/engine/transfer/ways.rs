//! How a message leaves on an open connection: eager, offered to a process of the same host, or
//! announced (rendezvous). It is decided here and nowhere else.

use prov_base::buffer::AppIov;
use prov_base::process_memory::OtherIov;
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
/// The features of a peer that copies from this process's memory directly.
const COPIES: Features = Features::LOCAL.or(Features::DIRECT);

/// How a message leaves.
pub(crate) enum SendPath {
    /// The payload follows the header.
    Eager,
    /// Within a host: the peer fetches the payload from this process's memory.
    Offered(OtherIov),
    /// To a peer of this library, which requests the payload.
    Announced,
    /// To a C peer, which requests the payload by this name.
    AnnouncedToC(u8),
    /// To a C peer, once one of the names for announcements is free again.
    Later,
}

impl Core {
    /// Chooses the method by which a message is sent. The first message that is long enough to be
    /// offered starts the mutual identification of two processes of one host.
    #[inline]
    pub(crate) fn way(&mut self, key: ConnKey, message: &Transmit, is_copied: bool) -> SendPath {
        let len = message.buffers.len();
        if len >= self.params.local_message_size
            && !message.is_inject()
            && !is_copied
            && let Some(memory) = self.memory_to_offer(key, &message.buffers)
        {
            return SendPath::Offered(memory);
        }
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

    /// Where a payload is that the peer fetches, if it can.
    fn memory_to_offer(&mut self, key: ConnKey, memory: &AppIov) -> Option<OtherIov> {
        let conn = self.conns.get_mut(key)?;
        let may_be = conn.sends_by_memory()
            && !conn.detours.has(Detour::Throttled)
            && conn.features.has(COPIES);
        // A connected endpoint copies a message that no receive waits for at once, and might not be
        // able to open the memory.
        let may_be = may_be && !(memory.has_device() && conn.is_msg());
        if !may_be || !self.is_neighbour(key) {
            return None;
        }
        let mut from = OtherIov::default();
        (from.push_own(memory, None) && from.can_be_copied()).then_some(from)
    }
}
