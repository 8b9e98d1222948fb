//! What has become of the transfers that a peer makes over an endpoint (`FI_PEER_TRANSFER`, fi_peer(3)). The owner
//! notes it while it holds its locks; the peer, which may post more, hears of it when the owner has released them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::cq::{Completion, ErrorCompletion};

/// How a transfer has ended.
#[derive(Debug)]
pub enum Ended {
    /// It is done.
    Done(Completion),
    /// It has failed.
    Failed(ErrorCompletion),
}

/// Ended transfers that the peer has yet to hear of, in order.
#[derive(Default)]
pub struct Transfers {
    ended: Mutex<VecDeque<Ended>>,
    has_some: AtomicBool,
}

impl Transfers {
    /// A transfer is done.
    pub fn done(&self, completion: Completion) {
        self.push(Ended::Done(completion));
    }

    /// A transfer has failed.
    pub fn failed(&self, error: ErrorCompletion) {
        self.push(Ended::Failed(error));
    }

    fn push(&self, ended: Ended) {
        let mut queue = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        queue.push_back(ended);
        self.has_some.store(true, Ordering::Release);
    }

    /// Whether there are any.
    pub fn is_empty(&self) -> bool {
        !self.has_some.load(Ordering::Acquire)
    }

    /// The next one.
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
