//! Members that join and leave a lane, and the space of the device's queue for their completions.

use std::sync::Arc;

use prov_base::errno::{Errno, Result};

use super::orders::Order;
use super::{Everybody, Lane, Name, Receiver, Sender, Sharer};
use crate::device::{CompletionQueue, Device, QueuePair};

impl<D: Device> Lane<D> {
    /// Makes space for the completions of so many more requests. Requests for which the device has
    /// no space are refused when they are posted.
    pub(super) fn reserve(&self, state: &mut Everybody<D>, requests: usize) {
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
                    target: D::LOG.cq,
                    "a completion queue of {} entries cannot grow to {wanted}: {error}",
                    state.size
                );
            }
        }
    }

    /// Adds a sender.
    pub fn add_sender(&self, sender: Sender<D>) -> Result<Name> {
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

    /// Adds a receiver. `-FI_ENOSPC` if its receives are shared and the device's queue has no space
    /// for their completions.
    pub fn add_receiver(&self, receiver: Receiver<D>) -> Result<Name> {
        // Dropped without the lock, as in `remove_receiver`.
        let _follows;
        let mut state = self.state.lock();
        let pair = receiver.pair().number();
        if state.members.sharing.contains_key(&pair) {
            // The device reuses numbers.
            state.take_all(&self.queue);
        }
        let state = &mut state.members;
        let needed = match receiver.shared() {
            None => receiver.size(),
            // There is space for them already.
            Some(shared) if shared.number().is_some() => 0,
            // They may all complete here, however many receivers share them.
            Some(shared) => {
                let is_known = |known: &Receiver<D>| {
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
            // Space is not checked when they are consumed.
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

    /// Removes a sender. Its requests are not reported any longer; once its queue pair is
    /// destroyed, [`Lane::settle`] frees the space for their completions.
    pub fn remove_sender(&self, name: Name) -> Option<Unsettled> {
        let state = &mut self.state.lock().members;
        let sender = state.senders.remove(name)?;
        state.needed -= sender.size();
        Some(Unsettled::of(sender.under_way()))
    }

    /// Removes a receiver, as [`Lane::remove_sender`] does. Shared receives that messages consume
    /// are reported until [`Lane::settle`].
    pub fn remove_receiver(&self, name: Name) -> Option<Unsettled> {
        // Dropped without the lock: the shared queue may be dropped with it.
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
        let is_known = |known: &Receiver<D>| {
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

    /// Handles that the queue pair with so many outstanding requests is destroyed; their
    /// completions are gone once the queue is empty.
    pub fn settle(&self, unsettled: Unsettled) {
        // Dropped without the lock, as in `remove_receiver`.
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
}

/// Requests whose completions may still be in the device's queue.
#[must_use = "room is lost"]
pub struct Unsettled {
    requests: usize,
    /// The receiver of shared receives, by the number of its queue pair.
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
