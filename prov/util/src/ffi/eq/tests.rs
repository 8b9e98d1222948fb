//! Event queues through their C functions.

use std::mem::zeroed;
use std::ptr::{null, null_mut, without_provenance_mut};

use super::super::test_domain::{TestFabric, close};
use super::*;
use crate::eq::EventError;

fn open(version: (u32, u32), flags: u64, wait_obj: fi_wait_obj) -> Result<*mut fid_eq> {
    let fabric = TestFabric::open(version.0, version.1);
    // SAFETY: zeros are valid attributes.
    let mut attr: fi_eq_attr = unsafe { zeroed() };
    attr.flags = flags;
    attr.wait_obj = wait_obj;
    let mut eq = null_mut();
    // SAFETY: all pointers are valid.
    let status =
        unsafe { eq_open::<TestFabric>(fabric.as_c(), &raw mut attr, &raw mut eq, null_mut()) };
    Errno::check(status).map(|_| eq)
}

fn ops(eq: *mut fid_eq) -> &'static fi_ops_eq {
    // SAFETY: the queue is open, and tables are constant.
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
    // SAFETY: the entries are as long as the calls say.
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
    // SAFETY: the queue is open.
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
    // SAFETY: there is room for what the calls say.
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
fn errors_come_with_their_data() {
    for version in [(2, 7), (1, 4)] {
        let eq = open(version, 0, FI_WAIT_NONE).unwrap();
        // SAFETY: the queue is open.
        let queue = unsafe { Handle::<Eq>::borrow(eq) };
        let fid = without_provenance_mut(5);
        let mut error = EventError::new(fid, null_mut(), Errno::ECONNREFUSED);
        error.err_data = Box::from(&b"because"[..]);
        queue.write_error(error).unwrap();
        let mut data = *b"....";
        // SAFETY: zeros are a valid entry, and its buffer is as long as it
        // says.
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
