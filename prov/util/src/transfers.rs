//! The outcomes of transfers that a peer provider makes over an endpoint (`FI_PEER_TRANSFER`,
//! fi_peer(3)). The owner records them while it holds its locks; the peer, which may post more
//! transfers, is informed after the owner has released them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::cq::{Completion, ErrorCompletion};

/// The outcome of a transfer.
#[derive(Debug)]
pub enum Ended {
    /// It succeeded.
    Done(Completion),
    /// It has failed.
    Failed(ErrorCompletion),
}

/// Outcomes of which the peer has not been informed, in order.
#[derive(Default)]
pub struct Transfers {
    ended: Mutex<VecDeque<Ended>>,
    has_some: AtomicBool,
}

impl Transfers {
    /// Records a successful transfer.
    pub fn done(&self, completion: Completion) {
        self.push(Ended::Done(completion));
    }

    /// Records a failed transfer.
    pub fn failed(&self, error: ErrorCompletion) {
        self.push(Ended::Failed(error));
    }

    fn push(&self, ended: Ended) {
        let mut queue = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        queue.push_back(ended);
        self.has_some.store(true, Ordering::Release);
    }

    /// Returns whether there are no outcomes.
    pub fn is_empty(&self) -> bool {
        !self.has_some.load(Ordering::Acquire)
    }

    /// Removes and returns the oldest outcome.
    pub fn next(&self) -> Option<Ended> {
        if self.is_empty() {
            return None;
        }
        let mut queue = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let next = queue.pop_front();
        self.has_some.store(!queue.is_empty(), Ordering::Release);
        next
    }
}
