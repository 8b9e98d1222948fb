use std::ptr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;

use super::*;
use crate::cntr::{Cntr, CntrEvents};
use crate::cq::{Completion, Cq, CqConfig, CqFormat};
use crate::wait::Attachment;
use crate::wait::test_transport::TestTransport;

struct Joined<T>(Arc<T>);

impl<T: Waitable + 'static> Deref for Joined<T> {
    type Target = dyn Waitable;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

/// Set and member refer to each other until the member leaves.
struct Opened<T: Waitable + 'static>(Arc<T>, Arc<WaitSet>);

impl<T: Waitable + 'static> Deref for Opened<T> {
    type Target = Arc<T>;

    fn deref(&self) -> &Arc<T> {
        &self.0
    }
}

impl<T: Waitable + 'static> Drop for Opened<T> {
    fn drop(&mut self) {
        self.1.leave(&*self.0);
    }
}

fn member<T: Waitable + 'static>(
    set: &Arc<WaitSet>,
    make: impl FnOnce(Attachment) -> T,
) -> Opened<T> {
    let attachment = Attachment::open(WaitKind::Set, Some(set.clone())).unwrap();
    let object = Arc::new(make(attachment));
    set.join(Box::new(Joined(object.clone())));
    Opened(object, set.clone())
}

fn cq(set: &Arc<WaitSet>) -> Opened<Cq> {
    member(set, |wait| {
        Cq::new(CqConfig {
            format: CqFormat::Context,
            with_sources: false,
            wait,
            ..CqConfig::default()
        })
        .unwrap()
    })
}

fn cntr(set: &Arc<WaitSet>) -> Opened<Cntr> {
    member(set, |wait| Cntr::new(CntrEvents::Completions, wait, None))
}

const COMPLETION: Completion = Completion::new(ptr::null_mut(), 0);

#[test]
fn a_set_wakes_for_whichever_member_has_something() {
    for kind in [
        WaitKind::Unspec,
        WaitKind::Fd,
        WaitKind::PollFd,
        WaitKind::MutexCond,
        WaitKind::Yield,
    ] {
        let set = Arc::new(WaitSet::new(kind).unwrap());
        let (cq, cntr) = (cq(&set), cntr(&set));
        assert_eq!(set.wait_for_news(0), Err(Errno::ETIMEDOUT));
        for round in 0..200 {
            let (target, counter) = (cq.clone(), cntr.clone());
            let writer = thread::spawn(move || match round % 2 {
                0 => target.write(&COMPLETION),
                _ => counter.count(0),
            });
            assert_eq!(set.wait_for_news(-1), Ok(()), "{kind:?}");
            writer.join().unwrap();
            let found = cq.read(1, |_| ());
            assert_eq!(found.is_ok(), round % 2 == 0);
        }
        assert_eq!(cntr.read(), 100);
        assert_eq!(set.wait_for_news(1), Err(Errno::ETIMEDOUT));
    }
}

#[test]
fn work_of_a_members_transport_wakes_the_set() {
    let set = Arc::new(WaitSet::new(WaitKind::Fd).unwrap());
    let (cq, cntr) = (cq(&set), cntr(&set));
    let transport = TestTransport::new();
    cq.add_source(transport.clone()).unwrap();
    cntr.add_source(transport.clone()).unwrap();
    let waiter = {
        let set = set.clone();
        thread::spawn(move || set.wait_for_news(-1))
    };
    transport.await_sleepers(1);
    let target = cq.clone();
    transport.give(move || target.write(&COMPLETION));
    assert_eq!(waiter.join().unwrap(), Ok(()));

    // The other member still has the set watch the transport.
    cq.read(1, |_| ()).unwrap();
    cq.shut();
    assert_eq!(set.try_wait(), Ok(()));
    transport.give(|| ());
    assert!(set.wait().unwrap().is_readable());
}

#[test]
fn trying_a_member_tries_the_set() {
    let set = Arc::new(WaitSet::new(WaitKind::Fd).unwrap());
    let (first, second) = (cq(&set), cq(&set));
    assert_eq!(first.try_wait(), Ok(()));
    second.write(&COMPLETION);
    assert!(set.wait().unwrap().is_readable());
    assert_eq!(first.try_wait(), Err(Errno::EAGAIN));
    second.read(1, |_| ()).unwrap();
    assert_eq!(first.try_wait(), Ok(()));
    assert!(!set.wait().unwrap().is_readable());
}

#[test]
fn a_member_that_left_does_not_wake_the_set() {
    let set = Arc::new(WaitSet::new(WaitKind::Fd).unwrap());
    let cq = cq(&set);
    cq.write(&COMPLETION);
    assert_eq!(set.try_wait(), Err(Errno::EAGAIN));
    set.leave(&**cq);
    assert_eq!(set.try_wait(), Ok(()));
    assert_eq!(set.wait_for_news(0), Err(Errno::ETIMEDOUT));
}

#[test]
fn a_wait_ends_in_time_though_a_transport_lets_no_thread_sleep() {
    let set = Arc::new(WaitSet::new(WaitKind::Fd).unwrap());
    let cq = cq(&set);
    let transport = TestTransport::new();
    transport.is_busy.store(true, Ordering::Relaxed);
    cq.add_source(transport).unwrap();
    assert_eq!(set.wait_for_news(1), Err(Errno::ETIMEDOUT));
    cq.shut();
}

#[test]
fn a_set_needs_a_way_to_wait() {
    assert_eq!(WaitSet::new(WaitKind::None).err(), Some(Errno::EINVAL));
    assert_eq!(WaitSet::new(WaitKind::Set).err(), Some(Errno::EINVAL));
    assert_eq!(
        Attachment::open(WaitKind::Set, None).err(),
        Some(Errno::EINVAL)
    );
}
