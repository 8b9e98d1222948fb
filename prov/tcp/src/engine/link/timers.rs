//! Points in time at which something is looked at again.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Instant;

use crate::engine::link::keys::{ConnKey, EpKey, ListenerKey, PeerKey};

/// What is looked at.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Target {
    /// A connection whose handshake takes long.
    Conn(ConnKey),
    /// A peer to which there is no connection.
    Peer(EpKey, PeerKey),
    /// A listener that rests.
    Listener(ListenerKey),
    /// All open connections, whose hosts may be silent.
    Silence,
}

/// What is due when. Nothing is ever taken back: whoever is called looks
/// whether there is still something to do.
#[derive(Default)]
pub struct Timers {
    heap: BinaryHeap<Reverse<(Instant, Target)>>,
}

impl Timers {
    /// Has `target` looked at when the time has come.
    pub fn set(&mut self, when: Instant, target: Target) {
        self.heap.push(Reverse((when, target)));
    }

    /// The next thing that is due.
    pub fn pop_due(&mut self, now: Instant) -> Option<Target> {
        match self.heap.peek() {
            Some(&Reverse((when, target))) if when <= now => {
                self.heap.pop();
                Some(target)
            }
            _ => None,
        }
    }

    /// When the next thing is due.
    pub fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|&Reverse((when, _))| when)
    }
}
