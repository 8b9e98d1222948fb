//! Tests counters through their C functions.

use std::mem::zeroed;
use std::ptr::null_mut;

use super::super::test_domain::{TestDomain, close, open_in};
use super::*;

fn open(attr: fi_cntr_attr, context: *mut c_void) -> Result<*mut fid_cntr> {
    let domain = TestDomain::open(FI_SOCKADDR_IN, 0);
    open_in(&domain, cntr_open::<TestDomain>, attr, context)
}

fn attr(events: fi_cntr_events, wait_obj: fi_wait_obj) -> fi_cntr_attr {
    // SAFETY: the structure consists of integers and pointers, for which zero is a valid value.
    let mut attr: fi_cntr_attr = unsafe { zeroed() };
    attr.events = events;
    attr.wait_obj = wait_obj;
    attr
}

#[test]
fn c_reads_adds_sets_and_waits() {
    let cntr = open(attr(FI_CNTR_EVENTS_COMP, FI_WAIT_UNSPEC), null_mut()).unwrap();
    // SAFETY: the counter is open, and its table is complete.
    unsafe {
        let ops = &*(*cntr).ops;
        assert_eq!(ops.add.unwrap()(cntr, 5), 0);
        assert_eq!(ops.adderr.unwrap()(cntr, 2), 0);
        assert_eq!(ops.read.unwrap()(cntr), 5);
        assert_eq!(ops.readerr.unwrap()(cntr), 2);
        assert_eq!(ops.wait.unwrap()(cntr, 5, -1), 0);
        assert_eq!(ops.wait.unwrap()(cntr, 6, 1), Errno::ETIMEDOUT.to_c());
        assert_eq!(ops.set.unwrap()(cntr, 1), 0);
        assert_eq!(ops.seterr.unwrap()(cntr, 0), 0);
        assert_eq!(ops.read.unwrap()(cntr), 1);
        assert_eq!(ops.readerr.unwrap()(cntr), 0);
    }
    assert_eq!(close(cntr.cast()), 0);
}

#[test]
fn attributes_that_make_no_sense_are_refused() {
    let refused = |change: fn(&mut fi_cntr_attr)| {
        let mut attr = attr(FI_CNTR_EVENTS_COMP, FI_WAIT_NONE);
        change(&mut attr);
        match open(attr, null_mut()) {
            Ok(cntr) => close(cntr.cast()) != 0,
            Err(error) => error == Errno::EINVAL,
        }
    };
    assert!(refused(|attr| attr.wait_obj = 77));
    assert!(refused(|attr| attr.wait_obj = FI_WAIT_SET));
    assert!(refused(|attr| attr.flags = 1 << 63));
    assert!(refused(|attr| attr.flags = FI_PEER));
    assert!(!refused(|attr| attr.events = FI_CNTR_EVENTS_BYTES));
    // An unknown kind counts completions.
    assert!(!refused(|attr| attr.events = 9));
}

#[test]
fn a_peer_counts_for_the_owner_and_has_no_value() {
    let owner = open(attr(FI_CNTR_EVENTS_COMP, FI_WAIT_NONE), null_mut()).unwrap();
    // SAFETY: both counters are open in this block, and the owner's is shared
    // for longer than the peer's lives.
    unsafe {
        let shared = SharedCntr::of(&Handle::from_c(owner));
        let mut context = fi_peer_cntr_context {
            size: size_of::<fi_peer_cntr_context>(),
            cntr: shared.as_c(),
        };
        let mut attr = attr(FI_CNTR_EVENTS_COMP, FI_WAIT_NONE);
        attr.flags = FI_PEER;
        let peer = open(attr, (&raw mut context).cast()).unwrap();
        Handle::<Cntr>::borrow(peer).count(100);
        Handle::<Cntr>::borrow(peer).count_error();
        let ops = &*(*peer).ops;
        assert_eq!(ops.read.unwrap()(peer), 0);
        assert_eq!(ops.add.unwrap()(peer, 1), Errno::ENOSYS.to_c());
        assert_eq!(ops.wait.unwrap()(peer, 1, 0), Errno::ENOSYS.to_c());
        let owner = Handle::<Cntr>::borrow(owner);
        assert_eq!((owner.read(), owner.read_error()), (1, 1));
        assert_eq!(close(peer.cast()), 0);
    }
    assert_eq!(close(owner.cast()), 0);
}
