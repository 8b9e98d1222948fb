//! What is ready is done: what has come through the channels, what the poller
//! says, and what has waited for room.
//!
//! A thread that sleeps does so at the poller. Peers see in their channels that
//! there may be one, and send a packet over the socket with the first message
//! after that; once it was taken, they are told again. So a lane in which no
//! thread has ever slept costs its peers no system call, and one that is driven
//! all the time hardly any.

use std::time::Instant;

use prov_local::barrier;
use prov_local::rota::{LIVELY, QUIET};
use prov_message::{Reaching as _, Sleeper};
use prov_util::poller::Event;

use super::Core;
use super::keys::Source;
use super::link::Link;

/// Turns in vain after which other processes have theirs.
const YIELD_AFTER: u32 = 64;

impl Core {
    #[inline(always)]
    pub(super) fn do_what_is_ready(&mut self) -> bool {
        let any = self.take_in_some();
        if !self.busy.is_empty() {
            self.send_more();
        }
        if self.open.turn_ends(any) {
            self.ask_poller();
        }
        if any {
            self.idle_calls = 0;
            return false;
        }
        self.idle_calls = self.idle_calls.wrapping_add(1);
        self.idle_calls
            .is_multiple_of(self.signals.patience(YIELD_AFTER))
    }

    /// Takes in what has come on the links that have brought something lately,
    /// and on some of the others in turn; whether there was anything.
    #[inline(always)]
    fn take_in_some(&mut self) -> bool {
        let mut any = false;
        if self.endpoints.is_deaf() {
            return false;
        }
        let mut number = 0;
        while number < LIVELY
            && let Some(key) = self.open.lively(number)
        {
            any |= self.take_in(key);
            number += 1;
        }
        if self.open.len() > LIVELY {
            any |= self.take_in_quiet(QUIET);
        }
        any
    }

    /// Takes in what has come on so many of the other links.
    #[inline(never)]
    fn take_in_quiet(&mut self, count: usize) -> bool {
        let mut any = false;
        for _ in 0..count {
            let Some(key) = self.open.next_quiet() else {
                return any;
            };
            if self.take_in(key) {
                any = true;
                self.open.quiet_brought(key);
            }
        }
        any
    }

    /// Asks the poller, does what it says, and sees to it that who may sleep can
    /// be woken. Whether it had something to say.
    #[inline(never)]
    fn ask_poller(&mut self) -> bool {
        self.open.polled(1);
        let mut events = std::mem::take(&mut self.events);
        self.poller.poll(&mut events);
        let had_events = !events.is_empty();
        for event in events.drain(..) {
            self.look_at(event);
        }
        self.events = events;
        for at in (0..self.open.len()).rev() {
            let Some(&key) = self.open.all().get(at) else {
                continue;
            };
            let Some(link) = self.links.get(key) else {
                continue;
            };
            if let Some(broken) = link.broken {
                self.break_link(key, broken.into());
            } else if link.has_ended {
                self.drain(key);
            }
        }
        if let Some(due) = self.open.naps_again(&self.signals) {
            self.poller.wake_at(due);
        }
        had_events
    }

    fn look_at(&mut self, event: Event<Source>) {
        match event.source {
            Source::Timer => {
                self.poller.alarm_heard();
                self.run_timers();
            }
            Source::Door(ep) => self.admit(ep),
            Source::Link(key) if event.readable || event.ended || event.failed => {
                self.read_wire(key);
            }
            Source::Link(_) => {}
        }
    }

    fn run_timers(&mut self) {
        let now = Instant::now();
        while let Some((ep, peer)) = self.timers.pop_due(now) {
            self.due(ep, peer, now);
        }
        if self.open.is_nap_due(now) {
            self.nap();
        }
        let next = [self.timers.next(), self.open.next_nap()];
        self.poller.set_alarm(next.into_iter().flatten().min());
    }

    /// Tells peers that a thread may sleep.
    fn nap(&mut self) {
        for key in self.open.all() {
            let link = self.links.get_mut(*key);
            if let Some(channel) = link.and_then(|link| link.channel.as_mut()) {
                channel.sleep();
            }
        }
        barrier::heavy();
        // What peers have sent without knowing it.
        self.open.poll_soon();
    }

    /// Does what is ready before a thread goes to sleep; `false` if there was
    /// something, as there may be more.
    pub(super) fn may_sleep(&mut self, sleeper: Sleeper) -> bool {
        let mut any = self.take_in_some() | self.take_in_quiet(self.open.len());
        if !self.busy.is_empty() {
            self.send_more();
        }
        any |= self.ask_poller();
        if any {
            self.idle_calls = 0;
            return false;
        }
        let knows = |link: &Link| {
            let channel = link.channel.as_ref();
            channel.is_none_or(|channel| !channel.is_awake())
        };
        let open = self.open.all().iter();
        let all_know = open.filter_map(|key| self.links.get(*key)).all(knows);
        if self.open.begins_nap(sleeper, all_know) {
            self.nap();
        }
        let (open, links) = (self.open.all(), &mut self.links);
        open.iter().all(|key| match links.get_mut(*key) {
            Some(link) => !has_work(link),
            None => true,
        })
    }
}

/// Whether something has come, or can go.
fn has_work(link: &mut Link) -> bool {
    let Some(channel) = &link.channel else {
        return false;
    };
    let can_take = !link.is_stalled && !link.pulls.go_first();
    let has_come = can_take && channel.receiver.has_next();
    has_come || channel.sender.is_starved && link.has_room()
}
