//! Progress: datagrams that have arrived, what is due by the time, and sleeping.

use std::time::{Duration, Instant};

use prov_base::device_memory::keeps_up;
use prov_base::errno::{Errno, Result};
use prov_base::lately::nanoseconds;
use prov_base::poller::Event;
use prov_base::random;
use prov_message::lane::{Pause, short_pause};
use prov_message::{Core as _, EpKey, Idling, Reaching as _, Sleeper, Wakeups, Woken};

use super::Core;
use super::below::{Arrivals, Below};
use super::link::{Due, Source};
use crate::address::Address;
use crate::offer;
use crate::protocol::{Config, Endpoint};

/// Number of times that the last acknowledgements are sent before an endpoint is closed. A peer that
/// receives none of them retransmits until it gives up. At a loss of one datagram in five, that happens at
/// one close in 390,000.
const LAST_ACKS: u32 = 8;
/// Limit of strangers with an incomplete set-up. Each takes less than 1 KiB.
const MOST_INCOMPLETE: usize = 1024;
/// Limit in bytes of datagrams that are kept because others before them are missing.
const MOST_BUFFERED: usize = 64 << 20;

impl Core {
    /// Starts the endpoint: peers reach it, and it reaches peers.
    ///
    /// # Errors
    /// Those of the system, `-FI_EBUSY` for a second endpoint, `-FI_EINVAL` over an endpoint whose
    /// address is too long for the protocol.
    pub fn start(&mut self, _ep: EpKey, mut below: Below) -> Result {
        if self.below.is_some() {
            return Err(Errno::EBUSY);
        }
        if below.setting.has_sleepers {
            self.poller
                .watch_listener(below.wait_fd()?, Source::Completions)?;
        } else {
            self.signals.has_to_be_polled();
        }
        let name = Address::of(&below.name.told).ok_or(Errno::EINVAL)?;
        self.protocol = Some(Box::new(Endpoint::new(Config {
            name: name.0,
            mtu: offer::mtu(&below.setting.core),
            max_unacked: self.params.max_unacked as u16,
            retry: self.params.retry,
            extended: self.params.extended,
            give_up: self.params.timeout().as_nanos() as u64,
            max_strangers: MOST_INCOMPLETE,
            max_guests: self.params.max_peers,
            max_buffered: MOST_BUFFERED,
            secret: [random::secret()?, random::secret()?],
        })));
        self.arrivals = below.take_arrivals();
        self.below = Some(below);
        Ok(())
    }

    #[inline(always)]
    pub(super) fn do_what_is_ready(&mut self) -> Idling {
        let now = nanoseconds();
        if self.take_in(now) {
            self.signals.brought();
            self.idle_turns = 0;
            return Idling::No;
        }
        self.idle_turns = self.idle_turns.wrapping_add(1);
        self.signals.in_vain(self.idle_turns)
    }

    /// Handles what has arrived, and sends what is to be sent. Returns whether anything has arrived.
    #[inline(always)]
    fn take_in(&mut self, now: u64) -> bool {
        if !self.unreported.is_empty() {
            self.report_written_before();
        }
        let left_over = self.has_left_over && self.take_in_left_over(now);
        let Some(mut arrivals) = self.arrivals.take() else {
            return false;
        };
        let any = self.take_in_from(&mut arrivals, now) | left_over;
        self.arrivals = Some(arrivals);
        self.follow_up();
        any
    }

    #[inline(always)]
    fn take_in_from(&mut self, arrivals: &mut Arrivals, now: u64) -> bool {
        let most = match self.params.spin_count {
            0 => usize::MAX,
            most => most.unsigned_abs() as usize,
        };
        let is_full = self.has_no_room();
        let any = self.with_protocol(|protocol, core| {
            let mut count = 0;
            while count < most && !is_full && arrivals.read() {
                while let Some(arrived) = arrivals.next() {
                    protocol.receive(now, arrived.from, arrivals.bytes(&arrived), core);
                    arrivals.handled(arrived);
                    count += 1;
                }
                // What comes meanwhile is for the next call: another look costs a system call, for
                // which a lone message would wait.
                if !arrivals.has_left_some() {
                    break;
                }
            }
            core.send_what_is_due(protocol, now);
            count != 0
        });
        any.unwrap_or(false)
    }

    #[inline(always)]
    fn send_what_is_due(&mut self, protocol: &mut Endpoint<Core>, now: u64) {
        if let Some(below) = self.below.as_mut().filter(|_| self.is_stalled) {
            below.take_back();
        }
        if now >= self.watch_at {
            self.watch(protocol, now);
        }
        self.is_stalled = !protocol.transmit(now, self);
        self.driven_at = now;
        if !self.is_looked_after && needs_help(protocol, now) {
            self.is_looked_after = true;
            self.signals.stall_begins();
        }
    }

    /// Returns whether what arrives is left below for the time being, also since a device has too much
    /// to copy of what has arrived.
    #[inline(always)]
    pub(super) fn has_no_room(&self) -> bool {
        // Receives of another provider are there only when their owner drives.
        self.is_full() || self.endpoints.is_deaf() || !keeps_up()
    }

    /// Makes progress before a thread sleeps. Returns `false` if there was something to do, as there
    /// may be more, and if nothing below would wake the thread.
    pub(super) fn may_sleep(&mut self, sleeper: Sleeper) -> bool {
        self.poll_once();
        let now = nanoseconds();
        if self.take_in(now) {
            self.idle_turns = 0;
            return false;
        }
        self.run_timers(Instant::now());
        if self.is_stalled {
            return false;
        }
        let may_sleep = match &self.below {
            // There is no descriptor below. The progress thread polls.
            Some(below) if !below.setting.has_sleepers => sleeper == Sleeper::Helper,
            Some(below) => below.may_sleep(),
            None => true,
        };
        if may_sleep {
            self.slept_at = self.driven_at;
        }
        may_sleep
    }

    /// Sends what is queued for an endpoint that is about to be closed, and waits for the peers to
    /// acknowledge it.
    pub(super) fn send_before_closing(&mut self) -> Option<Pause> {
        if !self.process.is_current() {
            return None;
        }
        self.progress();
        let protocol = self.protocol.as_ref()?;
        if protocol.unfinished() != 0 {
            return Some(short_pause());
        }
        let now = nanoseconds();
        self.with_protocol(|protocol, core| protocol.acknowledge_last(now, core));
        self.last_acks_sent += 1;
        (self.last_acks_sent < LAST_ACKS).then(short_pause)
    }
}

/// Whether something is to be done even if the application makes no calls.
#[inline(always)]
fn needs_help(protocol: &Endpoint<Core>, now: u64) -> bool {
    protocol.unfinished() != 0
        || protocol.has_delayed_acks(now)
        || protocol.may_be_asked(now)
        || protocol.is_awaited(now)
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

    fn fall_due(&mut self, (ep, peer): Due, now: Instant) {
        self.due(ep, peer, now);
    }

    fn other_times(&mut self, now: Instant) -> Option<Instant> {
        let due = self.protocol.as_mut()?.next_timeout().unwrap_or(u64::MAX);
        let due = Some(due.min(self.watch_at)).filter(|due| *due != u64::MAX)?;
        Some(now + Duration::from_nanos(due.saturating_sub(nanoseconds())))
    }
}
