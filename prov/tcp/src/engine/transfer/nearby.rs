//! Receiving from memory that is shared with other processes of this host.

use std::os::fd::AsFd as _;

use prov_base::bounded;
use prov_base::bounds::OPERATIONS;
use prov_base::buffer::Piece;
use prov_local::channel::{Channel, Next};
use prov_local::doorbell::Doorbell;
use prov_local::rota::{Rota, Rounds};

use crate::engine::Core;
use crate::engine::link::detours::Detour;
use crate::engine::link::keys::ConnKey;
use crate::engine::link::ready::Why;
use crate::engine::transfer::arrival::fast_path;
use crate::local::path::shortcut::call;
use crate::wire::handshake::Features;
use crate::wire::simple::{SimpleHead, decode_single, plain_words, tagged_words};

/// Number of short messages of one connection before other connections get their turn: a bound of
/// the time of a progress call.
const MESSAGES_PER_TURN: u32 = 64;

/// Factor by which the poller is called more often if there are also connections through the
/// network.
const MIXED: u32 = 16;

/// The result of the fast path.
struct Drained {
    any: bool,
    /// Whether nothing is left for the slow path.
    is_all: bool,
}

impl Rounds for Core {
    type Key = ConnKey;

    #[inline(always)]
    fn rota(&mut self) -> &mut Rota<ConnKey> {
        &mut self.rota
    }

    #[inline(always)]
    fn is_deaf(&self) -> bool {
        self.endpoints.is_deaf()
    }

    #[inline(always)]
    fn take_in_from(&mut self, key: ConnKey) -> bool {
        match self.take_in_short(key) {
            Drained { any, is_all: true } => any,
            Drained { any, .. } => self.read(key, false) | any,
        }
    }

    #[inline]
    fn channel(&mut self, key: ConnKey) -> Option<&mut Channel> {
        let shortcut = self.conns.get_mut(key)?.local.shortcut.as_mut()?;
        Some(shortcut.channel_mut())
    }

    fn wake(&self, key: ConnKey) {
        if let Some(conn) = self.conns.get(key) {
            call(conn.socket.as_fd());
        }
    }

    fn doorbell(&self) -> Option<&Doorbell> {
        self.doorbell.as_ref()
    }

    fn has_work(&mut self, key: ConnKey) -> bool {
        let Some(conn) = self.conns.get_mut(key) else {
            return false;
        };
        let can_take = !self.endpoints.is_deaf() && !conn.is_paused();
        let is_blocked = conn.is_blocked();
        if conn.local.copies.transfers.has_part() || self.copier.is_asked(key) {
            return true;
        }
        conn.local.shortcut.as_mut().is_some_and(|shortcut| {
            can_take && shortcut.has_next() || is_blocked && shortcut.has_room()
        })
    }
}

impl Core {
    /// Receives messages, and resumes connections that wait for space; returns whether anything was
    /// received.
    #[inline(always)]
    pub(crate) fn read_nearby(&mut self) -> bool {
        if self.ready.has(Why::Starved) {
            self.feed();
        }
        self.take_in_some()
    }

    /// Receives short messages without special properties that have matching receives, directly
    /// from their slots.
    #[inline(always)]
    fn take_in_short(&mut self, key: ConnKey) -> Drained {
        let mut came = Drained {
            any: false,
            is_all: true,
        };
        let Some(conn) = self.conns.get_mut(key) else {
            return came;
        };
        let Some(shortcut) = &conn.local.shortcut else {
            return came;
        };
        came.is_all = false;
        let Some(mut next) = shortcut.peek() else {
            came.is_all = !shortcut.has_rest();
            return came;
        };
        if !conn.is_plain() {
            return came;
        }
        let Some(mut plain) = fast_path(conn, &mut self.endpoints) else {
            return came;
        };
        let src = conn.src;
        let mut turns = MESSAGES_PER_TURN;
        while let Some((head, payload)) = single(&next) {
            if head.name.is_some() && !conn.features.has(Features::NAMED_ACKS)
                || !plain.take(src, head.tag, &payload)
            {
                break;
            }
            if let Some(name) = head.name {
                conn.owed.push(name);
                bounded!(conn.owed, OPERATIONS);
            }
            came.any = true;
            let Some(shortcut) = &mut conn.local.shortcut else {
                break;
            };
            shortcut.take_short(&conn.socket);
            turns -= 1;
            next = match shortcut.peek() {
                Some(next) if turns != 0 => next,
                _ => {
                    came.is_all = true;
                    break;
                }
            };
        }
        if came.any {
            conn.detours.set(Detour::Bulk, false);
            self.idle_calls = 0;
            if !conn.owed.is_empty() {
                self.acknowledge_owed(key);
            }
        }
        came
    }

    /// Notes that the poller was called.
    pub(crate) fn rota_goes_on(&mut self) {
        let is_mixed = self.conns.len() > self.rota.len();
        self.rota.polled(if is_mixed { MIXED } else { 1 });
        self.tell_later();
    }

    /// Has peers told later that a thread sleeps, if one of them has woken a thread meanwhile.
    pub(crate) fn tell_later(&mut self) {
        if let Some(due) = self.rota.naps_again(&self.signals) {
            self.poller.wake_at(due);
        }
    }
}

/// Writes the header of a message without special properties that is sent as a whole; returns the
/// memory for its payload, `None` if there is no space.
#[inline(always)]
pub(crate) fn put_header<'m>(tag: Option<u64>, sequence: u8, to: &Piece<'m>) -> Option<Piece<'m>> {
    match tag {
        Some(tag) => to.write_words(tagged_words(tag, sequence, to.len())),
        None => to.write_words(plain_words(sequence, to.len())),
    }
}

/// Returns a message without special properties that is the only one in the slot, and its payload.
#[inline(always)]
fn single<'a>(next: &Next<'a>) -> Option<(SimpleHead, Piece<'a>)> {
    let bytes = next.bytes()?;
    let head = decode_single(
        bytes.len(),
        #[inline(always)]
        |number| next.eight(number),
    )?;
    Some((head, bytes.skip(head.len)))
}
