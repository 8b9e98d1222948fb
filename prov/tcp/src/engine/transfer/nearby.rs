//! Receiving from memory that is shared with other processes of this host.

use prov_local::channel::Channel;
use prov_local::doorbell::Doorbell;
use prov_local::link::{self, Link};
use prov_local::rota::{Rota, Rounds};

use crate::engine::Core;
use crate::engine::link::connection::Connection;
use crate::engine::link::detours::Detour;
use crate::engine::link::keys::ConnKey;
use crate::engine::link::ready::Why;

/// Factor by which the poller is called more often if there are also connections through the
/// network.
const MIXED: u32 = 16;

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
        let conn = self.conns.get(key);
        if !conn.is_some_and(|conn| conn.detours.let_link()) {
            return self.take_in_otherwise(key);
        }
        let is_idle = self.idle_calls != 0;
        let has_come = link::take_in(self, key, is_idle);
        if has_come {
            self.idle_calls = 0;
        }
        has_come
    }

    #[inline]
    fn channel(&mut self, key: ConnKey) -> Option<&mut Channel> {
        self.conns.get_mut(key)?.link_mut()?.channel.as_mut()
    }

    fn wake(&self, key: ConnKey) {
        if let Some(link) = self.conns.get(key).and_then(Connection::link) {
            link.wake_peer();
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
        let Some(shortcut) = &mut conn.local.shortcut else {
            return false;
        };
        let (link, has_next) = (&shortcut.link, shortcut.has_next());
        let has_part = link.pulls.has_part() || self.copier.is_asked(key);
        has_part
            || can_take && link.can_take() && has_next
            || is_blocked && shortcut.has_room()
            || shortcut.link.has_room_again()
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

    /// Receives what comes through the memory while the link is not alone: what precedes it may be
    /// held back, or the peer has ended.
    #[inline(never)]
    fn take_in_otherwise(&mut self, key: ConnKey) -> bool {
        let Some(conn) = self.conns.get(key) else {
            return false;
        };
        if conn.detours.has(Detour::BySocket) {
            return false;
        }
        // The payload of a message that there is no memory for has ended with the peer.
        if conn.detours.has(Detour::PeerEnded) && conn.link().is_some_and(Link::holds_back) {
            self.end_of_stream(key);
            return false;
        }
        let has_come = !conn.is_paused() && link::take_in(self, key, false);
        if has_come {
            self.idle_calls = 0;
        }
        self.read(key, false) | has_come
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
