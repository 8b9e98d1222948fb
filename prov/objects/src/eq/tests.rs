use std::ffi::c_void;
use std::ptr::{self, null_mut};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::thread;

use fabric_abi::{FI_CONNREQ, FI_NOTIFY, FI_SHUTDOWN, fi_info};

use super::*;
use crate::wait::WaitKind;
use crate::wait::test_transport::TestTransport;

fn open(kind: WaitKind) -> Arc<Eq> {
    let version = crate::attr::version(2, 7);
    Arc::new(Eq::new(Attachment::open(kind, None).unwrap(), version))
}

fn fid(number: usize) -> *mut fid {
    ptr::without_provenance_mut(number)
}

fn control(number: usize) -> Event {
    Event {
        kind: FI_NOTIFY,
        body: EventBody::Control {
            fid: fid(number),
            context: null_mut::<c_void>(),
            data: number as u64,
        },
    }
}

fn shutdown(number: usize, data: &[u8]) -> Event {
    Event {
        kind: FI_SHUTDOWN,
        body: EventBody::Connection {
            fid: fid(number),
            info: None,
            data: data.to_vec(),
        },
    }
}

/// The `fid` of the next event and the length.
fn read(eq: &Eq, room: usize, peek: bool) -> Result<(usize, usize)> {
    let mut found = 0;
    let len = eq.read(room, peek, |event| {
        found = event.fid().map_or(0, |fid| fid.addr());
    })?;
    Ok((found, len))
}

#[test]
fn events_are_read_in_order_and_peeking_leaves_them() {
    let eq = open(WaitKind::None);
    assert_eq!(read(&eq, 64, false), Err(Errno::EAGAIN));
    for number in 1..=3 {
        eq.write(control(number)).unwrap();
    }
    for number in 1..=3 {
        assert_eq!(read(&eq, 64, true), Ok((number, 24)));
        assert_eq!(read(&eq, 24, false), Ok((number, 24)));
    }
    assert_eq!(read(&eq, 64, true), Err(Errno::EAGAIN));
}

#[test]
fn an_event_that_does_not_fit_stays() {
    let eq = open(WaitKind::None);
    eq.write(control(1)).unwrap();
    assert_eq!(read(&eq, 23, false), Err(Errno::ETOOSMALL));
    assert_eq!(read(&eq, 0, false), Err(Errno::ETOOSMALL));
    assert_eq!(read(&eq, 0, true), Ok((1, 0)), "a look at its kind");
    assert_eq!(read(&eq, 24, false), Ok((1, 24)));
    let body = EventBody::User(vec![1; 40]);
    eq.write(Event { kind: 77, body }).unwrap();
    assert_eq!(read(&eq, 39, false), Err(Errno::ETOOSMALL));
    assert_eq!(read(&eq, 99, false), Ok((0, 40)));
}

#[test]
fn connection_data_is_cut_to_the_room() {
    let eq = open(WaitKind::None);
    eq.write(shutdown(1, b"0123456789")).unwrap();
    assert_eq!(read(&eq, 15, true), Err(Errno::ETOOSMALL));
    assert_eq!(read(&eq, 16, true), Ok((1, 16)));
    assert_eq!(read(&eq, 20, true), Ok((1, 20)));
    assert_eq!(read(&eq, 200, false), Ok((1, 26)));
}

#[test]
fn an_error_stops_reading_until_it_is_read_itself() {
    let eq = open(WaitKind::None);
    eq.write(control(1)).unwrap();
    let mut error = EventError::new(fid(2), null_mut(), Errno::ECONNREFUSED);
    error.err_data = Box::from(&b"no"[..]);
    eq.write_error(error).unwrap();
    eq.write(control(3)).unwrap();

    assert_eq!(eq.read_error(false).unwrap_err(), Errno::EAGAIN);
    assert_eq!(read(&eq, 64, false), Ok((1, 24)));
    assert_eq!(read(&eq, 64, false), Err(Errno::EAVAIL));
    for peek in [true, false] {
        let error = eq.read_error(peek).unwrap();
        assert_eq!((error.fid, error.err), (fid(2), Errno::ECONNREFUSED));
        assert_eq!(&*error.err_data, b"no");
    }
    assert_eq!(eq.read_error(false).unwrap_err(), Errno::EAGAIN);
    assert_eq!(read(&eq, 64, false), Ok((3, 24)));
}

#[test]
fn events_of_a_closed_object_are_dropped() {
    let eq = open(WaitKind::Fd);
    eq.write(control(1)).unwrap();
    eq.write(shutdown(2, b"")).unwrap();
    eq.write_error(EventError::new(fid(2), null_mut(), Errno::EIO))
        .unwrap();
    eq.write(control(3)).unwrap();
    eq.forget(fid(2));
    assert_eq!(read(&eq, 64, false), Ok((1, 24)));
    assert_eq!(read(&eq, 64, false), Ok((3, 24)));
    assert_eq!(eq.try_wait(), Ok(()));
}

#[test]
fn the_info_of_a_request_is_freed_unless_the_application_got_it() {
    static FREED: AtomicUsize = AtomicUsize::new(0);
    static UNREAD: AtomicUsize = AtomicUsize::new(0);
    unsafe extern "C" fn free(_: *mut fi_info) {
        FREED.fetch_add(1, Ordering::Relaxed);
    }
    let request = || {
        // SAFETY: `free` does not dereference its argument, so that the pointer may be null.
        let mut info = unsafe { EventInfo::new(null_mut(), free) };
        info.if_unread(|| {
            UNREAD.fetch_add(1, Ordering::Relaxed);
        });
        Event {
            kind: FI_CONNREQ,
            body: EventBody::Connection {
                fid: fid(1),
                info: Some(info),
                data: Vec::new(),
            },
        }
    };
    let eq = open(WaitKind::None);
    eq.write(request()).unwrap();
    read(&eq, 64, true).unwrap();
    read(&eq, 64, false).unwrap();
    assert_eq!(FREED.load(Ordering::Relaxed), 0, "the application has it");
    eq.write(request()).unwrap();
    read(&eq, 64, true).unwrap();
    eq.forget(fid(1));
    assert_eq!(FREED.load(Ordering::Relaxed), 1);
    eq.write(request()).unwrap();
    drop(eq);
    assert_eq!(FREED.load(Ordering::Relaxed), 2);
    assert_eq!(UNREAD.load(Ordering::Relaxed), 2);
}

#[test]
fn a_write_from_another_thread_wakes_a_blocked_read() {
    for kind in [WaitKind::Unspec, WaitKind::Fd, WaitKind::Yield] {
        let (there, back) = (open(kind), open(kind));
        let echo = {
            let (there, back) = (there.clone(), back.clone());
            thread::spawn(move || {
                for round in 0..300 {
                    assert_eq!(there.read_blocking(64, false, -1, |_| ()), Ok(24));
                    back.write(control(round)).unwrap();
                }
            })
        };
        for round in 0..300 {
            there.write(control(round)).unwrap();
            assert_eq!(back.read_blocking(64, false, -1, |_| ()), Ok(24));
        }
        echo.join().unwrap();
    }
}

#[test]
fn work_of_a_transport_wakes_a_blocked_read_which_does_it() {
    let eq = open(WaitKind::Unspec);
    let transport = TestTransport::new();
    eq.add_source(transport.clone()).unwrap();
    let reader = {
        let eq = eq.clone();
        thread::spawn(move || eq.read_blocking(64, false, -1, |_| ()))
    };
    transport.await_sleepers(1);
    let target = eq.clone();
    transport.give(move || target.write(shutdown(1, b"x")).unwrap());
    assert_eq!(reader.join().unwrap(), Ok(17));
}

#[test]
fn a_blocking_read_ends_with_its_time_or_an_error() {
    let eq = open(WaitKind::Unspec);
    assert_eq!(eq.read_blocking(64, false, 2, |_| ()), Err(Errno::EAGAIN));
    eq.write_error(EventError::new(fid(1), null_mut(), Errno::EIO))
        .unwrap();
    assert_eq!(eq.read_blocking(64, false, -1, |_| ()), Err(Errno::EAVAIL));
    let eq = open(WaitKind::None);
    assert_eq!(eq.read_blocking(64, false, -1, |_| ()), Err(Errno::ENOSYS));
}

#[test]
fn peeking_does_not_silence_the_descriptor() {
    let eq = open(WaitKind::Fd);
    let wait = eq.attachment().wait().unwrap();
    assert_eq!(eq.try_wait(), Ok(()));
    assert!(!wait.is_readable());
    eq.write(control(1)).unwrap();
    assert_eq!(eq.read_blocking(64, true, -1, |_| ()), Ok(24));
    assert!(wait.is_readable());
    assert_eq!(eq.try_wait(), Err(Errno::EAGAIN));
    read(&eq, 64, false).unwrap();
    assert_eq!(eq.try_wait(), Ok(()));
    assert!(!wait.is_readable());
}

#[test]
fn an_overrun_queue_returns_its_entries_and_then_only_the_error() {
    let eq = open(WaitKind::None);
    eq.write(control(1)).unwrap();
    // What running out of memory leads to.
    eq.state.lock().overrun = true;
    assert_eq!(eq.write(control(2)), Err(Errno::EOVERRUN));
    let error = EventError::new(fid(3), null_mut(), Errno::EIO);
    assert_eq!(eq.write_error(error), Err(Errno::EOVERRUN));
    assert_eq!(read(&eq, 64, false), Ok((1, 24)));
    for _ in 0..3 {
        assert_eq!(read(&eq, 64, false), Err(Errno::EAVAIL));
        assert_eq!(eq.read_error(false).unwrap().err, Errno::EOVERRUN);
    }
}
