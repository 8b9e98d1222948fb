//! The progress thread's loop: it visits the lanes that are due, and sleeps.

use prov_base::bell::Bell;
use prov_base::bounded;
use prov_base::bounds::{OBJECTS, OPERATIONS};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, epoll};
use rustix::time::Timespec;

use super::alarm::ALARM;
use super::auto::Auto;
use super::fork::AtWork;
use super::lane_state::LaneState;
use super::pace::{Next, Pace};
use super::rate::{CallRate, Calls};
use super::signals::is_crowded;
use super::stall::STALL;
use super::thread;
use prov_base::errno::Result;
use prov_base::logging::UTIL;

/// A running thread, as other threads send messages to it.
pub(super) struct Run {
    news: Mutex<Vec<HelperMessage>>,
    is_over: AtomicBool,
    /// Rung for messages and for the end.
    bell: Bell,
    /// Readable when the bell is, or the descriptor of a lane that is waited for.
    epoll: OwnedFd,
}

/// A message to the thread.
pub(super) enum HelperMessage {
    /// A burst began; its lane has to be checked.
    Burst(Arc<LaneState>),
    /// An operation had no room for the first time; the lane has an alarm for that.
    Stall(Arc<LaneState>),
    /// The lane is to be driven.
    Drive(Arc<LaneState>),
    /// The lane with this id was unregistered.
    Left(u64),
}

/// Identifies the bell among the events; ids of lanes begin at 1.
const BELL: u64 = 0;

impl Run {
    pub(super) fn new() -> Result<Self> {
        let bell = Bell::new()?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let data = epoll::EventData::new_u64(BELL);
        epoll::add(&epoll, &bell, data, epoll::EventFlags::IN)?;
        Ok(Run {
            news: Mutex::default(),
            is_over: AtomicBool::new(false),
            bell,
            epoll,
        })
    }

    pub(super) fn tell(&self, news: HelperMessage) {
        let mut waiting = self.news.lock();
        waiting.push(news);
        bounded!(waiting, OPERATIONS);
        drop(waiting);
        self.bell.ring();
    }

    /// Ends the thread.
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::Release);
        self.bell.ring();
    }

    /// The thread's main function.
    pub(super) fn run(&self) {
        thread::sleep_exactly();
        let mut lanes = Lanes::default();
        let mut ready = Vec::with_capacity(64);
        loop {
            let is_over = || self.is_over.load(Ordering::Acquire);
            let Some(at_work) = AtWork::begin(is_over) else {
                return;
            };
            lanes.hear(std::mem::take(&mut *self.news.lock()), &self.epoll);
            lanes.wake(&ready);
            let pause = lanes.round(&self.epoll);
            drop(at_work);
            self.sleep(pause, &mut ready);
        }
    }

    /// Sleeps for this time (`None`: without limit), or until there are events.
    fn sleep(&self, pause: Option<Duration>, ready: &mut Vec<epoll::Event>) {
        ready.clear();
        // epoll_wait(2) has a resolution of milliseconds, so ppoll(2) is used.
        if let Some(pause) = pause.filter(|pause| !pause.is_zero()) {
            let pause = timespec(pause);
            let mut fds = [PollFd::new(&self.epoll, PollFlags::IN)];
            match rustix::event::poll(&mut fds, Some(&pause)) {
                Ok(1) => {}
                // Waking early is harmless.
                _ => return,
            }
        }
        let timeout = pause.map(|_| timespec(Duration::ZERO));
        let events = rustix::buffer::spare_capacity(ready);
        // Reading no event is harmless.
        let _ = epoll::wait(&self.epoll, events, timeout.as_ref());
        if ready.iter().any(|event| event.data.u64() == BELL) {
            self.bell.silence();
        }
    }
}

/// The lanes that the thread knows.
#[derive(Default)]
struct Lanes {
    list: Vec<Lane>,
}

struct Lane {
    place: Arc<LaneState>,
    /// The record of its bursts, and the next check, if there is one.
    pace: Pace,
    look: Option<Look>,
    /// The last interval between checks of operations without room.
    stall_pause: Duration,
    /// How often the application drives the lane while operations have no room.
    stall_rate: CallRate,
    auto: Option<Auto>,
}

struct Look {
    at: Instant,
    /// The interval before this check.
    pause: Duration,
}

impl Look {
    fn after(pause: Duration) -> Option<Self> {
        Some(Look {
            at: Instant::now() + pause,
            pause,
        })
    }

    /// Returns whether the check is due. A little early is good enough, so that lanes are checked
    /// together instead of each at its own time.
    fn is_due(&self, now: Instant) -> bool {
        self.at <= now + self.pause / 4
    }
}

impl Lanes {
    fn hear(&mut self, news: Vec<HelperMessage>, epoll: &OwnedFd) {
        for news in news {
            match news {
                HelperMessage::Burst(place) => {
                    let mark = place.burst.mark();
                    let lane = self.lane(place);
                    lane.look = Look::after(lane.pace.begin(mark, is_crowded()));
                }
                HelperMessage::Stall(place) => self.lane(place).hear_stalls(epoll),
                HelperMessage::Drive(place) => {
                    let auto = Auto::new(&place, epoll);
                    self.lane(place).auto = Some(auto);
                }
                HelperMessage::Left(id) => self.forget(id, epoll),
            }
        }
    }

    fn forget(&mut self, id: u64, epoll: &OwnedFd) {
        let Some(index) = self.list.iter().position(|lane| lane.place.id == id) else {
            return;
        };
        let lane = self.list.swap_remove(index);
        // Closing the descriptor would not remove it from the epoll set: a forked child may have it
        // open. An error means that it was not in the set.
        if let Some(fd) = lane.place.wait_fd() {
            let _ = epoll::delete(epoll, fd);
        }
        if let Some(alarm) = lane.place.stall.alarm() {
            let _ = epoll::delete(epoll, alarm);
        }
        if let Some(alarm) = lane.place.alarm.get() {
            alarm.unset();
            let _ = epoll::delete(epoll, alarm);
        }
    }

    #[allow(clippy::indexing_slicing, reason = "the position is in the list")]
    fn lane(&mut self, place: Arc<LaneState>) -> &mut Lane {
        let known = self.list.iter().position(|lane| lane.place.id == place.id);
        let index = known.unwrap_or_else(|| {
            self.list.push(Lane {
                place,
                pace: Pace::default(),
                look: None,
                stall_pause: Duration::ZERO,
                stall_rate: CallRate::default(),
                auto: None,
            });
            bounded!(self.list, OBJECTS);
            self.list.len() - 1
        });
        &mut self.list[index]
    }

    /// Handles events of lanes.
    fn wake(&mut self, ready: &[epoll::Event]) {
        for event in ready {
            let id = event.data.u64();
            let mut lanes = self.list.iter_mut();
            let lane = lanes.find(|lane| lane.place.id == id & !(ALARM | STALL));
            let Some(lane) = lane else {
                continue;
            };
            if id & STALL != 0 {
                lane.look_after_stall();
                continue;
            }
            if id & ALARM != 0
                && let Some(alarm) = lane.place.alarm.get()
            {
                alarm.unset();
            }
            match &mut lane.auto {
                Some(auto) if id & ALARM != 0 => auto.alarm(),
                Some(auto) => auto.wake(),
                None => {}
            }
        }
    }

    /// Visits the lanes that are due. Returns how long to sleep afterwards.
    fn round(&mut self, epoll: &OwnedFd) -> Option<Duration> {
        if self.list.is_empty() {
            return None;
        }
        let now = Instant::now();
        for lane in &mut self.list {
            lane.look_after_bursts(now);
            if let Some(auto) = &mut lane.auto {
                auto.step(&lane.place, epoll, now);
            }
        }
        let looks = self.list.iter().filter_map(|lane| lane.look.as_ref());
        let steps = self.list.iter().filter_map(|lane| lane.auto.as_ref());
        let next = looks
            .map(|look| look.at)
            .chain(steps.filter_map(|auto| auto.due(now)))
            .min()?;
        Some(next.saturating_duration_since(Instant::now()))
    }
}

impl Lane {
    fn look_after_bursts(&mut self, now: Instant) {
        if !self.look.as_ref().is_some_and(|look| look.is_due(now)) {
            return;
        }
        let pause = match self.pace.look(self.place.burst.mark(), is_crowded()) {
            Next::Look(pause) => Some(pause),
            Next::End(pause) => {
                let visited = self.place.visit(|lane| lane.end_burst());
                // A lane that does not exist any more has no bursts.
                visited.map(|_| pause)
            }
            Next::Rest if self.place.burst.rest() => None,
            Next::Rest => Some(self.pace.begin(self.place.burst.mark(), is_crowded())),
        };
        self.look = pause.and_then(Look::after);
    }

    /// Adds the alarm for operations without room to the epoll set.
    fn hear_stalls(&self, epoll: &OwnedFd) {
        let data = epoll::EventData::new_u64(self.place.id | STALL);
        let once = epoll::EventFlags::IN | epoll::EventFlags::ET;
        if let Some(alarm) = self.place.stall.alarm()
            && let Err(error) = epoll::add(epoll, alarm, data, once)
        {
            log::warn!(
                target: UTIL.domain,
                "what finds no room waits for the application's calls: {error}"
            );
        }
    }

    /// Handles the alarm for operations without room: if the application has made few progress
    /// calls, which would continue with them, the thread does.
    fn look_after_stall(&mut self) {
        let stall = &self.place.stall;
        let rate = &mut self.stall_rate;
        stall.rings();
        let seen = self.place.visit(|lane| {
            let calls = rate.check(lane.calls(), Instant::now());
            matches!(calls, Calls::None | Calls::Rare).then(|| lane.end_burst())
        });
        // A lane that does not exist any more has nothing to send.
        if let Some(has_left) = seen {
            self.stall_pause = stall.looked(self.stall_pause, has_left, Instant::now());
        }
    }
}

fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: duration.as_secs() as _,
        tv_nsec: duration.subsec_nanos() as _,
    }
}
