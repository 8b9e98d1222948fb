//! What a provider has to do for its links, and the queue of it.

use std::collections::VecDeque;

use prov_base::bounded;
use prov_base::bounds::OPERATIONS;
use prov_base::buffer::AppIov;
use slotmap::SecondaryMap;

use crate::endpoints::placing::{Placing, Then};
use crate::endpoints::transport::Transport;
use crate::endpoints::unexpected::UnexpectedHandle;
use crate::receipt::Receipt;

/// What a provider has to do for its links after a receive was posted, cancelled, or matched with a
/// message that had already arrived.
pub enum Action<T: Transport> {
    /// Acknowledge a message to its sender.
    Acknowledge(T::Link, T::Ack),
    /// Direct the rest of the message that is arriving on a link to this destination.
    Redirect(T::Link, Course<T>),
    /// Continue with a link that was held back; its message has this destination.
    Resume(T::Link, Course<T>),
    /// Request a message that the sender has announced.
    Fetch(T::Link, Fetch<T>),
    /// Tell a sender that a message it has announced is not wanted.
    Refuse(T::Link, T::Name, T::Ack, usize),
    /// Tell a sender to announce its messages (`true`), or to stop doing so (`false`).
    Throttle(T::Link, bool),
}

impl<T: Transport> Course<T> {
    /// The rest of a message of which `done` bytes are in the memory of a receive.
    pub(crate) fn receive(memory: AppIov, done: usize, receipt: Receipt<T::Ack>) -> Self {
        let placing = Placing::receive(memory, receipt);
        Course::Place(Box::new(Placing { done, ..placing }))
    }
}

impl<T: Transport> Action<T> {
    /// Returns the link that the action concerns.
    pub(crate) fn link(&self) -> T::Link {
        match *self {
            Action::Acknowledge(link, _)
            | Action::Redirect(link, _)
            | Action::Resume(link, _)
            | Action::Fetch(link, _)
            | Action::Refuse(link, ..)
            | Action::Throttle(link, _) => link,
        }
    }

    /// Returns the receive whose message the action would have requested or resumed.
    pub(crate) fn receive(self) -> Option<(Receipt<T::Ack>, AppIov)> {
        match self {
            Action::Redirect(_, Course::Place(placing))
            | Action::Resume(_, Course::Place(placing)) => match placing.then {
                Then::Receive(receipt) => Some((receipt, placing.place.into_memory())),
                Then::Read(_) | Then::RemoteWrite { .. } => None,
            },
            Action::Fetch(_, fetch) => Some((fetch.receipt, fetch.memory)),
            _ => None,
        }
    }
}

/// A request for an announced message.
pub struct Fetch<T: Transport> {
    pub name: T::Name,
    pub memory: AppIov,
    pub receipt: Receipt<T::Ack>,
    /// Length of the message in bytes.
    pub len: usize,
}

/// The destination of the rest of an arriving message.
pub enum Course<T: Transport> {
    /// Memory, which may be too small.
    Place(Box<Placing<T>>),
    /// The inbox.
    Keep(UnexpectedHandle),
    /// None: the message is discarded.
    Discard,
    /// There is no rest.
    Done,
}

/// A queue of [`Action`]s in which the actions of one link are linked, so that they are found
/// without a search through those of other links.
pub(crate) struct Actions<T: Transport> {
    /// In order; `None` for an action that was cancelled.
    queue: VecDeque<Option<QueuedAction<T>>>,
    /// The sequence number of the first entry of `queue`.
    first: u64,
    /// The sequence number plus one of each link's last action, if it is still queued.
    last: SecondaryMap<T::Link, u64>,
}

struct QueuedAction<T: Transport> {
    action: Action<T>,
    /// The number of the link's previous action, in the form of [`Actions::last`].
    before: u64,
}

impl<T: Transport> Actions<T> {
    /// Creates an empty queue.
    pub fn new() -> Self {
        Actions {
            queue: VecDeque::new(),
            first: 0,
            last: SecondaryMap::new(),
        }
    }

    /// Returns whether the queue is empty.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Appends an action.
    pub fn push_back(&mut self, action: Action<T>) {
        let link = action.link();
        let number = self.first + self.queue.len() as u64 + 1;
        let before = self.last.insert(link, number).unwrap_or(0);
        self.queue.push_back(Some(QueuedAction { action, before }));
        bounded!(self.queue, OPERATIONS);
    }

    /// Removes and returns the first action.
    pub fn pop_front(&mut self) -> Option<Action<T>> {
        loop {
            let entry = self.queue.pop_front()?;
            self.first += 1;
            if let Some(entry) = entry {
                return Some(entry.action);
            }
        }
    }

    /// The index in `queue` of the action with this number plus one.
    fn place(&self, number: u64) -> Option<usize> {
        let place = number.checked_sub(self.first + 1)?;
        usize::try_from(place).ok()
    }

    /// Finds the last action of a link that satisfies the predicate.
    pub fn find_of(
        &mut self,
        link: T::Link,
        mut is_meant: impl FnMut(&Action<T>) -> bool,
    ) -> Option<&mut Action<T>> {
        let mut next = self.last.get(link).copied()?;
        loop {
            let place = self.place(next)?;
            let entry = self.queue.get(place)?.as_ref()?;
            if is_meant(&entry.action) {
                let entry = self.queue.get_mut(place)?.as_mut();
                return entry.map(|entry| &mut entry.action);
            }
            next = entry.before;
        }
    }

    /// Removes all actions of a link that has ended, and returns them in order.
    pub fn take_of(&mut self, link: T::Link) -> Vec<Action<T>> {
        let mut taken = Vec::new();
        let mut next = self.last.remove(link).unwrap_or(0);
        while let Some(place) = self.place(next)
            && let Some(entry) = self.queue.get_mut(place).and_then(Option::take)
        {
            taken.push(entry.action);
            next = entry.before;
        }
        taken.reverse();
        taken
    }
}

#[cfg(test)]
mod tests {
    use slotmap::{DefaultKey, SlotMap};

    use super::*;

    enum Pipe {}

    impl Transport for Pipe {
        type Link = DefaultKey;
        type Ack = u32;
        type Name = ();
        type Endpoint = ();
    }

    fn acknowledged(action: Option<Action<Pipe>>) -> Option<u32> {
        match action {
            Some(Action::Acknowledge(_, ack)) => Some(ack),
            _ => None,
        }
    }

    #[test]
    fn actions_of_a_link_are_removed_and_the_others_keep_their_order() {
        let mut links = SlotMap::with_key();
        let links = [(); 3].map(|()| links.insert(()));
        let mut actions = Actions::<Pipe>::new();
        for number in 0..12 {
            actions.push_back(Action::Acknowledge(links[number as usize % 3], number));
        }
        assert_eq!(acknowledged(actions.pop_front()), Some(0));
        let found = actions.find_of(
            links[0],
            |action| matches!(action, Action::Acknowledge(_, ack) if *ack < 9),
        );
        *found.unwrap() = Action::Acknowledge(links[0], 100);
        assert!(actions.find_of(links[1], |_| false).is_none());
        let of = |actions: &mut Actions<Pipe>, link| -> Vec<Option<u32>> {
            let taken = actions.take_of(link).into_iter();
            taken.map(|action| acknowledged(Some(action))).collect()
        };
        assert_eq!(
            of(&mut actions, links[1]),
            [Some(1), Some(4), Some(7), Some(10)]
        );
        assert!(of(&mut actions, links[1]).is_empty());
        let left: Vec<_> = std::iter::from_fn(|| acknowledged(actions.pop_front())).collect();
        assert_eq!(left, [2, 3, 5, 100, 8, 9, 11]);
        assert!(actions.is_empty() && of(&mut actions, links[2]).is_empty());
        actions.push_back(Action::Acknowledge(links[2], 7));
        assert_eq!(of(&mut actions, links[2]), [Some(7)]);
        assert!(actions.pop_front().is_none() && actions.is_empty());
    }
}
