//! Limits of the connections of strangers: peers that are in no address vector, and connections
//! without a request.
//!
//! Connections whose other end is another process of this host and user do not count: the same user
//! can use up the process's descriptors anyway.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use prov_base::errno::Errno;
use prov_base::socket::silence::signs;
use prov_message::peers::UNKNOWN_SOURCE;
use prov_message::strangers::{Activity, AllStrangers, Hosting, Strangers, limit};

use crate::engine::Core;
use crate::engine::link::connection::Owner;
use crate::engine::link::fault::Fault;
use crate::engine::link::keys::ConnKey;

/// Times that differ by less than this are considered equal: the kernel counts in ticks.
const TICK: Duration = Duration::from_millis(10);

/// The connections of strangers in this process.
static STRANGERS: AllStrangers = AllStrangers::new();
/// The connections in this process that have not sent their request.
static HALF_OPEN: AllStrangers = AllStrangers::new();

/// Creates an empty set of connections of strangers.
pub(crate) fn strangers() -> Strangers<ConnKey> {
    Strangers::new(&STRANGERS)
}

/// Creates an empty set of connections without a request.
pub(crate) fn half_open() -> Strangers<ConnKey> {
    Strangers::new(&HALF_OPEN)
}

impl Hosting for Core {
    type Link = ConnKey;

    const LOG_TARGET: &'static str = crate::LOG.ep_ctrl;

    fn strangers(&mut self) -> &mut Strangers<ConnKey> {
        &mut self.strangers
    }

    fn stranger_limit(&self) -> usize {
        limit(self.params.max_strangers)
    }

    fn look_at_stranger(&mut self, key: ConnKey, noted: Instant) -> Activity {
        self.read(key, true);
        let Some(conn) = self.conns.get(key) else {
            return Activity::Ended;
        };
        if conn.local.shortcut.is_some() {
            return Activity::NotCounted;
        }
        if !conn.is_idle() || self.endpoints.has_announced(key) {
            return Activity::Busy;
        }
        let now = Instant::now();
        let moved = signs(conn.socket.as_fd()).map(|signs| now.checked_sub(signs.moved));
        match moved {
            Ok(Some(used)) if used > noted + TICK => Activity::Used(used),
            _ => Activity::Idle,
        }
    }

    fn close_stranger(&mut self, key: ConnKey) {
        let reason = "there are too many with peers that are in no address vector";
        self.break_with(key, Fault::Here(Errno::ESHUTDOWN, reason));
    }
}

impl Core {
    /// Handles that the peer of a connection has changed, or that the address vector has gained or
    /// lost it.
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

    /// Counts a connection that has not sent its request. The oldest such connection is closed if
    /// there are too many in the process.
    pub(crate) fn count_half_open(&mut self, key: ConnKey) {
        while self.half_open.lacks_room(self.stranger_limit()) && self.close_half_open() {}
        self.half_open.used(key, Instant::now());
    }

    /// Closes the oldest connection that has not sent its request, if there is one.
    fn close_half_open(&mut self) -> bool {
        let Some((oldest, _)) = self.half_open.oldest() else {
            return false;
        };
        HALF_OPEN.say_rarely(
            crate::LOG.ep_ctrl,
            "too many connections without a request; the oldest is closed",
        );
        self.half_open.remove(oldest);
        self.remove_connection(oldest);
        true
    }

    /// Closes the connections that other lanes of the process have requested to close.
    #[inline]
    pub(crate) fn close_for_other_lanes(&mut self) {
        self.close_for_others();
        if self.half_open.has_orders() {
            while self.half_open.take_order() && self.close_half_open() {}
        }
    }
}
