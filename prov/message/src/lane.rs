//! A lane: the progress engine of one or several endpoints, with one lock. It is driven by reads of
//! the queues that its endpoints are bound to.
//!
//! An RDM endpoint is a lane of its own; connected endpoints share one by their receive context or
//! completion queue. Threads that drive different RDM endpoints therefore never contend for a lock.

pub mod all;
mod driven;
pub mod imported_srx;
pub mod linked;
pub mod reaching;
pub mod sources;
pub mod wakeups;

use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use fabric_abi::{FI_PEEK, FI_PEER_TRANSFER};
use prov_base::device_memory::anybody_waits;
use prov_base::errno::{Errno, Result};
use prov_base::sync::{Guard, Lock, LockKind};
use prov_util::av::Changes;
use prov_util::drive::{Helper, Idling, Seat, Signals, Sleeper};
use prov_util::endpoint::Side;
use prov_util::matching::ANY_SOURCE;
use prov_util::progress::Progress;
use prov_util::request::{Atomic, Receive, RemoteAccess, Transmit};

use crate::endpoints::Endpoints;
use crate::endpoints::actions::Action;
use crate::endpoints::receiving::{Poster, Posting};
use crate::endpoints::transport::Transport;
use crate::lane::all::{Lanes, Others};
use crate::lane::sources::Sources;
use crate::operation::{Context, EpKey, Ticket};
use crate::reports::Reports;

/// Work of a lane that may block: the thread that drives the lane does it without the lane's lock,
/// so that other threads can enter meanwhile.
pub trait Errand: Send {
    /// Does the work. Returns whether it was short, so that another errand may follow.
    fn run(&mut self) -> bool;
}

/// Number of errands after which the thread returns to its caller, so that a queue of errands does
/// not keep it from receiving.
const ERRANDS_PER_TURN: u32 = 8;

/// The errand type of lanes without errands.
pub enum NoErrand {}

impl Errand for NoErrand {
    fn run(&mut self) -> bool {
        match *self {}
    }
}

/// The bits of a `fi_addr_t` that contain the index of an address. The bits above them select a
/// receive context of the peer (`fi_rx_addr(3)`), which is not part of a message's source.
const NUMBER: u64 = u32::MAX as u64;

/// Whether a receive names a context of the peer that it is for.
#[inline(always)]
fn names_context(receive: &Receive) -> bool {
    receive.directed().is_some_and(|peer| peer > NUMBER)
}

/// Has the receive name the peer without its context.
pub(crate) fn of_peer(receive: &mut Receive) {
    receive.peer &= NUMBER;
}

/// Waits for at most this long. Called without the lane's lock.
pub type Pause = Box<dyn FnOnce(Duration)>;

/// A pause of `LOOK`, for conditions that no event announces.
pub fn short_pause() -> Pause {
    Box::new(|_| std::thread::sleep(LOOK))
}

/// Polling interval for conditions that no event announces.
const LOOK: Duration = Duration::from_micros(50);
/// How long closing an endpoint may take to send the data that is still queued.
const LINGER: Duration = Duration::from_secs(2);

/// The content of a lane: endpoints and a provider's transport.
pub trait Core: Send + Sized + 'static {
    /// The types of its messages.
    type Transport: Transport;
    /// Its blocking work, or [`NoErrand`].
    type Errand: Errand;
    /// How its messages get their sources.
    type Sources: Sources<Self>;

    /// Whether anything happens between the application's calls. If not, reading queues does not
    /// call [`Core::progress`].
    const IS_DRIVEN: bool = true;

    /// The signals that are read without the lane's lock. A provider that receives messages only
    /// when it is driven returns its own: after a peek (`FI_PEEK`) that finds nothing, the next
    /// read of a queue has to drive.
    fn signals(&self) -> Option<&Signals> {
        None
    }

    /// Returns the endpoints.
    fn endpoints(&mut self) -> &mut Endpoints<Self::Transport>;

    /// Posts a message. `-FI_EAGAIN` if it should be retried later.
    fn transmit(&mut self, ep: EpKey, message: &mut Transmit) -> Result;

    /// Posts a read or a write.
    fn access(&mut self, _ep: EpKey, _access: &mut RemoteAccess) -> Result {
        Err(Errno::ENOSYS)
    }

    /// Posts an atomic operation.
    fn atomic(&mut self, _ep: EpKey, _atomic: &mut Atomic) -> Result {
        Err(Errno::ENOSYS)
    }

    /// Removes an operation of an endpoint with this context of which nothing has left, and that the
    /// application does not take for complete ([`Op::can_be_cancelled_by`]).
    ///
    /// [`Op::can_be_cancelled_by`]: crate::operation::Op::can_be_cancelled_by
    fn take_back(&mut self, _ep: EpKey, _context: Context) -> Option<Ticket> {
        None
    }

    /// Implements fi_cancel(3) for the operations that an endpoint sends: `-FI_ENOENT` if there is
    /// none of which nothing has left.
    fn cancel_sending(&mut self, ep: EpKey, context: Context) -> Result {
        let ticket = self.take_back(ep, context).ok_or(Errno::ENOENT)?;
        self.endpoints().finish(ticket, Err(Errno::ECANCELED));
        Ok(())
    }

    /// Carries out an action for a link.
    fn act(&mut self, action: Action<Self::Transport>);

    /// Makes progress without blocking. Returns whether other processes should get the processor:
    /// there was nothing to do for a long time, and the peer that is to send may need this
    /// processor.
    fn progress(&mut self) -> Idling {
        Idling::No
    }

    /// Makes progress before a thread sleeps on the descriptor of [`Core::poller`]. Returns `false`
    /// if there was something to do, as there may be more.
    fn prepare_wait(&mut self, _sleeper: Sleeper) -> bool {
        true
    }

    /// Whether a thread that is about to sleep yields the processor before, and makes progress again.
    fn gives_way(&mut self) -> bool {
        false
    }

    /// Sends coalesced messages for an application that has stopped driving, and calls
    /// [`Signals::burst_ends`]; also sends what was queued for want of room, as far as there is
    /// room ([`Signals::stall_ends`]). Reports nothing, since the application may be reading its
    /// queues. Returns whether anything was sent.
    fn end_burst(&mut self) -> bool {
        false
    }

    /// Whether peers wait for something that is complete for the application. The progress thread then
    /// drives the lane when the application does not. Cheap.
    fn serves_requests(&self) -> bool {
        false
    }

    /// Returns whether there may be an errand. Cheap.
    fn has_errands(&self) -> bool {
        true
    }

    /// Returns the next errand. Called with the lane's lock; the errand runs without it.
    fn next_errand(&mut self) -> Option<Self::Errand> {
        None
    }

    /// Handles an errand that has run.
    fn errand_done(&mut self, errand: Self::Errand) {
        let _ = errand;
    }

    /// A descriptor that is readable when there is something to do; `None` if only
    /// [`Core::progress`] can find out.
    fn poller(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Implements fi_close(3) for an endpoint: its operations end without completions.
    fn close(&mut self, ep: EpKey);

    /// Ends the operations of one side of an endpoint; the other side continues. The operations are
    /// not reported, since the side has no queues or counters any more.
    fn close_side(&mut self, ep: EpKey, side: Side) {
        let _ = (ep, side);
    }

    /// Calls [`Core::close`] for all endpoints that are still open.
    fn close_all(&mut self) {
        let eps: Vec<EpKey> = self.endpoints().iter().map(|(key, _)| key).collect();
        for ep in eps {
            self.close(ep);
        }
    }

    /// Sends what is queued for an endpoint that is about to be closed. Returns a wait for the next
    /// attempt, or `None` when everything was sent.
    fn send_last(&mut self, _ep: EpKey) -> Option<Pause> {
        None
    }

    /// Returns whether an errand uses memory of the endpoint's operations.
    fn is_lent(&self, _ep: EpKey) -> bool {
        false
    }

    /// Posts a receive.
    ///
    /// # Errors
    /// Those of [`Endpoints::post`].
    #[inline(always)]
    fn receive(&mut self, ep: EpKey, receive: &mut Receive) -> Result {
        self.post_receive_of(ep, receive)
    }

    /// The fast path of [`Core::receive`], for what takes a few instructions. Returns `false`,
    /// without any effect, for all other receives.
    #[inline(always)]
    fn receive_fast(&mut self, ep: EpKey, receive: &mut Receive) -> bool {
        self.post_fast_of(ep, receive)
    }

    /// Whether receives that just wait lead to nothing. If not, [`Core::receive_posted`] is
    /// called after each.
    #[inline(always)]
    fn posts_fast(&self) -> bool {
        true
    }

    /// A receive was posted.
    fn receive_posted(&mut self) {}

    /// The default implementation of [`Core::receive_fast`].
    #[inline(always)]
    fn post_fast_of(&mut self, ep: EpKey, receive: &mut Receive) -> bool {
        if !self.posts_fast() {
            return false;
        }
        let Ok(poster) = self.endpoints().poster(ep) else {
            return false;
        };
        let src = match poster.directed {
            false => ANY_SOURCE,
            true if names_context(receive) || Self::Sources::expects(self, ep) => return false,
            true => receive.peer,
        };
        self.endpoints().post_fast(poster.inbox, receive, src)
    }

    /// The default implementation of [`Core::receive`].
    ///
    /// # Errors
    /// Those of [`Endpoints::post`].
    #[inline(always)]
    fn post_receive_of(&mut self, ep: EpKey, receive: &mut Receive) -> Result {
        let poster = self.endpoints().poster(ep)?;
        let is_directed = poster.directed || receive.flags & FI_PEER_TRANSFER != 0;
        let is_awaited = is_directed && Self::Sources::expects(self, ep);
        if is_directed && names_context(receive) {
            of_peer(receive);
        }
        self.post_receive(poster, receive)?;
        if receive.flags & FI_PEEK == 0
            && let Some(peer) = receive.directed()
        {
            if is_awaited {
                Self::Sources::awaits(self, ep, peer);
            }
            if receive.flags & FI_PEER_TRANSFER != 0 {
                Self::Sources::depends(self, ep, peer);
            }
        }
        Ok(())
    }

    /// Posts a receive for one peer's messages to a shared inbox.
    ///
    /// # Errors
    /// Those of [`Endpoints::post`].
    #[cold]
    fn post_directed(&mut self, poster: Poster, receive: &mut Receive) -> Result {
        for ep in self.endpoints().sharing(poster.inbox) {
            Self::Sources::expects(self, ep);
        }
        of_peer(receive);
        self.post_receive(poster, receive)
    }

    /// Posts a receive to an inbox.
    ///
    /// # Errors
    /// Those of [`Endpoints::post`].
    fn post_receive(&mut self, poster: Poster, receive: &mut Receive) -> Result {
        // The receive may match a message that arrived before its peer was inserted or removed.
        if self.endpoints().changes != Changes::now() {
            self.follow_changes();
        }
        let posting = self.endpoints().post(poster, receive)?;
        self.follow_up();
        self.receive_posted();
        if posting == Posting::NotFound {
            self.endpoints().report_nothing_found(poster, receive);
            // The message that is looked for may be on its way: the read that finds this entry
            // drives the lane, so that the next peek sees more. This call does not drive it, as in
            // the C library, because MPICH searches its own queue first and then peeks here: a
            // message that arrived in between would seem to be missing.
            if let Some(signals) = self.signals() {
                signals.drive_next();
            }
        }
        Ok(())
    }

    /// Updates the sources of messages, buffered and future, to the numbers that their peers have
    /// in the address vector (fi_cq(3), `FI_SOURCE`). Called after each removal before more is
    /// received, and after each change before a receive is matched with a buffered message: the
    /// number is determined when a message and its receive are matched.
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

    /// Calls [`Core::follow_changes`] if addresses have been removed.
    #[inline(always)]
    fn follow_removals(&mut self) {
        if self.endpoints().changes.is_before_a_removal() {
            self.follow_changes();
        }
    }

    /// Carries out the queued actions. Actions that they cause are appended to the queue and not
    /// nested, since there may be thousands of links.
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

/// Reports operations whose bytes a device has copied. Returns whether others wait on.
pub(crate) fn settle<C: Core>(core: &mut C) -> bool {
    if !anybody_waits() {
        return false;
    }
    let wait_on = core.endpoints().settle_behind();
    core.follow_up();
    wait_on
}

/// See the [module](self) description.
pub struct Lane<C: Core> {
    core: Lock<C>,
    signals: Arc<Signals>,
    wait_fd: Option<RawFd>,
    all: OnceLock<Others<C>>,
}

impl<C: Core> Lane<C> {
    /// Creates a lane; `make` gets the signals that are read without the lane's lock.
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
            all: OnceLock::new(),
        }))
    }

    /// Has the lanes of `all` driven that the application leaves alone: a program may post to one
    /// endpoint and read the queue of another one only. Threads that drive this one drive the others
    /// as well, if `are_driven`; whenever they do so in vain, and now and then if not. They leave
    /// lanes that are neglected for some time to the progress thread, which drives them when the
    /// threads sleep, or call too rarely.
    pub fn is_one_of(&self, all: &Arc<Lanes<C>>, are_driven: bool) {
        self.all.get_or_init(|| Others::new(all, are_driven));
    }

    /// Makes progress, unless another thread does. Returns whether the lane is waiting.
    #[inline(always)]
    fn turn(&self) -> Idling {
        // The thread that holds the lock makes progress.
        let Some(mut core) = self.core.try_lock() else {
            return Idling::No;
        };
        self.signals.serve();
        core.follow_removals();
        let waiting = core.progress();
        if core.has_errands() {
            self.run_errands(core);
        } else {
            drop(core);
        }
        waiting
    }

    #[cold]
    #[inline(never)]
    fn wait(&self, waiting: Idling) {
        self.settle();
        self.drive_others();
        self.signals.wait(waiting);
    }

    /// Reports operations whose bytes a device has copied. It is asked now and then, so that others do
    /// not pay for it.
    fn settle(&self) {
        if anybody_waits()
            && let Some(mut core) = self.core.try_lock()
        {
            settle(&mut *core);
        }
    }

    /// Drives lanes of the domain that the application leaves alone.
    fn drive_others(&self) {
        if let Some(others) = self.all.get() {
            others.look_after(self);
        }
    }

    #[cold]
    #[inline(never)]
    fn look_around(&self) {
        self.settle();
        if let Some(others) = self.all.get() {
            others.look_after_sometimes(self);
        }
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

    /// Registers the lane with the progress thread, which ends the lane's bursts.
    pub fn help(self: &Arc<Self>, helper: &Arc<Helper>) {
        let lane: Weak<Self> = Arc::downgrade(self);
        self.signals.seat_with(|| helper.seat(lane));
    }

    /// Unregisters the lane from the progress thread for good: the thread is not in the lane when
    /// this returns.
    pub fn retire(&self) {
        if let Some(seat) = self.signals.seat() {
            seat.leave();
        }
    }

    /// As [`Lane::retire`], if nobody but the caller and the progress thread refers to the lane. So
    /// it is the caller who drops the lane, with all that it has open.
    pub fn retire_unshared(self: &Arc<Self>) {
        if let Some(seat) = self.signals.seat() {
            seat.leave_unless(|| Arc::strong_count(self) > 1);
        }
    }

    /// Makes the progress thread drive the lane, too, while the application does not.
    ///
    /// # Errors
    /// Those of [`Seat::drive_automatically`].
    pub fn drive_automatically(&self) -> Result {
        let seat = self.signals.seat();
        seat.map_or(Ok(()), Seat::drive_automatically)
    }

    /// Sends what is queued for an endpoint before it is closed, for at most `LINGER`. Other
    /// threads can enter the lane meanwhile. The other lanes of the domain are driven: the peer may
    /// be closing an endpoint, too, whose last message is for one of them.
    pub fn linger(&self, ep: EpKey) {
        let deadline = Instant::now() + LINGER;
        loop {
            let pause = self.core().send_last(ep);
            let left = deadline.saturating_duration_since(Instant::now());
            match pause {
                Some(pause) if !left.is_zero() => pause(left.min(LOOK)),
                _ => return,
            }
            // Each round drives the lane as a call of the application does.
            self.signals.driven();
            self.drive_others();
        }
    }

    /// Implements fi_close(3) for an endpoint, once no errand uses its memory, which then belongs
    /// to the application again.
    pub fn close(&self, ep: EpKey) {
        self.when_unlent(ep, |core| core.close(ep));
    }

    /// As [`Lane::close`], for one side of an endpoint. Operations that complete later are reported
    /// to `reports`.
    pub fn close_side(&self, ep: EpKey, side: Side, reports: Reports) {
        let mut core = self.core();
        let endpoints = core.endpoints();
        if let Some(state) = endpoints.get_mut(ep) {
            state.reports = reports;
        }
        if side == Side::Receive {
            // Messages that arrive are for another context that is opened in its place.
            endpoints.unshare(ep);
            core.follow_up();
        }
        drop(core);
        self.when_unlent(ep, |core| core.close_side(ep, side));
    }

    /// Does something when no errand is at memory of the endpoint's operations.
    fn when_unlent(&self, ep: EpKey, act: impl FnOnce(&mut C)) {
        loop {
            let mut core = self.core();
            if !core.is_lent(ep) {
                return act(&mut core);
            }
            // The errand may be between two turns.
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

    /// Makes progress on behalf of the owner of the receives.
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
        settle(&mut *core);
        let errand = match core.has_errands() {
            true => core.next_errand(),
            false => None,
        };
        core.endpoints().owner_leaves();
        drop(core);
        if let Some(mut errand) = errand {
            errand.run();
            let mut core = self.core();
            core.endpoints().owner_enters();
            core.errand_done(errand);
            core.endpoints().owner_leaves();
        }
        if waiting != Idling::No {
            self.signals.wait(waiting);
        }
    }

    /// [`Progress::prepare_wait`] on behalf of the owner of the receives.
    pub(crate) fn prepare_wait_for_owner(&self) -> bool {
        let mut core = self.core();
        core.endpoints().owner_enters();
        core.follow_up();
        core.follow_removals();
        let may_sleep = core.prepare_wait(Sleeper::Thread) && !settle(&mut *core);
        core.endpoints().owner_leaves();
        drop(core);
        if may_sleep {
            self.signals.falls_asleep();
        }
        may_sleep
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
        if self.signals.driven() {
            self.look_around();
        }
        let waiting = self.turn();
        if waiting != Idling::No {
            self.wait(waiting);
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
        if core.gives_way() {
            drop(core);
            self.signals.give_way();
            return false;
        }
        let may_sleep = core.prepare_wait(Sleeper::Thread) && !settle(&mut *core);
        let errand = core.next_errand();
        drop(core);
        match errand {
            None => {
                if may_sleep {
                    self.signals.falls_asleep();
                }
                may_sleep
            }
            Some(errand) => {
                self.run_errand(errand);
                false
            }
        }
    }

    fn sleeps(&self) {
        self.signals.is_slept_at_by_reader();
        if let Some(others) = self.all.get() {
            others.leave_to_helper();
        }
    }
}
