//! What completes at one completion queue of a device: the senders and receivers
//! of endpoints, under one lock.
//!
//! The application's queue that they are bound to drives the lane: a read of it
//! takes completions from the device and says what became of the requests. The
//! requests under way are counted, so that the device's queue never overruns.

mod member;
mod orders;
mod receiver;
mod seats;
mod sender;
mod shared;
mod sharing;
#[cfg(test)]
pub mod tests;

use std::collections::HashMap;
use std::ffi::c_void;
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::sync::Arc;

use prov_base::errno::{Errno, Result};
use prov_base::sync::{Lock, LockKind};
use prov_base::warn_again;
use prov_message::Reports;
use prov_util::drive::Signals;
use prov_util::progress::Progress;

use crate::device::{Bunch, CompletionQueue, Context, Gather, Keys, Verb, WorkCompletion};
use member::Members;
use orders::{Order, Orders};
use receiver::Leaver;

pub use member::Name;
pub use receiver::Receiver;
pub use seats::{Seat, Seats};
pub use sender::{Advance, Operation, Sender};
pub use shared::Shared;
use sharing::{Departed, Queue};

/// See the [module](self) description.
pub struct Lane {
    queue: Arc<CompletionQueue>,
    state: Lock<State>,
    orders: Orders,
    ear: Arc<dyn Ear>,
    signals: Arc<Signals>,
    /// Completions that a queue of the device has at most.
    most: usize,
}

/// Who hears what happens to devices, and tells whom it concerns.
pub trait Ear: Send + Sync {
    /// Hears what there is. Calls nothing of a lane but [`Lane::abandon_sender`] and
    /// [`Lane::abandon_receiver`].
    fn hear(&self);

    /// Readable when something has happened to connections; devices have descriptors
    /// of their own. It is none that watches others, of which the system allows five
    /// one within the other: below a layer such as ofi_rxm, and with the
    /// application's own, there are as many.
    fn descriptor(&self) -> BorrowedFd<'_>;
}

struct State {
    members: Everybody,
    /// Where completions are taken to.
    found: Bunch,
    /// Turns in vain until the device is looked at.
    until_look: u32,
}

/// The members, and how much room their completions have.
struct Everybody {
    senders: Members<Sender>,
    receivers: Members<Receiver>,
    /// Receivers whose receives are shared, by the number of their queue pair.
    sharing: HashMap<u32, Sharer>,
    /// The same of XRC, by the number of the shared queue.
    queues: HashMap<u32, Queue>,
    /// Senders that have left, and whose requests complete yet.
    departed: HashMap<Name, Departed>,
    /// Completions that the device's queue has room for, beyond those of the
    /// requests under way.
    room: usize,
    /// Completions that all requests which members may post can make.
    needed: usize,
    /// Completions that the device's queue holds.
    size: usize,
    /// The device is gone: who comes now has nothing of it.
    is_gone: bool,
}

/// Who reports what comes to shared receives by a queue pair.
struct Sharer {
    name: Name,
    /// Once it is no member any more.
    leaver: Option<Leaver>,
}

/// What a sender posts.
pub struct Work<'a> {
    /// What to do.
    pub verb: Verb<'a>,
    /// With what, or where to.
    pub local: &'a Gather,
    /// Its keys.
    pub keys: Keys,
    /// Bytes of it.
    pub len: usize,
    /// Immediate data.
    pub immediate: Option<u32>,
}

/// The fewest completions that a queue of the device is made for.
const LEAST: usize = 1024;
/// Turns in vain between two looks at the device, which cost a system call each.
const VAIN: u32 = 4096;

impl Lane {
    /// A lane of a device, which takes so many completions at once.
    pub fn new(
        context: Context,
        kind: LockKind,
        bunch: usize,
        ear: Arc<dyn Ear>,
    ) -> Result<Arc<Self>> {
        let most = context.limits()?.completions_per_queue;
        let orders = Orders::new()?;
        let wake = [orders.as_fd(), ear.descriptor()];
        let queue = CompletionQueue::new(context, LEAST.min(most), &wake)?;
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
                    found: Bunch::new(bunch)?,
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

    /// Where the device reports.
    pub fn queue(&self) -> &Arc<CompletionQueue> {
        &self.queue
    }

    /// Makes room for the completions of so many more requests. What the device
    /// has no room for is held back when it is posted.
    fn reserve(&self, state: &mut Everybody, requests: usize) {
        state.needed += requests;
        if state.needed <= state.size || state.size >= self.most {
            return;
        }
        let wanted = state.needed.next_power_of_two().min(self.most);
        match self.queue.resize(wanted) {
            Ok(()) => {
                let size = self.queue.size();
                state.room += size.saturating_sub(state.size);
                state.size = size.max(state.size);
            }
            Err(error) => {
                log::info!(
                    target: crate::LOG.cq,
                    "a completion queue of {} entries cannot grow to {wanted}: {error}",
                    state.size
                );
            }
        }
    }

    /// Adds a sender.
    pub fn add_sender(&self, sender: Sender) -> Result<Name> {
        let state = &mut self.state.lock().members;
        self.reserve(state, sender.size());
        let name = state.senders.add(sender)?;
        if let Some(sender) = state.senders.get(name) {
            sender.be_named(name);
        }
        if state.is_gone {
            self.orders.add(Order::Sender(name));
        }
        Ok(name)
    }

    /// Adds a receiver. `-FI_ENOSPC` where its receives are shared and their
    /// completions may be more than the device's queue takes.
    pub fn add_receiver(&self, receiver: Receiver) -> Result<Name> {
        // Let go of without the lock, as in `remove_receiver`.
        let _follows;
        let mut state = self.state.lock();
        let pair = receiver.pair().number();
        if state.members.sharing.contains_key(&pair) {
            // The device gives numbers again.
            state.take_all(&self.queue);
        }
        let state = &mut state.members;
        let needed = match receiver.shared() {
            None => receiver.size(),
            // There is room for them already.
            Some(shared) if shared.number().is_some() => 0,
            // They may all complete here, however many receivers share them.
            Some(shared) => {
                let is_known = |known: &Receiver| {
                    let known = known.shared();
                    known.is_some_and(|known| Arc::ptr_eq(known, shared))
                };
                match state.receivers.iter().any(is_known) {
                    true => 0,
                    false => receiver.size(),
                }
            }
        };
        self.reserve(state, needed);
        let queue = receiver.shared().and_then(|shared| shared.number());
        let is_sharing = receiver.shared().is_some() && queue.is_none();
        if is_sharing {
            // Nobody asks for room when they are consumed.
            if state.room < needed {
                state.needed -= needed;
                return Err(Errno::ENOSPC);
            }
            state.room -= needed;
        }
        let name = state.receivers.add(receiver)?;
        if is_sharing {
            let leaver = None;
            _follows = state.sharing.insert(pair, Sharer { name, leaver });
        }
        if let Some(queue) = queue.and_then(|number| state.queues.get_mut(&number)) {
            queue.users.push(name);
        }
        if state.is_gone {
            self.orders.add(Order::Receiver(name));
        }
        Ok(name)
    }

    /// Takes a sender out. What it has posted is told of no more; once its queue
    /// pair is gone, [`Lane::settle`] takes back the room for that.
    pub fn remove_sender(&self, name: Name) -> Option<Unsettled> {
        let state = &mut self.state.lock().members;
        let sender = state.senders.remove(name)?;
        state.needed -= sender.size();
        Some(Unsettled::of(sender.under_way()))
    }

    /// Takes a receiver out, as [`Lane::remove_sender`]. Shared receives that
    /// messages come to are reported until [`Lane::settle`].
    pub fn remove_receiver(&self, name: Name) -> Option<Unsettled> {
        // Let go of without the lock: what it shares may go with it.
        let receiver;
        let mut state = self.state.lock();
        state.take_all(&self.queue);
        let state = &mut state.members;
        receiver = state.receivers.remove(name)?;
        let Some(shared) = receiver.shared() else {
            state.needed -= receiver.size();
            return Some(Unsettled::of(receiver.under_way()));
        };
        if let Some(number) = shared.number() {
            if let Some(queue) = state.queues.get_mut(&number) {
                queue.users.retain(|user| *user != name);
            }
            return Some(Unsettled::of(0));
        }
        let is_known = |known: &Receiver| {
            let known = known.shared();
            known.is_some_and(|known| Arc::ptr_eq(known, shared))
        };
        let requests = match state.receivers.iter().any(is_known) {
            true => 0,
            false => receiver.size(),
        };
        state.needed -= requests;
        let pair = receiver.pair().number();
        if let Some(sharer) = state.sharing.get_mut(&pair) {
            sharer.leaver = receiver.leave();
        }
        Some(Unsettled {
            requests,
            sharer: Some((pair, name)),
        })
    }

    /// The queue pair that had so many requests under way is gone, and so are
    /// their completions once the queue is empty.
    pub fn settle(&self, unsettled: Unsettled) {
        // Let go of without the lock, as in `remove_receiver`.
        let _sharer;
        let mut state = self.state.lock();
        state.take_all(&self.queue);
        let state = &mut state.members;
        state.room += unsettled.requests;
        if let Some((pair, name)) = unsettled.sharer
            && state
                .sharing
                .get(&pair)
                .is_some_and(|sharer| sharer.name == name)
        {
            _sharer = state.sharing.remove(&pair);
        }
    }

    /// Has the next turn report all that a sender has under way as flushed, behind
    /// what the device has said of it. Any thread may ask for that.
    pub fn abandon_sender(&self, name: Name) {
        self.orders.add(Order::Sender(name));
    }

    /// The same of all receives of a receiver, which takes no more.
    pub fn abandon_receiver(&self, name: Name) {
        self.orders.add(Order::Receiver(name));
    }

    /// The same of those alone that a receiver shares with others, of whom nobody is
    /// to get a message any more.
    pub fn abandon_shared(&self, name: Name) {
        self.orders.add(Order::Shared(name));
    }

    /// Does what other threads have asked for.
    #[cold]
    #[inline(never)]
    fn follow_orders(&self, state: &mut State) {
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

    /// Hears of the device, as perhaps nobody else does, or sees that it is gone:
    /// whether that is so now, and was not before.
    #[cold]
    #[inline(never)]
    fn look_at_device(&self, state: &mut State) -> bool {
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

    /// Posts to the send queue of a member. `-FI_EAGAIN` where the member or the
    /// device has no room, `-FI_ENODEV` where it has been abandoned.
    #[inline(always)]
    pub fn send(&self, name: Name, operation: Operation, work: &Work<'_>) -> Result {
        let mut state = self.state.lock().promptly();
        let mut is_tried = false;
        loop {
            let members = &mut state.members;
            let room = members.room;
            let sender = members.senders.get(name).ok_or(Errno::EOPBADSTATE)?;
            if !sender.is_full() && room != 0 {
                sender.post(&operation, work, room)?;
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

    /// What has completed makes room.
    #[cold]
    #[inline(never)]
    fn make_room(&self, state: &mut State) {
        state.take(&self.queue);
    }

    /// Posts to the receive queue of a member, whose receives are its own.
    /// `-FI_EAGAIN` as for [`Lane::send`], `-FI_ENODEV` where it has been abandoned.
    #[inline(always)]
    pub fn receive(
        &self,
        name: Name,
        local: &Gather,
        context: *mut c_void,
        address: *mut c_void,
        is_reported: bool,
    ) -> Result {
        let state = &mut self.state.lock().promptly().members;
        let receiver = state.receivers.get(name).ok_or(Errno::EOPBADSTATE)?;
        if receiver.is_full() || state.room == 0 {
            return Err(Errno::EAGAIN);
        }
        receiver.post(name, local, context, address, is_reported)?;
        state.room -= 1;
        Ok(())
    }

    /// What a sender tells of what completes from now on.
    pub fn report_sends(&self, name: Name, reports: Reports) -> Result {
        let state = &mut self.state.lock().members;
        let sender = state.senders.get(name).ok_or(Errno::EOPBADSTATE)?;
        sender.report_to(reports);
        Ok(())
    }

    /// [`Lane::report_sends`] of a receiver.
    pub fn report_receives(&self, name: Name, reports: Reports) -> Result {
        let state = &mut self.state.lock().members;
        let receiver = state.receivers.get(name).ok_or(Errno::EOPBADSTATE)?;
        receiver.report_to(reports);
        Ok(())
    }

    /// Requests that a sender may still post.
    pub fn send_room(&self, name: Name) -> Result<usize> {
        let state = &mut self.state.lock().members;
        let sender = state.senders.get(name).ok_or(Errno::EOPBADSTATE)?;
        Ok(sender.size() - sender.under_way())
    }

    /// How far a sender has come.
    pub fn advance(&self, name: Name) -> Result<Advance> {
        let state = &mut self.state.lock().members;
        let sender = state.senders.get(name).ok_or(Errno::EOPBADSTATE)?;
        Ok(sender.advance())
    }

    /// Receives that a receiver may still post.
    pub fn receive_room(&self, name: Name) -> Result<usize> {
        let state = &mut self.state.lock().members;
        let receiver = state.receivers.get(name).ok_or(Errno::EOPBADSTATE)?;
        match receiver.shared() {
            Some(_) => Err(Errno::ENOSYS),
            None => Ok(receiver.size() - receiver.under_way()),
        }
    }
}

/// Requests whose completions may still be in the device's queue.
#[must_use = "room is lost"]
pub struct Unsettled {
    requests: usize,
    /// Whose shared receives they may be at, by the number of its queue pair.
    sharer: Option<(u32, Name)>,
}

impl Unsettled {
    fn of(requests: usize) -> Self {
        Unsettled {
            requests,
            sharer: None,
        }
    }
}

impl State {
    /// Takes completions from the device and says what became of the requests;
    /// how many.
    #[inline(always)]
    fn take(&mut self, queue: &CompletionQueue) -> usize {
        let found = match queue.poll(&mut self.found) {
            Ok(found) => found,
            Err(error) => return failed(error),
        };
        for completion in found {
            self.members.completed(completion);
        }
        found.len()
    }

    /// All that there is.
    fn take_all(&mut self, queue: &CompletionQueue) {
        while self.take(queue) != 0 {}
    }
}

impl Everybody {
    /// Reports all requests of all members as flushed; how many.
    fn abandon_all(&mut self) -> usize {
        let sent: usize = self.senders.iter_mut().map(Sender::abandon).sum();
        let received: usize = self.receivers.iter_mut().map(Receiver::abandon).sum();
        sent + received
    }

    #[inline(always)]
    fn completed(&mut self, completion: &WorkCompletion) {
        let id = completion.wr_id;
        // What is not known is of a member that has left.
        if Sender::is_named(id) {
            if let Some(sender) = self.senders.get(Name::of_request(id)) {
                self.room += sender.completed(completion);
            } else {
                self.departed_completed(Name::of_request(id));
            }
        } else if Receiver::is_named(id) {
            if let Some(receiver) = self.receivers.get(Name::of_request(id)) {
                self.room += receiver.completed(completion);
            }
        } else {
            self.shared_completed(completion);
        }
    }

    #[inline(never)]
    fn shared_completed(&mut self, completion: &WorkCompletion) {
        if let Some(number) = Shared::number_of(completion.wr_id) {
            return self.queue_completed(number, completion);
        }
        let Some(sharer) = self.sharing.get(&completion.qp_num) else {
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
fn failed(error: Errno) -> usize {
    warn_again!(target: crate::LOG.cq, "a device's completion queue cannot be read: {error}");
    0
}

/// The device says what became of a request that nobody has under way.
#[cold]
#[inline(never)]
fn completion_of_nobody(completion: &WorkCompletion) {
    warn_again!(target: crate::LOG.cq, "a completion of no request: {completion:?}");
}

impl Progress for Lane {
    #[inline]
    fn progress(&self) {
        self.signals.driven();
        // Whoever is inside takes what there is.
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
            // Orders are all that may come.
            return !self.orders.are_there();
        }
        self.queue.silence();
        if let Err(error) = self.queue.arm() {
            log::warn!(target: crate::LOG.cq, "ibv_req_notify_cq: {error}");
            return false;
        }
        // What came before does not wake.
        state.take(&self.queue) == 0 && !self.orders.are_there()
    }
}
