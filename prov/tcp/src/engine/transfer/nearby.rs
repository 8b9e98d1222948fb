//! What comes through memory that is shared with other processes of this host.

use prov_local::rota::{Rota, Rounds};
use prov_local::stream::SHORT;

use crate::engine::Core;
use crate::engine::link::detours::Detour;
use crate::engine::link::keys::ConnKey;
use crate::engine::transfer::arrival::short_way;
use crate::wire::handshake::Features;
use crate::wire::simple::decode_simple;

/// Short messages of one connection before others have their turn.
const MESSAGES_PER_TURN: u32 = 64;

/// How many times as often the poller is asked where there are connections
/// through the network, too.
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
        let shortcut = self.conns.get(key).and_then(|conn| conn.shortcut.as_ref());
        if !shortcut.is_some_and(|shortcut| shortcut.has_next()) {
            return false;
        }
        match self.take_in_short(key) {
            Some(any) => any,
            None => self.read(key, false),
        }
    }

    fn say_sleep(&mut self, key: ConnKey) {
        let conn = self.conns.get_mut(key);
        if let Some(shortcut) = conn.and_then(|conn| conn.shortcut.as_mut()) {
            shortcut.sleep();
        }
    }

    fn is_awake(&self, key: ConnKey) -> bool {
        let shortcut = self.conns.get(key).and_then(|conn| conn.shortcut.as_ref());
        shortcut.is_some_and(|shortcut| shortcut.is_awake())
    }

    fn has_work(&mut self, key: ConnKey) -> bool {
        let Some(conn) = self.conns.get_mut(key) else {
            return false;
        };
        let can_take = !self.endpoints.is_deaf() && !conn.is_paused();
        let is_blocked = conn.is_blocked;
        conn.shortcut.as_mut().is_some_and(|shortcut| {
            can_take && shortcut.has_next() || is_blocked && shortcut.has_room()
        })
    }
}

impl Core {
    /// Takes in what has come, and goes on with what waits for room; whether
    /// anything has come.
    #[inline(always)]
    pub(crate) fn read_nearby(&mut self) -> bool {
        if !self.starved.is_empty() {
            self.feed();
        }
        self.take_in_some()
    }

    /// Takes in short messages with nothing special about them that find their
    /// receives, straight from where they are; whether there were any. `None`
    /// where other bytes are next.
    #[inline(always)]
    fn take_in_short(&mut self, key: ConnKey) -> Option<bool> {
        let conn = self.conns.get_mut(key)?;
        if !conn.is_plain() {
            return None;
        }
        let mut plain = short_way(conn, &mut self.endpoints)?;
        let shortcut = conn.shortcut.as_mut()?;
        let mut room = [0; SHORT];
        let (mut any, mut is_other) = (false, false);
        for _ in 0..MESSAGES_PER_TURN {
            let Some(bytes) = shortcut.peek_short(&mut room) else {
                is_other = !any && shortcut.has_next();
                break;
            };
            let len = bytes.len();
            let Some(simple) = decode_simple(bytes) else {
                is_other = true;
                break;
            };
            if !simple.rest.is_empty()
                || simple.name.is_some() && !conn.features.has(Features::NAMED_ACKS)
                || !plain.take(conn.src, simple.tag, simple.payload)
            {
                is_other = true;
                break;
            }
            if let Some(name) = simple.name {
                conn.owed.push(name);
            }
            shortcut.take_short(&conn.socket, len);
            any = true;
        }
        if any {
            conn.detours.set(Detour::Bulk, false);
            self.idle_calls = 0;
            if !conn.owed.is_empty() {
                self.acknowledge_owed(key);
            }
        }
        (!is_other).then_some(any)
    }

    /// The poller has been asked.
    pub(crate) fn rota_goes_on(&mut self) {
        let is_mixed = self.conns.len() > self.rota.len();
        self.rota.polled(if is_mixed { MIXED } else { 1 });
        if let Some(due) = self.rota.naps_again(&self.signals) {
            self.poller.wake_at(due);
        }
    }
}
