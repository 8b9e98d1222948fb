//! What peers do to this process's memory (fi_rma(3), fi_atomic(3)), and where
//! messages go.
//!
//! Registered memory can be closed at any time. Whoever touches it holds the
//! region open for that moment, and what was closed is left alone.

use prov_util::buffer::AppIov;
use prov_util::mr::Grant;

/// Where a message goes to: memory of an operation, or memory that the
/// application registered for peers.
pub enum Place {
    /// Of an operation in flight.
    App(AppIov),
    /// Registered, one after another.
    Registered(Vec<Grant>),
}

impl Place {
    /// Copies bytes to their place `at` the offset, as far as there is room.
    #[inline]
    pub fn write_at(&self, at: usize, bytes: &[u8]) {
        match self {
            Place::App(memory) => {
                memory.write_at(at, bytes);
            }
            Place::Registered(grants) => write_granted(grants, at, bytes),
        }
    }

    /// The application's memory, as far as it is an operation's.
    pub fn memory(&self) -> AppIov {
        match self {
            Place::App(memory) => *memory,
            Place::Registered(_) => AppIov::EMPTY,
        }
    }

    /// Calls `work` with the memory from the offset on, up to `len` bytes and to
    /// the end of its part; not if that is closed. Returns how many bytes the
    /// memory has, or would have.
    pub fn part(&self, at: usize, len: usize, work: impl FnOnce(&AppIov)) -> usize {
        match self {
            Place::App(memory) => {
                let part = memory.slice(at, len);
                work(&part);
                part.len()
            }
            Place::Registered(grants) => {
                let Some((grant, start)) = find(grants, at) else {
                    return 0;
                };
                let len = len.min(grant.len() - start);
                grant.with(|memory| work(&memory.slice(start, len)));
                len
            }
        }
    }
}

/// The part at an offset, and the offset in it.
fn find(grants: &[Grant], mut at: usize) -> Option<(&Grant, usize)> {
    for grant in grants {
        if at < grant.len() {
            return Some((grant, at));
        }
        at -= grant.len();
    }
    None
}

fn write_granted(grants: &[Grant], mut at: usize, mut bytes: &[u8]) {
    for grant in grants {
        if bytes.is_empty() {
            return;
        }
        if at >= grant.len() {
            at -= grant.len();
            continue;
        }
        let (part, rest) = bytes.split_at(bytes.len().min(grant.len() - at));
        grant.with(|memory| memory.write_at(at, part));
        bytes = rest;
        at = 0;
    }
}
