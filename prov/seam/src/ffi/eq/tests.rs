//! Tests event queues through their C functions.

use std::mem::zeroed;
use std::ptr::{null, null_mut, without_provenance_mut};

use super::super::test_domain::{TestFabric, close, open_in};
use super::*;
use prov_objects::eq::EventError;

fn open(version: (u32, u32), flags: u64, wait_obj: fi_wait_obj) -> Result<*mut fid_eq> {
    open_with(version, flags, wait_obj, null_mut())
}

fn open_with(
    version: (u32, u32),
    flags: u64,
    wait_obj: fi_wait_obj,
    context: *mut c_void,
) -> Result<*mut fid_eq> {
    let fabric = TestFabric::open(version.0, version.1);
    // SAFETY: the structure consists of integers and pointers, for which zero is a valid value.
    let mut attr: fi_eq_attr = unsafe { zeroed() };
    attr.flags = flags;
    attr.wait_obj = wait_obj;
    open_in(&fabric, eq_open::<TestFabric>, attr, context)
}

fn ops(eq: *mut fid_eq) -> &'static fi_ops_eq {
    // SAFETY: the queue is open, and its table is a constant.
    unsafe { &*(*eq).ops }
}

fn entry(number: usize) -> fi_eq_entry {
    fi_eq_entry {
        fid: without_provenance_mut(number),
        context: without_provenance_mut(number + 1),
        data: number as u64 + 2,
    }
}

const LEN: usize = size_of::<fi_eq_entry>();
const EAGAIN: isize = Errno::EAGAIN.to_c() as isize;

#[test]
fn an_application_reads_the_events_it_wrote() {
    let eq = open((2, 7), FI_WRITE, FI_WAIT_UNSPEC).unwrap();
    let (mut kind, mut found) = (0, entry(0));
    let (sent, place) = (entry(10), (&raw mut found).cast());
    // SAFETY: the queue is open, and the buffers have the stated lengths.
    unsafe {
        let write = ops(eq).write.unwrap();
        let read = ops(eq).read.unwrap();
        let sread = ops(eq).sread.unwrap();
        assert_eq!(read(eq, &mut kind, place, LEN, 0), EAGAIN);
        assert_eq!(sread(eq, &mut kind, place, LEN, 1, 0), EAGAIN);
        for _ in 0..2 {
            let sent = (&raw const sent).cast();
            assert_eq!(write(eq, FI_NOTIFY, sent, LEN, 0), LEN as isize);
        }
        assert_eq!(read(eq, &mut kind, null_mut(), 0, FI_PEEK), 0);
        assert_eq!(kind, FI_NOTIFY);
        assert_eq!(read(eq, &mut kind, place, LEN, 0), LEN as isize);
        assert_eq!(found.context.addr(), 11);
        assert_eq!(sread(eq, null_mut(), place, LEN, -1, 0), LEN as isize);
        assert_eq!(read(eq, &mut kind, place, LEN, 0), EAGAIN);
    }
    assert_eq!(close(eq.cast()), 0);
}

#[test]
fn connection_data_follows_its_structure() {
    let eq = open((2, 7), 0, FI_WAIT_NONE).unwrap();
    // SAFETY: the queue is open as long as the test uses it.
    let queue = unsafe { Handle::<Eq>::borrow(eq) };
    let event = || Event {
        kind: FI_CONNECTED,
        body: EventBody::Connection {
            fid: without_provenance_mut(77),
            info: None,
            data: b"0123456789".to_vec(),
        },
    };
    queue.write(event()).unwrap();
    queue.write(event()).unwrap();
    let mut buf = [b'.'; 32];
    let mut kind = 0;
    // SAFETY: the queue is open, and the buffers have the stated lengths.
    unsafe {
        let read = ops(eq).read.unwrap();
        let place = buf.as_mut_ptr().cast();
        assert_eq!(read(eq, &mut kind, place, 20, 0), 20);
        assert_eq!((kind, &buf[16..]), (FI_CONNECTED, &b"0123............"[..]));
        assert_eq!(read(eq, &mut kind, place, 32, 0), 26);
        assert_eq!(&buf[16..], b"0123456789......");
    }
    assert_eq!(close(eq.cast()), 0);
}

#[test]
fn errors_are_read_with_their_data() {
    for version in [(2, 7), (1, 4)] {
        let eq = open(version, 0, FI_WAIT_NONE).unwrap();
        // SAFETY: the queue is open as long as the test uses it.
        let queue = unsafe { Handle::<Eq>::borrow(eq) };
        let fid = without_provenance_mut(5);
        let mut error = EventError::new(fid, null_mut(), Errno::ECONNREFUSED);
        error.err_data = Box::from(&b"because"[..]);
        queue.write_error(error).unwrap();
        let mut data = *b"....";
        // SAFETY: the queue is open, zero is a valid value of the entry, and its buffer has the
        // stated length.
        unsafe {
            let mut entry: fi_eq_err_entry = zeroed();
            entry.err_data = data.as_mut_ptr().cast();
            entry.err_data_size = 4;
            let mut kind = 0;
            let status = ops(eq).read.unwrap()(eq, &mut kind, null_mut(), 0, FI_PEEK);
            assert_eq!(status, Errno::EAVAIL.to_c() as isize);
            let len = ops(eq).readerr.unwrap()(eq, &mut entry, 0);
            assert_eq!(len, size_of::<fi_eq_err_entry>() as isize);
            assert_eq!((entry.fid.addr(), entry.err), (5, libc::ECONNREFUSED));
            assert_eq!(entry.err_data_size, 4);
            if version == (2, 7) {
                assert_eq!(&data, b"beca");
            } else {
                assert_eq!(bytes(entry.err_data, 7), b"because");
            }
            assert_eq!(ops(eq).readerr.unwrap()(eq, &mut entry, 0), EAGAIN);
            let text = ops(eq).strerror.unwrap()(eq, libc::ECANCELED, null(), null_mut(), 0);
            assert_eq!(std::ffi::CStr::from_ptr(text), c"Operation canceled");
        }
        assert_eq!(close(eq.cast()), 0);
    }
}

#[test]
fn attributes_that_make_no_sense_are_refused() {
    assert_eq!(
        open((2, 7), 1 << 63, FI_WAIT_NONE).err(),
        Some(Errno::EINVAL)
    );
    assert_eq!(
        open((2, 7), FI_PEER, FI_WAIT_NONE).err(),
        Some(Errno::EINVAL)
    );
    assert_eq!(open((2, 7), 0, FI_WAIT_SET).err(), Some(Errno::EINVAL));
    assert_eq!(open((2, 7), 0, 77).err(), Some(Errno::EINVAL));
}

/// A peer's queue, owned by `owner`.
fn open_peer(owner: *mut fid_eq) -> Result<*mut fid_eq> {
    let mut context = fi_peer_eq_context {
        size: size_of::<fi_peer_eq_context>(),
        eq: owner,
    };
    open_with((2, 7), FI_PEER, FI_WAIT_NONE, (&raw mut context).cast())
}

fn connected(data: &[u8]) -> Event {
    Event {
        kind: FI_CONNECTED,
        body: EventBody::Connection {
            fid: without_provenance_mut(77),
            info: None,
            data: data.to_vec(),
        },
    }
}

#[test]
fn a_peer_writes_to_the_owner_and_has_nothing_to_read() {
    let owner = open((2, 7), 0, FI_WAIT_NONE).unwrap();
    let eq = open_peer(owner).unwrap();
    // SAFETY: both queues are open, and the entries and buffers have the stated lengths.
    unsafe {
        let peer = Handle::<Eq>::borrow(eq);
        peer.write(connected(b"data")).unwrap();
        let fid = without_provenance_mut(5);
        let error = EventError::new(fid, null_mut(), Errno::ECONNREFUSED);
        peer.write_error(error).unwrap();
        peer.write(connected(b"forgotten")).unwrap();

        let mut buf = [0u8; 64];
        let place = buf.as_mut_ptr().cast();
        let mut kind = 0;
        assert_eq!(ops(eq).read.unwrap()(eq, &mut kind, place, 64, 0), EAGAIN);
        let enosys = Errno::ENOSYS.to_c() as isize;
        let mut entry: fi_eq_err_entry = zeroed();
        assert_eq!(ops(eq).readerr.unwrap()(eq, &mut entry, 0), enosys);
        assert_eq!(ops(eq).write.unwrap()(eq, FI_NOTIFY, place, 8, 0), enosys);
        assert_eq!(
            ops(eq).sread.unwrap()(eq, &mut kind, place, 64, 0, 0),
            enosys
        );

        let read = ops(owner).read.unwrap();
        assert_eq!(read(owner, &mut kind, place, 64, 0), 20);
        assert_eq!((kind, &buf[16..20]), (FI_CONNECTED, &b"data"[..]));
        assert_eq!(ops(owner).readerr.unwrap()(owner, &mut entry, 0), {
            size_of::<fi_eq_err_entry>() as isize
        });
        assert_eq!((entry.fid.addr(), entry.err), (5, libc::ECONNREFUSED));
        peer.forget(without_provenance_mut(77));
        assert_eq!(read(owner, &mut kind, place, 64, 0), EAGAIN);
    }
    assert_eq!(close(owner.cast()), Errno::EBUSY.to_c());
    assert_eq!(close(eq.cast()), 0);
    assert_eq!(close(owner.cast()), 0);
}

/// The owner's queue, which appears to belong to another library.
#[repr(C)]
struct Other {
    eq: fid_eq,
    ops: fi_ops_eq,
    written: Vec<(u32, Vec<u8>)>,
    full: bool,
}

unsafe extern "C" fn take(
    eq: *mut fid_eq,
    kind: u32,
    buf: *const c_void,
    len: usize,
    flags: u64,
) -> isize {
    assert_eq!(flags, 0);
    // SAFETY: the queue is the first member of the test's structure, and `buf`
    // has `len` bytes.
    unsafe {
        let this = &mut *eq.cast::<Other>();
        if this.full {
            return Errno::EOVERRUN.to_c() as isize;
        }
        this.written.push((kind, bytes(buf, len).to_vec()));
    }
    len as isize
}

#[test]
fn events_for_another_library_are_written_as_an_application_writes_them() {
    // SAFETY: zero is a valid value of both structures: a queue and a table without functions.
    let (eq, ops) = unsafe { (zeroed(), zeroed()) };
    let other = Box::into_raw(Box::new(Other {
        eq,
        ops,
        written: Vec::new(),
        full: false,
    }));
    // SAFETY: the structure was allocated by the test, and is freed at its end.
    unsafe {
        (*other).eq.fid.fclass = FI_CLASS_EQ;
        (*other).eq.fid.ops = Box::into_raw(Box::new(zeroed()));
        assert_eq!(open_peer(other.cast()).err(), Some(Errno::EINVAL));
        (*other).eq.ops = &raw mut (*other).ops;
        assert_eq!(open_peer(other.cast()).err(), Some(Errno::EINVAL));
        (*other).ops.write = Some(take);
        let peer = open_peer(other.cast()).unwrap();
        let queue = Handle::<Eq>::borrow(peer);
        queue.write(connected(b"hello")).unwrap();
        let body = EventBody::User(b"raw".to_vec());
        queue.write(Event { kind: 9, body }).unwrap();
        let error = EventError::new(null_mut(), null_mut(), Errno::EIO);
        assert_eq!(queue.write_error(error), Err(Errno::ENOSYS));
        (*other).full = true;
        assert_eq!(queue.write(connected(b"")), Err(Errno::EOVERRUN));
        assert_eq!(close(peer.cast()), 0);

        let other = Box::from_raw(other);
        drop(Box::from_raw(other.eq.fid.ops));
        let [(kind, event), user] = &other.written[..] else {
            panic!("two events were written");
        };
        assert_eq!((*kind, &event[16..]), (FI_CONNECTED, &b"hello"[..]));
        assert_eq!(*user, (9, b"raw".to_vec()));
    }
}

#[test]
fn a_context_that_is_not_a_peers_is_refused() {
    assert_eq!(open_peer(null_mut()).err(), Some(Errno::EINVAL));
    let owner = open((2, 7), 0, FI_WAIT_NONE).unwrap();
    let mut context = fi_peer_eq_context { size: 8, eq: owner };
    let context = (&raw mut context).cast();
    let peer = open_with((2, 7), FI_PEER, FI_WAIT_NONE, context);
    assert_eq!(peer.err(), Some(Errno::EINVAL));
    assert_eq!(close(owner.cast()), 0);
}
