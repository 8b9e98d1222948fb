//! A limit to the connections of strangers: of peers that no address vector knows, and of
//! whoever has connected and not sent a request.
//!
//! Connections of which another process of this host and user is the far end do not
//! count: the same user can use up the process's descriptors anyway.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use prov_message::peers::UNKNOWN_SOURCE;
use prov_message::strangers::Strangers;
use prov_util::errno::Errno;
use prov_util::socket::silence::signs;
use rustix::process::{Resource, getrlimit};

use crate::engine::Core;
use crate::engine::link::connection::Owner;
use crate::engine::link::keys::ConnKey;

/// Strangers may have one in so many of the descriptors that the process may open,
/// unless `FI_TCP_MAX_STRANGERS` says how many.
const SHARE: u64 = 4;
/// Connections that are looked at for one to close. Where strangers keep all of them
/// busy, a newcomer is refused after so many.
const LOOKS: usize = 16;
/// Times that differ by less than this are the same: the system counts in ticks.
const TICK: Duration = Duration::from_millis(10);

/// Connections of strangers in this process.
static STRANGERS: AtomicUsize = AtomicUsize::new(0);
/// Connections in this process that have not sent their request.
static HALF_OPEN: AtomicUsize = AtomicUsize::new(0);
/// Connections that were closed or refused for the limit.
static TURNED_AWAY: AtomicU64 = AtomicU64::new(0);

/// No connections of strangers.
pub(crate) fn strangers() -> Strangers<ConnKey> {
    Strangers::new(&STRANGERS)
}

/// No connections without a request.
pub(crate) fn half_open() -> Strangers<ConnKey> {
    Strangers::new(&HALF_OPEN)
}

impl Core {
    /// Connections that strangers may have in this process.
    pub(crate) fn stranger_limit(&self) -> usize {
        if self.params.max_strangers != 0 {
            return self.params.max_strangers;
        }
        let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        usize::try_from(descriptors / SHARE).unwrap_or(usize::MAX)
    }

    /// The peer of a connection is another one, or the address vector has learnt or
    /// forgotten it.
    pub(crate) fn count_if_stranger(&mut self, key: ConnKey) {
        let conn = self.conns.get(key);
        let is_strangers = conn.is_some_and(|conn| {
            let came_in = !conn.calls && conn.peer.is_some();
            came_in && matches!(conn.owner, Owner::Ep(_)) && conn.src == UNKNOWN_SOURCE
        });
        match is_strangers {
            true => self.strangers.used(key, Instant::now()),
            false => self.strangers.remove(key),
        }
    }

    /// A connection that was just accepted from a stranger counts: another one has to go
    /// where there are too many. Whether it may stay.
    pub(crate) fn admit_stranger(&mut self, key: ConnKey) -> bool {
        self.strangers.used(key, Instant::now());
        while self.strangers.are_too_many(self.stranger_limit()) {
            if !self.close_idle_stranger(Some(key)) {
                say_rarely(
                    "strangers keep all connections that they may have busy; one is refused",
                );
                return false;
            }
        }
        true
    }

    /// Closes the connection that was used least recently of those of strangers with
    /// nothing under way, if there is one other than `but`. Its peer makes another one
    /// with the next message.
    pub(crate) fn close_idle_stranger(&mut self, but: Option<ConnKey>) -> bool {
        for _ in 0..LOOKS {
            let Some((key, noted)) = self.strangers.oldest() else {
                return false;
            };
            let now = Instant::now();
            if Some(key) == but {
                self.strangers.used(key, now);
                continue;
            }
            // What has come may make it a busy one, or be its end.
            self.read(key, true);
            let Some(conn) = self.conns.get(key) else {
                return true;
            };
            if conn.shortcut.is_some() {
                self.strangers.remove(key);
                return true;
            }
            if !conn.is_idle() || self.endpoints.has_announced(key) {
                self.strangers.used(key, now);
                continue;
            }
            let moved = signs(conn.socket.as_fd()).map(|signs| now.checked_sub(signs.moved));
            if let Ok(Some(used)) = moved
                && used > noted + TICK
            {
                self.strangers.used(key, used);
                continue;
            }
            say_rarely("too many connections of strangers; the one used least recently is closed");
            self.break_connection(key, Errno::ESHUTDOWN);
            return true;
        }
        false
    }

    /// A connection has come that has not sent its request. The oldest such connection
    /// goes where there are too many in the process.
    pub(crate) fn count_half_open(&mut self, key: ConnKey) {
        self.half_open.used(key, Instant::now());
        while self.half_open.are_too_many(self.stranger_limit())
            && let Some((oldest, _)) = self.half_open.oldest()
        {
            say_rarely("too many connections without a request; the oldest is closed");
            self.half_open.remove(oldest);
            self.remove_connection(oldest);
        }
    }
}

/// Logs the first such event, the second, the fourth and so on.
fn say_rarely(what: &str) {
    let count = TURNED_AWAY.fetch_add(1, Ordering::Relaxed) + 1;
    if count.is_power_of_two() {
        log::warn!(target: crate::LOG.ep_ctrl, "{what} ({count} closed or refused so far)");
    }
}
