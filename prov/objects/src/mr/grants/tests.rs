//! Lists of grants beside the bytes they stand for.

use fabric_abi::{FI_REMOTE_READ, FI_REMOTE_WRITE};
use proptest::prelude::*;

use super::*;
use crate::mr::{Config, Job, Memory, MrTable, Region, Request};
use prov_base::buffer::AppIov;
use std::sync::Arc;

const REMOTE: u64 = FI_REMOTE_READ | FI_REMOTE_WRITE;

/// Registers each piece as a region of its own, under its position.
fn register(table: &MrTable, pieces: &mut [Vec<u8>]) -> Vec<Arc<Region>> {
    let mut regions = Vec::new();
    for (key, piece) in pieces.iter_mut().enumerate() {
        let iov = libc::iovec {
            iov_base: piece.as_mut_ptr().cast(),
            iov_len: piece.len(),
        };
        // SAFETY: the tests keep the pieces while the regions are open.
        let memory = unsafe { Memory::new(&[iov]) }.unwrap();
        let request = Request::new(memory, REMOTE, key as u64);
        regions.push(table.register(request).unwrap());
    }
    regions
}

/// All of the regions, one after another.
fn all(accessor: &mut Accessor, regions: &[Arc<Region>]) -> Grants {
    let mut grants = Grants::default();
    for region in regions {
        let len = region.len() as u64;
        let grant = accessor.resolve(region.key(), 0, len, REMOTE, Job::NONE);
        assert!(grants.push(grant.unwrap()));
    }
    grants
}

proptest! {
    #[test]
    fn bytes_in_several_buffers_are_copied_as_with_one_buffer(
        lens in prop::collection::vec(0usize..20, 0..=IOV_LIMIT),
        closed in prop::collection::vec(prop::bool::weighted(0.2), IOV_LIMIT),
        writes in prop::collection::vec((0usize..90, prop::collection::vec(any::<u8>(), 0..90)), 0..6),
        (from, len) in (0usize..90, 0usize..90),
    ) {
        let table = MrTable::new(&Config::default());
        let mut pieces: Vec<Vec<u8>> = lens.iter().map(|&len| vec![7; len]).collect();
        let mut expected = pieces.concat();
        let regions = register(&table, &mut pieces);
        let mut accessor = table.accessor();
        let grants = all(&mut accessor, &regions);
        prop_assert_eq!(grants.len(), expected.len());
        for (at, bytes) in &writes {
            grants.write_at(&mut accessor, *at, bytes);
            let at = (*at).min(expected.len());
            let room = bytes.len().min(expected.len() - at);
            expected[at..at + room].copy_from_slice(&bytes[..room]);
        }
        let mut start = 0;
        for (region, closed) in regions.iter().zip(closed) {
            if closed {
                table.close(region).unwrap();
                expected[start..start + region.len()].fill(0);
            }
            start += region.len();
        }
        let mut appended = vec![1];
        grants.append_to(&mut accessor, &mut appended);
        prop_assert_eq!(&appended[1..], &expected[..]);

        let end = (from + len).min(expected.len());
        let expected = &expected[from.min(end)..end];
        let mut read = vec![1; len];
        let count = grants.read_at(&mut accessor, from, &mut read);
        prop_assert_eq!(&read[..count], expected);

        // Part by part they come to the same.
        let mut parts = Vec::new();
        while parts.len() < len {
            let left = len - parts.len();
            let (count, copy) = grants.part(&mut accessor, from + parts.len(), left, |memory| {
                let mut copy = Vec::new();
                memory.append_to(&mut copy);
                copy
            });
            if count == 0 {
                break;
            }
            parts.extend(copy.unwrap_or(vec![0; count]));
        }
        prop_assert_eq!(&parts[..], expected);
    }
}

/// Miri has no inline assembly, with which sixteen bytes are accessed at once.
const LONGEST: Datatype = if cfg!(miri) {
    Datatype::Uint64
} else {
    Datatype::Uint128
};

proptest! {
    /// Wherever the list, the regions and their pieces are cut: the same as on
    /// one buffer.
    #[test]
    fn an_atomic_operation_does_not_see_where_the_memory_is_cut(
        counts in prop::collection::vec(0usize..4, 1..=IOV_LIMIT),
        cuts in prop::collection::vec(0usize..40, IOV_LIMIT),
        bytes in prop::collection::vec(any::<u8>(), 3 * 192),
        op in prop::sample::select(vec![Op::Sum, Op::Write, Op::Mswap, Op::Cswap, Op::Read, Op::Bxor]),
        datatype in prop::sample::select(vec![Datatype::Uint8, Datatype::Uint16, Datatype::Int64, LONGEST]),
        fetches in any::<bool>(),
    ) {
        let size = datatype.size();
        let table = MrTable::new(&Config::default());
        let mut accessor = table.accessor();
        let mut start = 0;
        let mut memory = Vec::new();
        for count in &counts {
            memory.push(bytes[start..start + count * size].to_vec());
            start += count * size;
        }
        let len = start;
        let mut grants = Grants::default();
        for (key, (piece, cut)) in memory.iter_mut().zip(cuts).enumerate() {
            // Two pieces per region, cut anywhere.
            let cut = cut.min(piece.len());
            let (left, right) = piece.split_at_mut(cut);
            let iov = [left, right].map(|part| libc::iovec {
                iov_base: part.as_mut_ptr().cast(),
                iov_len: part.len(),
            });
            // SAFETY: the pieces are kept while the regions are open.
            let memory = unsafe { Memory::new(&iov) }.unwrap();
            let region = table.register(Request::new(memory, REMOTE, key as u64)).unwrap();
            let all = region.len() as u64;
            let grant = accessor.resolve(key as u64, 0, all, REMOTE, Job::NONE);
            prop_assert!(grants.push(grant.unwrap()));
        }
        let operand = match op.takes_operand() {
            true => &bytes[192..192 + len],
            false => &[],
        };
        let compare = match op.has_form(atomic_ops::Form::Compare) {
            true => &bytes[384..384 + len],
            false => &[],
        };
        let mut result = vec![1; if fetches { len } else { 0 }];
        let mut expected = bytes[..len].to_vec();
        let mut expected_result = result.clone();
        // SAFETY: `expected` outlives the operation.
        let whole = unsafe { AppIov::from_raw(expected.as_mut_ptr(), len) };
        let outcome =
            atomic_ops::apply(op, datatype, &whole, operand, compare, &mut expected_result);
        let applied =
            grants.apply(&mut accessor, op, datatype, operand, compare, &mut result);
        prop_assert_eq!(applied, outcome);
        prop_assert_eq!(memory.concat(), expected);
        prop_assert_eq!(result, expected_result);
    }
}

#[test]
fn an_atomic_operation_that_is_not_in_order_changes_nothing() {
    let table = MrTable::new(&Config::default());
    let mut pieces = vec![vec![1; 8], vec![2; 4], vec![3; 4]];
    let regions = register(&table, &mut pieces);
    let mut accessor = table.accessor();
    let grants = all(&mut accessor, &regions);
    let mut apply = |op, datatype, operand: &[u8], result: &mut [u8]| {
        grants.apply(&mut accessor, op, datatype, operand, &[], result)
    };
    // The second element would be half in one part and half in the next.
    let split = apply(Op::Sum, Datatype::Uint64, &[1; 16], &mut []);
    assert_eq!(split, Err(Errno::EINVAL));
    let short = apply(Op::Sum, Datatype::Uint32, &[1; 12], &mut []);
    assert_eq!(short, Err(Errno::EINVAL));
    let narrow = apply(Op::Sum, Datatype::Uint32, &[1; 16], &mut [0; 4]);
    assert_eq!(narrow, Err(Errno::EINVAL));
    let unsupported = apply(Op::Bor, Datatype::Float, &[1; 16], &mut []);
    assert_eq!(unsupported, Err(Errno::EOPNOTSUPP));
    assert_eq!(pieces.concat(), [[1; 8], [2, 2, 2, 2, 3, 3, 3, 3]].concat());
}

#[test]
fn an_atomic_operation_leaves_closed_regions_alone() {
    let table = MrTable::new(&Config::default());
    let mut pieces = vec![vec![1; 2], vec![2; 2], vec![3; 2]];
    let regions = register(&table, &mut pieces);
    let mut accessor = table.accessor();
    let grants = all(&mut accessor, &regions);
    table.close(&regions[1]).unwrap();
    let mut old = [9; 6];
    let applied = grants.apply(
        &mut accessor,
        Op::Sum,
        Datatype::Uint8,
        &[10, 20, 30, 40, 50, 60],
        &[],
        &mut old,
    );
    assert_eq!((applied, old), (Ok(()), [1, 1, 0, 0, 3, 3]));
    assert_eq!(pieces, [[11, 21], [2, 2], [53, 63]]);
}

#[test]
fn a_list_takes_as_many_parts_as_an_operation_may_have() {
    let table = MrTable::new(&Config::default());
    let mut pieces = vec![vec![0; 4]];
    let regions = register(&table, &mut pieces);
    let mut accessor = table.accessor();
    let grant = *all(&mut accessor, &regions).parts().first().unwrap();
    let mut grants = Grants::default();
    for _ in 0..IOV_LIMIT {
        assert!(grants.push(grant));
    }
    assert!(!grants.push(grant));
    assert_eq!((grants.len(), grants.parts().len()), (16, IOV_LIMIT));
}

#[test]
fn nothing_of_a_closed_region_is_written() {
    let table = MrTable::new(&Config::default());
    let mut pieces = vec![vec![1; 4], vec![2; 4], vec![3; 4]];
    let regions = register(&table, &mut pieces);
    let mut accessor = table.accessor();
    let grants = all(&mut accessor, &regions);
    table.close(&regions[1]).unwrap();
    grants.write_at(&mut accessor, 2, &[9; 8]);
    assert_eq!(pieces, [[1, 1, 9, 9], [2; 4], [9, 9, 3, 3]]);
}

#[test]
#[cfg_attr(miri, ignore = "miri has no process_vm_readv(2)")]
fn only_a_list_that_is_open_is_offered() {
    let table = MrTable::new(&Config::default());
    let mut pieces = vec![vec![1; 4], vec![2; 4]];
    let regions = register(&table, &mut pieces);
    let mut accessor = table.accessor();
    let grants = all(&mut accessor, &regions);
    let mut list = OtherIov::default();
    assert!(grants.can_be_copied(&mut accessor));
    assert!(grants.offer(&mut accessor, &mut list));
    assert_eq!(list.len(), 8);
    table.close(&regions[1]).unwrap();
    assert!(!grants.can_be_copied(&mut accessor));
    assert!(!grants.offer(&mut accessor, &mut OtherIov::default()));
}
