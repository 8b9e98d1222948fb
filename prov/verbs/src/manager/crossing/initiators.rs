//! The initiators of a fabric: the connections of one completion queue to one host share one.

use std::collections::{HashMap, VecDeque};
use std::sync::Weak;

use super::end::{Caller, Way};
use super::*;

/// The initiators of a fabric, and the connections that wait for them.
#[derive(Default)]
pub(in crate::manager) struct Initiators {
    pub(super) known: HashMap<Way, Initiator>,
    /// Connections that need not wait any longer.
    pub(super) ready: Vec<EndKey>,
    /// The connections for which datagrams have been answered.
    pub(super) answered: HashMap<Caller, EndKey>,
}

pub(super) struct Initiator {
    pair: Weak<QueuePair>,
    /// The peer's target, once it is connected.
    pub(super) target: Option<u32>,
    pub(super) waiting: VecDeque<EndKey>,
}

impl Initiators {
    /// Returns the initiator that is connected or being connected.
    pub(super) fn find(&mut self, way: Way) -> Option<(Arc<QueuePair>, &mut Initiator)> {
        let known = self.known.get_mut(&way)?;
        let pair = known.pair.upgrade().filter(|pair| !pair.has_failed())?;
        Some((pair, known))
    }

    /// Adds an initiator that is being connected. Connections that wait for one that is gone wait for
    /// this one instead.
    pub(super) fn connecting(&mut self, way: Way, pair: &Arc<QueuePair>) {
        let known = Initiator {
            pair: Arc::downgrade(pair),
            target: None,
            waiting: VecDeque::new(),
        };
        if let Some(gone) = self.known.insert(way, known) {
            self.ready.extend(gone.waiting);
        }
    }

    pub(super) fn is_unconnected(&self, way: Way) -> bool {
        let known = self.known.get(&way);
        known.is_some_and(|known| known.target.is_none())
    }

    /// Forgets an initiator that is not connected as it should be: another one has to be created.
    pub(super) fn forget(&mut self, way: Way, pair: &Arc<QueuePair>) {
        let is_it = |known: &Initiator| std::ptr::eq(known.pair.as_ptr(), Arc::as_ptr(pair));
        if self.known.get(&way).is_some_and(is_it)
            && let Some(known) = self.known.remove(&way)
        {
            self.ready.extend(known.waiting);
        }
    }
}
