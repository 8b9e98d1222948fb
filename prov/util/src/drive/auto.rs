//! `FI_PROGRESS_AUTO`: the progress thread drives a lane while the application does not.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::epoll;

use super::alarm::{ALARM, AWAY, Alarm};
use super::helper::LaneState;

/// Polling interval for a lane without a descriptor: it bounds the latency of a message that no
/// descriptor announces.
const POLL: Duration = Duration::from_micros(500);

/// The progress thread's state of a lane with automatic progress.
pub(super) struct Auto {
    phase: Phase,
    /// The count of the application's progress calls at the last check.
    calls: Option<u64>,
    fd: Watched,
    /// Whether the lane's alarm wakes the thread.
    has_alarm: bool,
}

enum Phase {
    /// There may be work to do.
    Due,
    /// There is no work until this time.
    Until(Instant),
    /// There is no work until the lane's descriptor is readable.
    Asleep,
    /// The application drives the lane. There is no work until it has stopped for a while and the
    /// lane's alarm rings.
    Away,
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
            calls: None,
            fd: Watched::Unknown,
        }
    }

    /// Handles that the lane's descriptor is readable.
    pub(super) fn wake(&mut self) {
        if matches!(self.phase, Phase::Asleep) {
            self.phase = Phase::Due;
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
        let known = self.calls;
        let seen = place.visit(|lane| {
            let calls = lane.calls();
            let is_alone = known.is_none_or(|known| known == calls);
            // `None`: the application drives the lane.
            (calls, is_alone.then(|| lane.drive()))
        });
        self.phase = match seen {
            Some((_, Some(false))) => Phase::Due,
            Some((_, Some(true))) if self.watch(place, epoll) => Phase::Asleep,
            Some((_, Some(true))) => Phase::Until(now + POLL),
            Some((_, None)) => {
                self.unwatch(place, epoll);
                match self.alarm_of(place) {
                    Some(alarm) => {
                        alarm.set(now);
                        Phase::Away
                    }
                    None => Phase::Until(now + AWAY),
                }
            }
            // The lane does not exist any more.
            None => Phase::Asleep,
        };
        if let Some((calls, _)) = seen {
            self.calls = Some(calls);
        }
        if let (Some(alarm), false) = (self.alarm_of(place), matches!(self.phase, Phase::Away)) {
            alarm.unset();
        }
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
