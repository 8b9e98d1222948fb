//! The memory of one remote operation: what its list of keys and addresses came
//! to.

#![allow(
    clippy::indexing_slicing,
    reason = "the count is at most that of the parts, and copies are limited to the room"
)]

use super::{Accessor, Grant};
use crate::atomic_ops::{self, Datatype, Op};
use crate::buffer::{IOV_LIMIT, Iov};
use crate::errno::{Errno, Result};
use crate::process_memory::OtherIov;

/// Up to [`IOV_LIMIT`] grants, one after another, without memory of their own.
///
/// Regions may be closed at any time. What is closed takes no bytes and gives
/// zeros, as if it were there: a peer may not learn from lengths.
#[derive(Clone, Copy, Debug, Default)]
pub struct Grants {
    /// Only the first `count` are meaningful.
    parts: [Grant; IOV_LIMIT],
    count: u32,
    len: usize,
}

impl Grants {
    /// Adds a part; `false` where there are [`IOV_LIMIT`] already, or where all
    /// of them together would be larger than the address space.
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

    /// The parts, in order.
    #[inline]
    pub fn parts(&self) -> &[Grant] {
        &self.parts[..self.count as usize]
    }

    /// Bytes in all parts together.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is not one byte.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies bytes into the memory from `offset` on, as far as there is room.
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

    /// Copies from the memory at `offset` into `bytes`; returns how many came.
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

    /// Copies the memory to `target`, as far as that has room; what is closed as
    /// zeros.
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

    /// Copies `source` into the memory from `offset` on, as far as there is room;
    /// [`past the caches`](Iov::past_caches), if that is said.
    pub fn copy_from(
        &self,
        accessor: &mut Accessor,
        offset: usize,
        source: &Iov<'_>,
        past_caches: bool,
    ) {
        let mut at = 0;
        for (part, skip) in self.parts_from(offset) {
            let bytes = source.slice(at, part.len() - skip);
            if bytes.is_empty() {
                return;
            }
            if let Some(held) = accessor.hold(part) {
                let place = held.part(skip, bytes.len());
                bytes.copy_to(&place.past_caches(past_caches));
            }
            at += bytes.len();
        }
    }

    /// Calls `work` with the memory from `offset` on, up to `len` bytes and to
    /// the end of its part; not if that is closed. Returns how many bytes the
    /// memory has, or would have. `work` must not block.
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

    /// Applies an atomic operation to each element, as [`atomic_ops::apply`]
    /// does: `operand`, `compare` and `result` stand for all parts together and
    /// are empty where the operation has none.
    ///
    /// `-FI_EOPNOTSUPP` and `-FI_EINVAL` as there, the latter also for a part
    /// that is not a whole number of elements (a peer's list counts elements,
    /// fi_atomic(3)); nothing has happened then.
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

    /// Tells the counters bound to the regions that the operation is complete.
    #[inline]
    pub fn complete(&self, accessor: &mut Accessor) {
        for part in self.parts() {
            accessor.complete(part);
        }
    }

    /// Whether another process can copy the memory, if that is certain.
    pub fn can_be_copied(&self, accessor: &mut Accessor) -> bool {
        self.parts().iter().all(|part| {
            let held = accessor.hold(part);
            held.is_some_and(|held| held.can_be_copied())
        })
    }

    /// Adds the memory to what another process may copy; `false` where not all
    /// of it could be added.
    pub fn offer(&self, accessor: &mut Accessor, list: &mut OtherIov) -> bool {
        self.parts().iter().all(|part| {
            let held = accessor.hold(part);
            held.is_some_and(|held| held.offer(list))
        })
    }

    /// The parts that are not empty from an offset on, each with the offset at
    /// which it begins to count.
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
