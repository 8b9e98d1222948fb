//! Progress: handles completions below, connection events, and output that has waited for room.

use std::time::Instant;

use prov_base::errno::Errno;
use prov_base::poller::Event;
use prov_base::warn_again;
use prov_message::strangers::Hosting as _;
use prov_message::{Core as _, Idling, Reaching as _, Sleeper, Wakeups, Woken};
use prov_util::below::{Completion, Slot, Wiring};

use fabric_abi::{FI_REMOTE_CQ_DATA, FI_REMOTE_WRITE};

use super::Core;
use super::below::{QueueSide, What};
use super::keys::{Due, Source};
use super::link::Fault;
use crate::LOG;

/// Number of progress calls without a completion after which the clock is read for the timers: reading
/// it takes about as long as such a call.
const VAIN: u32 = 64;

impl Core {
    #[inline(always)]
    pub(super) fn do_what_is_ready(&mut self) -> Idling {
        let any = self.take_in();
        if !self.busy.is_empty() {
            self.send_queued();
        }
        if any {
            self.signals.brought();
            self.idle_turns = 0;
            self.until_clock = self.until_clock.saturating_sub(1);
            if self.connecting == 0 && self.until_clock != 0 {
                return Idling::No;
            }
        } else {
            self.until_clock = self.until_clock.min(VAIN).saturating_sub(1);
            self.idle_turns = self.idle_turns.wrapping_add(1);
            if self.connecting == 0 && self.until_clock != 0 {
                return self.signals.in_vain(self.idle_turns);
            }
        }
        self.look_at_connections();
        match any {
            true => Idling::No,
            false => self.signals.in_vain(self.idle_turns),
        }
    }

    /// Reads events, if it is time to.
    #[inline(never)]
    fn look_at_connections(&mut self) {
        if self.endpoints.is_deaf() {
            return;
        }
        self.until_clock = self.params.cq_eq_fairness.unsigned_abs();
        self.look_for_strangers();
        let now = Instant::now();
        let since = now.saturating_duration_since(self.looked_at_events);
        if self.connecting == 0 && since < self.params.event_interval() {
            return;
        }
        self.looked_at_events = now;
        self.close_for_others();
        self.take_events();
        self.run_timers(now);
    }

    /// Handles completions below, in one progress call. Returns whether there were any.
    #[inline(always)]
    fn take_in(&mut self) -> bool {
        let mut left = self.params.comp_per_progress;
        let mut any = false;
        while left > 0 {
            let Some(count) = self.take_in_batch() else {
                break;
            };
            any = true;
            left -= count;
        }
        any
    }

    /// Handles all completions below; of operations of peers, as many as there is room for
    /// ([`Core::is_full`]).
    pub(super) fn take_in_all(&mut self) {
        while self.take_in_batch().is_some() {}
    }

    /// Handles up to a batch of completions of peers' operations and one of this side's. Returns
    /// their number, if there were any.
    #[inline(always)]
    fn take_in_batch(&mut self) -> Option<i32> {
        if self.endpoints.is_deaf() {
            return None;
        }
        if !self.unreported.is_empty() {
            self.report_written_before();
            if self.is_full() {
                // Reading either queue drives the provider below.
                return self.take_in_sent(0);
            }
        }
        let below = self.below.as_mut()?;
        match below.read(QueueSide::In, &mut self.batch) {
            Ok(()) => {}
            Err(Errno::EAGAIN) => {
                below.slots.bury(true);
                below.post_spare();
                // Sends are mostly injected, and have no completions.
                return match below.slots.sent() {
                    0 => None,
                    _ => self.take_in_sent(0),
                };
            }
            Err(error) => return self.take_in_error(QueueSide::In, error),
        }
        let mut count = 0;
        while let Some(below) = &mut self.below {
            let Some(completion) = self.batch.next(&mut below.slots) else {
                if below.slots.sent() != 0 {
                    return self.take_in_sent(count);
                }
                break;
            };
            self.received(completion);
            count += 1;
        }
        Some(count)
    }

    /// Handles up to a batch of completions of this side's operations. Returns their number plus
    /// `before`, if it is not zero.
    #[inline(never)]
    fn take_in_sent(&mut self, before: i32) -> Option<i32> {
        let mut count = before;
        if let Some(below) = &mut self.below {
            match below.read(QueueSide::Out, &mut self.batch) {
                Ok(()) => {}
                Err(Errno::EAGAIN) => below.slots.bury(false),
                Err(error) => count += self.take_in_error(QueueSide::Out, error).unwrap_or(0),
            }
        }
        while let Some(below) = &mut self.below
            && let Some(completion) = self.batch.next(&mut below.slots)
        {
            // There is no slot if its endpoint is closed.
            if let Some(slot) = completion.slot {
                self.sent(slot);
            }
            count += 1;
        }
        (count > 0).then_some(count)
    }

    #[inline(always)]
    fn received(&mut self, completion: Completion) {
        let Completion {
            slot,
            flags,
            len,
            data,
        } = completion;
        if flags & FI_REMOTE_WRITE != 0 {
            let data = (flags & FI_REMOTE_CQ_DATA != 0).then_some(data);
            return self.remote_write(slot, len, data);
        }
        // There is no slot if its endpoint is closed.
        if let Some(slot) = slot {
            match self.take_plain(&slot, len) {
                Some(of) => self.receive_again(slot, of),
                None => self.slot_is_back(slot, len),
            }
        }
    }

    /// Handles a returned slot with anything but a plain message.
    #[inline(never)]
    fn slot_is_back(&mut self, slot: Slot, len: usize) {
        let Some(below) = &mut self.below else {
            return;
        };
        match below.slots.about(&slot) {
            Some(&What::Packet(of)) => self.packet(slot, len, of),
            _ => below.slots.give_back(slot),
        }
    }

    /// Handles the slot of a completed send, read or write.
    #[inline(always)]
    fn sent(&mut self, slot: Slot) {
        let Some(below) = &mut self.below else {
            return;
        };
        let what = below.slots.what(&slot);
        below.slots.give_back(slot);
        if let Some(what) = what {
            self.done(what);
        }
    }

    /// Handles a peer's write with immediate data.
    #[cold]
    pub(super) fn remote_write(&mut self, slot: Option<Slot>, len: usize, data: Option<u64>) {
        self.was_written(len, data);
        let (Some(slot), Some(below)) = (slot, &mut self.below) else {
            return;
        };
        // It has used a receive buffer.
        match below.slots.about(&slot) {
            Some(&What::Packet(of)) => self.receive_again(slot, of),
            _ => below.slots.give_back(slot),
        }
    }

    /// Handles a completed operation.
    fn done(&mut self, what: What) {
        let key = match &what {
            What::Op(key, ..) | What::Sent(key) | What::Fetch(key, _) | What::Push(key, _) => *key,
            What::Packet(_) => return,
        };
        if let Some(link) = self.links.get_mut(key) {
            link.lent -= 1;
        }
        match what {
            What::Op(_, ticket, regions) => {
                drop(regions);
                self.endpoints.finish(ticket, Ok(()));
            }
            What::Fetch(key, fetch) => {
                self.fetched(key, fetch);
                self.follow_up();
            }
            What::Push(key, name) => self.pushed(key, name),
            What::Sent(_) | What::Packet(_) => {}
        }
    }

    /// Handles a failed operation. Returns the number of failed operations, if any.
    #[cold]
    #[inline(never)]
    fn take_in_error(&mut self, side: QueueSide, error: Errno) -> Option<i32> {
        let below = self.below.as_mut()?;
        if error != Errno::EAVAIL {
            warn_again!(target: LOG.cq, "completions cannot be read: {error}");
            return None;
        }
        let cq = below.queue(side).clone();
        let (completion, error) = cq.read_error(&mut below.slots).ok()?;
        let Some(slot) = completion.slot else {
            return Some(1);
        };
        if let Some(What::Packet(None)) = below.slots.about(&slot) {
            // The message in it was cut off by the end of its connection.
            below.expect_again(slot);
            return Some(1);
        }
        let what = below.slots.what(&slot);
        below.slots.give_back(slot);
        log::debug!(target: LOG.cq, "an operation below has failed: {error}");
        match what {
            Some(What::Op(key, ticket, regions)) => {
                drop(regions);
                if let Some(link) = self.links.get_mut(key) {
                    link.lent -= 1;
                }
                self.endpoints.finish(ticket, Err(error));
            }
            Some(What::Sent(key)) => self.lost_one(key, Fault::Ended(error)),
            // The peer has named memory that does not exist, or is closed.
            Some(What::Fetch(key, _) | What::Push(key, _)) => {
                self.lost_one(key, Fault::Ended(error));
            }
            Some(What::Packet(_)) | None => {}
        }
        Some(1)
    }

    /// Handles the failure of an operation that a link depends on.
    fn lost_one(&mut self, key: super::keys::LinkKey, fault: Fault) {
        if let Some(link) = self.links.get_mut(key) {
            link.lent -= 1;
        }
        self.ends(key, fault);
    }

    /// Makes progress before a thread sleeps. Returns `false` if there was something to do, as
    /// there may be more, and if nothing below would wake the thread.
    pub(super) fn may_sleep(&mut self, sleeper: Sleeper) -> bool {
        self.poll_once();
        let mut any = self.take_in();
        if !self.busy.is_empty() {
            self.send_queued();
        }
        self.looked_at_events = Instant::now();
        any |= self.take_events();
        if !self.endpoints.is_deaf() {
            self.close_for_others();
            self.run_timers(self.looked_at_events);
            any |= !self.is_full() && self.has_to_end();
        }
        if any {
            self.idle_turns = 0;
            return false;
        }
        let hears_peers = !self.is_full();
        self.hear_peers(hears_peers);
        match &self.below {
            // An object that was bound after the endpoint was enabled has no descriptor below that
            // would wake its threads. The progress thread polls.
            Some(below) if !below.setting.has_sleepers => sleeper == Sleeper::Helper,
            Some(below) => {
                let Wiring {
                    tx_cq, rx_cq, eq, ..
                } = &below.wiring;
                let fabric = below.setting.domain.fabric();
                match hears_peers {
                    true => fabric.may_sleep(&[tx_cq, rx_cq], Some(eq)),
                    false => fabric.may_sleep(&[tx_cq], Some(eq)),
                }
            }
            None => true,
        }
    }

    /// Sets whether operations of peers wake sleeping threads: they do not while there is no room
    /// for more of them.
    pub(super) fn hear_peers(&mut self, hears: bool) {
        let Some(below) = &mut self.below else {
            return;
        };
        if !below.setting.has_sleepers || std::mem::replace(&mut below.hears_peers, hears) == hears
        {
            return;
        }
        let fd = below.wiring.rx_cq.wait_fd();
        let done = match (fd, hears) {
            (Ok(fd), true) => self.poller.watch_listener(fd, Source::Completions),
            (Ok(fd), false) => {
                self.poller.forget(fd);
                Ok(())
            }
            (Err(error), _) => Err(error),
        };
        if let Err(error) = done {
            warn_again!(target: LOG.cq, "what peers send wakes nobody: {error}");
        }
    }

    /// Returns whether a link has to end in the next progress call.
    fn has_to_end(&self) -> bool {
        let is_ending = |key| {
            self.links
                .get(key)
                .is_some_and(|link| link.ending.is_some())
        };
        self.busy.iter().any(|key| is_ending(*key))
    }
}

impl Woken for Core {
    type Source = Source;
    type Due = Due;

    fn wakeups(&mut self) -> &mut Wakeups<Source, Due> {
        &mut self.poller
    }

    /// What is below is asked in any case.
    fn is_ready(&mut self, _: Event<Source>) -> bool {
        true
    }

    /// Timers are looked at with the clock, unless completions cannot be reported.
    fn alarmed(&mut self) {}

    fn fall_due(&mut self, due: Due, now: Instant) {
        match due {
            Due::Peer(ep, peer) => self.due(ep, peer, now),
            Due::Link(key) => self.check_deadline(key, now),
        }
    }
}
