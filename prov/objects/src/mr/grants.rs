//! The memory of one remote operation: the grants for its list of keys and addresses.

#![allow(
    clippy::indexing_slicing,
    reason = "the count is at most that of the parts, and copies are limited to the room"
)]

use super::{Accessor, Grant};
use prov_base::atomic_ops::{self, Datatype, Op};
use prov_base::buffer::{IOV_LIMIT, Iov};
use prov_base::errno::{Errno, Result};
use prov_base::process_memory::OtherIov;

/// Up to [`IOV_LIMIT`] grants, one after another, stored inline.
///
/// Regions may be closed at any time. A closed part ignores writes and reads as zeros, with
/// unchanged lengths: a peer must not learn from lengths that it was closed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Grants {
    /// Only the first `count` are valid.
    parts: [Grant; IOV_LIMIT],
    count: u32,
    len: usize,
}

impl Grants {
    /// Adds a part. Returns `false` if there are already [`IOV_LIMIT`], or if all parts together
    /// would exceed the address space.
    #[inline]
    pub fn push(&mut self, grant: Grant) -> bool {
        let Some(len) = self.len.checked_add(grant.len()) else {
            return false;
        };
        let Some(slot) = self.parts.get_mut(self.count as usize) else {
            return false;
        };
        *slot = grant;
        self.count += 1;
        self.len = len;
        true
    }

    /// Returns the parts, in order.
    #[inline]
    pub fn parts(&self) -> &[Grant] {
        &self.parts[..self.count as usize]
    }

    /// Returns the total length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the total length is zero.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies bytes into the memory from `offset` on, as far as they fit.
    #[inline]
    pub fn write_at(&self, accessor: &mut Accessor, offset: usize, mut bytes: &[u8]) {
        for (part, skip) in self.parts_from(offset) {
            if bytes.is_empty() {
                return;
            }
            let (here, rest) = bytes.split_at(bytes.len().min(part.len() - skip));
            if let Some(held) = accessor.hold(part) {
                held.part(skip, here.len()).write_at(0, here);
            }
            bytes = rest;
        }
    }

    /// Copies from the memory at `offset` into `bytes`. Returns the number of copied bytes.
    #[inline]
    pub fn read_at(&self, accessor: &mut Accessor, offset: usize, bytes: &mut [u8]) -> usize {
        let mut done = 0;
        for (part, skip) in self.parts_from(offset) {
            let room = &mut bytes[done..];
            let len = room.len().min(part.len() - skip);
            let room = &mut room[..len];
            match accessor.hold(part) {
                Some(held) => held.part(skip, len).read_at(0, room),
                None => {
                    room.fill(0);
                    len
                }
            };
            done += len;
        }
        done
    }

    /// Appends all bytes to `bytes`.
    pub fn append_to(&self, accessor: &mut Accessor, bytes: &mut Vec<u8>) {
        bytes.reserve(self.len);
        for part in self.parts() {
            let end = bytes.len() + part.len();
            if let Some(held) = accessor.hold(part) {
                held.memory().append_to(bytes);
            }
            bytes.resize(end, 0);
        }
    }

    /// Whether some of it is memory of a device.
    pub fn has_device(&self, accessor: &mut Accessor) -> bool {
        self.parts().iter().any(|part| {
            let held = accessor.hold(part);
            held.is_some_and(|held| held.memory().has_device())
        })
    }

    /// Returns `-FI_EIO` if a device's memory among these parts could not be read, or written, since the
    /// last call for it ([`Iov::take_failure`]).
    ///
    /// # Errors
    /// As said.
    pub fn take_failure(&self, accessor: &mut Accessor) -> Result {
        let mut outcome = Ok(());
        for part in self.parts() {
            if let Some(held) = accessor.hold(part) {
                // Each is asked, so that none is left behind.
                outcome = outcome.and(held.memory().take_failure());
            }
        }
        outcome
    }

    /// Writes the memory back from the processor's caches ([`Iov::write_back`]).
    pub fn write_back(&self, accessor: &mut Accessor) {
        log::debug!(
            target: accessor.target(),
            "{} bytes of a peer's go to the persistence domain",
            self.len
        );
        for part in self.parts() {
            if let Some(held) = accessor.hold(part) {
                held.memory().write_back();
            }
        }
    }

    /// Copies the memory to `target`, as far as it fits; closed parts as zeros.
    pub fn copy_to(&self, accessor: &mut Accessor, target: &Iov<'_>) {
        let mut at = 0;
        for part in self.parts() {
            let room = target.slice(at, part.len());
            match accessor.hold(part) {
                Some(held) => {
                    held.memory().copy_to(&room);
                }
                None => room.fill(0),
            }
            at += part.len();
        }
    }

    /// Copies `source` into the memory from `offset` on, as far as it fits.
    pub fn copy_from(&self, accessor: &mut Accessor, offset: usize, source: &Iov<'_>) {
        let mut at = 0;
        for (part, skip) in self.parts_from(offset) {
            let bytes = source.slice(at, part.len() - skip);
            if bytes.is_empty() {
                return;
            }
            if let Some(held) = accessor.hold(part) {
                let place = held.part(skip, bytes.len());
                bytes.copy_to(&place);
            }
            at += bytes.len();
        }
    }

    /// Calls `work` with the memory from `offset` on, up to `len` bytes and to the end of its part;
    /// does not call it if that part is closed. Returns the number of bytes of the part, in either
    /// case. `work` must not block.
    #[inline]
    pub fn part<R>(
        &self,
        accessor: &mut Accessor,
        offset: usize,
        len: usize,
        work: impl FnOnce(&Iov<'_>) -> R,
    ) -> (usize, Option<R>) {
        let Some((part, skip)) = self.parts_from(offset).next() else {
            return (0, None);
        };
        let len = len.min(part.len() - skip);
        let held = accessor.hold(part);
        (len, held.map(|held| work(&held.part(skip, len))))
    }

    /// Applies an atomic operation to each element, like [`atomic_ops::apply`]: `operand`,
    /// `compare` and `result` cover all parts together, and are empty if the operation does not
    /// have them.
    ///
    /// # Errors Without any effect: `-FI_EOPNOTSUPP` and `-FI_EINVAL` as there, the latter also for
    /// a part that is not a multiple of an element (a peer's list counts elements, fi_atomic(3)).
    pub fn apply(
        &self,
        accessor: &mut Accessor,
        op: Op,
        datatype: Datatype,
        operand: &[u8],
        compare: &[u8],
        result: &mut [u8],
    ) -> Result {
        atomic_ops::check(op, datatype, self.len, operand, compare, result)?;
        let size = datatype.size();
        if !self
            .parts()
            .iter()
            .all(|part| part.len().is_multiple_of(size))
        {
            return Err(Errno::EINVAL);
        }
        let mut end = 0;
        for part in self.parts() {
            let range = end..end + part.len();
            end = range.end;
            let operand = operand.get(range.clone()).unwrap_or_default();
            let compare = compare.get(range.clone()).unwrap_or_default();
            let result = result.get_mut(range).unwrap_or_default();
            match accessor.hold(part) {
                Some(held) => {
                    atomic_ops::apply(op, datatype, &held.memory(), operand, compare, result)?;
                }
                None => result.fill(0),
            }
        }
        Ok(())
    }

    /// Informs the counters bound to the regions that the operation is complete.
    #[inline]
    pub fn complete(&self, accessor: &mut Accessor) {
        for part in self.parts() {
            accessor.complete(part);
        }
    }

    /// Returns whether another process can copy the memory, if that is certain.
    pub fn can_be_copied(&self, accessor: &mut Accessor) -> bool {
        self.parts().iter().all(|part| {
            let held = accessor.hold(part);
            held.is_some_and(|held| held.can_be_copied())
        })
    }

    /// Adds the memory to a list that another process may copy. Returns `false` if not all of it
    /// could be added.
    pub fn offer(&self, accessor: &mut Accessor, list: &mut OtherIov) -> bool {
        self.parts().iter().all(|part| {
            let held = accessor.hold(part);
            held.is_some_and(|held| held.offer(list))
        })
    }

    /// Iterates over the nonempty parts from an offset on, each with the offset at which it starts.
    #[inline(always)]
    fn parts_from(&self, mut offset: usize) -> impl Iterator<Item = (&Grant, usize)> {
        self.parts().iter().filter_map(move |part| {
            let skip = offset.min(part.len());
            offset -= skip;
            (skip < part.len()).then_some((part, skip))
        })
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests;
