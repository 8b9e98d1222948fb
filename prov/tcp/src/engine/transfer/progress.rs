//! A progress call: sends what is held, and processes what was received.

use std::ops::Range;
use std::os::fd::AsFd;
use std::time::Instant;

use prov_base::errno::{Errno, Result};
use prov_message::{Idling, Reaching as _, Sleeper, Wakeups, Woken};

use crate::engine::Core;
use crate::engine::link::connection::Connection;
use crate::engine::link::detours::Detour;
use crate::engine::link::incoming::Incoming;
use crate::engine::link::keys::Due;
use crate::engine::link::keys::Event;
use crate::engine::link::keys::{ConnKey, Source};
use crate::engine::link::ready::Why;
use crate::engine::link::socket;
use crate::engine::transfer::arrival::{fast_path, take_in_simple};
use crate::local::path::Path;
use prov_local::copies::Copies as _;
use prov_local::rota::Rounds as _;

/// Largest number of successful reads of the favourite between two calls of the poller, while these
/// return no new events.
const LONGEST_INTERVAL: u32 = 64;
/// Number of successful reads for which a failed read counts: there is time to call the poller
/// then.
const VAIN: u32 = 4;
/// Number of reads of one connection before others get their turn.
const READS_PER_TURN: usize = 16;
/// Number of bytes after which others get their turn, too: a progress call has to be short, and
/// answers that the peer waits for are sent between two of them.
const BYTES_PER_TURN: usize = 1 << 20;
/// Number of outstanding bytes of a message above which it is read directly to its destination.
const DIRECT: usize = 4096;
/// Number of bytes that are read ahead of the message's end in bulk mode. They are copied, so the
/// number is small: the rest of the next message is then read directly to its destination.
const BULK_AHEAD: usize = 4096;

/// Number of consecutive reads of small messages after which a connection leaves bulk mode.
const SMALL_READS: u8 = 16;

/// The result of a read on the fast path.
enum Read {
    /// There is nothing.
    Nothing,
    /// Everything that was read is processed.
    All,
    /// These bytes of the staging area remain, and the socket is empty.
    Part(Range<usize>),
    /// A result of the read that the fast path does not handle: the staging area is full, or empty.
    Special(Result<usize>),
    /// The fast path is not available now.
    NotYet,
}

/// What a progress call has found, as far as that is cheap to tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Come {
    /// Something.
    Something,
    /// Nothing.
    Nothing,
    /// A system call found nothing a moment ago.
    NotAsked,
}

impl From<bool> for Come {
    fn from(has_come: bool) -> Self {
        match has_come {
            true => Come::Something,
            false => Come::Nothing,
        }
    }
}

impl Core {
    /// Does what is ready, without blocking. At most one system call returns nothing: a read of the
    /// favourite, or a call of the poller. None is made if the last one returned nothing only a
    /// moment ago, and no messages come through shared memory.
    #[inline(always)]
    pub(crate) fn do_what_is_ready(&mut self) -> Come {
        if self.ready.has_chores() {
            self.do_chores();
        }
        if !self.rota.is_empty() {
            let has_come = self.read_nearby();
            return match self.rota.turn_ends(has_come) {
                false => has_come.into(),
                true => (self.poll() | has_come).into(),
            };
        }
        if self.vain.was() {
            return Come::NotAsked;
        }
        let has_come = match self.favourite.get() {
            Some(key) if self.reads_left > 0 => self.read_favourite(key),
            _ => self.poll(),
        };
        if !has_come {
            self.vain.is_now();
        }
        has_come.into()
    }

    /// Does the work that earlier calls have left for this one.
    #[inline(never)]
    fn do_chores(&mut self) {
        if self.ready.has(Why::Unreported) && !self.endpoints.is_deaf() {
            self.resume_unreported();
        }
        self.look_for_strangers();
        self.ready
            .has_strangers(self.endpoints.holds_back_strangers());
        self.go_on_for_owner();
        self.end_bursts();
        if self.ready.has(Why::Device) {
            self.send_read_ahead();
        }
        self.read_ready();
        if self.ready.has(Why::Ended) {
            self.end_streams();
        }
    }

    /// Does what is ready before a thread sleeps; returns `false` if there was something, as there
    /// may be more.
    pub(crate) fn may_sleep(&mut self, sleeper: Sleeper) -> bool {
        self.rota.nap_is_near(true);
        let may_sleep = self.has_nothing_to_do(sleeper);
        self.rota.nap_is_near(false);
        if !may_sleep {
            self.tell_later();
        }
        may_sleep
    }

    fn has_nothing_to_do(&mut self, sleeper: Sleeper) -> bool {
        self.go_on_for_owner();
        if !self.endpoints.is_deaf() {
            self.resume_all_unreported();
        }
        self.look_for_strangers();
        self.ready
            .has_strangers(self.endpoints.holds_back_strangers());
        self.end_bursts();
        if self.ready.has(Why::Device) {
            self.send_read_ahead();
        }
        self.is_in_progress = true;
        self.read_ready();
        let has_come = self.read_nearby() | self.take_in_quiet(self.rota.len());
        self.poll();
        if self.ready.has(Why::Ended) {
            self.end_streams();
        }
        self.is_in_progress = false;
        self.send_answers();
        // Whatever is ready must now be visible in the poller's descriptor.
        let may_sleep = !has_come
            && !self.ready.has(Why::Read)
            && !self.ready.has(Why::Held)
            && !self.ready.has(Why::Device)
            && !self.is_needed_for_copies()
            && !self.had_events;
        if may_sleep && self.sleepers != Some(Sleeper::Thread) {
            self.sleepers = Some(sleeper);
        }
        may_sleep && self.may_nap(sleeper)
    }

    /// Whether a sleeping thread has to be woken for new work. If only the progress thread sleeps,
    /// it is not woken while the application drives the lane: waking it takes longer than the work,
    /// and takes the processor from the application.
    pub(crate) fn must_wake(&self) -> bool {
        match self.sleepers {
            None => false,
            Some(Sleeper::Thread) => true,
            Some(Sleeper::Helper) => !self.signals.relieves_helper(),
        }
    }

    #[inline(always)]
    fn read_favourite(&mut self, key: ConnKey) -> bool {
        let has_come = match self.read_simple(key) {
            Read::Nothing => false,
            Read::All => true,
            other => self.read_after(key, other, false),
        };
        if has_come {
            self.favourite.brought_again();
            self.reads_left -= 1;
        } else {
            self.favourite.missed();
            self.reads_left = self.reads_left.saturating_sub(VAIN);
        }
        has_come
    }

    /// Resumes connections that had more to read than their turn allowed.
    fn read_ready(&mut self) {
        for _ in 0..self.ready.of(Why::Read).len() {
            if let Some(key) = self.next_due(Why::Read) {
                self.read(key, false);
            }
        }
    }

    /// Calls the poller, and handles its events; returns whether there were any that matter.
    #[inline(never)]
    fn poll(&mut self) -> bool {
        let idle_calls = std::mem::replace(&mut self.idle_calls, 1);
        self.polls = self.polls.wrapping_add(1);
        let polled = self.poll_once();
        if self.ready.has(Why::Ended) {
            self.end_streams();
        }
        self.had_events = polled.had_events;
        self.close_for_other_lanes();
        self.rota_goes_on();
        // If direct reads have missed something, call the poller more often.
        self.poll_interval = if polled.is_news {
            1
        } else {
            (self.poll_interval * 2).min(LONGEST_INTERVAL)
        };
        self.reads_left = self.poll_interval;
        let has_come = self.idle_calls == 0;
        if !has_come {
            self.idle_calls = idle_calls;
        }
        has_come
    }

    /// Counts a progress call that found nothing.
    #[inline(always)]
    pub(crate) fn in_vain(&mut self) -> Idling {
        self.idle_calls = self.idle_calls.wrapping_add(1);
        self.signals.in_vain(self.idle_calls)
    }

    /// Reads from a connection; returns whether there was anything. With `to_end`, and if the peer
    /// sends no more, reads until the socket returns that nothing is left, which may be the end of
    /// the stream.
    pub(crate) fn read(&mut self, key: ConnKey, to_end: bool) -> bool {
        let any = match self.read_simple(key) {
            Read::Nothing if !to_end => false,
            Read::All if !to_end => true,
            other => self.read_after(key, other, to_end),
        };
        // Not while received data is being processed.
        if !self.staging.is_empty()
            && let Some(conn) = self.conns.get(key)
        {
            conn.settle();
        }
        any
    }

    /// Continues after the fast path.
    #[inline(never)]
    fn read_after(&mut self, key: ConnKey, read: Read, to_end: bool) -> bool {
        match read {
            Read::Nothing | Read::NotYet => self.read_on(key, to_end, None),
            Read::All => self.read_on(key, to_end, None) | true,
            Read::Part(rest) => self.finish_read(key, rest, to_end),
            Read::Special(outcome) => self.read_on(key, to_end, Some(outcome)),
        }
    }

    /// The fast path for messages without special properties that have been received as a whole.
    #[inline(always)]
    #[allow(
        clippy::indexing_slicing,
        reason = "the system returns no more than there was room for"
    )]
    fn read_simple(&mut self, key: ConnKey) -> Read {
        let Some(conn) = self.conns.get_mut(key) else {
            return Read::Nothing;
        };
        if !conn.detours.let_read()
            || !conn.is_plain()
            || self.staging.is_empty()
            || self.endpoints.is_deaf()
        {
            return Read::NotYet;
        }
        // A connection with several subflows does not come here.
        let mut path = Path::without_subflows(&conn.socket, &mut conn.local.shortcut);
        let received = match path.receive(&mut self.staging) {
            Ok(received) if (1..self.staging.len()).contains(&received) => received,
            Err(Errno::EAGAIN) => return Read::Nothing,
            outcome => return Read::Special(outcome),
        };
        self.idle_calls = 0;
        let Some(plain) = fast_path(conn, &mut self.endpoints) else {
            return Read::Part(0..received);
        };
        let left = take_in_simple(plain, conn, &self.staging[..received]).len();
        if !conn.owed.is_empty() {
            self.acknowledge_owed(key);
        }
        match left {
            0 => Read::All,
            left => Read::Part(received - left..received),
        }
    }

    /// Processes the remaining bytes of a short read.
    #[allow(
        clippy::indexing_slicing,
        reason = "the system returns no more than there was room for"
    )]
    fn finish_read(&mut self, key: ConnKey, rest: Range<usize>, to_end: bool) -> bool {
        let staging = std::mem::take(&mut self.staging);
        self.take_in_any(key, &staging[rest]);
        self.acknowledge_owed(key);
        self.staging = staging;
        if to_end {
            self.read_on(key, to_end, None);
        }
        true
    }

    /// [`Core::read`] for everything that the fast path does not handle, which may have begun with
    /// a read that filled the buffer, the end of the stream, or an error.
    #[allow(
        clippy::indexing_slicing,
        reason = "the system returns no more than there was room for"
    )]
    fn read_on(&mut self, key: ConnKey, to_end: bool, mut first: Option<Result<usize>>) -> bool {
        if self.endpoints.is_deaf() {
            self.read_later(key);
            return false;
        }
        let mut staging = std::mem::take(&mut self.staging);
        if staging.is_empty() {
            // This connection is already being read: it gets another turn later.
            self.read_later(key);
            return false;
        }
        self.resume_debtor(key);
        let mut any = false;
        let mut bytes_read = 0;
        for turn in 0.. {
            let Some(conn) = self.conns.get_mut(key) else {
                break;
            };
            if conn.is_paused() {
                self.check_held_back(key);
                break;
            }
            if !conn.is_open() {
                break;
            }
            if turn == READS_PER_TURN || bytes_read >= BYTES_PER_TURN {
                self.read_later(key);
                break;
            }
            let to_end = to_end || conn.detours.has(Detour::PeerEnded);
            let left = conn.stream.payload_left();
            // Bytes that are read into the staging area are copied from there.
            let ahead = match conn.detours.has(Detour::Bulk) {
                true => &mut staging[..BULK_AHEAD],
                false => &mut staging[..],
            };
            let ahead_len = ahead.len();
            let (room, direct, outcome) = match (&conn.incoming, first.take()) {
                (_, Some(outcome)) => (ahead_len, 0, outcome),
                (Incoming::Place(placing), None) if left > DIRECT => {
                    let mut path =
                        Path::of(&conn.socket, &mut conn.local.shortcut, &mut conn.multipath);
                    let registered = &mut self.target;
                    path.receive_to(&placing.place, registered, placing.done, left, ahead)
                }
                _ => {
                    let outcome = conn.path().receive(ahead);
                    (ahead_len, 0, outcome)
                }
            };
            let received = match outcome {
                Ok(0) => {
                    self.end_of_stream(key);
                    break;
                }
                Ok(received) => received,
                Err(Errno::EAGAIN) => break,
                Err(Errno::EINTR) => continue,
                Err(Errno::EFAULT) if self.cannot_place(key) => continue,
                Err(error) => {
                    self.break_connection(key, error);
                    break;
                }
            };
            any = true;
            bytes_read += received;
            self.idle_calls = 0;
            let placed = received.min(direct);
            conn.small_reads = match left {
                0 => conn.small_reads.saturating_add(1),
                _ => 0,
            };
            if received - placed == ahead_len || conn.small_reads >= SMALL_READS {
                // Unless another large message begins in it.
                conn.detours.set(Detour::Bulk, false);
            }
            let bytes = &staging[..received - placed];
            if placed > 0 {
                self.placed_directly(key, placed);
                self.take_in(key, bytes);
            } else {
                self.take_in(key, bytes);
            }
            if received < room && received < socket::CALL_LIMIT && !to_end {
                let conn = self.conns.get(key);
                if !conn.is_some_and(Connection::may_receive_elsewhere) {
                    break;
                }
            }
        }
        self.staging = staging;
        if let Some(conn) = self.conns.get(key)
            && let Some(multipath) = &conn.multipath
            && (any || conn.is_blocked() || multipath.has_news())
        {
            self.tend_subflows(key);
        }
        any
    }

    /// Resumes a connection from which nothing was read because the peer did not read its answers,
    /// if it has done so by now.
    #[inline]
    fn resume_debtor(&mut self, key: ConnKey) {
        if let Some(conn) = self.conns.get_mut(key)
            && conn.detours.has(Detour::Overdue)
            && conn.may_ask_on()
        {
            conn.detours.set(Detour::Overdue, false);
            if !conn.is_paused() {
                let backlog = std::mem::take(&mut conn.backlog);
                self.take_in(key, &backlog);
            }
        }
    }

    /// Ends a connection that is held back until a receive takes a message of which the peer has
    /// not sent everything and never will; of an announced message it has sent nothing.
    #[cold]
    fn check_held_back(&mut self, key: ConnKey) {
        let Some(conn) = self.conns.get_mut(key) else {
            return;
        };
        let is_with_peer = self.endpoints.holds_back_announcement(key);
        if conn.is_cut_off()
            || conn.detours.has(Detour::HeldBack)
                && conn.detours.has(Detour::PeerEnded)
                && (is_with_peer
                    || conn.path().waiting().saturating_add(conn.backlog.len())
                        < conn.stream.payload_left())
        {
            self.end_of_stream(key);
        }
    }

    /// Gives a connection another turn in the next progress call, which has to happen even if this
    /// thread makes no more.
    pub(crate) fn read_later(&mut self, key: ConnKey) {
        let must_wake = self.must_wake();
        let Some(conn) = self.conns.get_mut(key) else {
            return;
        };
        if must_wake {
            // The poller has informed this thread, not the one that sleeps on it.
            self.poller
                .tell_again(conn.socket.as_fd(), Source::Link(key));
        }
        self.ready.add(key, &mut conn.due, Why::Read);
    }
}

impl Woken for Core {
    type Source = Source;
    type Due = Due;

    fn wakeups(&mut self) -> &mut Wakeups<Source, Due> {
        &mut self.poller
    }

    fn is_ready(&mut self, event: Event) -> bool {
        match event.source {
            Source::Timer => false,
            Source::Listener(listener) => {
                self.accept(listener);
                true
            }
            Source::Link(key) | Source::Beside(key) => {
                let Some(conn) = self.conns.get_mut(key) else {
                    return false;
                };
                if !conn.is_open() {
                    self.advance_handshake(key, event);
                    return true;
                }
                if event.failed && conn.lent.enabled {
                    self.memory_released(key);
                }
                let Some(conn) = self.conns.get_mut(key) else {
                    return true;
                };
                let mut news = false;
                if conn.is_multipath() {
                    self.subflow_event(key, &event);
                } else if event.writable && !conn.outbox.is_empty() {
                    self.flush(key);
                    news = true;
                }
                if event.ended
                    && let Some(conn) = self.conns.get_mut(key)
                    && !conn.is_multipath()
                {
                    conn.detours.set(Detour::PeerEnded, true);
                }
                if event.readable {
                    self.hear(key);
                }
                if event.readable && self.read(key, false) {
                    news |= self.favourite.brought(key);
                    self.brought_something(key);
                }
                news
            }
        }
    }

    fn fall_due(&mut self, due: Due, now: Instant) {
        match due {
            Due::Conn(key) => self.check_deadline(key, now),
            Due::Peer(ep, peer) => self.due(ep, peer, now),
            Due::Listener(key) => self.wake_listener(key),
            Due::Still(key) => self.check_stillness(key, now),
            Due::Silence => self.look_for_silence(now),
            Due::Subflows(key) => self.subflows_due(key, now),
        }
    }

    fn other_times(&mut self, now: Instant) -> Option<Instant> {
        if self.rota.is_nap_due(now) {
            self.nap();
        }
        // The timer may have expired for a thread that sleeps.
        let still_ready = self.ready.has(Why::Read) && self.must_wake();
        still_ready.then_some(now).or_else(|| self.rota.next_nap())
    }
}
