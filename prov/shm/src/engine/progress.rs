//! Progress: messages that arrive through the channels, events of the poller, and data that has
//! waited for space.
//!
//! A thread sleeps in the poller. Peers see in their channels that a thread may sleep, and send a
//! packet over the socket with the next message; once that packet is received, the channels
//! announce sleep again. So a lane in which no thread has ever slept costs its peers no system
//! calls, and one that makes progress all the time hardly any.

use std::time::{Duration, Instant};

use prov_base::poller::Event;
use prov_local::channel::Channel;
use prov_local::copies::Copies as _;
use prov_local::doorbell::Doorbell;
use prov_local::link;
use prov_local::rota::{Rota, Rounds};
use prov_message::{Idling, Reaching as _, Sleeper, Wakeups, Woken};

use super::Core;
use super::keys::{Due, LinkKey, Source, bell_key};

/// Time after which a sleeping thread tries again to receive a message for which there was no room:
/// another thread makes room when it posts a receive, or inserts an address, and wakes nobody. It is
/// short for a peer that is held back, and a hundred attempts a second are no burden.
const TRY_AGAIN: Duration = Duration::from_millis(10);

impl Core {
    #[inline(always)]
    pub(super) fn do_what_is_ready(&mut self) -> Idling {
        let mut any = self.take_in_some();
        any |= link::send_more(self);
        any |= link::settle_ring_writes(self, false);
        if any {
            self.signals.brought();
            if self.open.turn_ends(true) {
                self.ask_poller();
            }
            self.idle_calls = 0;
            return Idling::No;
        }
        if self.open.turn_ends(false) {
            self.ask_poller();
        }
        self.idle_calls = self.idle_calls.wrapping_add(1);
        self.signals.in_vain(self.idle_calls)
    }

    /// Calls the poller, handles its events, and makes sure that threads that may sleep can be
    /// woken. Returns whether there were events.
    #[inline(never)]
    fn ask_poller(&mut self) -> bool {
        self.open.polled(1);
        let polled = self.poll_once();
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
                link::drain(self, key);
            }
        }
        self.tell_later();
        polled.had_events
    }

    /// Has peers told later that a thread sleeps, if one of them has woken a thread meanwhile.
    fn tell_later(&mut self) {
        if let Some(due) = self.open.naps_again(&self.signals) {
            self.poller.wake_at(due);
        }
    }

    /// Makes progress before a thread goes to sleep. Returns `false` if there was any, since there
    /// may be more.
    pub(super) fn may_sleep(&mut self, sleeper: Sleeper) -> bool {
        self.open.nap_is_near(true);
        let may_sleep = self.has_nothing_to_do(sleeper);
        self.open.nap_is_near(false);
        if !may_sleep {
            self.tell_later();
        }
        may_sleep
    }

    fn has_nothing_to_do(&mut self, sleeper: Sleeper) -> bool {
        let mut any = self.take_in_some() | self.take_in_quiet(self.open.len());
        any |= link::send_more(self);
        any |= self.ask_poller();
        any |= self.is_needed_for_copies();
        any |= link::settle_ring_writes(self, true);
        if any {
            self.idle_calls = 0;
            return false;
        }
        let may_nap = self.may_nap(sleeper);
        if may_nap && self.links.values().any(|link| link.is_stalled) {
            self.poller.wake_at(Instant::now() + TRY_AGAIN);
        }
        may_nap
    }
}

impl Woken for Core {
    type Source = Source;
    type Due = Due;

    fn wakeups(&mut self) -> &mut Wakeups<Source, Due> {
        &mut self.poller
    }

    fn is_ready(&mut self, event: Event<Source>) -> bool {
        match event.source {
            Source::Listener(ep) => self.admit(ep),
            Source::Link(key) if key == bell_key() => self.rung(),
            Source::Link(key) if event.readable || event.ended || event.failed => {
                self.read_wire(key);
            }
            Source::Link(_) | Source::Timer => {}
        }
        true
    }

    fn fall_due(&mut self, due: Due, now: Instant) {
        match due {
            Due::Peer(ep, peer) => self.due(ep, peer, now),
            Due::Entered(key) => self.check_entered(key),
            Due::Listener(ep) => self.resume_listener(ep),
            Due::Lives => self.check_lives(now),
        }
    }

    fn other_times(&mut self, now: Instant) -> Option<Instant> {
        if self.open.is_nap_due(now) {
            self.nap();
        }
        self.open.next_nap()
    }
}

impl Rounds for Core {
    type Key = LinkKey;

    #[inline(always)]
    fn rota(&mut self) -> &mut Rota<LinkKey> {
        &mut self.open
    }

    #[inline(always)]
    fn is_deaf(&self) -> bool {
        self.endpoints.is_deaf()
    }

    #[inline(always)]
    fn take_in_from(&mut self, key: LinkKey) -> bool {
        let is_idle = self.idle_calls != 0;
        link::take_in(self, key, is_idle)
    }

    #[inline]
    fn channel(&mut self, key: LinkKey) -> Option<&mut Channel> {
        self.links.get_mut(key)?.channel.as_mut()
    }

    fn wake(&self, key: LinkKey) {
        if let Some(link) = self.links.get(key) {
            link.wake_peer();
        }
    }

    fn doorbell(&self) -> Option<&Doorbell> {
        self.doorbell.as_ref()
    }

    fn has_work(&mut self, key: LinkKey) -> bool {
        let Some(link) = self.links.get_mut(key) else {
            return false;
        };
        let can_take = link.can_take();
        let Some(channel) = &link.channel else {
            return false;
        };
        let has_come = can_take && channel.receiver.has_next();
        let has_part = link.pulls.has_part() || self.copier.is_asked(key);
        has_part || has_come || link.has_room_again()
    }
}
