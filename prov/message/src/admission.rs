//! Links that wait until there is room again: those that are held back, and those
//! whose senders were asked to announce their messages.
//!
//! A link goes on when one of several totals has fallen to a ceiling of its own.
//! That depends on what is kept of this link alone, so it is worked out when that
//! changes, and the links stand in order of it. The first one in that order goes on
//! before all others, and if it cannot, none can: nobody looks at the rest. Among
//! links that can go on, one of which less is kept, and whose message is shorter,
//! goes first, and of two that are equal the one that has waited longer.

use std::collections::BTreeSet;

use slotmap::{Key, SecondaryMap};

/// How high each of `N` totals may be for a link to go on; `None` where its fall
/// does not help.
pub(crate) type Ceilings<const N: usize> = [Option<usize>; N];

/// See the [module](self) description.
pub(crate) struct Admission<L: Key, W, const N: usize> {
    waiting: SecondaryMap<L, Waiting<W, N>>,
    /// By ceiling, and among equal ones by turn; the last one goes on first.
    orders: [BTreeSet<(usize, u64, L)>; N],
    /// Falls with each link that comes, so that the first to come stands last.
    next_turn: u64,
}

struct Waiting<W, const N: usize> {
    what: W,
    turn: u64,
    ceilings: Ceilings<N>,
}

impl<L: Key, W, const N: usize> Admission<L, W, N> {
    /// No link waits.
    pub fn new() -> Self {
        Admission {
            waiting: SecondaryMap::new(),
            orders: [const { BTreeSet::new() }; N],
            next_turn: u64::MAX,
        }
    }

    /// The links that wait.
    pub fn iter(&self) -> impl Iterator<Item = L> {
        self.waiting.keys()
    }

    /// Whether a link waits that goes on when the total `which` has fallen.
    pub fn any_for(&self, which: usize) -> bool {
        self.orders
            .get(which)
            .is_some_and(|order| !order.is_empty())
    }

    /// Whether a link waits.
    pub fn contains(&self, link: L) -> bool {
        self.waiting.contains_key(link)
    }

    /// A link waits; one that waited already does so with something else. One that
    /// has ended, as another one has taken its place, does not wait.
    pub fn insert(&mut self, link: L, what: W, ceilings: Ceilings<N>) {
        self.remove(link);
        let turn = self.next_turn;
        self.next_turn -= 1;
        let waiting = Waiting {
            what,
            turn,
            ceilings,
        };
        self.waiting.insert(link, waiting);
        if self.contains(link) {
            self.enter(link, turn, ceilings);
        }
    }

    /// What a link waits with, if it does.
    pub fn get(&self, link: L) -> Option<&W> {
        Some(&self.waiting.get(link)?.what)
    }

    /// [`Admission::get`] to change it.
    pub fn get_mut(&mut self, link: L) -> Option<&mut W> {
        Some(&mut self.waiting.get_mut(link)?.what)
    }

    /// What is kept of a link has changed, or whether its peer is known.
    pub fn change(&mut self, link: L, ceilings: Ceilings<N>) {
        let Some(waiting) = self.waiting.get_mut(link) else {
            return;
        };
        let turn = waiting.turn;
        let before = std::mem::replace(&mut waiting.ceilings, ceilings);
        self.leave(link, turn, before);
        self.enter(link, turn, ceilings);
    }

    /// A link waits no longer.
    pub fn remove(&mut self, link: L) -> Option<W> {
        let waiting = self.waiting.remove(link)?;
        self.leave(link, waiting.turn, waiting.ceilings);
        Some(waiting.what)
    }

    /// A link that can go on with these totals, if there is one.
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
    fn who_can_go_on_stands_first() {
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
