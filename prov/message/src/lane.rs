//! What moves together has one lock: a lane. It is driven from the reads of the
//! queues that its endpoints are bound to.
//!
//! An RDM endpoint is a lane of its own; connected endpoints share one by their
//! receive context or completion queue. So threads that drive different
//! endpoints meet nowhere.

pub mod reaching;
pub mod sources;

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use fabric_abi::{FI_PEEK, FI_PEER_TRANSFER};
use prov_util::av::Changes;
use prov_util::drive::{Driven, Helper, Seat, Signals, Sleeper, Waiting};
use prov_util::errno::{Errno, Result};
use prov_util::progress::Progress;
use prov_util::request::{Atomic, Receive, RemoteAccess, Transmit};
use prov_util::sync::{Guard, Lock, LockKind};

use crate::endpoints::Endpoints;
use crate::endpoints::inbox::{Action, Transport};
use crate::endpoints::receiving::{Poster, Posting};
use crate::lane::sources::Sources;
use crate::operation::EpKey;

/// Work of a lane that may block: whoever drives the lane does it without the
/// lane's lock, so that others go on meanwhile.
pub trait Errand: Send {
    /// Does it; whether that was short, and there is time for another.
    fn run(&mut self) -> bool;
}

/// Errands between two looks at what else there is to do.
const ERRANDS_PER_TURN: u32 = 8;

/// For lanes that have none.
pub enum NoErrand {}

impl Errand for NoErrand {
    fn run(&mut self) -> bool {
        match *self {}
    }
}

/// Waits, at most so long. Called without the lane's lock.
pub type Pause = Box<dyn FnOnce(Duration)>;

/// A pause until it is time to look again, where nothing tells when.
pub fn short_pause() -> Pause {
    Box::new(|_| std::thread::sleep(LOOK))
}

/// How often to look whether something has been done that nobody tells of.
const LOOK: Duration = Duration::from_micros(50);
/// How long closing an endpoint may take to send what is due.
const LINGER: Duration = Duration::from_secs(2);

/// What a lane holds: endpoints, and the transport of a provider.
pub trait Core: Send + Sized + 'static {
    /// What tells its messages from those of other providers.
    type Transport: Transport;
    /// What may block, or [`NoErrand`].
    type Errand: Errand;
    /// How its messages get their sources.
    type Sources: Sources<Self>;

    /// Whether anything happens between the application's calls; if not,
    /// reading queues does not call [`Core::progress`].
    const IS_DRIVEN: bool = true;

    /// What is looked at without the lane's lock. A provider that takes in
    /// messages only when it is driven gives its own: after a look that finds
    /// nothing (`FI_PEEK`), the next read of a queue is to drive.
    fn signals(&self) -> Option<&Signals> {
        None
    }

    /// The endpoints.
    fn endpoints(&mut self) -> &mut Endpoints<Self::Transport>;

    /// Posts a message. `-FI_EAGAIN` when it should be tried again later.
    fn transmit(&mut self, ep: EpKey, message: &Transmit) -> Result;

    /// Posts a read or a write.
    fn access(&mut self, _ep: EpKey, _access: &RemoteAccess) -> Result {
        Err(Errno::ENOSYS)
    }

    /// Posts an atomic operation.
    fn atomic(&mut self, _ep: EpKey, _atomic: &Atomic) -> Result {
        Err(Errno::ENOSYS)
    }

    /// Does for a link what a receive, or the lack of one, has led to.
    fn act(&mut self, action: Action<Self::Transport>);

    /// Does what is ready, without blocking. Returns whether other processes
    /// should have their turn: nothing has been for long, and whoever is to send
    /// may be waiting for this processor.
    fn progress(&mut self) -> Waiting {
        Waiting::No
    }

    /// Does what is ready before a thread goes to sleep at the descriptor of
    /// [`Core::poller`]; `false` if there was something, as there may be more.
    fn prepare_wait(&mut self, _sleeper: Sleeper) -> bool {
        true
    }

    /// Sends what is held back, for an application that has left it, and calls
    /// [`Signals::burst_ends`]; and what had no room, as far as there is some
    /// ([`Signals::stall_ends`]). Reports nothing: the application may be at its
    /// queues. Whether anything has left.
    fn end_burst(&mut self) -> bool {
        false
    }

    /// Whether there may be an errand. Cheap.
    fn has_errands(&self) -> bool {
        true
    }

    /// The next errand. Called with the lane's lock, which its work is done
    /// without.
    fn next_errand(&mut self) -> Option<Self::Errand> {
        None
    }

    /// An errand is done.
    fn errand_done(&mut self, errand: Self::Errand) {
        let _ = errand;
    }

    /// Readable when there is something to do; `None` where only
    /// [`Core::progress`] finds out.
    fn poller(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// `fi_close` of an endpoint: its operations end without a word.
    fn close(&mut self, ep: EpKey);

    /// [`Core::close`] for the endpoints that nobody has closed.
    fn close_all(&mut self) {
        let eps: Vec<EpKey> = self.endpoints().iter().map(|(key, _)| key).collect();
        for ep in eps {
            self.close(ep);
        }
    }

    /// Sends what is due for an endpoint that is about to end. Returns what waits
    /// until there is more to do; `None` when all has left.
    fn send_last(&mut self, _ep: EpKey) -> Option<Pause> {
        None
    }

    /// Whether an errand is at memory of the endpoint's operations.
    fn is_lent(&self, _ep: EpKey) -> bool {
        false
    }

    /// Posts a receive.
    ///
    /// # Errors
    /// Those of [`Endpoints::post`].
    #[inline(always)]
    fn receive(&mut self, ep: EpKey, receive: &Receive) -> Result {
        self.post_receive_of(ep, receive)
    }

    /// [`Core::receive`] for what takes a few instructions; `false`, and nothing has
    /// happened, for all else.
    #[inline(always)]
    fn receive_at_once(&mut self, ep: EpKey, receive: &Receive) -> bool {
        self.post_at_once_of(ep, receive)
    }

    /// [`Core::receive_at_once`] for endpoints that have nothing special about them.
    #[inline(always)]
    fn post_at_once_of(&mut self, ep: EpKey, receive: &Receive) -> bool {
        let Ok(poster) = self.endpoints().poster(ep) else {
            return false;
        };
        !(poster.directed && Self::Sources::expects(self, ep))
            && self.endpoints().post_at_once(poster, receive)
    }

    /// [`Core::receive`] for endpoints that have nothing special about them.
    ///
    /// # Errors
    /// Those of [`Endpoints::post`].
    #[inline(always)]
    fn post_receive_of(&mut self, ep: EpKey, receive: &Receive) -> Result {
        let poster = self.endpoints().poster(ep)?;
        let is_directed = poster.directed || receive.flags & FI_PEER_TRANSFER != 0;
        let is_awaited = is_directed && Self::Sources::expects(self, ep);
        self.post_receive(poster, receive)?;
        if is_awaited
            && receive.flags & FI_PEEK == 0
            && let Some(peer) = receive.directed()
        {
            Self::Sources::awaits(self, ep, peer);
        }
        Ok(())
    }

    /// Posts a receive to an inbox.
    ///
    /// # Errors
    /// Those of [`Endpoints::post`].
    fn post_receive(&mut self, poster: Poster, receive: &Receive) -> Result {
        // It may find a message that has come before its peer was inserted or removed.
        if self.endpoints().changes != Changes::now() {
            self.follow_changes();
        }
        let posting = self.endpoints().post(poster, receive)?;
        self.follow_up();
        if posting == Posting::NotFound {
            self.endpoints().report_nothing_found(poster, receive);
            // What is looked for may be on its way: the read that finds this entry
            // drives, so that the next look sees more. This call does not, as the C
            // library's does not. MPICH looks into its own queue first and then
            // here, and takes what came in between for what is not there.
            if let Some(signals) = self.signals() {
                signals.drive_next();
            }
        }
        Ok(())
    }

    /// Has messages, those that are kept as well as those to come, reported with the
    /// numbers that their peers have now (fi_cq(3), `FI_SOURCE`). That is asked for
    /// after each removal before more is taken in, and after each change before a
    /// receive is matched with a message that is kept: the number is decided when a
    /// message and its receive are matched.
    #[cold]
    #[inline(never)]
    fn follow_changes(&mut self) {
        let now = Changes::asked();
        if self.endpoints().changes == now {
            return;
        }
        self.endpoints().changes = now;
        let eps: Vec<EpKey> = self.endpoints().iter().map(|(key, _)| key).collect();
        for ep in eps {
            Self::Sources::expects(self, ep);
        }
    }

    /// [`Core::follow_changes`] where addresses have been removed.
    #[inline(always)]
    fn follow_removals(&mut self) {
        if self.endpoints().changes.is_before_a_removal() {
            self.follow_changes();
        }
    }

    /// Does what earlier calls have led to. What that leads to in turn is done
    /// behind it, not within: there may be thousands of links.
    #[inline]
    fn follow_up(&mut self) {
        if !self.endpoints().start_acting() {
            return;
        }
        while let Some(action) = self.endpoints().next_action() {
            self.act(action);
        }
    }
}

/// See the [module](self) description.
pub struct Lane<C: Core> {
    core: Lock<C>,
    signals: Arc<Signals>,
    wait_fd: Option<RawFd>,
}

impl<C: Core> Lane<C> {
    /// A lane; `make` gets what is looked at without its lock.
    ///
    /// # Errors
    /// Those of `make`.
    pub fn start(
        kind: LockKind,
        make: impl FnOnce(&Arc<Signals>) -> Result<C>,
    ) -> Result<Arc<Self>> {
        let signals = Arc::default();
        let core = make(&signals)?;
        Ok(Arc::new(Lane {
            wait_fd: core.poller().map(|fd| fd.as_raw_fd()),
            core: Lock::new(kind, core),
            signals,
        }))
    }

    #[cold]
    #[inline(never)]
    fn run_errands(&self, mut core: Guard<'_, C>) {
        let errand = core.next_errand();
        drop(core);
        if let Some(errand) = errand {
            self.run_errand(errand);
        }
    }

    #[cold]
    fn run_errand(&self, mut errand: C::Errand) {
        for left in (0..ERRANDS_PER_TURN).rev() {
            let was_short = errand.run();
            let mut core = self.core();
            core.errand_done(errand);
            if left == 0 || !was_short {
                return;
            }
            errand = match core.next_errand() {
                Some(next) => next,
                None => return,
            };
        }
    }

    /// Has a thread end the lane's bursts.
    pub fn help(self: &Arc<Self>, helper: &Arc<Helper>) {
        let lane: Weak<Self> = Arc::downgrade(self);
        self.signals.seat_with(|| helper.seat(lane));
    }

    /// Takes the lane from the thread that helps it, for good: it is not in the
    /// lane when this returns.
    pub fn retire(&self) {
        if let Some(seat) = self.signals.seat() {
            seat.leave();
        }
    }

    /// Has the thread that helps drive the lane while the application does not,
    /// too.
    ///
    /// # Errors
    /// Those of [`Seat::drive_automatically`].
    pub fn drive_automatically(&self) -> Result {
        let seat = self.signals.seat();
        seat.map_or(Ok(()), Seat::drive_automatically)
    }

    /// Sends what is due for an endpoint before it ends, as far as that is
    /// possible in reasonable time. Others go on meanwhile.
    pub fn linger(&self, ep: EpKey) {
        let deadline = Instant::now() + LINGER;
        loop {
            let pause = self.core().send_last(ep);
            let left = deadline.saturating_duration_since(Instant::now());
            match pause {
                Some(pause) if !left.is_zero() => pause(left),
                _ => return,
            }
        }
    }

    /// `fi_close` of an endpoint, when no errand is at its memory any more, which
    /// is the application's again.
    pub fn close(&self, ep: EpKey) {
        loop {
            let mut core = self.core();
            if !core.is_lent(ep) {
                return core.close(ep);
            }
            // It may be between two turns.
            match core.next_errand() {
                Some(errand) => {
                    drop(core);
                    self.run_errand(errand);
                }
                None => {
                    drop(core);
                    std::thread::sleep(LOOK);
                }
            }
        }
    }

    /// Does what is ready, for the owner of receives.
    pub(crate) fn progress_for_owner(&self) {
        self.signals.driven();
        let Some(mut core) = self.core.try_lock() else {
            return;
        };
        self.signals.serve();
        core.endpoints().owner_enters();
        core.follow_up();
        core.follow_removals();
        let waiting = core.progress();
        let errand = core.next_errand();
        core.endpoints().owner_leaves();
        drop(core);
        if let Some(mut errand) = errand {
            errand.run();
            let mut core = self.core();
            core.endpoints().owner_enters();
            core.errand_done(errand);
            core.endpoints().owner_leaves();
        }
        if waiting != Waiting::No {
            self.signals.wait(waiting);
        }
    }

    /// [`Progress::prepare_wait`] for the owner of receives.
    pub(crate) fn prepare_wait_for_owner(&self) -> bool {
        let mut core = self.core();
        core.endpoints().owner_enters();
        core.follow_up();
        core.follow_removals();
        let may_sleep = core.prepare_wait(Sleeper::Thread);
        core.endpoints().owner_leaves();
        may_sleep
    }

    /// Whether its lock is real, so that threads of whatever domain may come by.
    pub fn is_for_any_thread(&self) -> bool {
        self.core.kind() == LockKind::Real
    }

    /// Enters the lane.
    #[inline(always)]
    pub fn core(&self) -> Guard<'_, C> {
        self.core.lock()
    }
}

impl<C: Core> Progress for Lane<C> {
    fn is_driven(&self) -> bool {
        C::IS_DRIVEN
    }

    #[inline]
    fn progress(&self) {
        self.signals.driven();
        // Whoever is inside makes progress.
        let Some(mut core) = self.core.try_lock() else {
            return;
        };
        self.signals.serve();
        core.follow_removals();
        let waiting = core.progress();
        if core.has_errands() {
            self.run_errands(core);
        } else {
            drop(core);
        }
        if waiting != Waiting::No {
            self.signals.wait(waiting);
        }
    }

    fn signals(&self) -> Arc<Signals> {
        self.signals.clone()
    }

    fn wait_fd(&self) -> Option<RawFd> {
        self.wait_fd
    }

    fn prepare_wait(&self) -> bool {
        let mut core = self.core();
        core.follow_removals();
        let may_sleep = core.prepare_wait(Sleeper::Thread);
        let errand = core.next_errand();
        drop(core);
        match errand {
            None => may_sleep,
            Some(errand) => {
                self.run_errand(errand);
                false
            }
        }
    }
}

impl<C: Core> Driven for Lane<C> {
    fn end_burst(&self) -> bool {
        let core = self.core.lock_as_helper();
        core.is_some_and(|mut core| core.end_burst())
    }

    fn drive(&self) -> bool {
        let Some(mut core) = self.core.lock_as_helper() else {
            return true;
        };
        core.follow_removals();
        let may_sleep = core.prepare_wait(Sleeper::Helper);
        let Some(mut errand) = core.next_errand() else {
            return may_sleep;
        };
        drop(core);
        errand.run();
        // What was lent to it comes back only so.
        let mut core = loop {
            match self.core.lock_as_helper() {
                Some(core) => break core,
                None => std::thread::sleep(LOOK),
            }
        };
        core.errand_done(errand);
        false
    }

    fn share_wait_fd(&self) -> Result<Option<OwnedFd>> {
        let core = self.core.lock_as_helper().ok_or(Errno::EAGAIN)?;
        let shared = core.poller().map(|fd| fd.try_clone_to_owned());
        Ok(shared.transpose()?)
    }

    fn calls(&self) -> u64 {
        self.signals.calls()
    }
}
