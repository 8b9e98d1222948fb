//! The members of one completion queue of a device: the senders and receivers of endpoints, under
//! one lock.
//!
//! The application's queue that they are bound to drives the lane: a read of it polls completions
//! from the device and reports the requests. Outstanding requests are counted, so that the device's
//! queue never overruns.

mod member;
mod membership;
mod orders;
mod receiver;
mod seats;
mod sender;
mod shared;
mod sharing;

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::sync::Arc;

use prov_base::errno::{Errno, Result};
use prov_base::sync::{Lock, LockKind};
use prov_base::warn_again;
use prov_message::Reports;
use prov_util::drive::Signals;
use prov_util::progress::Progress;

use crate::device::{Completion, CompletionQueue, Device, Keys, Verb};
use member::Members;
use orders::{Order, Orders};
use receiver::Leaver;

pub use member::Name;
pub use receiver::{Posted, Receiver};
pub use seats::{Seat, Seats};
pub use sender::{Advance, Operation, Sender};
pub use shared::Shared;
use sharing::{Departed, Queue};

/// See the [module](self) description.
pub struct Lane<D: Device> {
    queue: Arc<D::Queue>,
    state: Lock<State<D>>,
    orders: Orders,
    ear: Arc<dyn Ear>,
    signals: Arc<Signals>,
    /// Largest number of completions of a queue of the device.
    most: usize,
}

/// Receives events of devices and passes them on to the managers that they concern.
pub trait Ear: Send + Sync {
    /// Processes pending events. Calls no functions of a lane but [`Lane::abandon_sender`] and
    /// [`Lane::abandon_receiver`].
    fn hear(&self);

    /// Readable when connections have an event; devices have descriptors of their own. It must not
    /// watch other descriptors: the kernel allows five levels, which are used up below a layered
    /// provider such as ofi_rxm, with the application's own.
    fn descriptor(&self) -> BorrowedFd<'_>;
}

struct State<D: Device> {
    members: Everybody<D>,
    /// Buffer for completions.
    found: Box<[D::Completion]>,
    /// Number of unsuccessful polls until the device is checked.
    until_look: u32,
}

/// The members, and the space for their completions.
struct Everybody<D: Device> {
    senders: Members<Sender<D>>,
    receivers: Members<Receiver<D>>,
    /// Receivers whose receives are shared, by the number of their queue pair.
    sharing: HashMap<u32, Sharer<D>>,
    /// Shared queues that complete here for all of their users, by their numbers.
    queues: HashMap<u32, Queue<D>>,
    /// Senders that have left, and whose requests have not all completed.
    departed: HashMap<Name, Departed<D>>,
    /// Number of free completion entries of the device's queue, beyond those of the outstanding
    /// requests.
    room: usize,
    /// Number of completions of all requests that members may post.
    needed: usize,
    /// Size of the device's queue.
    size: usize,
    /// Whether the device is gone: new members are abandoned immediately.
    is_gone: bool,
}

/// The receiver that reports messages which a queue pair puts into shared receives.
struct Sharer<D: Device> {
    name: Name,
    /// Set when the receiver has left.
    leaver: Option<Leaver<D>>,
}

/// A request of a sender.
pub struct Work<'a, D: Device> {
    /// The operation.
    pub verb: Verb<'a, D>,
    /// The local memory, which the device takes if the request is posted.
    pub local: &'a mut D::Local,
    /// Its keys.
    pub keys: Keys,
    /// Number of its bytes.
    pub len: usize,
    /// Immediate data.
    pub immediate: Option<u32>,
}

/// Smallest size of a completion queue of the device.
const LEAST: usize = 1024;
/// Number of unsuccessful polls between two checks of the device, each of which takes a system
/// call.
pub const VAIN: u32 = 4096;

impl<D: Device> Lane<D> {
    /// Creates a lane that polls up to `bunch` completions in one call. `make` creates its queue,
    /// of the size that it gets, whose descriptor is readable when one of those is that it gets,
    /// too; the queue can grow to `most` completions.
    pub fn new(
        kind: LockKind,
        bunch: usize,
        most: usize,
        ear: Arc<dyn Ear>,
        make: impl FnOnce(usize, &[BorrowedFd<'_>]) -> Result<Arc<D::Queue>>,
    ) -> Result<Arc<Self>> {
        let orders = Orders::new()?;
        let queue = make(LEAST.min(most), &[orders.as_fd(), ear.descriptor()])?;
        let size = queue.size();
        Ok(Arc::new(Lane {
            state: Lock::new(
                kind,
                State {
                    members: Everybody {
                        senders: Members::default(),
                        receivers: Members::default(),
                        sharing: HashMap::new(),
                        queues: HashMap::new(),
                        departed: HashMap::new(),
                        room: size,
                        needed: 0,
                        size,
                        is_gone: false,
                    },
                    found: vec![D::Completion::default(); bunch.max(1)].into(),
                    until_look: VAIN,
                },
            ),
            orders,
            ear,
            signals: Arc::default(),
            queue,
            most,
        }))
    }

    /// Returns the completion queue of the device.
    pub fn queue(&self) -> &Arc<D::Queue> {
        &self.queue
    }

    /// Makes the next poll report all outstanding requests of a sender as flushed, after the
    /// completions that the device has reported. Any thread may call this.
    pub fn abandon_sender(&self, name: Name) {
        self.orders.add(Order::Sender(name));
    }

    /// The same for all receives of a receiver, which accepts no more.
    pub fn abandon_receiver(&self, name: Name) {
        self.orders.add(Order::Receiver(name));
    }

    /// The same for the receives that a receiver shares with others only, none of whom can get a
    /// message any longer.
    pub fn abandon_shared(&self, name: Name) {
        self.orders.add(Order::Shared(name));
    }

    /// Executes the orders of other threads.
    #[cold]
    #[inline(never)]
    fn follow_orders(&self, state: &mut State<D>) {
        state.take_all(&self.queue);
        let members = &mut state.members;
        for order in self.orders.take() {
            members.room += match order {
                Order::Sender(name) => members.senders.get(name).map_or(0, Sender::abandon),
                Order::Receiver(name) => members.receivers.get(name).map_or(0, Receiver::abandon),
                Order::Shared(name) => {
                    if let Some(receiver) = members.receivers.get(name) {
                        receiver.abandon_shared();
                    }
                    0
                }
            };
        }
    }

    /// Checks for events of the device, which may be the only check for them; returns whether it is
    /// newly found to be gone.
    #[cold]
    #[inline(never)]
    fn look_at_device(&self, state: &mut State<D>) -> bool {
        self.ear.hear();
        if state.members.is_gone || !self.queue.is_gone() {
            return false;
        }
        self.queue.part();
        state.take_all(&self.queue);
        state.members.is_gone = true;
        state.members.room += state.members.abandon_all();
        true
    }

    /// Posts to the send queue of a member. `-FI_EAGAIN` if the member or the device has no space,
    /// `-FI_ENODEV` if it has been abandoned.
    #[inline(always)]
    pub fn send(&self, name: Name, operation: Operation, mut work: Work<'_, D>) -> Result {
        let mut state = self.state.lock().promptly();
        let mut is_tried = false;
        loop {
            let members = &mut state.members;
            let room = members.room;
            let sender = members.senders.get(name).ok_or(Errno::EOPBADSTATE)?;
            if !sender.is_full() && room != 0 {
                sender.post(&operation, &mut work, room)?;
                members.room -= 1;
                return Ok(());
            }
            if is_tried {
                return Err(sender.refusal());
            }
            self.make_room(&mut state);
            is_tried = true;
        }
    }

    /// Polls completions to make space.
    #[cold]
    #[inline(never)]
    fn make_room(&self, state: &mut State<D>) {
        state.take(&self.queue);
    }

    /// Posts to the receive queue of a member whose receives are its own. `-FI_EAGAIN` as for
    /// [`Lane::send`], `-FI_ENODEV` if it has been abandoned.
    #[inline(always)]
    pub fn receive(&self, name: Name, local: &mut D::Local, posted: Posted) -> Result {
        let state = &mut self.state.lock().promptly().members;
        let receiver = state.receivers.get(name).ok_or(Errno::EOPBADSTATE)?;
        if receiver.is_full() || state.room == 0 {
            return Err(Errno::EAGAIN);
        }
        receiver.post(name, local, posted)?;
        state.room -= 1;
        Ok(())
    }

    /// Returns the number of completions that the device's queue has space for, beyond those of the
    /// outstanding requests.
    pub fn room(&self) -> usize {
        self.state.lock().members.room
    }

    /// Holds the lock meanwhile.
    #[cfg(test)]
    pub(crate) fn with_lock_held<R>(&self, run: impl FnOnce() -> R) -> R {
        let _state = self.state.lock();
        run()
    }

    /// Sets where later completions of a sender are reported.
    pub fn report_sends(&self, name: Name, reports: Reports) -> Result {
        let state = &mut self.state.lock().members;
        let sender = state.senders.get(name).ok_or(Errno::EOPBADSTATE)?;
        sender.report_to(reports);
        Ok(())
    }

    /// [`Lane::report_sends`] for a receiver.
    pub fn report_receives(&self, name: Name, reports: Reports) -> Result {
        let state = &mut self.state.lock().members;
        let receiver = state.receivers.get(name).ok_or(Errno::EOPBADSTATE)?;
        receiver.report_to(reports);
        Ok(())
    }

    /// Returns the number of requests that a sender may still post.
    pub fn send_room(&self, name: Name) -> Result<usize> {
        let state = &mut self.state.lock().members;
        let sender = state.senders.get(name).ok_or(Errno::EOPBADSTATE)?;
        Ok(sender.size() - sender.under_way())
    }

    /// Returns the numbers of posted and completed requests of a sender.
    pub fn advance(&self, name: Name) -> Result<Advance> {
        let state = &mut self.state.lock().members;
        let sender = state.senders.get(name).ok_or(Errno::EOPBADSTATE)?;
        Ok(sender.advance())
    }

    /// Returns the number of receives that a receiver may still post.
    pub fn receive_room(&self, name: Name) -> Result<usize> {
        let state = &mut self.state.lock().members;
        let receiver = state.receivers.get(name).ok_or(Errno::EOPBADSTATE)?;
        match receiver.shared() {
            Some(_) => Err(Errno::ENOSYS),
            None => Ok(receiver.size() - receiver.under_way()),
        }
    }
}

impl<D: Device> State<D> {
    /// Polls completions from the device and reports the requests; returns their number.
    #[inline(always)]
    fn take(&mut self, queue: &D::Queue) -> usize {
        let found = match queue.poll(&mut self.found) {
            Ok(found) => found,
            Err(error) => return failed::<D>(error),
        };
        for completion in found {
            self.members.completed(completion);
        }
        found.len()
    }

    /// Polls until the queue is empty.
    fn take_all(&mut self, queue: &D::Queue) {
        while self.take(queue) != 0 {}
    }
}

impl<D: Device> Everybody<D> {
    /// Reports all requests of all members as flushed; returns their number.
    fn abandon_all(&mut self) -> usize {
        let sent: usize = self.senders.iter_mut().map(Sender::abandon).sum();
        let received: usize = self.receivers.iter_mut().map(Receiver::abandon).sum();
        sent + received
    }

    #[inline(always)]
    fn completed(&mut self, completion: &D::Completion) {
        let id = completion.id();
        // An unknown request belongs to a member that has left.
        if Sender::<D>::is_named(id) {
            if let Some(sender) = self.senders.get(Name::of_request(id)) {
                self.room += sender.completed(completion);
            } else {
                self.departed_completed(Name::of_request(id));
            }
        } else if Receiver::<D>::is_named(id) {
            if let Some(receiver) = self.receivers.get(Name::of_request(id)) {
                self.room += receiver.completed(completion);
            }
        } else {
            self.shared_completed(completion);
        }
    }

    #[inline(never)]
    fn shared_completed(&mut self, completion: &D::Completion) {
        if let Some(number) = Shared::<D>::number_of(completion.id()) {
            return self.queue_completed(number, completion);
        }
        let Some(sharer) = self.sharing.get(&completion.pair()) else {
            return;
        };
        if let Some(leaver) = &sharer.leaver {
            leaver.shared_completed(completion);
        } else if let Some(receiver) = self.receivers.get(sharer.name) {
            receiver.shared_completed(completion);
        }
    }
}

#[cold]
#[inline(never)]
fn failed<D: Device>(error: Errno) -> usize {
    warn_again!(target: D::LOG.cq, "a device's completion queue cannot be read: {error}");
    0
}

/// Logs the completion of a request that is not outstanding.
#[cold]
#[inline(never)]
fn completion_of_nobody<D: Device>(completion: &D::Completion) {
    warn_again!(target: D::LOG.cq, "a completion of no request: {completion:?}");
}

impl<D: Device> Progress for Lane<D> {
    #[inline]
    fn progress(&self) {
        self.signals.driven();
        // The thread that holds the lock polls the queue.
        if let Some(state) = self.state.try_lock() {
            let state = &mut *state.promptly();
            if self.orders.are_there() {
                return self.follow_orders(state);
            }
            if state.take(&self.queue) == 0 {
                state.until_look -= 1;
                if state.until_look == 0 {
                    state.until_look = VAIN;
                    self.look_at_device(state);
                }
            }
        }
    }

    fn signals(&self) -> Arc<Signals> {
        self.signals.clone()
    }

    fn wait_fd(&self) -> Option<RawFd> {
        Some(self.queue.descriptor())
    }

    fn prepare_wait(&self) -> bool {
        let mut state = self.state.lock();
        if self.look_at_device(&mut state) {
            return false;
        }
        if state.members.is_gone {
            // Only orders may arrive.
            return !self.orders.are_there();
        }
        self.queue.silence();
        if let Err(error) = self.queue.arm() {
            log::warn!(target: D::LOG.cq, "a completion queue does not signal: {error}");
            return false;
        }
        // Completions from before arming do not signal.
        state.take(&self.queue) == 0 && !self.orders.are_there()
    }
}
