//! The progress thread drives a lane while the application does not: `FI_PROGRESS_AUTO`, and lanes
//! that threads leave alone which sleep elsewhere.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::epoll;

use super::Driven;
use super::alarm::{ALARM, AWAY, Alarm};
use super::lane_state::LaneState;
use super::rate::{CallRate, Calls};
use super::signals::is_crowded;

/// Polling interval for a lane without a descriptor: it bounds the latency of a message that no
/// descriptor announces.
const POLL: Duration = Duration::from_micros(500);
/// The same for a lane that is driven only because threads sleep elsewhere, after a long time
/// without anything to do: a hundred polls a second are no burden to the application.
const RARE_POLL: Duration = Duration::from_millis(10);

/// The progress thread's state of a lane with automatic progress.
pub(super) struct Auto {
    phase: Phase,
    /// How often the application drives the lane.
    rate: CallRate,
    fd: Watched,
    /// Whether the lane's alarm wakes the thread.
    has_alarm: bool,
    /// Whether the lane is due because its descriptor was readable.
    is_ready: bool,
    /// The next polling interval.
    pause: Duration,
}

enum Phase {
    /// There may be work to do.
    Due,
    /// There is no work until this time.
    Until(Instant),
    /// There is no work until the lane's descriptor is readable.
    Asleep,
    /// The application drives the lane, or sleeps at it. There is no work until the lane's alarm
    /// rings, because it has stopped for a while or calls too rarely to postpone it.
    Away,
}

/// What a visit to the lane found.
enum Visit {
    /// The lane was driven, and there may be more to do.
    Driven,
    /// There is nothing to do until its descriptor is readable.
    Idle,
    /// There is nothing to do, and its descriptor does not become readable for everything.
    Silent,
    /// The application drives the lane.
    InUse,
    /// A thread of the application sleeps at the lane.
    SleptAt,
}

/// Whether the lane's descriptor wakes the thread.
#[derive(PartialEq, Eq)]
enum Watched {
    Unknown,
    Yes,
    /// It is in the epoll set, and does not wake the thread.
    No,
}

impl Auto {
    pub(super) fn new(place: &LaneState, epoll: &OwnedFd) -> Self {
        let data = epoll::EventData::new_u64(place.id | ALARM);
        let once = epoll::EventFlags::IN | epoll::EventFlags::ET;
        let alarm = place.alarm.get();
        let alarm = alarm.filter(|alarm| epoll::add(epoll, alarm, data, once).is_ok());
        alarm.inspect(|alarm| alarm.is_heard());
        Auto {
            has_alarm: alarm.is_some(),
            phase: Phase::Due,
            rate: CallRate::default(),
            fd: Watched::Unknown,
            is_ready: false,
            pause: POLL,
        }
    }

    /// Handles that the lane's descriptor is readable.
    pub(super) fn wake(&mut self) {
        if matches!(self.phase, Phase::Asleep) {
            self.phase = Phase::Due;
            self.is_ready = true;
        }
    }

    /// Handles the lane's alarm. The application may have set it because it consumed the event that
    /// would have made the descriptor readable.
    pub(super) fn alarm(&mut self) {
        if matches!(self.phase, Phase::Away | Phase::Asleep) {
            self.phase = Phase::Due;
        }
    }

    /// Returns when there is work without an event, if at all.
    pub(super) fn due(&self, now: Instant) -> Option<Instant> {
        match self.phase {
            Phase::Due => Some(now),
            Phase::Until(time) => Some(time),
            Phase::Asleep | Phase::Away => None,
        }
    }

    /// Drives the lane once, if it is due.
    pub(super) fn step(&mut self, place: &LaneState, epoll: &OwnedFd, now: Instant) {
        if self.due(now).is_none_or(|due| due > now) {
            return;
        }
        place.care.is_heard();
        let was_ready = std::mem::take(&mut self.is_ready);
        let seen = place.visit(|lane| self.look(place, lane, now));
        self.phase = match seen {
            Some((_, Visit::Driven)) => {
                self.pause = POLL;
                Phase::Due
            }
            Some((_, Visit::Idle)) if self.watch(place, epoll) => Phase::Asleep,
            Some((_, Visit::Idle)) => Phase::Until(now + POLL),
            Some((_, Visit::Silent)) => {
                let pause = self.pause;
                self.pause = (pause * 2).min(RARE_POLL);
                Phase::Until(now + pause)
            }
            Some((calls, Visit::InUse)) => {
                self.unwatch(place, epoll);
                self.wait_for_alarm(place, was_ready, calls, now)
            }
            Some((_, Visit::SleptAt)) => {
                self.unwatch(place, epoll);
                match self.has_alarm {
                    // The sleeper sets the alarm when it wakes.
                    true => Phase::Away,
                    false => Phase::Until(now + AWAY),
                }
            }
            // The lane does not exist any more.
            None => Phase::Asleep,
        };
        if let (Some(alarm), false) = (self.alarm_of(place), matches!(self.phase, Phase::Away)) {
            alarm.unset();
        }
    }

    /// Visits the lane. Returns its count of calls, too.
    fn look(&mut self, place: &LaneState, lane: &dyn Driven, now: Instant) -> (u64, Visit) {
        let is_given = place.care.is_given();
        let is_slept_at = is_given && lane.has_sleeper();
        let calls = lane.calls();
        let rate = self.rate.check(calls, now);
        if is_slept_at {
            return (calls, Visit::SleptAt);
        }
        let is_alone = match rate {
            Calls::None => true,
            // A thread that sleeps until there is something to do calls rarely where others want the
            // processor, and does all that there is: each step here would take it from them.
            Calls::Rare => !(is_crowded() && lane.is_read_by_sleepers()),
            Calls::Unknown if !is_given => true,
            Calls::Unknown | Calls::Frequent => place.care.is_left_at(calls),
        };
        let visit = match is_alone && lane.drive() {
            _ if !is_alone => Visit::InUse,
            false => Visit::Driven,
            true if is_given && lane.is_polled() => Visit::Silent,
            true => Visit::Idle,
        };
        (calls, visit)
    }

    /// Waits until the application, which drives the lane, has stopped for a while. If the lane
    /// `was_ready` while the thread looked after it, a thread that falls asleep elsewhere ends the
    /// wait. If not, others are known to drive the lane.
    fn wait_for_alarm(
        &self,
        place: &LaneState,
        was_ready: bool,
        calls: u64,
        now: Instant,
    ) -> Phase {
        let Some(alarm) = self.alarm_of(place) else {
            return Phase::Until(now + AWAY);
        };
        alarm.set(now);
        if was_ready && place.care.is_given() {
            place.care.wait();
            // A thread may have fallen asleep elsewhere before it could know of this wait.
            if place.care.is_left_at(calls) {
                return Phase::Due;
            }
        }
        Phase::Away
    }

    fn alarm_of<'p>(&self, place: &'p LaneState) -> Option<&'p Alarm> {
        place.alarm.get().filter(|_| self.has_alarm)
    }

    /// Lets the lane's descriptor wake the thread. Returns whether it does.
    fn watch(&mut self, place: &LaneState, epoll: &OwnedFd) -> bool {
        let Some(fd) = place.wait_fd() else {
            return false;
        };
        let data = epoll::EventData::new_u64(place.id);
        let watched = match self.fd {
            Watched::Yes => return true,
            Watched::Unknown => epoll::add(epoll, fd, data, epoll::EventFlags::IN),
            Watched::No => epoll::modify(epoll, fd, data, epoll::EventFlags::IN),
        };
        if watched.is_ok() {
            self.fd = Watched::Yes;
        }
        watched.is_ok()
    }

    /// The descriptor stays readable while the application drives the lane, and must not wake the
    /// thread.
    fn unwatch(&mut self, place: &LaneState, epoll: &OwnedFd) {
        if self.fd == Watched::Yes
            && let Some(fd) = place.wait_fd()
        {
            let data = epoll::EventData::new_u64(place.id);
            // Edge-triggered, so that even an error, which is always reported, wakes the thread
            // only once.
            let nothing = epoll::EventFlags::ET;
            if epoll::modify(epoll, fd, data, nothing).is_ok() {
                self.fd = Watched::No;
            }
        }
    }
}
