//! Collective operations (fi_collective(3)): their definitions, without the algorithms.

use std::ffi::c_void;

use fabric_abi::*;

use crate::object::FidRef;
use prov_base::atomic_ops::{Datatype, Op};
use prov_base::buffer::AppIov;
use prov_base::errno::{Errno, Result};
pub use prov_objects::attr::collective::RESERVED_TAG;

/// A collective operation, without its buffers. Members of a group are *ranks*: their index in it,
/// from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Completes at a member after all members have begun.
    Barrier,
    /// The root's `count` elements of output are copied to all outputs.
    Broadcast { root: usize },
    /// Block i of rank j's input becomes block j of rank i's output.
    AllToAll,
    /// The combined inputs of all members, `count` elements, are copied to all outputs.
    AllReduce,
    /// Rank i's input becomes block i of all outputs.
    AllGather,
    /// Block i of the combined inputs becomes rank i's output.
    ReduceScatter,
    /// The combined inputs of all members become the root's output.
    Reduce { root: usize },
    /// Block i of the root's input becomes rank i's output.
    Scatter { root: usize },
    /// Rank i's input becomes block i of the root's output.
    Gather { root: usize },
}

impl Kind {
    /// Returns the operation with this number, for a group in which `root` is the root's rank.
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

    /// Returns whether the operation has a root.
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

    /// Returns whether the operation combines elements.
    pub fn reduces(self) -> bool {
        matches!(
            self,
            Kind::AllReduce | Kind::ReduceScatter | Kind::Reduce { .. }
        )
    }
}

/// A member's view of an operation.
#[derive(Clone, Copy, Debug)]
pub struct MemberView {
    /// The member's own rank, below `members`.
    pub rank: usize,
    /// Number of members of the group, at least one.
    pub members: usize,
    /// Number of elements: of the whole for broadcasts, reductions and all-reductions, of each
    /// block for the others.
    pub count: usize,
    /// Bytes of an element.
    pub size: usize,
}

/// Returns the number of elements that an operation reads at a member, and that it writes; `None`
/// if their bytes exceed the address space.
pub fn extents(kind: Kind, view: &MemberView) -> Option<(usize, usize)> {
    let count = view.count;
    let all = count.checked_mul(view.members)?;
    all.checked_mul(view.size)
        .filter(|bytes| isize::try_from(*bytes).is_ok())?;
    let at = |root: usize, elements| if root == view.rank { elements } else { 0 };
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

/// A call of a collective operation. Both buffers have the lengths of [`extents`].
#[derive(Debug)]
pub struct Collective {
    /// The operation.
    pub kind: Kind,
    /// The group's address.
    pub group: fi_addr_t,
    /// Number of elements, as in [`MemberView::count`].
    pub count: usize,
    /// Type of the elements; `None` if no elements are moved.
    pub datatype: Option<Datatype>,
    /// The reduction; `None` if elements are not combined.
    pub op: Option<Op>,
    /// The buffer that is read.
    pub input: AppIov,
    /// The buffer that is written.
    pub output: AppIov,
    /// All flags of the operation: `FI_COMPLETION` requests a completion for success.
    pub flags: u64,
    /// The context of the completion.
    pub context: *mut c_void,
}

impl Collective {
    /// Returns the same request once more.
    ///
    /// # Safety
    /// That of [`AppIov::duplicate`].
    pub(crate) unsafe fn duplicate(&self) -> Self {
        Collective {
            // SAFETY: the caller keeps the contract.
            input: unsafe { self.input.duplicate() },
            // SAFETY: as above.
            output: unsafe { self.output.duplicate() },
            ..*self
        }
    }
}

/// A call of fi_join_collective(3).
pub struct Join {
    /// The members' numbers in the endpoint's address vector, by rank.
    pub members: Vec<fi_addr_t>,
    /// Identifies the group: the same value at all members, and another one for other members or
    /// another order. Anybody who knows the members' addresses can compute it.
    pub identity: u64,
    /// This member's rank.
    pub rank: usize,
    /// Whether the group is already established, so that members need not wait for one another
    /// (`fi_av_set_attr::comm_key`).
    pub is_established: bool,
    /// The group's `fid`, for the event.
    pub group: FidRef,
    /// The event's context.
    pub context: *mut c_void,
}

/// Upper limit for the members of a group: it bounds the memory for one group. Ranks have 32 bits.
pub const MOST_MEMBERS: usize = 1 << 20;

/// The result of [`query`]: `struct fi_collective_attr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Largest number of elements of one operation, for a group of one member ([`extents`] has the
    /// limit for others).
    pub count: usize,
    /// Size of an element in bytes.
    pub size: usize,
    /// Largest number of members of a group.
    pub members: usize,
}

impl Answer {
    const WITHOUT_ELEMENTS: Answer = Answer {
        count: 0,
        size: 0,
        members: MOST_MEMBERS,
    };
}

/// Returns whether reductions support this combination: the operations that fi_collective(3) lists.
/// All are commutative.
pub fn combines(op: Op, datatype: Datatype) -> bool {
    use Op::*;
    let is_listed = matches!(
        op,
        Min | Max | Sum | Prod | Lor | Land | Bor | Band | Lxor | Bxor
    );
    is_listed && op.supports(datatype)
}

/// Implements fi_query_collective(3). For an operation that only moves elements, the datatype may
/// be invalid: the result then has no element size, as with the C library.
///
/// # Errors `-FI_EOPNOTSUPP` for an unsupported combination, `-FI_EINVAL` if `number` is no
/// collective operation.
pub fn query(number: fi_collective_op, op: fi_op, datatype: fi_datatype) -> Result<Answer> {
    let moves = Kind::of(number, 0).is_some_and(|kind| !kind.reduces());
    match takes(number, op, datatype) {
        Err(Errno::EOPNOTSUPP) if moves => Ok(Answer::WITHOUT_ELEMENTS),
        answer => answer,
    }
}

/// Returns the limits of an operation.
///
/// # Errors `-FI_EOPNOTSUPP` for unsupported elements, `-FI_EINVAL` if `number` is no collective
/// operation.
pub fn takes(number: fi_collective_op, op: fi_op, datatype: fi_datatype) -> Result<Answer> {
    let kind = Kind::of(number, 0).ok_or(Errno::EINVAL)?;
    if kind == Kind::Barrier {
        return Ok(Answer::WITHOUT_ELEMENTS);
    }
    let datatype = Datatype::from_number(datatype).ok_or(Errno::EOPNOTSUPP)?;
    // Datatypes that are not a number type of the processor cannot be combined, and are refused.
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
    fn types_that_can_be_combined_can_be_reduced_and_all_can_be_moved() {
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
    fn a_query_for_moving_elements_needs_no_datatype() {
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
    fn the_reported_number_of_elements_is_accepted() {
        for datatype in [FI_UINT8, FI_DOUBLE, FI_UINT128] {
            let Answer { count, size, .. } = query(FI_BROADCAST, FI_NOOP, datatype).unwrap();
            let view = |count| MemberView {
                rank: 0,
                members: 1,
                count,
                size,
            };
            let kind = Kind::of(FI_BROADCAST, 0).unwrap();
            assert_eq!(extents(kind, &view(count)), Some((0, count)));
            assert_eq!(extents(kind, &view(count + 1)), None);
        }
    }

    #[test]
    fn lengths_beyond_the_address_space_are_detected() {
        let view = MemberView {
            rank: 0,
            members: 3,
            count: usize::MAX / 3,
            size: 2,
        };
        assert_eq!(extents(Kind::AllGather, &view), None);
    }
}
