//! All lanes of a domain.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use prov_base::errno::Result;
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

/// Number of lanes that one call of [`Lanes::drive_neglected`] looks at: it bounds what a vain read
/// of a queue costs, however many endpoints the domain has.
const LOOKS: usize = 8;

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
    /// The lane's count of the application's calls when an idle lane last asked for it.
    calls: Option<u64>,
}

impl<C: Core> Member<C> {
    fn is(&self, lane: &Lane<C>) -> bool {
        std::ptr::eq(self.lane.as_ptr(), lane)
    }

    /// Returns the lane if the application has not driven it since the last question.
    fn neglected(&mut self) -> Option<Arc<Lane<C>>> {
        let calls = self.signals.calls();
        let before = self.calls.replace(calls);
        match before == Some(calls) {
            true => self.lane.upgrade(),
            false => None,
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
        }
        self.count.store(state.list.len(), Ordering::Relaxed);
        Ok(())
    }

    fn all(&self) -> Vec<Arc<Lane<C>>> {
        let state = self.state();
        let lanes = state.list.iter().map(|known| &known.lane);
        lanes.filter_map(Weak::upgrade).collect()
    }

    /// Drives lanes that the application has left alone since they were last looked at, on behalf
    /// of `idle`, which it has driven in vain. The lanes of the domain take turns.
    pub(super) fn drive_neglected(&self, idle: &Lane<C>) {
        if self.count.load(Ordering::Relaxed) < 2 {
            return;
        }
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
            let other = member.filter(|member| !member.is(idle));
            *place = other.and_then(Member::neglected);
        }
        drop(state);
        for lane in neglected.into_iter().flatten() {
            lane.turn();
        }
    }

    /// Leaves the lanes at which nobody sleeps to the progress thread, on behalf of a thread that
    /// is asleep at some of the others.
    pub(super) fn leave_to_helper(&self) {
        if self.count.load(Ordering::Relaxed) < 2 {
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
