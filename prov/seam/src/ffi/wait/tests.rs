//! Tests wait objects, wait sets and poll sets through their C functions.

use std::mem::zeroed;
use std::ptr::{null_mut, without_provenance_mut};

use super::super::cntr::cntr_open;
use super::super::cq::cq_open;
use super::super::poll::poll_open;
use super::super::test_domain::{TestDomain, TestFabric, close, open_in};
use super::*;
use prov_objects::cq::Completion;

fn open_cq(wait_obj: fi_wait_obj, wait_set: *mut fid_wait, context: usize) -> *mut fid_cq {
    let domain = TestDomain::open(FI_SOCKADDR_IN, 0);
    // SAFETY: zero is a valid value of the attributes.
    let mut attr: fi_cq_attr = unsafe { zeroed() };
    attr.wait_obj = wait_obj;
    attr.wait_set = wait_set;
    let context = without_provenance_mut(context);
    open_in(&domain, cq_open::<TestDomain>, attr, context).unwrap()
}

fn open_cntr(context: usize) -> *mut fid_cntr {
    let domain = TestDomain::open(FI_SOCKADDR_IN, 0);
    // SAFETY: zero is a valid value of the attributes.
    let attr: fi_cntr_attr = unsafe { zeroed() };
    let context = without_provenance_mut(context);
    open_in(&domain, cntr_open::<TestDomain>, attr, context).unwrap()
}

fn open_set(wait_obj: fi_wait_obj) -> Result<*mut fid_wait> {
    let fabric = TestFabric::open(2, 7);
    let mut attr = fi_wait_attr { wait_obj, flags: 0 };
    let mut set = null_mut();
    // SAFETY: the domain or fabric is open, and all pointers refer to variables of the test.
    let status = unsafe { wait_open::<TestFabric>(fabric.as_c(), &raw mut attr, &raw mut set) };
    Errno::check(status).map(|_| set)
}

fn ask<T>(fid: *mut fid, command: u32, answer: &mut T) -> c_int {
    // SAFETY: the object is open, and `answer` has the command's type.
    unsafe { (*(*fid).ops).control.unwrap()(fid, command as c_int, (&raw mut *answer).cast()) }
}

fn try_all(fids: &mut [*mut fid]) -> c_int {
    // SAFETY: the objects are open, and the array has their number.
    unsafe { trywait(null_mut(), fids.as_mut_ptr(), fids.len() as c_int) }
}

fn is_readable(fd: c_int) -> bool {
    let mut poll = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: `poll` is one valid pollfd, and the timeout of 0 makes the call return at once.
    unsafe { libc::poll(&mut poll, 1, 0) == 1 }
}

fn write(cq: *mut fid_cq) {
    // SAFETY: the queue is open as long as the test uses it.
    unsafe { Handle::<Cq>::borrow(cq) }.write(&Completion::new(null_mut(), 0));
}

fn read(cq: *mut fid_cq) -> isize {
    let mut entry = fi_cq_entry {
        op_context: null_mut(),
    };
    // SAFETY: the queue is open, and `entry` has space for one entry of its format.
    unsafe { (*(*cq).ops).read.unwrap()(cq, (&raw mut entry).cast(), 1) }
}

#[test]
fn a_queue_returns_its_wait_object() {
    let enodata = Errno::ENODATA.to_c();
    for (asked, told) in [
        (FI_WAIT_NONE, FI_WAIT_NONE),
        (FI_WAIT_UNSPEC, FI_WAIT_FD),
        (FI_WAIT_FD, FI_WAIT_FD),
        (FI_WAIT_YIELD, FI_WAIT_YIELD),
        (FI_WAIT_POLLFD, FI_WAIT_POLLFD),
        (FI_WAIT_MUTEX_COND, FI_WAIT_MUTEX_COND),
    ] {
        let cq = open_cq(asked, null_mut(), 0);
        let mut kind: fi_wait_obj = 77;
        assert_eq!(ask(cq.cast(), FI_GETWAITOBJ as u32, &mut kind), 0);
        assert_eq!(kind, told);
        if told == FI_WAIT_NONE || told == FI_WAIT_YIELD {
            let mut fd: c_int = -1;
            assert_eq!(ask(cq.cast(), FI_GETWAIT as u32, &mut fd), enodata);
        }
        let mut nothing = 0u64;
        let status = ask(cq.cast(), FI_BACKLOG as u32, &mut nothing);
        assert_eq!(status, Errno::ENOSYS.to_c());
        assert_eq!(close(cq.cast()), 0);
    }
}

#[test]
fn a_descriptor_can_be_polled_after_trywait() {
    let cq = open_cq(FI_WAIT_FD, null_mut(), 0);
    let mut fd: c_int = -1;
    assert_eq!(ask(cq.cast(), FI_GETWAIT as u32, &mut fd), 0);
    assert_eq!(try_all(&mut [cq.cast()]), 0);
    assert!(!is_readable(fd));
    write(cq);
    assert!(is_readable(fd));
    assert_eq!(try_all(&mut [cq.cast()]), Errno::EAGAIN.to_c());
    assert_eq!(read(cq), 1);
    assert_eq!(try_all(&mut [cq.cast()]), 0);
    assert!(!is_readable(fd));
    assert_eq!(close(cq.cast()), 0);
}

#[test]
fn a_list_of_descriptors_says_how_long_it_is() {
    let cq = open_cq(FI_WAIT_POLLFD, null_mut(), 0);
    // SAFETY: the structure consists of integers and pointers, for which zero is a valid value.
    let mut list: fi_wait_pollfd = unsafe { zeroed() };
    let status = ask(cq.cast(), FI_GETWAIT as u32, &mut list);
    assert_eq!((status, list.nfds), (Errno::ETOOSMALL.to_c(), 1));
    // SAFETY: the structures consist of integers, for which zero is a valid value.
    let mut fds: [libc::pollfd; 4] = unsafe { zeroed() };
    list.fd = fds.as_mut_ptr();
    list.nfds = 4;
    assert_eq!(ask(cq.cast(), FI_GETWAIT as u32, &mut list), 0);
    assert_eq!((list.nfds, fds[0].events), (1, libc::POLLIN));
    assert_eq!(try_all(&mut [cq.cast()]), 0);
    assert!(!is_readable(fds[0].fd));
    write(cq);
    assert!(is_readable(fds[0].fd));
    assert_eq!(close(cq.cast()), 0);
}

#[test]
fn a_wait_set_waits_for_its_queues() {
    for kind in [FI_WAIT_UNSPEC, FI_WAIT_FD, FI_WAIT_YIELD] {
        let set = open_set(kind).unwrap();
        let cq = open_cq(FI_WAIT_SET, set, 0);
        // SAFETY: the set and the queue are open.
        unsafe {
            let wait = (*(*set).ops).wait.unwrap();
            assert_eq!(wait(set, 1), Errno::ETIMEDOUT.to_c());
            write(cq);
            assert_eq!(wait(set, -1), 0);
            let sread = (*(*cq).ops).sread.unwrap();
            let status = sread(cq, null_mut(), 0, std::ptr::null(), 0);
            assert_eq!(status, Errno::ENOSYS.to_c() as isize);
        }
        let busy = Errno::EAGAIN.to_c();
        assert_eq!(try_all(&mut [set.cast()]), busy);
        assert_eq!(read(cq), 1);
        let quiet = if kind == FI_WAIT_YIELD { busy } else { 0 };
        assert_eq!(try_all(&mut [set.cast()]), quiet);
        assert_eq!(try_all(&mut [cq.cast()]), quiet);
        // A queue in a set keeps the wait object, but not the set.
        assert_eq!(close(set.cast()), 0);
        write(cq);
        assert_eq!(try_all(&mut [cq.cast()]), busy);
        assert_eq!(close(cq.cast()), 0);
    }
    assert_eq!(open_set(FI_WAIT_NONE).err(), Some(Errno::EINVAL));
}

#[test]
fn trywait_takes_queues_and_counters_and_nothing_else() {
    let (first, second) = (open_cq(FI_WAIT_FD, null_mut(), 0), open_cntr(0));
    assert_eq!(try_all(&mut []), 0);
    assert_eq!(try_all(&mut [first.cast()]), 0);
    // The counter has no wait object.
    let both = &mut [first.cast(), second.cast()];
    assert_eq!(try_all(both), 0);
    write(first);
    assert_eq!(try_all(both), Errno::EAGAIN.to_c());
    assert_eq!(try_all(&mut [null_mut()]), Errno::EINVAL.to_c());
    let domain = TestDomain::open(FI_SOCKADDR_IN, 0);
    assert_eq!(try_all(&mut [domain.fid()]), Errno::EINVAL.to_c());
    assert_eq!(close(first.cast()), 0);
    assert_eq!(close(second.cast()), 0);
}

#[test]
fn a_poll_set_names_those_with_something_to_read() {
    let domain = TestDomain::open(FI_SOCKADDR_IN, 0);
    let (cq, cntr) = (open_cq(FI_WAIT_NONE, null_mut(), 11), open_cntr(22));
    let mut set = null_mut();
    let mut found = [null_mut(); 2];
    // SAFETY: all objects are open, and the array has space for two contexts.
    unsafe {
        let status = poll_open::<TestDomain>(domain.as_c(), null_mut(), &raw mut set);
        assert_eq!(status, 0);
        let ops = &*(*set).ops;
        let (poll, add, del) = (
            ops.poll.unwrap(),
            ops.poll_add.unwrap(),
            ops.poll_del.unwrap(),
        );
        let mut poll = |count| {
            let count = poll(set, found.as_mut_ptr(), count);
            (count, found.map(|context: *mut c_void| context.addr()))
        };
        assert_eq!(add(set, cq.cast(), 0), 0);
        assert_eq!(add(set, cq.cast(), 0), 0);
        assert_eq!(add(set, cntr.cast(), 0), 0);
        assert_eq!(add(set, domain.fid(), 0), Errno::EINVAL.to_c());
        assert_eq!(poll(2).0, 0);

        write(cq);
        Handle::<Cntr>::borrow(cntr).count(1);
        assert_eq!(poll(1), (1, [11, 0]), "the counter has no room");
        assert_eq!(poll(2), (2, [11, 22]), "and is told now");
        assert_eq!(poll(2).0, 1, "its change is known");
        assert_eq!(read(cq), 1);
        assert_eq!(poll(2).0, 0);

        Handle::<Cntr>::borrow(cntr).count_error();
        (*cntr).fid.context = without_provenance_mut(33);
        assert_eq!(poll(2), (1, [33, 22]), "an error is a change, too");
        assert_eq!(del(set, cntr.cast(), 0), 0);
        assert_eq!(del(set, cntr.cast(), 0), 0, "what is no member stays none");
        Handle::<Cntr>::borrow(cntr).count(1);
        assert_eq!(poll(2).0, 0);
        // Flags are ignored, and a negative number means no room.
        assert_eq!(add(set, cntr.cast(), 1 << 15), 0);
        assert_eq!(poll(-1).0, 0);
        assert_eq!(poll(2).0, 1);
        assert_eq!(del(set, cntr.cast(), 1 << 15), 0);

        // A closed member is removed.
        write(cq);
        assert_eq!(close(cq.cast()), 0);
        assert_eq!(poll(2).0, 0);
    }
    // Members do not keep the set open, and the set does not keep them open.
    // SAFETY: the set and the counter are open.
    unsafe { assert_eq!((*(*set).ops).poll_add.unwrap()(set, cntr.cast(), 0), 0) };
    assert_eq!(close(set.cast()), 0);
    assert_eq!(close(cntr.cast()), 0);
}
