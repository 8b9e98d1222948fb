//! Receive matching by another provider (fi_peer(3)): the messages of this provider that wait for a
//! receive there. It takes the place of a [`ReceiveQueue`](prov_objects::matching::ReceiveQueue) of the
//! provider, for untagged and for tagged messages; receives are posted to the owner.
//!
//! [`super`] describes when it may be used, and under which locks.

#![allow(
    clippy::indexing_slicing,
    reason = "the queue makes the indices, and room for them"
)]

use prov_base::bounded;
use prov_base::bounds::OPERATIONS;
use std::sync::Weak;

use fabric_abi::FI_REMOTE_CQ_DATA;

use super::{
    Arrival, Discarded, ImportedSrx, NewSources, Queued, Received, StartReceives, Started, Ticket,
    Unexpected, WholeMessage,
};
use prov_base::buffer::AppIov;
use prov_base::errno::{Errno, Result};
use prov_objects::matching::arena::{Arena, List, NIL};
use prov_objects::matching::{ANY_SOURCE, Message, MessageId};

/// The origin of messages whose origin has ended.
const ENDED: u32 = u32::MAX;

/// See the [module](self) description.
pub struct ForeignQueue<U> {
    owner: ImportedSrx,
    home: Weak<dyn StartReceives>,
    kept: Arena<BufferedMessage<U>, 1>,
    /// The messages of each origin, as in [`ReceiveQueue`](prov_objects::matching::ReceiveQueue).
    origins: Vec<List>,
    /// Tickets of messages that are gone, for reuse.
    spare: Vec<Ticket>,
}

struct BufferedMessage<U> {
    message: Message<U>,
    origin: u32,
    /// `None` only while it is being queued.
    queued: Option<Queued>,
}

impl<U> ForeignQueue<U> {
    /// Creates a queue whose receives belong to `owner`; `home` is called when one of them takes a
    /// message that waits here.
    pub fn new(owner: ImportedSrx, home: Weak<dyn StartReceives>) -> Self {
        owner.answer();
        ForeignQueue {
            owner,
            home,
            kept: Arena::new(),
            origins: Vec::new(),
            spare: Vec::new(),
        }
    }

    /// Matches an arriving message of `len` bytes. The tag of an untagged message is ignored.
    ///
    /// # Errors
    /// Those of the owner, if it cannot take the message at all.
    pub fn arrive(&self, tagged: bool, src: u64, tag: u64, len: usize) -> Result<Arrival> {
        self.owner.get(tagged, src, tag, len)
    }

    /// Receives a whole message in one step, if the owner is of this library and has a receive for
    /// it: see [`SharedQueue::take_whole`](super::SharedQueue).
    #[inline]
    pub fn take_whole(&self, message: WholeMessage, copy: impl Fn(&AppIov)) -> bool {
        self.owner.take_whole(message, copy)
    }

    /// Queues an unexpected message of `origin` until the owner has a receive for it.
    ///
    /// # Errors
    /// Those of the owner; the message is then not queued.
    pub fn keep(
        &mut self,
        origin: u32,
        unexpected: Unexpected,
        message: Message<U>,
    ) -> Result<MessageId> {
        let data = (message.flags & FI_REMOTE_CQ_DATA != 0).then_some(message.data);
        let index = self.kept.insert(BufferedMessage {
            message,
            origin,
            queued: None,
        });
        if self.origins.len() <= origin as usize {
            self.origins.resize(origin as usize + 1, List::EMPTY);
        }
        let list = &mut self.origins[origin as usize];
        self.kept.push_back(0, list, index);
        let id = MessageId(self.kept.key(index));
        let ticket = match self.spare.pop() {
            Some(ticket) => ticket,
            None => Ticket::new(self.home.clone()),
        };
        ticket.set(id);
        match unexpected.queue(data, ticket) {
            Ok(queued) => {
                if let Some(kept) = self.kept.get_mut(index) {
                    kept.queued = Some(queued);
                }
                Ok(id)
            }
            Err(error) => {
                self.remove(index);
                Err(error)
            }
        }
    }

    /// Returns the payload of a queued message; `None` once it has been removed.
    pub fn payload_mut(&mut self, id: MessageId) -> Option<&mut U> {
        let index = self.kept.find(id.0)?;
        self.kept
            .get_mut(index)
            .map(|kept| &mut kept.message.payload)
    }

    /// Removes a message that the owner starts, with its receive.
    ///
    /// # Errors
    /// `FI_ENOENT` if the message is not in the queue.
    pub fn start(&mut self, started: Started) -> Result<(Message<U>, Received)> {
        let (message, queued) = self.take(started.0)?;
        let (receive, ticket) = queued.started();
        self.spare.push(ticket);
        bounded!(self.spare, OPERATIONS);
        Ok((message, receive))
    }

    /// Removes a message that the owner discards.
    ///
    /// # Errors
    /// As for [`ForeignQueue::start`].
    pub fn discard(&mut self, discarded: Discarded) -> Result<Message<U>> {
        let (message, queued) = self.take(discarded.0)?;
        self.spare.push(queued.discarded());
        bounded!(self.spare, OPERATIONS);
        Ok(message)
    }

    fn take(&mut self, id: MessageId) -> Result<(Message<U>, Queued)> {
        let index = self.kept.find(id.0).ok_or(Errno::ENOENT)?;
        match self.remove(index) {
            Some(BufferedMessage {
                message,
                queued: Some(queued),
                ..
            }) => Ok((message, queued)),
            _ => Err(Errno::ENOENT),
        }
    }

    fn remove(&mut self, index: u32) -> Option<BufferedMessage<U>> {
        let origin = self.kept.get(index)?.origin;
        if let Some(list) = self.origins.get_mut(origin as usize) {
            self.kept.unlink(0, list, index);
        }
        self.kept.remove(index)
    }

    fn of_origin(&self, origin: u32) -> Vec<u32> {
        let mut indices = Vec::new();
        let list = self.origins.get(origin as usize);
        let mut index = list.map_or(NIL, |list| list.head);
        while index != NIL {
            indices.push(index);
            index = self.kept.next(0, index);
        }
        indices
    }

    /// Withdraws all messages, for an importer that is being closed. Not every owner can withdraw
    /// one earlier, so a message whose sender is gone stays, and ends with an error when it is
    /// started.
    pub fn withdraw_all(&mut self) -> Vec<Message<U>> {
        let indices: Vec<u32> = self.kept.iter().map(|(index, _)| index).collect();
        indices
            .into_iter()
            .filter_map(|index| self.remove(index))
            .map(|kept| kept.message)
            .collect()
    }

    /// Sets the sources of messages of these origins that had none; the third value is what the
    /// owner calls the source. The result has to be [told](NewSources::tell) to the owner after the
    /// importer has released its lock.
    pub fn relabel(&mut self, origins: impl Iterator<Item = (u32, u64, u64)>) -> NewSources {
        let mut changed = Vec::new();
        for (origin, src, reported) in origins {
            for index in self.of_origin(origin) {
                if let Some(kept) = self.kept.get_mut(index)
                    && kept.message.src == ANY_SOURCE
                {
                    kept.message.src = src;
                    changed.push((index, reported));
                }
            }
        }
        let news = changed.iter().filter_map(|&(index, src)| {
            let queued = self.kept.get(index)?.queued.as_ref()?;
            Some((queued, src))
        });
        NewSources::new(self.owner, news)
    }

    /// Calls `each` with the messages of an origin.
    pub fn for_each_of(&mut self, origin: u32, mut each: impl FnMut(&mut Message<U>)) {
        for index in self.of_origin(origin) {
            if let Some(kept) = self.kept.get_mut(index) {
                each(&mut kept.message);
            }
        }
    }

    /// Handles the end of an origin: its number may be reused.
    pub fn end_origin(&mut self, origin: u32) {
        for index in self.of_origin(origin) {
            if let Some(kept) = self.kept.get_mut(index) {
                kept.origin = ENDED;
            }
            if let Some(list) = self.origins.get_mut(origin as usize) {
                self.kept.unlink(0, list, index);
            }
        }
    }

    /// Returns the number of messages that wait for a receive.
    pub fn len(&self) -> usize {
        self.kept.len()
    }

    /// Returns whether no message waits.
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }
}
