//! What a peer's access to registered memory allocates: nothing.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::unreachable,
    reason = "what does not hold fails the test"
)]

mod counting;

use counting::allocations_of;
use fabric_abi::{FI_REMOTE_READ, FI_REMOTE_WRITE};
use prov_base::atomic_ops::{Datatype, Op};
use prov_objects::mr::{Accessor, Config, Grants, Job, Memory, MrTable, Request};

const REMOTE: u64 = FI_REMOTE_READ | FI_REMOTE_WRITE;

fn registered(table: &MrTable, key: u64, memory: &mut [u8]) {
    let iov = libc::iovec {
        iov_base: memory.as_mut_ptr().cast(),
        iov_len: memory.len(),
    };
    // SAFETY: the tests keep the memory as long as the table.
    let memory = unsafe { Memory::new(&[iov]) }.unwrap();
    table.register(Request::new(memory, REMOTE, key)).unwrap();
}

/// 8 bytes of each of the first regions.
fn resolve(accessor: &mut Accessor, parts: u64) -> Grants {
    let mut grants = Grants::default();
    for key in 0..parts {
        let grant = accessor.resolve(key, 8, 8, REMOTE, Job::NONE).unwrap();
        assert!(grants.push(grant));
    }
    grants
}

#[test]
fn remote_operations_of_up_to_four_pieces_allocate_nothing() {
    let table = MrTable::new(&Config::default());
    let mut memory = vec![vec![0u8; 16]; 4];
    for (key, memory) in memory.iter_mut().enumerate() {
        registered(&table, key as u64, memory);
    }
    let mut accessor = table.accessor();
    for parts in 1..=4 {
        let len = 8 * parts as usize;
        let (bytes, mut read, mut old) = ([1u8; 32], [0u8; 32], [0u8; 32]);
        let allocations = allocations_of(|| {
            let grants = resolve(&mut accessor, parts);
            grants.write_at(&mut accessor, 0, &bytes[..len]);
            grants.complete(&mut accessor);

            let grants = resolve(&mut accessor, parts);
            grants.read_at(&mut accessor, 0, &mut read[..len]);
            grants.complete(&mut accessor);

            let grants = resolve(&mut accessor, parts);
            let (operand, old) = (&bytes[..len], &mut old[..len]);
            grants
                .apply(&mut accessor, Op::Sum, Datatype::Uint64, operand, &[], old)
                .unwrap();
            grants.complete(&mut accessor);
        });
        assert_eq!(allocations, 0, "{parts} parts");
        assert_eq!((&read[..len], &old[..len]), (&bytes[..len], &bytes[..len]));
    }
    assert_eq!(allocations_of(|| drop(Box::new(1))), 1, "they are counted");
    assert!(memory.iter().all(|memory| memory[8..] == [2; 8]));
}
