//! The objects that members of a lane share if the device has them (XRC): an initiator, which outlives its senders, and
//! a receive queue, which completes here for all of its users.

use std::sync::{Arc, Weak};

use prov_base::errno::{Errno, Result};
use prov_base::sync::Lock;

use super::shared::{Table, take};
use super::{Everybody, Lane, Name};
use crate::device::{Completion, CompletionQueue, Device};

/// A shared receive queue. There is space for all its completions.
pub(super) struct Queue<D: Device> {
    posted: Arc<Lock<Table<D>>>,
    /// The receivers that use it. The receiver of a message is not known: the first one reports it,
    /// to the completion queue that they all have.
    pub(super) users: Vec<Name>,
}

/// The requests of a sender that has left.
pub(super) struct Departed<D: Device> {
    initiator: Weak<D::Pair>,
    /// Number of those that have not completed.
    left: usize,
}

impl<D: Device> Lane<D> {
    /// Makes space for all completions of a shared queue. `-FI_ENOSPC` if there is none.
    pub(super) fn make_place(
        &self,
        number: u32,
        needed: usize,
        posted: Arc<Lock<Table<D>>>,
    ) -> Result {
        let state = &mut self.state.lock().members;
        self.reserve(state, needed);
        if state.room < needed {
            state.needed -= needed;
            return Err(Errno::ENOSPC);
        }
        state.room -= needed;
        let queue = Queue {
            posted,
            users: Vec::new(),
        };
        state.queues.insert(number, queue);
        Ok(())
    }

    /// Handles that the queue with that number is gone.
    pub(super) fn part_with(&self, number: u32, size: usize) {
        if !self.queue.is_own() {
            return;
        }
        let mut state = self.state.lock();
        state.take_all(&self.queue);
        state.members.queues.remove(&number);
        state.members.needed -= size;
        state.members.room += size;
    }

    /// Removes a sender, whose requests are not reported any longer. The space for them is freed
    /// one by one, as they complete.
    pub(super) fn part_with_sender(&self, name: Name, initiator: &Weak<D::Pair>) {
        let state = &mut self.state.lock().members;
        let Some(sender) = state.senders.remove(name) else {
            return;
        };
        state.needed -= sender.size();
        let left = sender.under_way();
        if left != 0 {
            let initiator = initiator.clone();
            state.departed.insert(name, Departed { initiator, left });
        }
    }

    /// Handles that an initiator is gone: no request over it completes any longer, once the queue
    /// is empty.
    pub(super) fn settle_departed(&self) {
        let mut state = self.state.lock();
        state.take_all(&self.queue);
        let Everybody { departed, room, .. } = &mut state.members;
        departed.retain(|_, sender| {
            let is_there = sender.initiator.strong_count() != 0;
            if !is_there {
                *room += sender.left;
            }
            is_there
        });
    }
}

impl<D: Device> Everybody<D> {
    /// Handles the completion of a request of a sender that has left.
    #[cold]
    #[inline(never)]
    pub(super) fn departed_completed(&mut self, name: Name) {
        let Some(sender) = self.departed.get_mut(&name) else {
            return;
        };
        sender.left -= 1;
        self.room += 1;
        if sender.left == 0 {
            self.departed.remove(&name);
        }
    }

    /// Handles the completion of a receive in a shared queue.
    pub(super) fn queue_completed(&mut self, number: u32, completion: &D::Completion) {
        let Some(queue) = self.queues.get(&number) else {
            return;
        };
        let user = queue.users.first().copied();
        match user.and_then(|name| self.receivers.get(name)) {
            Some(receiver) => receiver.shared_completed(completion),
            // There is no receiver left to report it.
            None => drop(take(&queue.posted, completion.id())),
        }
    }
}
