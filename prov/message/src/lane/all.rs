//! All lanes of a domain.

use prov_base::bounded;
use prov_base::bounds::OBJECTS;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use prov_base::errno::Result;
use prov_base::lately::nanoseconds;
use prov_base::logging::UTIL;
use prov_base::warn_again;
use prov_util::drive::{Seat, Signals};
use prov_util::progress::Progress;
use rustix::event::epoll;

use super::{Core, Lane};

/// All lanes of a domain. A counter of a memory region drives them all, since peers may access the
/// region through any endpoint. Reads of a queue drive those that the application leaves alone.
pub struct Lanes<C: Core> {
    state: Mutex<State<C>>,
    /// The number of lanes, known without the lock.
    count: AtomicUsize,
}

/// Shortest time in nanoseconds between two looks at other lanes by a thread that is not idle. They
/// cost it about a hundredth of that, and a transfer of a neglected lane moves on with each.
const BUSY_LOOK: u64 = 100_000;

/// Number of lanes that one call of [`Lanes::look_after_neglected`] looks at: it bounds what a vain
/// read of a queue costs, however many endpoints the domain has.
const LOOKS: usize = 8;

/// Time in nanoseconds without calls after which a lane is left to the progress thread, too: the
/// threads that drive it now and then may cease to. Long beside the time in which a program that
/// uses all of its endpoints comes back to each.
const NEGLECTED_FOR: u64 = 10_000_000;

struct State<C: Core> {
    list: Vec<Member<C>>,
    /// The position in `list` from which the next call looks for neglected lanes.
    next: usize,
    /// Readable when a lane's descriptor is; created on first use.
    poller: Option<OwnedFd>,
}

struct Member<C: Core> {
    lane: Weak<Lane<C>>,
    /// The lane's, which are read without writing to memory of the lane.
    signals: Arc<Signals>,
    /// The lane's count of the application's calls, and when another lane first found it, in
    /// nanoseconds.
    calls: Option<(u64, u64)>,
}

/// A lane that the application has not driven since the last question.
struct Neglected<C: Core> {
    lane: Arc<Lane<C>>,
    /// Whether it has to be left to the progress thread.
    is_left: bool,
}

/// The other lanes of a lane's domain, which the application may leave alone.
pub(super) struct Others<C: Core> {
    lanes: Arc<Lanes<C>>,
    /// Whether a thread that drives the lane drives them as well.
    are_driven: bool,
    /// When such a thread last looked at them, in nanoseconds ([`nanoseconds`]).
    looked_at: AtomicU64,
    /// The lane's count of calls at that look: one call looks once, since others that are driven in
    /// turn with it are called in between.
    looked_in: AtomicU64,
}

impl<C: Core> Others<C> {
    pub(super) fn new(lanes: &Arc<Lanes<C>>, are_driven: bool) -> Self {
        Others {
            lanes: lanes.clone(),
            are_driven,
            looked_at: AtomicU64::new(0),
            looked_in: AtomicU64::new(0),
        }
    }

    /// Looks after neglected lanes, on behalf of the lane `own`, which was driven in vain.
    pub(super) fn look_after(&self, own: &Lane<C>) {
        self.look_after_if(own, 0);
    }

    /// The same for a thread that may be busy, not more often than each [`BUSY_LOOK`].
    pub(super) fn look_after_sometimes(&self, own: &Lane<C>) {
        self.look_after_if(own, BUSY_LOOK);
    }

    fn look_after_if(&self, own: &Lane<C>, pause: u64) {
        if !self.lanes.are_several() {
            return;
        }
        let now = nanoseconds();
        let last = self.looked_at.load(Ordering::Relaxed);
        let call = own.signals.calls();
        if now.saturating_sub(last) >= pause && self.looked_in.load(Ordering::Relaxed) != call {
            self.looked_at.store(now, Ordering::Relaxed);
            self.looked_in.store(call, Ordering::Relaxed);
            self.lanes.look_after_neglected(own, self.are_driven, now);
        }
    }

    /// Leaves the lanes at which nobody sleeps to the progress thread, on behalf of a thread that
    /// is asleep at some of the others.
    pub(super) fn leave_to_helper(&self) {
        self.lanes.leave_to_helper();
    }
}

impl<C: Core> Member<C> {
    fn is(&self, lane: &Lane<C>) -> bool {
        std::ptr::eq(self.lane.as_ptr(), lane)
    }

    /// Returns the lane if the application has not driven it since the last question.
    fn neglected(&mut self, now: u64) -> Option<Neglected<C>> {
        let calls = self.signals.calls();
        match self.calls {
            Some((before, since)) if before == calls => {
                let is_long = now.saturating_sub(since) >= NEGLECTED_FOR;
                let lane = self.lane.upgrade()?;
                let is_left = is_long && self.signals.is_neglected();
                Some(Neglected { lane, is_left })
            }
            _ => {
                self.calls = Some((calls, now));
                None
            }
        }
    }
}

impl<C: Core> Default for Lanes<C> {
    fn default() -> Self {
        Lanes {
            state: Mutex::new(State {
                list: Vec::new(),
                next: 0,
                poller: None,
            }),
            count: AtomicUsize::new(0),
        }
    }
}

impl<C: Core> Lanes<C> {
    fn state(&self) -> MutexGuard<'_, State<C>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a lane, unless it is one of them.
    ///
    /// # Errors
    /// Those of epoll_ctl(2).
    pub fn add(&self, lane: &Arc<Lane<C>>) -> Result {
        let mut state = self.state();
        state.list.retain(|known| known.lane.strong_count() != 0);
        if !state.list.iter().any(|known| known.is(lane)) {
            if let Some(poller) = &state.poller {
                watch(poller, lane)?;
            }
            state.list.push(Member {
                lane: Arc::downgrade(lane),
                signals: lane.signals.clone(),
                calls: None,
            });
            bounded!(state.list, OBJECTS);
        }
        self.count.store(state.list.len(), Ordering::Relaxed);
        Ok(())
    }

    fn all(&self) -> Vec<Arc<Lane<C>>> {
        let state = self.state();
        let lanes = state.list.iter().map(|known| &known.lane);
        lanes.filter_map(Weak::upgrade).collect()
    }

    /// Whether there is more than one lane.
    fn are_several(&self) -> bool {
        self.count.load(Ordering::Relaxed) >= 2
    }

    /// Looks for lanes that the application has left alone since they were last looked at, on
    /// behalf of the lane `own`, which it drives. Drives them if `are_driven`; leaves them to the
    /// progress thread after some time. The lanes of the domain take turns.
    fn look_after_neglected(&self, own: &Lane<C>, are_driven: bool, now: u64) {
        // Another thread is asking.
        let Ok(mut state) = self.state.try_lock() else {
            return;
        };
        let mut neglected = [const { None }; LOOKS];
        let count = state.list.len();
        for place in neglected.iter_mut().take(count) {
            let at = state.next;
            state.next = if at + 1 < count { at + 1 } else { 0 };
            let member = state.list.get_mut(at);
            let other = member.filter(|member| !member.is(own));
            *place = other.and_then(|member| member.neglected(now));
        }
        drop(state);
        for Neglected { lane, is_left } in neglected.into_iter().flatten() {
            if is_left && let Some(seat) = lane.signals.seat() {
                seat.take_care();
            }
            if are_driven {
                lane.turn();
                lane.signals.visited();
            }
        }
    }

    fn leave_to_helper(&self) {
        if !self.are_several() {
            return;
        }
        let state = self.state();
        let members = state.list.iter().map(|member| &member.signals);
        let new: Vec<Arc<Signals>> = members.filter(|lane| lane.is_left()).cloned().collect();
        drop(state);
        new.iter()
            .filter_map(|lane| lane.seat())
            .for_each(Seat::take_care);
    }
}

impl<C: Core> Progress for Lanes<C> {
    fn is_driven(&self) -> bool {
        C::IS_DRIVEN
    }

    fn progress(&self) {
        self.all().iter().for_each(|lane| lane.progress());
    }

    fn wait_fd(&self) -> Option<RawFd> {
        let mut state = self.state();
        if state.poller.is_none() {
            let poller = watch_all(&state.list).inspect_err(|error| {
                warn_again!(target: UTIL.domain, "who waits for all lanes is not woken: {error}");
            });
            state.poller = Some(poller.ok()?);
        }
        state.poller.as_ref().map(AsRawFd::as_raw_fd)
    }

    fn prepare_wait(&self) -> bool {
        self.all().iter().all(|lane| lane.prepare_wait())
    }
}

/// Creates a poller of all lanes.
fn watch_all<C: Core>(lanes: &[Member<C>]) -> Result<OwnedFd> {
    let poller = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for lane in lanes.iter().filter_map(|known| known.lane.upgrade()) {
        watch(&poller, &lane)?;
    }
    Ok(poller)
}

/// Adds a lane's poller to another one. The kernel removes it when the lane's descriptor is closed.
fn watch<C: Core>(poller: &OwnedFd, lane: &Lane<C>) -> Result {
    let core = lane.core();
    let Some(fd) = core.poller() else {
        return Ok(());
    };
    let data = epoll::EventData::new_u64(0);
    epoll::add(poller, fd, data, epoll::EventFlags::IN)?;
    Ok(())
}
