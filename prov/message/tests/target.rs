//! One-sided operations of peers on registered memory, and that they allocate nothing.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::unreachable,
    reason = "what does not hold fails the test"
)]

#[path = "../../objects/tests/counting/mod.rs"]
mod counting;

use std::sync::Arc;

use counting::allocations_of;
use fabric_abi::*;
use prov_base::atomic_ops::Form;
use prov_base::buffer::AppIov;
use prov_base::errno::Errno;
use prov_message::{AtomicRequest, PayloadBuffer, Refusal, Reports, RmaTarget, Visitor};
use prov_util::cq::{Cq, CqConfig};
use prov_util::desc::Descs;
use prov_util::ffi::{Handle, Use};
use prov_util::mr::{Config, Job, Memory, MrTable, Region, Request};
use prov_util::request::{Access, Atomic, AtomicKind, RemoteAccess, RemoteIov, RemotePiece};

fn memory(bytes: &mut [u8]) -> AppIov {
    // SAFETY: the tests keep the bytes, and access them otherwise only when the operation is
    // complete.
    unsafe { AppIov::from_raw(bytes.as_mut_ptr(), bytes.len()) }
}

fn register(table: &MrTable, key: u64, bytes: &mut [u8], access: u64) -> Arc<Region> {
    // SAFETY: the tests keep the bytes as long as the table that refers to them.
    let memory = unsafe { Memory::new(memory(bytes).pieces()) }.unwrap();
    table.register(Request::new(memory, access, key)).unwrap()
}

const BOTH: u64 = FI_REMOTE_READ | FI_REMOTE_WRITE;

fn piece(key: u64, addr: u64, len: u64) -> RemotePiece {
    RemotePiece { addr, len, key }
}

fn visitor(reports: &Reports) -> Visitor<'_> {
    Visitor {
        job: Job::NONE,
        reports,
        src: 0,
    }
}

fn sum(form: Form, operands: &[u8]) -> AtomicRequest<'_> {
    AtomicRequest {
        form,
        op: FI_SUM,
        datatype: FI_UINT64,
        operands,
        data: None,
    }
}

#[test]
fn what_the_region_does_not_permit_is_refused_with_its_piece() {
    let (table, reports) = (MrTable::new(&Config::default()), Reports::default());
    let (mut open, mut closed) = ([0; 64], [0; 64]);
    register(&table, 1, &mut open, BOTH);
    register(&table, 2, &mut closed, FI_REMOTE_READ);
    let mut target = RmaTarget::new(&table);
    let mut resolve = |access, list: &[RemotePiece]| {
        let grants = target.resolve(&visitor(&reports), access, list, None);
        grants.map(|grants| grants.len())
    };
    let good = piece(1, 0, 32);
    let refused = |error, piece| Err(Refusal::Memory { error, piece });
    assert_eq!(resolve(FI_REMOTE_WRITE, &[good, good]), Ok(64));
    for bad in [piece(1, 32, 33), piece(1, u64::MAX, 1), piece(2, 0, 1)] {
        let outcome = resolve(FI_REMOTE_WRITE, &[good, bad]);
        assert_eq!(outcome, refused(Errno::EACCES, bad));
    }
    let unknown = piece(3, 0, 1);
    let outcome = resolve(FI_REMOTE_READ, &[unknown]);
    assert_eq!(outcome, refused(Errno::EACCES, unknown));
    let too_many = [good; 5];
    assert_eq!(
        resolve(FI_REMOTE_READ, &too_many),
        refused(Errno::EACCES, good)
    );
}

#[test]
fn a_write_may_arrive_in_pieces_and_its_region_may_be_closed_meanwhile() {
    let (table, reports) = (MrTable::new(&Config::default()), Reports::default());
    let (mut first, mut second) = ([0; 8], [0; 8]);
    let region = register(&table, 1, &mut first, BOTH);
    register(&table, 2, &mut second, BOTH);
    let mut target = RmaTarget::new(&table);
    let visitor = visitor(&reports);
    let list = [piece(1, 2, 6), piece(2, 0, 8)];
    let grants = target.resolve(&visitor, FI_REMOTE_WRITE, &list, None);
    let grants = grants.unwrap();
    let place = PayloadBuffer::Registered(grants);
    let mut registered = Some(target);
    place.write_at(&mut registered, 0, &[1; 4]);
    place.write_at(&mut registered, 4, &[2; 4]);
    assert_eq!(
        (first, second),
        ([0, 0, 1, 1, 1, 1, 2, 2], [2, 2, 0, 0, 0, 0, 0, 0])
    );
    table.close(&region).unwrap();
    place.write_at(&mut registered, 0, &[9; 14]);
    assert_eq!((first[2], second), (1, [9; 8]));
}

#[test]
fn atomic_operations_store_and_return_the_right_values() {
    let (table, reports) = (MrTable::new(&Config::default()), Reports::default());
    let mut cells = [1; 16];
    register(&table, 1, &mut cells, BOTH);
    let mut target = RmaTarget::new(&table);
    let visitor = visitor(&reports);
    let (list, ones) = ([piece(1, 0, 16)], 1u64.to_ne_bytes().repeat(2));
    let mut old = vec![7];
    let request = sum(Form::Base, &ones);
    target.atomic(&visitor, &list, &request, &mut old).unwrap();
    assert!(old.is_empty());
    let request = sum(Form::Fetch, &ones);
    target.atomic(&visitor, &list, &request, &mut old).unwrap();
    let [was, is] = [1, 2].map(|n| (u64::from_ne_bytes([1; 8]) + n).to_ne_bytes());
    assert_eq!((&old[8..], &cells[8..]), (&was[..], &is[..]));

    // The operands, followed by the comparison values.
    let operands = [is; 4].concat();
    let swap = AtomicRequest {
        op: FI_CSWAP,
        ..sum(Form::Compare, &operands)
    };
    target.atomic(&visitor, &list, &swap, &mut old).unwrap();
    assert_eq!(old, [is; 2].concat());

    let malformed = [
        AtomicRequest { op: 99, ..request },
        AtomicRequest {
            datatype: 99,
            ..request
        },
        AtomicRequest {
            op: FI_CSWAP,
            ..request
        },
        AtomicRequest {
            operands: &ones[..8],
            ..request
        },
    ];
    for request in &malformed {
        let outcome = target.atomic(&visitor, &list, request, &mut old);
        assert!(matches!(outcome, Err(Refusal::Malformed(_))), "{request:?}");
    }
    let halves = [piece(1, 0, 4), piece(1, 4, 12)];
    let outcome = target.atomic(&visitor, &halves, &request, &mut old);
    assert!(matches!(outcome, Err(Refusal::Malformed(_))));
}

#[test]
fn nothing_is_allocated_for_operations_of_a_few_pieces() {
    let (table, reports) = (MrTable::new(&Config::default()), Reports::default());
    let mut cells = [0; 64];
    register(&table, 1, &mut cells, BOTH);
    let mut target = RmaTarget::new(&table);
    let visitor = visitor(&reports);
    let (mut here, mut operand, mut result) = ([1; 16], [1; 16], [0; 16]);
    let mut remote = RemoteIov::default();
    remote.push(piece(1, 0, 8));
    remote.push(piece(1, 32, 8));
    let mut access = RemoteAccess {
        access: Access::Write,
        local: memory(&mut here),
        remote,
        desc: Descs::NONE,
        peer: 0,
        data: 0,
        flags: 0,
        context: std::ptr::null_mut(),
    };
    let fetch = Atomic {
        kind: AtomicKind::Fetch {
            result: memory(&mut result),
            result_desc: Descs::NONE,
        },
        datatype: FI_UINT64,
        op: FI_SUM,
        operand: memory(&mut operand),
        remote,
        desc: Descs::NONE,
        peer: 0,
        data: 0,
        flags: 0,
        context: std::ptr::null_mut(),
    };
    // The first operation allocates the buffers for operands and results, and a region's state.
    target.atomic_of(&visitor, &fetch).unwrap();
    let allocations = allocations_of(|| {
        target.access(&visitor, &access).unwrap();
        access.access = Access::Read;
        target.access(&visitor, &access).unwrap();
        target.atomic_of(&visitor, &fetch).unwrap();
    });
    assert_eq!(allocations, 0);
    assert_eq!((result, here), ([1; 16], [1; 16]));
    assert_eq!((cells[0], cells[8], cells[39]), (2, 0, 2));
}

/// What a bound completion queue and counters have reported of peers.
fn heard(cq: &Cq) -> usize {
    cq.read(16, |_| {}).unwrap_or(0)
}

#[test]
fn without_a_valid_key_nothing_is_written_or_reported_even_for_no_bytes() {
    let table = MrTable::new(&Config::default());
    let (mut open, mut closed) = ([0; 64], [0; 64]);
    register(&table, 1, &mut open, BOTH);
    register(&table, 2, &mut closed, FI_REMOTE_READ);
    let cq = Use::of(&Handle::new(
        Cq::new(CqConfig::default()).unwrap(),
        std::ptr::null_mut(),
        Vec::new(),
    ));
    let reports = Reports {
        rx_cq: Some(cq.clone()),
        ..Reports::default()
    };
    let mut target = RmaTarget::new(&table);
    let visitor = visitor(&reports);
    let none: &[RemotePiece] = &[];
    let unknown = [piece(3, 0, 0)];
    let forbidden = [piece(2, 0, 0)];
    let outside = [piece(1, 65, 0)];
    let half = [piece(1, 0, 0), piece(3, 0, 0)];
    for list in [none, &unknown, &forbidden, &outside, &half] {
        // With immediate data it is refused, so that the initiator learns of it.
        let grants = target.resolve(&visitor, FI_REMOTE_WRITE, list, Some(5));
        assert!(matches!(grants, Err(Refusal::Memory { .. })), "{list:?}");
        // Without immediate data it succeeds, but is not reported.
        let grants = target.resolve(&visitor, FI_REMOTE_WRITE, list, None);
        let grants = grants.unwrap();
        assert!(grants.parts().is_empty());
        target.was_written(&visitor, &grants, FI_RMA, Some(5));
        target.was_read(&visitor, &grants);
        let mut old = Vec::new();
        for (form, operands) in [(Form::Base, &[][..]), (Form::Fetch, &[])] {
            let request = AtomicRequest {
                data: Some(5),
                ..sum(form, operands)
            };
            let outcome = target.atomic(&visitor, list, &request, &mut old);
            assert!(matches!(outcome, Err(Refusal::Memory { .. })), "{list:?}");
            let request = sum(form, operands);
            assert_eq!(target.atomic(&visitor, list, &request, &mut old), Ok(()));
        }
        let swap = AtomicRequest {
            op: FI_CSWAP,
            ..sum(Form::Compare, &[])
        };
        assert_eq!(target.atomic(&visitor, list, &swap, &mut old), Ok(()));
        assert_eq!(heard(&cq), 0, "{list:?}");
    }
    let good = [piece(1, 64, 0)];
    let grants = target.resolve(&visitor, FI_REMOTE_WRITE, &good, Some(5));
    target.was_written(&visitor, &grants.unwrap(), FI_RMA, Some(5));
    assert_eq!(heard(&cq), 1);
}

/// The framework's function, which this test binary does not have.
#[unsafe(no_mangle)]
extern "C" fn fi_strerror(_: std::ffi::c_int) -> *const std::ffi::c_char {
    c"an error".as_ptr()
}
