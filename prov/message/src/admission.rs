//! Flow control: the queue of links that wait until there is room again. It holds the links that
//! are held back and those whose senders were asked to announce their messages.
//!
//! A link may continue when one of several totals has fallen to a ceiling that is computed for this
//! link. The ceiling depends only on what is kept of this link, so it is recomputed when that
//! changes, and the links are sorted by it. If the first link in that order cannot continue, no
//! other can, so the rest is not examined. Among links that can continue, the one with less kept
//! data and the shorter message comes first; of two equal ones, the one that has waited longer.

use std::collections::BTreeSet;

use slotmap::{Key, SecondaryMap};

/// The highest value of each of `N` totals at which a link may continue; `None` where a fall of
/// that total does not help.
pub(crate) type Ceilings<const N: usize> = [Option<usize>; N];

/// See the [module](self) description.
pub(crate) struct Admission<L: Key, W, const N: usize> {
    waiting: SecondaryMap<L, QueuedLink<W, N>>,
    /// Sorted by ceiling, and among equal ceilings by turn; the last entry continues first.
    orders: [BTreeSet<(usize, u64, L)>; N],
    /// Decreases with each link that is added, so that the earliest one is the last entry.
    next_turn: u64,
}

struct QueuedLink<W, const N: usize> {
    what: W,
    turn: u64,
    ceilings: Ceilings<N>,
}

impl<L: Key, W, const N: usize> Admission<L, W, N> {
    /// Creates an empty queue.
    pub fn new() -> Self {
        Admission {
            waiting: SecondaryMap::new(),
            orders: [const { BTreeSet::new() }; N],
            next_turn: u64::MAX,
        }
    }

    /// Iterates over the links that wait.
    pub fn iter(&self) -> impl Iterator<Item = L> {
        self.waiting.keys()
    }

    /// Returns whether a link waits for a fall of the total `which`.
    pub fn any_for(&self, which: usize) -> bool {
        self.orders
            .get(which)
            .is_some_and(|order| !order.is_empty())
    }

    /// Returns whether this link waits.
    pub fn contains(&self, link: L) -> bool {
        self.waiting.contains_key(link)
    }

    /// Adds a link, or replaces what it waits with. A link that has ended is not added if another
    /// one has reused its index.
    pub fn insert(&mut self, link: L, what: W, ceilings: Ceilings<N>) {
        self.remove(link);
        let turn = self.next_turn;
        self.next_turn -= 1;
        let waiting = QueuedLink {
            what,
            turn,
            ceilings,
        };
        self.waiting.insert(link, waiting);
        if self.contains(link) {
            self.enter(link, turn, ceilings);
        }
    }

    /// Returns what the link waits with, or `None` if it does not wait.
    pub fn get(&self, link: L) -> Option<&W> {
        Some(&self.waiting.get(link)?.what)
    }

    /// Like [`Admission::get`], mutable.
    pub fn get_mut(&mut self, link: L) -> Option<&mut W> {
        Some(&mut self.waiting.get_mut(link)?.what)
    }

    /// Re-sorts a link after what is kept of it, or whether its peer is known, has changed.
    pub fn change(&mut self, link: L, ceilings: Ceilings<N>) {
        let Some(waiting) = self.waiting.get_mut(link) else {
            return;
        };
        let turn = waiting.turn;
        let before = std::mem::replace(&mut waiting.ceilings, ceilings);
        self.leave(link, turn, before);
        self.enter(link, turn, ceilings);
    }

    /// Removes a link from the queue.
    pub fn remove(&mut self, link: L) -> Option<W> {
        let waiting = self.waiting.remove(link)?;
        self.leave(link, waiting.turn, waiting.ceilings);
        Some(waiting.what)
    }

    /// Returns a link that can continue at these totals, if there is one.
    pub fn next(&self, totals: [usize; N]) -> Option<L> {
        let mut orders = self.orders.iter().zip(totals);
        orders.find_map(|(order, total)| {
            let &(ceiling, _, link) = order.last()?;
            (total <= ceiling).then_some(link)
        })
    }

    fn enter(&mut self, link: L, turn: u64, ceilings: Ceilings<N>) {
        for (order, ceiling) in self.orders.iter_mut().zip(ceilings) {
            if let Some(ceiling) = ceiling {
                order.insert((ceiling, turn, link));
            }
        }
    }

    fn leave(&mut self, link: L, turn: u64, ceilings: Ceilings<N>) {
        for (order, ceiling) in self.orders.iter_mut().zip(ceilings) {
            if let Some(ceiling) = ceiling {
                order.remove(&(ceiling, turn, link));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use slotmap::{DefaultKey, SlotMap};

    use super::*;

    #[test]
    fn the_link_that_can_continue_is_found_first() {
        let mut links = SlotMap::<DefaultKey, ()>::new();
        let [a, b, c] = [(); 3].map(|()| links.insert(()));
        let mut admission = Admission::new();
        admission.insert(a, (), [Some(10), None]);
        admission.insert(b, (), [Some(30), None]);
        admission.insert(c, (), [Some(30), Some(5)]);
        assert_eq!(admission.next([31, 6]), None);
        assert_eq!(admission.next([31, 5]), Some(c));
        assert_eq!(admission.next([30, 6]), Some(b));
        admission.remove(b);
        assert_eq!(admission.next([30, 6]), Some(c));
        admission.change(c, [None; 2]);
        assert_eq!(admission.next([30, 6]), None);
        assert_eq!(admission.next([10, 6]), Some(a));
    }

    #[test]
    fn a_link_that_has_ended_never_waits() {
        let mut links = SlotMap::<DefaultKey, ()>::new();
        let ended = links.insert(());
        links.remove(ended);
        let link = links.insert(());
        let mut admission = Admission::new();
        admission.insert(link, (), [Some(10)]);
        admission.insert(ended, (), [Some(20)]);
        assert_eq!(admission.next([15]), None);
        assert_eq!(admission.next([10]), Some(link));
    }
}
