//! What peers do to this process's memory (fi_rma(3), fi_atomic(3)), and where
//! messages go.
//!
//! Registered memory can be closed at any time. Whoever touches it holds the
//! region open for that moment, and what was closed is left alone.

use prov_util::buffer::AppIov;
use prov_util::mr::{Accessor, Grants};

/// Where a message goes to: memory of an operation, or memory that the
/// application registered for peers.
pub enum Place {
    /// Of an operation in flight.
    App(AppIov),
    /// Registered, one after another.
    Registered(Grants),
}

impl Place {
    /// Copies bytes to their place `at` the offset, as far as there is room.
    #[inline]
    pub fn write_at(&self, registered: &mut Option<Accessor>, at: usize, bytes: &[u8]) {
        match self {
            Place::App(memory) => {
                memory.write_at(at, bytes);
            }
            Place::Registered(grants) => {
                if let Some(accessor) = registered {
                    grants.write_at(accessor, at, bytes);
                }
            }
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
    pub fn part(
        &self,
        registered: &mut Option<Accessor>,
        at: usize,
        len: usize,
        work: impl FnOnce(&AppIov),
    ) -> usize {
        match self {
            Place::App(memory) => {
                let part = memory.slice(at, len);
                work(&part);
                part.len()
            }
            Place::Registered(grants) => match registered {
                Some(accessor) => grants.part(accessor, at, len, work).0,
                None => 0,
            },
        }
    }
}
