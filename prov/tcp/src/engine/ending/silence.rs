//! Detection of hosts that have failed or are disconnected.

use std::os::fd::AsFd;
use std::time::Instant;

use prov_base::errno::Errno;
use prov_base::socket::silence::{patience, signs};

use crate::engine::Core;
use crate::engine::link::keys::ConnKey;
use crate::engine::link::keys::Due;

/// Number of checks within the time for which a host may be silent.
const LOOKS: u32 = 4;
impl Core {
    /// Starts periodic checks of the connections, as long as there are any.
    pub(crate) fn watch_for_silence(&mut self) {
        if !self.is_watching {
            self.is_watching = true;
            self.look_later();
        }
    }

    fn look_later(&mut self) {
        let next = Instant::now() + patience(self.params.connect_timeout()) / LOOKS;
        self.poller.call_at(next, Due::Silence);
    }

    /// Ends the connections with hosts that have been silent for too long.
    pub(crate) fn look_for_silence(&mut self, now: Instant) {
        // The remaining quarter of the time may have passed before the first check.
        let limit = patience(self.params.connect_timeout()) / LOOKS * (LOOKS - 1);
        let mut silent: Vec<ConnKey> = Vec::new();
        for (key, conn) in &mut self.conns {
            if !conn.is_open() || !(conn.watch.is_due(conn.sequence) | !conn.outbox.is_empty()) {
                continue;
            }
            if let Ok(signs) = signs(conn.socket.as_fd())
                && conn.watch.note(&signs, now) >= limit
            {
                log::warn!(target: crate::LOG.ep_ctrl, "{} has fallen silent", conn.peer_text());
                silent.push(key);
            }
        }
        for key in silent {
            self.break_connection(key, Errno::ETIMEDOUT);
        }
        self.is_watching = !self.conns.is_empty();
        if self.is_watching {
            self.look_later();
        }
    }
}
