//! The queue of actions that a provider has to carry out for its links.

use prov_base::bounded;
use prov_base::bounds::OPERATIONS;
use std::collections::VecDeque;

use slotmap::SecondaryMap;

use crate::endpoints::inbox::{Action, Transport};

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
