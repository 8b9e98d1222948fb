//! Blocking reads and native waiting.

use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use super::*;
use crate::wait::test_transport::TestTransport;
use crate::wait::{WaitKind, Waitable as _};

const SLEEPING: [WaitKind; 4] = [
    WaitKind::Unspec,
    WaitKind::Fd,
    WaitKind::MutexCond,
    WaitKind::PollFd,
];

fn open(kind: WaitKind) -> Arc<Cq> {
    Arc::new(
        Cq::new(CqConfig {
            format: CqFormat::Context,
            size: 8,
            with_sources: false,
            wait: Attachment::open(kind, None).unwrap(),
            by_threshold: true,
            ..CqConfig::default()
        })
        .unwrap(),
    )
}

fn numbered(number: u64) -> Completion {
    Completion::new(ptr::without_provenance_mut(number as usize), 0)
}

fn sread(cq: &Cq, count: usize, threshold: usize, timeout: i32) -> Result<Vec<u64>> {
    let mut found = Vec::new();
    cq.read_blocking(count, threshold, timeout, |completion| {
        found.push(completion.context.addr() as u64);
    })?;
    Ok(found)
}

fn read(cq: &Cq) -> Result<usize> {
    cq.read(64, |_| ())
}

#[test]
fn a_write_from_another_thread_wakes_a_blocked_read() {
    for kind in SLEEPING.into_iter().chain([WaitKind::Yield]) {
        let (there, back) = (open(kind), open(kind));
        let echo = {
            let (there, back) = (there.clone(), back.clone());
            thread::spawn(move || {
                for round in 0..500 {
                    assert_eq!(sread(&there, 1, 1, -1), Ok(vec![round]));
                    back.write(&numbered(round));
                }
            })
        };
        for round in 0..500 {
            there.write(&numbered(round));
            assert_eq!(sread(&back, 1, 1, -1), Ok(vec![round]));
        }
        echo.join().unwrap();
    }
}

#[test]
fn no_completion_is_lost_among_many_blocked_readers() {
    const READERS: u64 = 4;
    const EACH: u64 = 500;
    let cq = open(WaitKind::Unspec);
    let sum = Arc::new(AtomicU64::new(0));
    let readers: Vec<_> = (0..READERS)
        .map(|_| {
            let (cq, sum) = (cq.clone(), sum.clone());
            thread::spawn(move || {
                for _ in 0..EACH {
                    let found = sread(&cq, 1, 1, -1).unwrap();
                    sum.fetch_add(found[0], Ordering::Relaxed);
                }
            })
        })
        .collect();
    let total = READERS * EACH;
    for number in 1..=total {
        cq.write(&numbered(number));
        if number % 7 == 0 {
            thread::yield_now();
        }
    }
    for reader in readers {
        reader.join().unwrap();
    }
    assert_eq!(sum.load(Ordering::Relaxed), total * (total + 1) / 2);
}

#[test]
fn a_blocked_read_sleeps_while_nothing_happens() {
    for kind in SLEEPING {
        let cq = open(kind);
        let transport = TestTransport::new();
        cq.add_source(transport.clone()).unwrap();
        assert_eq!(sread(&cq, 1, 1, 20), Err(Errno::EAGAIN));
        assert!(transport.driven.load(Ordering::Relaxed) < 6, "{kind:?}");
    }
}

#[test]
fn work_of_a_transport_wakes_a_blocked_read_which_does_it() {
    for kind in SLEEPING {
        let cq = open(kind);
        let transport = TestTransport::new();
        cq.add_source(transport.clone()).unwrap();
        let reader = {
            let cq = cq.clone();
            thread::spawn(move || sread(&cq, 1, 1, -1))
        };
        transport.await_sleepers(1);
        let target = cq.clone();
        transport.give(move || target.write(&numbered(7)));
        assert_eq!(reader.join().unwrap(), Ok(vec![7]));
    }
}

#[test]
fn a_signal_makes_every_blocked_read_return() {
    let cq = open(WaitKind::Unspec);
    let transport = TestTransport::new();
    cq.add_source(transport.clone()).unwrap();
    let readers: Vec<_> = (0..3)
        .map(|_| {
            let cq = cq.clone();
            thread::spawn(move || sread(&cq, 1, 1, -1))
        })
        .collect();
    transport.await_sleepers(3);
    cq.signal().unwrap();
    for reader in readers {
        assert_eq!(reader.join().unwrap(), Err(Errno::EAGAIN));
    }
}

#[test]
fn a_signal_before_a_blocking_read_makes_that_one_return_and_no_other() {
    for kind in [WaitKind::Unspec, WaitKind::Yield] {
        let cq = open(kind);
        cq.signal().unwrap();
        cq.signal().unwrap();
        assert_eq!(sread(&cq, 1, 1, -1), Err(Errno::EAGAIN));
        cq.write(&numbered(1));
        assert_eq!(sread(&cq, 1, 1, -1), Ok(vec![1]));
        assert_eq!(cq.signals.load(Ordering::Relaxed), 2);
        assert_eq!(cq.answered.load(Ordering::Relaxed), 2);
    }
}

#[test]
fn a_threshold_holds_a_blocking_read_back_until_enough_is_there() {
    let cq = open(WaitKind::Unspec);
    let transport = TestTransport::new();
    cq.add_source(transport.clone()).unwrap();
    cq.write(&numbered(1));
    let reader = {
        let cq = cq.clone();
        thread::spawn(move || sread(&cq, 8, 3, -1))
    };
    transport.await_sleepers(1);
    cq.write_batch(&[numbered(2), numbered(3), numbered(4)]);
    assert_eq!(reader.join().unwrap(), Ok(vec![1, 2, 3, 4]));
}

#[test]
fn below_the_threshold_a_blocking_read_returns_the_available_entries_when_time_is_over() {
    let cq = open(WaitKind::Unspec);
    cq.write(&numbered(1));
    assert_eq!(sread(&cq, 8, 3, 5), Ok(vec![1]));
    assert_eq!(sread(&cq, 8, 3, 5), Err(Errno::EAGAIN));
    cq.write(&numbered(2));
    assert_eq!(sread(&cq, 1, 3, -1), Ok(vec![2]), "capped at the count");
}

#[test]
fn an_error_ends_a_blocking_read_whatever_its_threshold() {
    let cq = open(WaitKind::Unspec);
    let transport = TestTransport::new();
    cq.add_source(transport.clone()).unwrap();
    let reader = {
        let cq = cq.clone();
        thread::spawn(move || sread(&cq, 8, 5, -1))
    };
    transport.await_sleepers(1);
    cq.write_error(ErrorCompletion::new(numbered(1), Errno::EIO));
    assert_eq!(reader.join().unwrap(), Err(Errno::EAVAIL));
    assert_eq!(cq.read_error().unwrap().err, Errno::EIO);
}

#[test]
fn a_completion_that_is_lost_rings_whatever_the_threshold() {
    let cq = open(WaitKind::Fd);
    cq.write(&numbered(1));
    assert!(cq.arm_at(5));
    let rings = cq.attachment().wait().unwrap().rings();
    // What running out of memory leads to.
    let mut state = cq.state.lock();
    let more = state.overrun();
    cq.publish(&mut state, more);
    drop(state);
    assert_eq!(cq.attachment().wait().unwrap().rings(), rings + 1);
}

#[test]
fn without_a_wait_object_nothing_blocks() {
    let cq = open(WaitKind::None);
    assert_eq!(sread(&cq, 1, 1, -1), Err(Errno::ENOSYS));
    assert_eq!(cq.signal(), Err(Errno::ENOSYS));
    // It says what there is to read.
    assert_eq!(cq.try_wait(), Ok(()));
    cq.write(&numbered(1));
    assert_eq!(cq.try_wait(), Err(Errno::EAGAIN));
    let cq = open(WaitKind::Yield);
    assert_eq!(sread(&cq, 1, 1, 0), Err(Errno::EAGAIN));
    assert_eq!(cq.try_wait(), Err(Errno::EAGAIN));
}

#[test]
fn the_descriptor_is_readable_when_there_is_something_to_read() {
    let cq = open(WaitKind::Fd);
    let wait = cq.attachment().wait().unwrap();
    assert!(!wait.is_readable());
    // Even before fi_trywait: some applications do without the first time.
    cq.write(&numbered(1));
    assert!(wait.is_readable());
    assert_eq!(cq.try_wait(), Err(Errno::EAGAIN));
    assert_eq!(read(&cq), Ok(1));

    assert_eq!(cq.try_wait(), Ok(()));
    assert!(!wait.is_readable());
    cq.write(&numbered(2));
    assert!(wait.is_readable());
    cq.write_error(ErrorCompletion::new(numbered(3), Errno::EIO));
    assert_eq!(read(&cq), Ok(1));
    assert_eq!(
        cq.try_wait(),
        Err(Errno::EAGAIN),
        "the error is still there"
    );
    cq.read_error().unwrap();
    assert_eq!(cq.try_wait(), Ok(()));
    assert!(!wait.is_readable());
}

#[test]
fn the_descriptor_is_readable_when_a_transport_has_work() {
    let cq = open(WaitKind::Fd);
    let transport = TestTransport::new();
    let source: Arc<dyn Progress> = transport.clone();
    cq.add_source(source.clone()).unwrap();
    cq.add_source(source.clone()).unwrap();
    let wait = cq.attachment().wait().unwrap();
    assert_eq!(cq.try_wait(), Ok(()));
    assert!(!wait.is_readable());

    transport.give(|| ());
    assert!(wait.is_readable());
    assert_eq!(read(&cq), Err(Errno::EAGAIN));
    assert!(!wait.is_readable());
    let target = cq.clone();
    transport.give(move || target.write(&numbered(1)));
    assert_eq!(
        cq.try_wait(),
        Err(Errno::EAGAIN),
        "the work led to an entry"
    );
    assert_eq!(read(&cq), Ok(1));

    cq.remove_source(&source);
    assert_eq!(wait.poll_fds().0.len(), 2, "bound once more");
    cq.remove_source(&source);
    let (fds, changes) = wait.poll_fds();
    assert_eq!((fds.len(), changes), (1, 2));
    transport.give(|| ());
    assert_eq!(cq.try_wait(), Ok(()));
    assert!(!wait.is_readable());
}

#[test]
fn a_write_signals_only_if_a_thread_waits() {
    let cq = open(WaitKind::Fd);
    let wait = cq.attachment().wait().unwrap();
    cq.write(&numbered(1));
    assert_eq!(read(&cq), Ok(1));
    assert_eq!(cq.try_wait(), Ok(()));
    cq.write(&numbered(2));
    let rings = wait.rings();
    for number in 3..100 {
        cq.write(&numbered(number));
    }
    assert_eq!(wait.rings(), rings);
}

#[test]
fn a_condition_is_signalled_for_a_native_waiter() {
    let cq = open(WaitKind::MutexCond);
    let transport = TestTransport::new();
    cq.add_source(transport.clone()).unwrap();
    let (mutex, cond) = {
        let pair = cq.attachment().wait().unwrap().mutex_cond().unwrap();
        pair.native()
    };
    for round in 0..50 {
        let target = cq.clone();
        let writer = if round % 2 == 0 {
            thread::spawn(move || target.write(&numbered(1)))
        } else {
            let transport = transport.clone();
            thread::spawn(move || transport.give(move || target.write(&numbered(1))))
        };
        // SAFETY: the mutex and the condition live as long as the queue, and this thread holds the
        // mutex when it waits for the condition.
        unsafe {
            libc::pthread_mutex_lock(mutex);
            while read(&cq).is_err() {
                if cq.try_wait().is_ok() {
                    libc::pthread_cond_wait(cond, mutex);
                }
            }
            libc::pthread_mutex_unlock(mutex);
        }
        writer.join().unwrap();
    }
}

#[test]
fn more_entries_than_there_is_room_for_are_not_waited_for() {
    let cq = Cq::new(CqConfig {
        wait: Attachment::open(WaitKind::Unspec, None).unwrap(),
        by_threshold: true,
        unasked: 4,
        ..CqConfig::default()
    });
    let cq = cq.unwrap();
    for number in 0..4 {
        assert!(cq.has_room_unasked());
        cq.write(&numbered(number));
    }
    assert!(!cq.has_room_unasked());
    assert_eq!(sread(&cq, 8, 8, 20_000), Ok(vec![0, 1, 2, 3]));
    assert!(cq.has_room_unasked());
}
