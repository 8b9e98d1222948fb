//! Memory that is not mapped any more, or whose region is closed: the operation that has to do with
//! it ends, and all else on the connection goes on.

use prov_util::request::{Access, RemoteAccess, RemotePiece};

use super::direct::{KEY, register};
use super::*;
use crate::params::Local;

/// More than one call sends or receives.
const LONG: usize = 32 << 20;

/// Memory of which a part is mapped until this is dropped.
struct Mapping(*mut u8);

/// Length of that part; the rest stays mapped, since what comes with a header is copied there by the
/// processor.
const PART: usize = LONG / 2;

impl Mapping {
    fn new() -> Mapping {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: the mapping is new, at an address that the system chooses.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), LONG, access, flags, -1, 0) };
        assert_ne!(at, libc::MAP_FAILED);
        Mapping(at.cast())
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: there are so many mapped bytes, which this value owns.
        unsafe { std::slice::from_raw_parts_mut(self.0, LONG) }
    }

    /// The same addresses, for operations of the kernel.
    fn memory(&self) -> AppIov {
        // SAFETY: only the kernel accesses them, which reports an error where nothing is mapped.
        unsafe { AppIov::from_raw(self.0, LONG) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and the engine has no other accesses to the part
        // than the kernel's.
        let unmapped = unsafe { libc::munmap(self.0.add(LONG - PART).cast(), PART) };
        assert_eq!(unmapped, 0);
    }
}

/// Two sides that use the socket, where the kernel accesses the memory.
fn pair() -> (Side, Side) {
    let params = || Params {
        local: Local::Off,
        ..Params::default()
    };
    let (a, b) = (side_with(params()), side_with(params()));
    a.knows(b.addr);
    exchange(&a, &b, 1);
    (a, b)
}

fn exchange(a: &Side, b: &Side, tag: u64) {
    let (mut out, mut back) = ([7; 8], [0; 8]);
    let before = (a.count(), b.count());
    send(a, &mut out, tag);
    receive(b, &mut back, tag);
    until([a, b], || a.count() > before.0 && b.count() > before.1);
    assert_eq!(back, out);
}

fn access(side: &Side, access: Access, local: AppIov) {
    let remote = RemotePiece {
        addr: 0,
        len: local.len() as u64,
        key: KEY,
    };
    let mut access = RemoteAccess {
        access,
        remote: remote.into(),
        local,
        desc: Descs::NONE,
        peer: 0,
        data: 0,
        flags: FI_COMPLETION | fabric_abi::FI_DELIVERY_COMPLETE,
        context: std::ptr::null_mut(),
    };
    side.engine.core().access(side.ep, &mut access).unwrap();
}

fn error(side: &Side) -> Errno {
    side.failed.borrow_mut().pop().unwrap().err
}

#[test]
fn a_receive_into_memory_that_is_gone_fails_alone() {
    let (a, b) = pair();
    let connection = b.open_connections();
    let mapping = Mapping::new();
    let mut posted = Receive {
        select: Select::Tagged { tag: 5, ignore: 0 },
        buffers: mapping.memory(),
        desc: Descs::NONE,
        peer: FI_ADDR_UNSPEC,
        flags: FI_COMPLETION,
        context: std::ptr::null_mut(),
    };
    b.engine.core().receive(b.ep, &mut posted).unwrap();
    drop(mapping);
    let mut out = vec![7; LONG];
    send(&a, &mut out, 5);
    until([&a, &b], || !b.failed.borrow().is_empty());
    assert_eq!(error(&b), Errno::EFAULT);
    exchange(&a, &b, 6);
    assert_eq!((b.open_connections(), a.outstanding()), (connection, 0));
}

#[test]
fn a_read_of_memory_that_is_gone_brings_zeros() {
    for is_closed in [false, true] {
        let (a, b) = pair();
        let connection = b.open_connections();
        let mut mapping = Mapping::new();
        mapping.bytes().fill(1);
        let region = register(&b, mapping.bytes());
        let mut back = vec![9; LONG];
        access(&a, Access::Read, memory(&mut back));
        // It has begun, and cannot leave.
        while b.queued() == 0 {
            b.drive();
        }
        if is_closed {
            b.memory.close(&region).unwrap();
        }
        drop(mapping);
        let before = a.count();
        until([&a, &b], || a.count() > before);
        // What had left before are the bytes that were there.
        let left = back.iter().take_while(|byte| **byte == 1).count();
        assert!((1..=LONG - PART).contains(&left));
        assert!(back[left..].iter().all(|byte| *byte == 0));
        exchange(&a, &b, 6);
        assert_eq!((b.open_connections(), a.outstanding()), (connection, 0));
    }
}

#[test]
fn a_write_to_memory_that_is_gone_is_refused() {
    let (a, b) = pair();
    let connection = b.open_connections();
    let mut mapping = Mapping::new();
    let _region = register(&b, mapping.bytes());
    drop(mapping);
    let mut out = vec![7; LONG];
    access(&a, Access::Write, memory(&mut out));
    until([&a, &b], || !a.failed.borrow().is_empty());
    assert_eq!(error(&a), Errno::EACCES);
    exchange(&a, &b, 6);
    assert_eq!((b.open_connections(), a.outstanding()), (connection, 0));
}
