//! Tests completion queues through their C functions.

use std::ffi::{CStr, c_void};
use std::mem::{MaybeUninit, zeroed};
use std::ptr::{null, null_mut, without_provenance_mut};

use super::super::test_domain::{TestDomain, close, open_in};
use super::*;
use prov_objects::cq::{Completion, ErrorCompletion};

/// An open queue; closed when it is dropped.
struct Opened {
    cq: *mut fid_cq,
    domain: Handle<TestDomain>,
}

fn attr(format: fi_cq_format, wait_obj: fi_wait_obj) -> fi_cq_attr {
    // SAFETY: the structure consists of integers and pointers, for which zero is a valid value.
    let mut attr: fi_cq_attr = unsafe { zeroed() };
    attr.format = format;
    attr.wait_obj = wait_obj;
    attr
}

fn open_on(domain: Handle<TestDomain>, attr: fi_cq_attr, context: *mut c_void) -> Result<Opened> {
    open_in(&domain, cq_open::<TestDomain>, attr, context).map(|cq| Opened { cq, domain })
}

fn open(attr: fi_cq_attr) -> Result<Opened> {
    open_on(TestDomain::open(FI_SOCKADDR_IN, 0), attr, null_mut())
}

impl Opened {
    fn handle(&self) -> Handle<Cq> {
        // SAFETY: the queue is open as long as the test uses it.
        unsafe { Handle::from_c(self.cq) }
    }

    fn ops(&self) -> &fi_ops_cq {
        // SAFETY: the queue is open as long as `self`, and has a table.
        unsafe { &*(*self.cq).ops }
    }

    fn read<T: Copy>(&self, count: usize) -> std::result::Result<Vec<T>, isize> {
        let mut room = vec![MaybeUninit::<T>::uninit(); count];
        // SAFETY: the queue is open, and the buffer has space for `count` entries of its format.
        unsafe {
            let read = self.ops().read.unwrap();
            let taken = read(self.cq, room.as_mut_ptr().cast(), count);
            let taken = usize::try_from(taken).map_err(|_| taken)?;
            Ok(room[..taken]
                .iter()
                .map(|entry| entry.assume_init())
                .collect())
        }
    }

    fn readerr(&self, entry: &mut fi_cq_err_entry) -> isize {
        // SAFETY: the queue is open, and the entry is valid.
        unsafe { self.ops().readerr.unwrap()(self.cq, entry, 0) }
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        assert_eq!(close(self.cq.cast()), 0);
        assert!(!self.domain.is_closed());
    }
}

fn entry() -> fi_cq_err_entry {
    // SAFETY: the structure consists of integers and pointers, for which zero is a valid value.
    unsafe { zeroed() }
}

fn completion(number: usize) -> Completion {
    Completion {
        context: without_provenance_mut(number),
        flags: FI_RECV | FI_TAGGED,
        len: number + 1,
        buf: without_provenance_mut(number + 2),
        data: number as u64 + 3,
        tag: number as u64 + 4,
        src: number as u64 + 5,
    }
}

const EAGAIN: isize = Errno::EAGAIN.to_c() as isize;
const EAVAIL: isize = Errno::EAVAIL.to_c() as isize;

#[test]
fn c_reads_the_structures_of_each_format() {
    let cq = open(attr(FI_CQ_FORMAT_TAGGED, FI_WAIT_NONE)).unwrap();
    assert_eq!(cq.read::<fi_cq_tagged_entry>(1).unwrap_err(), EAGAIN);
    cq.handle().write_batch(&[completion(10), completion(20)]);
    let entries = cq.read::<fi_cq_tagged_entry>(4).unwrap();
    assert_eq!(entries.len(), 2);
    assert_eq!(entries[1].op_context.addr(), 20);
    assert_eq!(entries[1].flags, FI_RECV | FI_TAGGED);
    assert_eq!((entries[1].len, entries[1].buf.addr()), (21, 22));
    assert_eq!((entries[1].data, entries[1].tag), (23, 24));

    let cq = open(attr(FI_CQ_FORMAT_DATA, FI_WAIT_NONE)).unwrap();
    cq.handle().write(&completion(10));
    let entries = cq.read::<fi_cq_data_entry>(4).unwrap();
    assert_eq!((entries[0].len, entries[0].data), (11, 13));

    let cq = open(attr(FI_CQ_FORMAT_MSG, FI_WAIT_NONE)).unwrap();
    cq.handle().write(&completion(10));
    assert_eq!(cq.read::<fi_cq_msg_entry>(4).unwrap()[0].len, 11);

    let cq = open(attr(FI_CQ_FORMAT_UNSPEC, FI_WAIT_NONE)).unwrap();
    cq.handle().write(&completion(10));
    let entries = cq.read::<fi_cq_entry>(4).unwrap();
    assert_eq!(entries[0].op_context.addr(), 10);
}

#[test]
fn sources_are_read_with_completions() {
    let cq = open(attr(FI_CQ_FORMAT_CONTEXT, FI_WAIT_UNSPEC)).unwrap();
    cq.handle().write(&completion(10));
    cq.handle().write(&Completion::new(null_mut(), FI_SEND));
    cq.handle().write(&completion(20));
    let mut contexts = [null_mut::<c_void>(); 3];
    let mut sources: [fi_addr_t; 3] = [7; 3];
    // SAFETY: the queue is open, and the arrays have space for three entries.
    unsafe {
        let buf = contexts.as_mut_ptr().cast();
        let readfrom = cq.ops().readfrom.unwrap();
        assert_eq!(readfrom(cq.cq, buf, 2, sources.as_mut_ptr()), 2);
        assert_eq!(sources, [15, FI_ADDR_NOTAVAIL, 7]);
        let sreadfrom = cq.ops().sreadfrom.unwrap();
        let status = sreadfrom(cq.cq, buf, 2, sources.as_mut_ptr(), null(), -1);
        assert_eq!((status, sources[0]), (1, 25));
        let sread = cq.ops().sread.unwrap();
        assert_eq!(sread(cq.cq, buf, 1, null(), 1), EAGAIN);
        assert_eq!(cq.ops().signal.unwrap()(cq.cq), 0);
        assert_eq!(sread(cq.cq, buf, 1, null(), -1), EAGAIN);
    }
}

#[test]
fn without_source_capability_there_are_no_sources() {
    let config = CqConfig {
        format: CqFormat::Context,
        size: 2,
        with_sources: false,
        ..CqConfig::default()
    };
    let cq = Handle::new(Cq::new(config).unwrap(), null_mut(), Vec::new());
    cq.write(&completion(10));
    let (mut context, mut source) = (null_mut::<c_void>(), 7);
    // SAFETY: the queue is open, and the variables have space for one entry and its source.
    let taken = unsafe { readfrom(cq.as_c(), (&raw mut context).cast(), 1, &raw mut source) };
    assert_eq!((taken, context.addr()), (1, 10));
    assert_eq!(source, FI_ADDR_NOTAVAIL as fi_addr_t);
}

#[test]
fn error_data_goes_to_the_applications_buffer_or_is_lent() {
    let cq = open(attr(FI_CQ_FORMAT_CONTEXT, FI_WAIT_NONE)).unwrap();
    let mut error = ErrorCompletion::truncated(completion(10), 99);
    error.prov_errno = -5;
    error.err_data = Box::from(&b"0123456789"[..]);
    for _ in 0..3 {
        cq.handle().write_error(error.clone());
    }
    assert_eq!(cq.read::<fi_cq_entry>(1).unwrap_err(), EAVAIL);

    let mut small = *b"abcd";
    let mut entry = entry();
    entry.err_data = small.as_mut_ptr().cast();
    entry.err_data_size = 4;
    assert_eq!(cq.readerr(&mut entry), 1);
    assert_eq!(entry.err_data_size, 4);
    assert_eq!(&small, b"0123");
    assert_eq!(entry.op_context.addr(), 10);
    assert_eq!((entry.olen, entry.err), (99, FI_ETRUNC));
    assert_eq!((entry.prov_errno, entry.src_addr), (-5, 15));

    let mut large = [b'.'; 12];
    entry.err_data = large.as_mut_ptr().cast();
    entry.err_data_size = 12;
    assert_eq!(cq.readerr(&mut entry), 1);
    assert_eq!((entry.err_data_size, &large), (10, b"0123456789.."));

    entry.err_data = null_mut();
    entry.err_data_size = 0;
    assert_eq!(cq.readerr(&mut entry), 1);
    // SAFETY: the data is valid until the next error is read, and none was read.
    let lent = unsafe { super::super::bytes(entry.err_data, entry.err_data_size) };
    assert_eq!(lent, b"0123456789");
    assert_eq!(cq.readerr(&mut entry), EAGAIN);
}

#[test]
fn old_applications_get_the_error_entry_of_their_time() {
    for (version, has_size, has_src) in [
        (prov_objects::attr::version(1, 4), false, false),
        (prov_objects::attr::version(1, 5), true, false),
        (prov_objects::attr::version(1, 19), true, false),
        (prov_objects::attr::version(1, 20), true, true),
    ] {
        let domain = TestDomain {
            format: prov_objects::av::format::Format::IN,
            auth_key_size: None,
            table: TestDomain::open(FI_SOCKADDR_IN, 0).table.clone(),
            api_version: version,
        };
        let domain = Handle::new(domain, null_mut(), Vec::new());
        let attr = attr(FI_CQ_FORMAT_CONTEXT, FI_WAIT_NONE);
        let cq = open_on(domain, attr, null_mut()).unwrap();
        let mut error = ErrorCompletion::new(completion(10), Errno::EIO);
        error.err_data = Box::from(&b"xyz"[..]);
        cq.handle().write_error(error);
        let mut buffer = *b"...";
        let mut entry = entry();
        entry.err_data = buffer.as_mut_ptr().cast();
        entry.err_data_size = 3;
        entry.src_addr = 4242;
        assert_eq!(cq.readerr(&mut entry), 1);
        assert_eq!(entry.src_addr, if has_src { 15 } else { 4242 });
        assert_eq!(entry.err_data_size, 3);
        assert_eq!(&buffer, if has_size { b"xyz" } else { b"..." });
        assert_eq!(entry.err_data.addr() == buffer.as_ptr().addr(), has_size);
    }
}

#[test]
fn error_numbers_have_texts() {
    let cq = open(attr(FI_CQ_FORMAT_CONTEXT, FI_WAIT_NONE)).unwrap();
    let mut buf = [1 as c_char; 10];
    // SAFETY: the queue is open, and the buffer has the stated length.
    unsafe {
        let strerror = cq.ops().strerror.unwrap();
        let text = strerror(cq.cq, -libc::ECANCELED, null(), buf.as_mut_ptr(), buf.len());
        assert_eq!(CStr::from_ptr(text), c"Operation canceled");
        assert_eq!(CStr::from_ptr(buf.as_ptr()), c"Operation");
        let text = strerror(cq.cq, libc::ECANCELED, null(), null_mut(), 0);
        assert_eq!(CStr::from_ptr(text), c"Operation canceled");
    }
}

#[test]
fn attributes_that_make_no_sense_are_refused() {
    let refused = |change: fn(&mut fi_cq_attr)| {
        let mut attr = attr(FI_CQ_FORMAT_CONTEXT, FI_WAIT_FD);
        change(&mut attr);
        open(attr).err() == Some(Errno::EINVAL)
    };
    assert!(refused(|attr| attr.format = 77));
    assert!(refused(|attr| attr.wait_obj = 77));
    assert!(refused(|attr| attr.wait_obj = FI_WAIT_SET));
    assert!(refused(|attr| attr.flags = 1 << 63));
    assert!(refused(|attr| attr.flags = FI_PEER));
    assert!(!refused(|attr| attr.flags = FI_AFFINITY));
    assert!(!refused(|attr| attr.size = usize::MAX));
    // With an unknown condition, any completion ends a wait.
    assert!(!refused(|attr| attr.wait_cond = 77));
}

#[test]
fn a_queue_keeps_its_domain_open_and_its_users_keep_it_open() {
    let cq = open(attr(FI_CQ_FORMAT_CONTEXT, FI_WAIT_NONE)).unwrap();
    let busy = Errno::EBUSY.to_c();
    assert_eq!(close(cq.domain.fid()), busy);
    let in_use = Use::of(&cq.handle());
    assert_eq!(close(cq.cq.cast()), busy);
    drop(in_use);
}

#[test]
fn a_peer_writes_to_the_owner_and_has_nothing_to_read() {
    let owner = open(attr(FI_CQ_FORMAT_TAGGED, FI_WAIT_NONE)).unwrap();
    let shared = SharedCq::of(&owner.handle());
    let mut context = fi_peer_cq_context {
        size: size_of::<fi_peer_cq_context>(),
        cq: shared.as_c(),
    };
    let mut attr = attr(FI_CQ_FORMAT_TAGGED, FI_WAIT_NONE);
    attr.flags = FI_PEER;
    let domain = TestDomain::open(FI_SOCKADDR_IN, 0);
    let peer = open_on(domain, attr, (&raw mut context).cast()).unwrap();

    peer.handle().write(&completion(10));
    let mut error = ErrorCompletion::new(completion(20), Errno::EIO);
    error.err_data = Box::from(&b"xyz"[..]);
    peer.handle().write_error(error);

    assert_eq!(peer.read::<fi_cq_tagged_entry>(0).map(|v| v.len()), Ok(0));
    let enosys = Errno::ENOSYS.to_c() as isize;
    assert_eq!(peer.readerr(&mut entry()), enosys);
    let entries = owner.read::<fi_cq_tagged_entry>(4).unwrap();
    assert_eq!((entries.len(), entries[0].tag), (1, 14));
    let mut entry = entry();
    assert_eq!(owner.readerr(&mut entry), 1);
    assert_eq!((entry.err, entry.err_data_size), (libc::EIO, 3));
    drop(peer);
    assert_eq!(close(owner.cq.cast()), Errno::EBUSY.to_c());
    drop(shared);
}
