//! Operations whose peer takes nothing for a while: their bytes are set aside, and they are complete.
//!
//! With the C library, an operation is complete when the kernel has its bytes, and the kernel accepts
//! some megabytes for a process that makes no calls. A program may rely on that: it waits for its
//! send to complete, and tells the other process only then to receive. Here less is in the kernel,
//! since buffers that fit into caches are faster, and long messages stay in the application's memory
//! until they are requested or fetched. So a connection that stands still is checked, and when nothing
//! has moved between two checks, bytes are copied, up to [`SHARE`]. A process that fetches messages from
//! this one's memory by itself is told where the copies are ([`prov_local::relocation`]).

use std::time::{Duration, Instant};

use prov_local::link::aside::{Aside, SHARE};
use prov_local::link::payload::Payload;
use prov_message::keys::to_peer;
use prov_message::{Ticket, Wakeups};

use crate::engine::Core;
use crate::engine::link::connection::Connection;
use crate::engine::link::detours::Detour;
use crate::engine::link::keys::{ConnKey, Due, Source};
use crate::engine::link::narrow::{Narrow, OfferedMessage};
use crate::engine::link::outstanding::Named;
use crate::engine::link::ready::Why;

/// Time between two checks. A process that computes or waits for the processor may make no calls for
/// as long; a copy takes a small part of that time.
const PAUSE: Duration = Duration::from_millis(20);

impl Core {
    /// Begins to check whether the peer of a connection takes anything, if an operation in the
    /// outbox waits for that. A check that is due is not put off.
    #[inline]
    pub(crate) fn watch_for_stillness(&mut self, key: ConnKey) {
        if let Some(conn) = self.conns.get_mut(key)
            && conn.outbox.has_ops()
        {
            conn.check_stillness_later(key, Instant::now(), &mut self.poller);
        }
    }

    /// The same when a message was announced that is complete when it is sent.
    pub(crate) fn watch_what_is_announced(&mut self, key: ConnKey) {
        if let Some(conn) = self.conns.get_mut(key) {
            conn.check_stillness_later(key, Instant::now(), &mut self.poller);
        }
    }

    /// An announced or offered message that was set aside has left: others may find room now.
    pub(crate) fn aside_has_left(&mut self, key: ConnKey) {
        self.note_what_is_on_request(key);
        let conn = self.conns.get(key);
        if conn.is_some_and(|conn| conn.has_announced_since(0)) {
            self.watch_what_is_announced(key);
        }
    }

    /// Checks a connection, and sets aside what has not moved.
    pub(crate) fn check_stillness(&mut self, key: ConnKey, now: Instant) {
        let Some(conn) = self.conns.get_mut(key) else {
            return;
        };
        conn.stillness.is_watched = false;
        if conn.is_cut_off() || conn.detours.has(Detour::PeerEnded) {
            // What has not left never will.
            return;
        }
        let still = conn.stillness.since(conn.outbox.sent());
        if still.queue && conn.is_blocked() {
            let room = SHARE.saturating_sub(conn.announced_aside());
            conn.outbox.set_aside(room);
        }
        let room = SHARE.saturating_sub(conn.aside());
        let mut done = Vec::new();
        if let Some(until) = still.announced {
            done = conn.set_announced_aside(until, room);
        }
        for ticket in done {
            self.endpoints.finish(ticket, Ok(()));
        }
        conn.finish_done(&mut self.endpoints);
        self.note_what_is_aside(key);
        self.note_what_is_on_request(key);
        // What found no room now finds some when something moves, which begins the next check.
        let Some(conn) = self.conns.get_mut(key) else {
            return;
        };
        let is_due = !still.queue && conn.outbox.has_ops()
            || conn.has_announced_since(still.announced.unwrap_or(0))
            || still.announced.is_none()
                && conn.ops.narrow.as_ref().is_some_and(Narrow::is_waiting);
        if is_due {
            conn.check_stillness_later(key, now, &mut self.poller);
        }
    }

    /// Notes whether bytes of the outbox are set aside, or have been accepted for subflows and are not
    /// sent.
    pub(crate) fn note_what_is_aside(&mut self, key: ConnKey) {
        let conn = self.conns.get(key);
        let waits = conn.is_some_and(|conn| {
            let multipath = conn.multipath.as_ref();
            conn.outbox.aside() != 0 || multipath.is_some_and(|multipath| multipath.has_to_send())
        });
        self.note_stall(key, Why::Aside, waits);
    }

    /// Notes whether messages are set aside that the peer has to request or fetch.
    fn note_what_is_on_request(&mut self, key: ConnKey) {
        let conn = self.conns.get(key);
        let waits = conn.is_some_and(|conn| conn.announced_aside() != 0);
        self.note_stall(key, Why::OnRequest, waits);
    }
}

impl Connection {
    fn check_stillness_later(
        &mut self,
        key: ConnKey,
        now: Instant,
        poller: &mut Wakeups<Source, Due>,
    ) {
        if self.is_open() && !self.is_cut_off() && !self.stillness.is_watched {
            let span = self.outbox.span();
            self.stillness.note(span.sent, span.queued);
            self.stillness.is_watched = true;
            poller.call_at(now + PAUSE, Due::Still(key));
        }
    }

    /// Whether messages wait for the peer that could be set aside, and were announced or offered
    /// behind this position in the stream.
    fn has_announced_since(&self, from: u64) -> bool {
        let mut named = self.ops.named.values();
        named.any(|named| self.can_be_set_aside(named).is_some_and(|end| end > from))
    }

    /// Returns the position in the stream of an announced or offered message that waits for the peer
    /// and could be set aside.
    fn can_be_set_aside(&self, named: &Named) -> Option<u64> {
        match named {
            Named::Announced {
                payload: Some(Payload::App(_)),
                ack: false,
                end,
                ..
            } => Some(*end),
            Named::Offered {
                payload: Payload::App(_),
                ack: false,
                end,
                ..
            } => {
                let shortcut = self.local.shortcut.as_ref();
                let can_relocate = shortcut.is_some_and(|shortcut| shortcut.can_relocate());
                can_relocate.then_some(*end)
            }
            _ => None,
        }
    }

    /// Whether messages wait for the peer that are complete for the application.
    pub(crate) fn awaits_request_of_aside(&self) -> bool {
        self.is_open() && !self.is_cut_off() && self.announced_aside() != 0
    }

    /// Returns the number of bytes that are set aside.
    fn aside(&self) -> u64 {
        self.outbox.aside() + self.announced_aside()
    }

    fn announced_aside(&self) -> u64 {
        let named = self.ops.named.values().map(|named| match named {
            Named::Announced {
                payload: Some(payload),
                ..
            }
            | Named::Offered { payload, .. } => payload.aside(),
            _ => 0,
        });
        let narrow = self.ops.narrow.iter().flat_map(|narrow| narrow.iter());
        named.sum::<u64>() + narrow.map(|message| message.payload.aside()).sum::<u64>()
    }

    /// Sets the payloads of announced and offered messages aside, up to `room` bytes of those up to
    /// this position in the stream, oldest first. Returns the operations, which are complete.
    fn set_announced_aside(&mut self, until: u64, mut room: u64) -> Vec<Ticket> {
        let waiting = self.ops.named.iter().filter_map(|(key, named)| {
            let end = self.can_be_set_aside(named);
            end.filter(|end| *end <= until).map(|end| (end, key))
        });
        let mut waiting: Vec<_> = waiting.collect();
        waiting.sort_unstable();
        let mut done = Vec::new();
        for (_, key) in waiting {
            let shortcut = self.local.shortcut.as_deref_mut();
            let is_aside = match self.ops.named.get_mut(key) {
                Some(Named::Announced {
                    ticket,
                    payload: Some(payload),
                    ..
                }) => set_aside(ticket, payload, &mut room, |_| true),
                Some(Named::Offered {
                    ticket, payload, ..
                }) => set_aside(ticket, payload, &mut room, |copy| {
                    shortcut.is_some_and(|shortcut| shortcut.relocate(to_peer(key), copy.address()))
                }),
                _ => None,
            };
            match is_aside {
                Some(ticket) => done.push(ticket),
                None => return done,
            }
        }
        let narrow = self
            .ops
            .narrow
            .iter_mut()
            .flat_map(|narrow| narrow.iter_mut());
        for message in narrow.filter(|message| !message.wants_ack) {
            let OfferedMessage {
                ticket, payload, ..
            } = message;
            done.extend(set_aside(ticket, payload, &mut room, |_| true));
        }
        done
    }

    /// The peer has the payload of a message that was set aside.
    pub(crate) fn is_fetched(&mut self, name: u64) {
        if let Some(shortcut) = &mut self.local.shortcut {
            shortcut.has_fetched(name);
        }
    }
}

/// Sets a payload aside, if there is room and `has_place` accepts the copy. Returns the operation,
/// which is complete.
fn set_aside(
    ticket: &mut Option<Ticket>,
    payload: &mut Payload,
    room: &mut u64,
    has_place: impl FnOnce(&Aside) -> bool,
) -> Option<Ticket> {
    let Payload::App(memory) = payload else {
        return None;
    };
    if memory.len() as u64 > *room {
        return None;
    }
    let copy = Aside::copy_of(memory).filter(has_place)?;
    *room -= copy.bytes().len() as u64;
    *payload = Payload::Aside(copy);
    ticket.take()
}
