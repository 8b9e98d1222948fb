//! Collective operations (fi_collective(3)): what they are, without how they are carried out.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};

use fabric_abi::*;

use crate::atomic_ops::{Datatype, Op};
use crate::buffer::AppIov;
use crate::errno::{Errno, Result};
use crate::object::FidRef;

/// A collective operation, without its memory. Members of a group are *ranks*: their places in it, from 0 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Ends at a member after all members have begun.
    Barrier,
    /// `count` elements of the root's output come to all outputs.
    Broadcast { root: usize },
    /// Block i of rank j's input becomes block j of rank i's output.
    AllToAll,
    /// The combined inputs of all, `count` elements, come to all outputs.
    AllReduce,
    /// Rank i's input becomes block i of all outputs.
    AllGather,
    /// Block i of the combined inputs becomes rank i's output.
    ReduceScatter,
    /// The combined inputs of all come to the root's output.
    Reduce { root: usize },
    /// Block i of the root's input becomes rank i's output.
    Scatter { root: usize },
    /// Rank i's input becomes block i of the root's output.
    Gather { root: usize },
}

impl Kind {
    /// The operation of this number, for a group in which `root` is the root's rank.
    pub fn of(number: fi_collective_op, root: usize) -> Option<Self> {
        Some(match number {
            FI_BARRIER => Kind::Barrier,
            FI_BROADCAST => Kind::Broadcast { root },
            FI_ALLTOALL => Kind::AllToAll,
            FI_ALLREDUCE => Kind::AllReduce,
            FI_ALLGATHER => Kind::AllGather,
            FI_REDUCE_SCATTER => Kind::ReduceScatter,
            FI_REDUCE => Kind::Reduce { root },
            FI_SCATTER => Kind::Scatter { root },
            FI_GATHER => Kind::Gather { root },
            _ => return None,
        })
    }

    /// Whether there is a root.
    pub fn has_root(self) -> bool {
        match self {
            Kind::Broadcast { .. }
            | Kind::Reduce { .. }
            | Kind::Scatter { .. }
            | Kind::Gather { .. } => true,
            Kind::Barrier
            | Kind::AllToAll
            | Kind::AllReduce
            | Kind::AllGather
            | Kind::ReduceScatter => false,
        }
    }

    /// Whether elements are combined.
    pub fn reduces(self) -> bool {
        matches!(
            self,
            Kind::AllReduce | Kind::ReduceScatter | Kind::Reduce { .. }
        )
    }
}

/// A member's view of an operation.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The member's own rank, below `members`.
    pub rank: usize,
    /// Members of the group, at least one.
    pub members: usize,
    /// Elements of the operation: of the whole for broadcasts, reductions and all-reductions, of each block for the
    /// others.
    pub count: usize,
    /// Bytes of an element.
    pub size: usize,
}

/// Elements of the memory that an operation reads at a member, and of that to which it writes; `None` where they
/// cannot be counted in bytes.
pub fn extents(kind: Kind, place: &Place) -> Option<(usize, usize)> {
    let count = place.count;
    let all = count.checked_mul(place.members)?;
    all.checked_mul(place.size)
        .filter(|bytes| isize::try_from(*bytes).is_ok())?;
    let at = |root: usize, elements| if root == place.rank { elements } else { 0 };
    Some(match kind {
        Kind::Barrier => (0, 0),
        Kind::Broadcast { .. } => (0, count),
        Kind::AllToAll => (all, all),
        Kind::AllReduce => (count, count),
        Kind::AllGather => (count, all),
        Kind::ReduceScatter => (all, count),
        Kind::Reduce { root } => (count, at(root, count)),
        Kind::Scatter { root } => (at(root, all), count),
        Kind::Gather { root } => (count, at(root, all)),
    })
}

/// A call for a collective operation. Both memories are as long as [`extents`] says.
#[derive(Clone, Copy, Debug)]
pub struct Collective {
    /// What is done.
    pub kind: Kind,
    /// The group's address.
    pub group: fi_addr_t,
    /// Elements, as [`Place::count`] has it.
    pub count: usize,
    /// Their type; none where no elements are moved.
    pub datatype: Option<Datatype>,
    /// How elements are combined; none where they are not.
    pub op: Option<Op>,
    /// What is read.
    pub input: AppIov,
    /// What is written.
    pub output: AppIov,
    /// Complete flags: `FI_COMPLETION` says whether success is reported.
    pub flags: u64,
    /// Reported with the completion.
    pub context: *mut c_void,
}

/// A call to `fi_join_collective`.
pub struct Join {
    /// The members' numbers in the endpoint's address vector, by rank.
    pub members: Vec<fi_addr_t>,
    /// Tells groups apart: the same at all members, and another one for other members or another order of them.
    pub identity: u64,
    /// This member's rank.
    pub rank: usize,
    /// Whether somebody else has established the group, so that members need not wait for one another
    /// (`fi_av_set_attr::comm_key`).
    pub is_established: bool,
    /// The group as the event names it.
    pub group: FidRef,
    /// The event's context.
    pub context: *mut c_void,
}

/// Whether this code is an external provider: the library that loads it has other collective operations, or none.
static IS_EXTERNAL: AtomicBool = AtomicBool::new(false);

/// Capabilities without those that need the library which this code is linked into.
pub fn available(caps: u64) -> u64 {
    match IS_EXTERNAL.load(Ordering::Relaxed) {
        true => caps & !FI_COLLECTIVE,
        false => caps,
    }
}

/// This code is an external provider.
pub(crate) fn is_external() {
    IS_EXTERNAL.store(true, Ordering::Relaxed);
}

/// The bit of tags that endpoints with `FI_COLLECTIVE` keep for the messages of collective operations.
pub const RESERVED_TAG: u64 = 1 << 63;

/// Members of a group at most: ranks are counted in 32 bits.
pub const MOST_MEMBERS: usize = 1 << 20;

/// What [`query`] answers: `struct fi_collective_attr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Elements of one operation: as many as a memory may have, for a group of one member
    /// ([`extents`] has the limit for others).
    pub count: usize,
    /// Bytes of an element.
    pub size: usize,
    /// Members of a group.
    pub members: usize,
}

impl Answer {
    const WITHOUT_ELEMENTS: Answer = Answer {
        count: 0,
        size: 0,
        members: MOST_MEMBERS,
    };
}

/// Whether reductions can combine elements so: the operations that fi_collective(3) lists. All are commutative.
pub fn combines(op: Op, datatype: Datatype) -> bool {
    use Op::*;
    let is_listed = matches!(
        op,
        Min | Max | Sum | Prod | Lor | Land | Bor | Band | Lxor | Bxor
    );
    is_listed && op.supports(datatype)
}

/// Answers `fi_query_collective`: `-FI_EOPNOTSUPP` for what cannot be combined so, `-FI_EINVAL` for no collective
/// operation. Of an operation that only moves elements, a program may ask without saying which: the datatype need be
/// none, and the answer then is of no size, as with the C library.
pub fn query(number: fi_collective_op, op: fi_op, datatype: fi_datatype) -> Result<Answer> {
    let moves = Kind::of(number, 0).is_some_and(|kind| !kind.reduces());
    match takes(number, op, datatype) {
        Err(Errno::EOPNOTSUPP) if moves => Ok(Answer::WITHOUT_ELEMENTS),
        answer => answer,
    }
}

/// What an operation takes: `-FI_EOPNOTSUPP` for elements that it does not, `-FI_EINVAL` for no collective operation.
pub fn takes(number: fi_collective_op, op: fi_op, datatype: fi_datatype) -> Result<Answer> {
    let kind = Kind::of(number, 0).ok_or(Errno::EINVAL)?;
    if kind == Kind::Barrier {
        return Ok(Answer::WITHOUT_ELEMENTS);
    }
    let datatype = Datatype::from_number(datatype).ok_or(Errno::EOPNOTSUPP)?;
    // Those that are of no number of the processor are moved, and never combined.
    if !Op::Write.supports(datatype) {
        return Err(Errno::EOPNOTSUPP);
    }
    if kind.reduces() {
        let op = Op::from_number(op).ok_or(Errno::EOPNOTSUPP)?;
        if !combines(op, datatype) {
            return Err(Errno::EOPNOTSUPP);
        }
    }
    let size = datatype.size();
    Ok(Answer {
        count: isize::MAX.unsigned_abs() / size.max(1),
        size,
        members: MOST_MEMBERS,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_combined_can_be_reduced_and_all_can_be_moved() {
        let sum = |number| query(number, FI_SUM, FI_FLOAT).unwrap();
        for number in [FI_ALLREDUCE, FI_REDUCE_SCATTER, FI_REDUCE, FI_BROADCAST] {
            assert_eq!(sum(number).size, 4);
        }
        let refused = [
            (FI_ALLREDUCE, FI_BOR, FI_FLOAT),
            (FI_ALLREDUCE, FI_CSWAP, FI_UINT64),
            (FI_REDUCE, FI_ATOMIC_WRITE, FI_UINT64),
            (FI_REDUCE, FI_SUM, FI_VOID),
        ];
        for (number, op, datatype) in refused {
            assert_eq!(query(number, op, datatype), Err(Errno::EOPNOTSUPP));
            assert_eq!(takes(number, op, datatype), Err(Errno::EOPNOTSUPP));
        }
        assert!(query(FI_GATHER, FI_NOOP, FI_UINT8).is_ok());
        assert!(query(FI_BARRIER, FI_NOOP, FI_VOID).is_ok());
        assert_eq!(query(FI_GATHER + 1, FI_SUM, FI_INT8), Err(Errno::EINVAL));
    }

    #[test]
    fn one_may_ask_whether_elements_are_moved_without_saying_which() {
        for number in [
            FI_BROADCAST,
            FI_ALLTOALL,
            FI_ALLGATHER,
            FI_SCATTER,
            FI_GATHER,
        ] {
            for datatype in [FI_VOID, fi_datatype::MAX] {
                assert_eq!(query(number, FI_MIN, datatype).unwrap().size, 0);
                assert_eq!(takes(number, FI_MIN, datatype), Err(Errno::EOPNOTSUPP));
            }
        }
    }

    #[test]
    fn as_many_elements_as_are_promised_are_taken() {
        for datatype in [FI_UINT8, FI_DOUBLE, FI_UINT128] {
            let Answer { count, size, .. } = query(FI_BROADCAST, FI_NOOP, datatype).unwrap();
            let place = |count| Place {
                rank: 0,
                members: 1,
                count,
                size,
            };
            let kind = Kind::of(FI_BROADCAST, 0).unwrap();
            assert_eq!(extents(kind, &place(count)), Some((0, count)));
            assert_eq!(extents(kind, &place(count + 1)), None);
        }
    }

    #[test]
    fn what_cannot_be_counted_in_bytes_is_told() {
        let place = Place {
            rank: 0,
            members: 3,
            count: usize::MAX / 3,
            size: 2,
        };
        assert_eq!(extents(Kind::AllGather, &place), None);
    }
}
