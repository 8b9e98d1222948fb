//! What comes through memory that is shared with other processes of this host.

use prov_local::rota::{LIVELY, QUIET};

use crate::engine::Core;
use crate::engine::link::keys::ConnKey;

/// How many times as often the poller is asked where there are connections
/// through the network, too.
const MIXED: u32 = 16;

impl Core {
    /// Takes in what has come, as [`Rota`](prov_local::rota::Rota) has it, and
    /// goes on with what waits for room; whether anything has come.
    #[inline(always)]
    pub(crate) fn read_nearby(&mut self) -> bool {
        if !self.starved.is_empty() {
            self.feed();
        }
        if self.endpoints.is_deaf() {
            return false;
        }
        let mut any = false;
        let mut number = 0;
        while number < LIVELY
            && let Some(key) = self.rota.lively(number)
        {
            any |= self.read_if_come(key);
            number += 1;
        }
        if self.rota.len() > LIVELY {
            any |= self.read_quiet(QUIET);
        }
        any
    }

    /// Takes in what has come on so many of those that bring little.
    #[inline(never)]
    pub(crate) fn read_quiet(&mut self, count: usize) -> bool {
        let mut any = false;
        for _ in 0..count {
            let Some(key) = self.rota.next_quiet() else {
                return any;
            };
            if self.read_if_come(key) {
                any = true;
                self.rota.quiet_brought(key);
            }
        }
        any
    }

    #[inline(always)]
    fn read_if_come(&mut self, key: ConnKey) -> bool {
        let shortcut = self.conns.get(key).and_then(|conn| conn.shortcut.as_ref());
        shortcut.is_some_and(|shortcut| shortcut.has_next()) && self.read(key, false)
    }

    /// The poller has been asked.
    pub(crate) fn rota_goes_on(&mut self) {
        let is_mixed = self.conns.len() > self.rota.len();
        self.rota.polled(if is_mixed { MIXED } else { 1 });
        if self.rota.naps_again(&self.signals) && !self.rota.is_empty() {
            self.nap();
        }
    }
}
