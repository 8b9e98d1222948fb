//! A progress call: what is held back leaves, what has come is taken in.

use std::collections::VecDeque;
use std::ops::Range;
use std::os::fd::AsFd;
use std::time::Instant;

use prov_message::{EpKey, Reaching as _, Sleeper, Waiting};
use prov_util::errno::{Errno, Result};

use crate::engine::Core;
use crate::engine::link::detours::Detour;
use crate::engine::link::incoming::Incoming;
use crate::engine::link::keys::Due;
use crate::engine::link::keys::Event;
use crate::engine::link::keys::{ConnKey, Source};
use crate::engine::link::socket;
use crate::engine::transfer::arrival::{short_way, take_in_simple};
use crate::local::path::Path;
use prov_local::rota::Rounds as _;

/// Reads of the favourite that bring something between two questions to the
/// poller, while these say nothing new.
const LONGEST_INTERVAL: u32 = 64;
/// For how many of them a read in vain counts: then there is time to ask.
const VAIN: u32 = 4;
/// Reads of one connection before others have their turn.
const READS_PER_TURN: usize = 16;
/// Bytes after which others have their turn, too: a progress call is to be
/// short, and what the peer waits for goes out between two of them.
const BYTES_PER_TURN: usize = 1 << 20;
/// A message with more bytes than this to come is read straight to its place.
const DIRECT: usize = 4096;
/// A message of this many bytes makes its connection one for bulk data.
pub(crate) const BULK: usize = 16 << 10;
/// Bytes that are read ahead of the message's end on such a connection. They
/// are copied, so there are only few: the rest of the next message is then read
/// to its place.
const BULK_AHEAD: usize = 4096;

/// Reads in a row of small messages alone after which a connection is none for
/// bulk data.
const SMALL_READS: u8 = 16;

/// What a read by the short way has come to.
enum Read {
    /// There is nothing.
    Nothing,
    /// Everything that was there is taken in.
    All,
    /// These bytes of the staging area are left, and nothing in the socket.
    Part(Range<usize>),
    /// The system's answer, which is not for the short way: the staging area is
    /// full, or empty.
    Special(Result<usize>),
    /// There is no short way now.
    NotYet,
}

/// What a progress call has found, as far as that is easily told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Come {
    /// Something.
    Something,
    /// Nothing.
    Nothing,
    /// Nothing a moment ago, when the system was asked.
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
    /// Does what is ready, without blocking. One call into the system at most
    /// is in vain: a read of the favourite, or a question to the poller; and
    /// none where the last one was so only a moment ago, and nothing comes through
    /// shared memory.
    #[inline(always)]
    pub(crate) fn do_what_is_ready(&mut self) -> Come {
        if self.has_chores {
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

    /// Does what earlier calls have left to this one.
    #[inline(never)]
    fn do_chores(&mut self) {
        // Set again by whatever is left to the next one.
        self.has_chores = false;
        if !self.unreported.is_empty() && !self.endpoints.is_deaf() {
            self.go_on_unreported();
        }
        self.has_chores |= !self.unreported.is_empty();
        self.look_for_strangers();
        self.go_on_for_owner();
        self.end_bursts();
        self.read_ready();
    }

    /// Finds out whether the address vectors know by now who is held back as long as
    /// they do not.
    #[inline]
    fn look_for_strangers(&mut self) {
        if self.endpoints.holds_back_strangers() {
            self.follow_vectors();
            self.has_chores |= self.endpoints.holds_back_strangers();
        }
    }

    #[cold]
    fn follow_vectors(&mut self) {
        let eps = self.endpoints.iter().filter(|(_, ep)| ep.meets_strangers);
        let eps: Vec<EpKey> = eps.map(|(key, _)| key).collect();
        for ep in eps {
            if self.rdm(ep).is_some_and(|rdm| rdm.peers.av_changed()) {
                self.follow_av(ep);
            }
        }
    }

    /// Does what is ready before a thread goes to sleep; `false` if there was
    /// something, as there may be more.
    pub(crate) fn may_sleep(&mut self, sleeper: Sleeper) -> bool {
        self.go_on_for_owner();
        if !self.endpoints.is_deaf() {
            self.go_on_with_all_unreported();
        }
        self.look_for_strangers();
        self.end_bursts();
        self.is_in_progress = true;
        self.read_ready();
        let has_come = self.read_nearby() | self.take_in_quiet(self.rota.len());
        self.poll();
        self.is_in_progress = false;
        self.send_answers();
        // What is ready now has to be in the poller's descriptor to wake.
        let may_sleep = !has_come
            && self.events.is_empty()
            && self.ready.is_empty()
            && self.held.is_empty()
            && self.copier.is_empty()
            && !self.had_events;
        if may_sleep && self.sleepers != Some(Sleeper::Thread) {
            self.sleepers = Some(sleeper);
        }
        may_sleep && self.may_nap(sleeper)
    }

    /// Whether a thread that sleeps has to be woken for what is to be done. Where only the
    /// one that helps sleeps, it is not for as long as the application drives: to wake it
    /// takes longer than what there is to do, and the processor from the application.
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

    /// Goes on with connections that had more to read than their turn allowed.
    fn read_ready(&mut self) {
        let mut turn: VecDeque<ConnKey> = std::mem::take(&mut self.ready);
        for key in turn.drain(..) {
            if let Some(conn) = self.conns.get_mut(key) {
                conn.is_ready = false;
                self.read(key, false);
            }
        }
        if self.ready.is_empty() {
            self.ready = turn;
        }
    }

    /// Asks the poller, and handles what it says; whether anything has come.
    #[inline(never)]
    fn poll(&mut self) -> bool {
        let idle_calls = std::mem::replace(&mut self.idle_calls, 1);
        self.polls = self.polls.wrapping_add(1);
        let mut events = std::mem::take(&mut self.events);
        self.poller.poll(&mut events);
        self.had_events = !events.is_empty();
        let mut news = false;
        for event in events.drain(..) {
            news |= self.handle(event);
        }
        self.events = events;
        self.close_for_other_lanes();
        self.rota_goes_on();
        // If reading directly has missed something, ask more often.
        self.poll_interval = if news {
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

    /// Counts a progress call that nothing has come to.
    #[inline(always)]
    pub(crate) fn in_vain(&mut self) -> Waiting {
        self.idle_calls = self.idle_calls.wrapping_add(1);
        self.signals.in_vain(self.idle_calls)
    }

    /// Handles one event; whether it was news.
    fn handle(&mut self, event: Event) -> bool {
        match event.source {
            Source::Timer => {
                self.poller.alarm_heard();
                self.run_timers();
                true
            }
            Source::Door(listener) => {
                self.accept(listener);
                true
            }
            Source::Link(key) => {
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
                if event.writable && !conn.outbox.is_empty() {
                    self.flush(key);
                    news = true;
                }
                if event.ended
                    && let Some(conn) = self.conns.get_mut(key)
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

    fn run_timers(&mut self) {
        let now = Instant::now();
        while let Some(target) = self.timers.pop_due(now) {
            match target {
                Due::Conn(key) => self.check_deadline(key, now),
                Due::Peer(ep, peer) => self.due(ep, peer, now),
                Due::Listener(key) => self.wake_listener(key),
                Due::Silence => self.look_for_silence(now),
            }
        }
        if self.rota.is_nap_due(now) {
            self.nap();
        }
        let next = [self.timers.next(), self.rota.next_nap()];
        self.poller.set_alarm(next.into_iter().flatten().min());
        if !self.ready.is_empty() && self.must_wake() {
            // This alarm may have been for a thread that sleeps.
            self.poller.wake_at(now);
        }
    }

    /// Reads what has come on a connection; whether there was anything. With
    /// `to_end`, and if the peer sends no more, reads until the socket says that
    /// there is nothing left, which may be that it has ended.
    pub(crate) fn read(&mut self, key: ConnKey, to_end: bool) -> bool {
        let any = match self.read_simple(key) {
            Read::Nothing if !to_end => false,
            Read::All if !to_end => true,
            other => self.read_after(key, other, to_end),
        };
        // Not in the middle of taking in what was read.
        if !self.staging.is_empty()
            && let Some(conn) = self.conns.get(key)
        {
            conn.settle();
        }
        any
    }

    /// Goes on where the short way has left off.
    #[inline(never)]
    fn read_after(&mut self, key: ConnKey, read: Read, to_end: bool) -> bool {
        match read {
            Read::Nothing | Read::NotYet => self.read_on(key, to_end, None),
            Read::All => self.read_on(key, to_end, None) | true,
            Read::Part(rest) => self.finish_read(key, rest, to_end),
            Read::Special(outcome) => self.read_on(key, to_end, Some(outcome)),
        }
    }

    /// The short way for messages with nothing special about them, that are
    /// here as a whole.
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
        let received = match conn.path().receive(&mut self.staging) {
            Ok(received) if (1..self.staging.len()).contains(&received) => received,
            Err(Errno::EAGAIN) => return Read::Nothing,
            outcome => return Read::Special(outcome),
        };
        self.idle_calls = 0;
        let Some(plain) = short_way(conn, &mut self.endpoints) else {
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

    /// Takes in what is left of the bytes of a short read.
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

    /// [`Core::read`] for what the short way does not do, which may have begun
    /// with a read of as many bytes as there was room for, the end, or an error.
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
            // Reading already: the connection has its turn later.
            self.read_later(key);
            return false;
        }
        self.go_on_with_debtor(key);
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
            // What is read into the staging area is copied from there.
            let ahead = match conn.detours.has(Detour::Bulk) {
                true => &mut staging[..BULK_AHEAD],
                false => &mut staging[..],
            };
            let ahead_len = ahead.len();
            let (room, direct, outcome) = match (&conn.incoming, first.take()) {
                (_, Some(outcome)) => (ahead_len, 0, outcome),
                (Incoming::Place(placing), None) if left > DIRECT => {
                    let mut path = Path::of(&conn.socket, &mut conn.shortcut);
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
                // Unless another large message begins in there.
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
                break;
            }
        }
        self.staging = staging;
        any
    }

    /// Goes on with a connection from which nothing was read because the peer did
    /// not read its answers, if it has done that by now.
    #[inline]
    fn go_on_with_debtor(&mut self, key: ConnKey) {
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

    /// Ends a connection that waits for a receive to take a message of which
    /// the peer has not sent everything and will not: of one that it has announced
    /// it has sent nothing.
    #[cold]
    fn check_held_back(&mut self, key: ConnKey) {
        let Some(conn) = self.conns.get_mut(key) else {
            return;
        };
        let is_with_peer = self.endpoints.holds_back_announcement(key);
        if conn.is_cut_off
            || conn.detours.has(Detour::HeldBack)
                && conn.detours.has(Detour::PeerEnded)
                && (is_with_peer
                    || conn.path().waiting().saturating_add(conn.backlog.len())
                        < conn.stream.payload_left())
        {
            self.end_of_stream(key);
        }
    }

    /// Gives a connection another turn with the next progress call, which is to
    /// come even if this thread makes no more.
    pub(crate) fn read_later(&mut self, key: ConnKey) {
        let must_wake = self.must_wake();
        let Some(conn) = self.conns.get_mut(key) else {
            return;
        };
        if must_wake {
            // The poller has told this thread, not the one that sleeps there.
            self.poller
                .tell_again(conn.socket.as_fd(), Source::Link(key));
        }
        if !conn.is_ready {
            conn.is_ready = true;
            self.ready.push_back(key);
            self.has_chores = true;
        }
    }
}
