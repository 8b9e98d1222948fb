//! What members of a lane share with XRC: an initiator, which outlasts those who send
//! over it, and a receive queue, which completes here whoever uses it.

use std::sync::{Arc, Weak};

use prov_base::errno::{Errno, Result};
use prov_base::sync::Lock;

use super::shared::{Table, take};
use super::{Everybody, Lane, Name};
use crate::device::{QueuePair, WorkCompletion};

/// A shared receive queue. There is room for all its completions.
pub(super) struct Queue {
    posted: Arc<Lock<Table>>,
    /// The receivers that use it. Nobody says which of them a message was for: the first
    /// one reports it, to the completion queue that they all have.
    pub(super) users: Vec<Name>,
}

/// Requests of a sender that has left.
pub(super) struct Departed {
    initiator: Weak<QueuePair>,
    /// Those that have not completed.
    left: usize,
}

impl Lane {
    /// Makes room for all completions of a shared queue. `-FI_ENOSPC` where there is
    /// none.
    pub(super) fn make_place(
        &self,
        number: u32,
        needed: usize,
        posted: Arc<Lock<Table>>,
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

    /// The queue of that place is gone.
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

    /// Takes a sender out, of whose requests nothing is told any more. The room for them
    /// comes back one by one, as they complete.
    pub(super) fn part_with_sender(&self, name: Name, initiator: &Weak<QueuePair>) {
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

    /// An initiator is gone: nothing over it completes any more, once the queue is empty.
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

impl Everybody {
    /// A request of a sender that has left has completed.
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

    /// A message has come to a shared queue.
    pub(super) fn queue_completed(&mut self, number: u32, completion: &WorkCompletion) {
        let Some(queue) = self.queues.get(&number) else {
            return;
        };
        let user = queue.users.first().copied();
        match user.and_then(|name| self.receivers.get(name)) {
            Some(receiver) => receiver.shared_completed(completion),
            // There is nobody left to tell.
            None => drop(take(&queue.posted, completion.wr_id)),
        }
    }
}
