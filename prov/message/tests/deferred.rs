//! Waiting requests are replayed as they were posted. These are integration tests because they need
//! memory that an application lends, and the crate has no unsafe code.

use std::ffi::c_void;

use fabric_abi::{FI_ADDR_UNSPEC, FI_COMPLETION, FI_INJECT, FI_REMOTE_CQ_DATA, FI_SUM, FI_UINT64};
use prov_base::buffer::AppIov;
use prov_message::peers::{Bytes, Deferred, Request};
use prov_util::desc::Descs;
use prov_util::request::{
    Access, Atomic, AtomicKind, RemoteAccess, RemoteIov, RemotePiece, Tag, Transmit,
};

const CONTEXT: *mut c_void = std::ptr::without_provenance_mut(0x77);

fn lend(bytes: &mut [u8]) -> AppIov {
    // SAFETY: the tests keep the bytes until the memory is no more used.
    unsafe { AppIov::from_raw(bytes.as_mut_ptr(), bytes.len()) }
}

fn bytes_of(bytes: Bytes<'_>) -> Vec<u8> {
    match bytes {
        Bytes::App(memory) => {
            let mut bytes = Vec::new();
            memory.append_to(&mut bytes);
            bytes
        }
        Bytes::Own(bytes) => bytes.to_vec(),
    }
}

fn remote(len: u64) -> RemoteIov {
    let mut remote = RemoteIov::default();
    remote.push(RemotePiece {
        addr: 0x1000,
        len,
        key: 5,
    });
    remote
}

fn message(memory: AppIov, flags: u64) -> Transmit {
    Transmit {
        tag: Tag::Value(9),
        buffers: memory,
        desc: Descs::NONE,
        peer: 3,
        data: 0xda,
        flags,
        context: CONTEXT,
    }
}

fn access(access: Access, memory: AppIov, flags: u64) -> RemoteAccess {
    RemoteAccess {
        access,
        remote: remote(memory.len() as u64),
        local: memory,
        desc: Descs::NONE,
        peer: 3,
        data: 0xda,
        flags,
        context: CONTEXT,
    }
}

fn compare_and_swap(operand: AppIov, compare: AppIov, result: AppIov, flags: u64) -> Atomic {
    Atomic {
        kind: AtomicKind::Compare {
            compare,
            compare_desc: Descs::NONE,
            result,
            result_desc: Descs::NONE,
        },
        datatype: FI_UINT64,
        op: FI_SUM,
        remote: remote(operand.len() as u64),
        operand,
        desc: Descs::NONE,
        peer: 3,
        data: 0xda,
        flags,
        context: CONTEXT,
    }
}

fn can_wait_in_any_thread(_: &impl Send) {}

#[test]
fn an_encoded_message_is_decoded_as_it_was_posted() {
    let mut bytes = *b"12345678";
    let flags = FI_COMPLETION | FI_REMOTE_CQ_DATA;
    let deferred = Deferred::transmit(&mut message(lend(&mut bytes), flags));
    can_wait_in_any_thread(&deferred);
    let replay = deferred.replay();
    let Request::Transmit(again) = &replay.request else {
        panic!();
    };
    assert_eq!((again.tag, again.flags), (Tag::Value(9), flags));
    assert_eq!((again.immediate(), again.context), (Some(0xda), CONTEXT));
    assert_eq!(again.peer, FI_ADDR_UNSPEC);
    assert!(matches!(replay.payload(), Bytes::App(memory) if memory.len() == 8));
    assert_eq!(bytes_of(replay.payload()), b"12345678");
    assert!(replay.compared().is_empty());
}

#[test]
fn an_injected_message_keeps_its_contents_of_the_call() {
    let mut bytes = *b"12345678";
    let deferred = Deferred::transmit(&mut message(lend(&mut bytes), FI_INJECT));
    bytes.fill(0);
    let replay = deferred.replay();
    assert_eq!(replay.payload().len(), 8);
    assert!(matches!(replay.payload(), Bytes::Own(b"12345678")));
}

#[test]
fn injected_writes_are_copied_and_reads_never_are() {
    let mut bytes = *b"12345678";
    let mut write = |flags| {
        let memory = lend(&mut bytes);
        Deferred::access(&mut access(Access::Write, memory, flags)).replay()
    };
    assert!(matches!(write(0).payload(), Bytes::App(_)));
    let injected = write(FI_INJECT);
    assert!(matches!(injected.payload(), Bytes::Own(b"12345678")));
    let Request::Access(again) = &injected.request else {
        panic!();
    };
    assert_eq!((again.access, again.local.len()), (Access::Write, 8));
    assert_eq!(again.remote.pieces(), remote(8).pieces());
    let memory = lend(&mut bytes);
    let read = Deferred::access(&mut access(Access::Read, memory, FI_INJECT)).replay();
    assert!(read.payload().is_empty());
    let Request::Access(again) = &read.request else {
        panic!();
    };
    assert_eq!((again.access, again.local.len()), (Access::Read, 8));
}

#[test]
fn an_atomic_operation_keeps_its_operands_apart_from_its_comparands() {
    let (mut operand, mut compare, mut result) = (*b"operands", *b"compares", [0; 8]);
    for flags in [0, FI_INJECT] {
        let memory = [&mut operand, &mut compare, &mut result].map(|bytes| lend(bytes));
        let [first, second, third] = memory;
        let mut posted = compare_and_swap(first, second, third, flags);
        let replay = Deferred::atomic(&mut posted).replay();
        let is_copy = matches!(replay.payload(), Bytes::Own(_));
        assert_eq!(is_copy, flags == FI_INJECT);
        assert_eq!(bytes_of(replay.payload()), b"operands");
        assert_eq!(bytes_of(replay.compared()), b"compares");
        let Request::Atomic(again) = &replay.request else {
            panic!();
        };
        assert_eq!((again.op, again.datatype), (FI_SUM, FI_UINT64));
        assert_eq!(again.remote.pieces(), remote(8).pieces());
        let AtomicKind::Compare { result, .. } = &again.kind else {
            panic!();
        };
        assert_eq!(result.write_at(0, b"previous"), 8);
    }
    assert_eq!(&result, b"previous");
}

#[test]
fn an_injected_atomic_operation_without_anything_to_compare_is_copied_too() {
    let mut operand = *b"operands";
    let mut posted = Atomic {
        kind: AtomicKind::Base,
        ..compare_and_swap(lend(&mut operand), AppIov::EMPTY, AppIov::EMPTY, FI_INJECT)
    };
    let deferred = Deferred::atomic(&mut posted);
    operand.fill(0);
    let replay = deferred.replay();
    assert_eq!(bytes_of(replay.payload()), b"operands");
    assert!(replay.compared().is_empty());
}
