//! Lists of grants beside the bytes they stand for.

use fabric_abi::{FI_REMOTE_READ, FI_REMOTE_WRITE};
use proptest::prelude::*;

use super::*;
use crate::mr::{Config, Job, Memory, MrTable, Region, Request};
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
        let request = Request {
            // SAFETY: the tests keep the pieces while the regions are open.
            memory: unsafe { Memory::new(&[iov]) }.unwrap(),
            access: REMOTE,
            key: key as u64,
            flags: 0,
            auth_key: None,
        };
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
    fn bytes_go_to_and_come_from_where_one_buffer_would_have_them(
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
                table.close(region);
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
    table.close(&regions[1]);
    grants.write_at(&mut accessor, 2, &[9; 8]);
    assert_eq!(pieces, [[1, 1, 9, 9], [2; 4], [9, 9, 3, 3]]);
}

#[test]
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
    table.close(&regions[1]);
    assert!(!grants.can_be_copied(&mut accessor));
    assert!(!grants.offer(&mut accessor, &mut OtherIov::default()));
}
