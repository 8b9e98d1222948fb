use std::ptr::null_mut;
use std::sync::Mutex as StdMutex;

use super::*;
use prov_objects::cntr::CntrEvents;
use prov_objects::wait::Attachment;

/// Notes what happens to it; begins it when there is room.
struct Noted {
    number: usize,
    log: Log,
    /// Attempts that find no room.
    attempts: StdMutex<usize>,
    outcome: Result,
}

type Log = Arc<StdMutex<Vec<String>>>;

impl Operation for Noted {
    fn begin(&self) -> Result {
        let mut attempts = self.attempts.lock().unwrap();
        if *attempts != 0 {
            *attempts -= 1;
            return Err(Errno::EAGAIN);
        }
        self.outcome?;
        self.log.lock().unwrap().push(self.number.to_string());
        Ok(())
    }

    fn fail(&self, error: Errno) {
        let text = format!("{}: {error:?}", self.number);
        self.log.lock().unwrap().push(text);
    }
}

struct Side {
    triggers: Arc<Triggers>,
    cntr: Handle<Cntr>,
    log: Log,
}

/// As `fi_close` of the counter and of the domain.
impl Drop for Side {
    fn drop(&mut self) {
        self.cntr.shut();
        self.triggers.end();
    }
}

impl Side {
    fn new() -> Self {
        Self::with(false)
    }

    fn with(has_thread: bool) -> Self {
        let cntr = Cntr::new(CntrEvents::Completions, Attachment::None, None);
        Side {
            triggers: Triggers::new(has_thread),
            cntr: Handle::new(cntr, null_mut(), Vec::new()),
            log: Log::default(),
        }
    }

    fn name(&self, number: usize) -> WorkName {
        WorkName {
            is_deferred: number < 100,
            address: number,
            endpoint: number % 2 + 1,
        }
    }

    fn queue_with(&self, number: usize, threshold: u64, attempts: usize, outcome: Result) {
        let operation = Noted {
            number,
            log: self.log.clone(),
            attempts: StdMutex::new(attempts),
            outcome,
        };
        let (name, operation) = (self.name(number), Box::new(operation));
        let reached = Reached::ByEither;
        self.triggers.watch(&self.cntr, None).unwrap();
        self.triggers
            .queue(&self.cntr, threshold, reached, name, operation)
            .unwrap();
    }

    fn queue(&self, number: usize, threshold: u64) {
        self.queue_with(number, threshold, 0, Ok(()));
    }

    fn log(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }
}

#[test]
fn the_application_begins_what_its_own_update_makes_due_in_order() {
    let side = Side::new();
    for (number, threshold) in [(1, 3), (2, 1), (3, 3), (4, 2), (5, 9)] {
        side.queue(number, threshold);
    }
    assert!(side.log().is_empty());
    side.cntr.add(3);
    assert_eq!(side.log(), ["2", "4", "1", "3"]);
    side.cntr.set(0);
    side.cntr.set(9);
    assert_eq!(side.log(), ["2", "4", "1", "3", "5"]);
    side.queue(6, 9);
    assert_eq!(side.log().last().unwrap(), "6");
}

/// A provider counts under its locks.
#[test]
fn work_that_a_provider_makes_due_is_begun_by_the_next_read() {
    let side = Side::new();
    side.queue(1, 1);
    side.cntr.count(0);
    assert!(side.log().is_empty());
    assert!(side.triggers.is_busy());
    assert_eq!(side.cntr.read(), 1);
    assert_eq!(side.log(), ["1"]);
    assert!(!side.triggers.is_busy());
}

#[test]
fn work_without_space_is_retried_before_later_work() {
    let side = Side::new();
    side.queue_with(1, 1, 2, Ok(()));
    side.queue(2, 1);
    side.cntr.add(1);
    side.cntr.read();
    assert!(side.log().is_empty());
    assert!(!side.triggers.prepare_wait());
    assert_eq!(side.log(), ["1", "2"]);
    assert!(side.triggers.prepare_wait());
}

#[test]
fn work_that_cannot_be_begun_is_reported_and_the_rest_continues() {
    let side = Side::new();
    side.queue_with(1, 1, 0, Err(Errno::EHOSTUNREACH));
    side.queue(2, 1);
    side.cntr.add_error(1);
    assert_eq!(side.log(), ["1: FI_EHOSTUNREACH", "2"]);
}

#[test]
fn cancelled_work_does_not_begin() {
    let side = Side::new();
    for number in [1, 2, 3, 4] {
        side.queue(number, number as u64);
    }
    assert_eq!(side.triggers.cancel(None, |name| name.address == 2), 1);
    assert_eq!(side.triggers.cancel(None, |name| name.address == 2), 0);
    // It is due, and has not begun.
    side.cntr.count(0);
    assert_eq!(
        side.triggers
            .cancel(Some(&side.cntr), |name| name.address == 1),
        1
    );
    side.cntr.add(3);
    assert_eq!(side.log(), ["3", "4"]);
}

#[test]
fn the_work_of_an_endpoint_goes_with_it() {
    let side = Side::new();
    for number in [1, 2, 3] {
        side.queue(number, 1);
    }
    assert_eq!(side.triggers.cancel(None, |name| name.endpoint == 2), 2);
    side.cntr.add(1);
    assert_eq!(side.log(), ["2"]);
}

/// The context of a triggered operation has to come back; deferred work is cancelled without a word.
#[test]
fn a_counter_that_closes_ends_the_work_that_waits_for_it() {
    let side = Side::new();
    side.queue(1, 1);
    side.queue(101, 1);
    side.cntr.shut();
    assert_eq!(side.log(), ["101: FI_ECANCELED"]);
    side.cntr.add(1);
    assert_eq!(side.log(), ["101: FI_ECANCELED"]);
}

#[test]
fn a_triggered_operation_that_is_taken_back_is_reported() {
    let side = Side::new();
    side.queue(101, 1);
    let meant = |name: WorkName| !name.is_deferred && name.address == 101;
    assert_eq!(side.triggers.cancel_operation(meant), 1);
    assert_eq!(side.log(), ["101: FI_ECANCELED"]);
    assert_eq!(side.triggers.cancel_operation(meant), 0);
}

#[test]
fn counters_are_changed_by_work_and_that_triggers_more() {
    let side = Side::new();
    let count = |value, is_new| {
        Box::new(Count {
            cntr: side.cntr.clone(),
            value,
            is_new,
        })
    };
    let queue = |number, threshold, operation| {
        let name = side.name(number);
        let reached = Reached::ByEither;
        side.triggers
            .queue(&side.cntr, threshold, reached, name, operation)
            .unwrap();
    };
    queue(1, 1, count(4, false));
    queue(2, 5, count(20, true));
    side.queue(3, 20);
    side.cntr.add(1);
    assert_eq!(side.cntr.read(), 20);
    assert_eq!(side.log(), ["3"]);
}

#[test]
fn a_thread_begins_the_due_work_and_retries() {
    let side = Side::with(true);
    side.queue_with(1, 1, 3, Ok(()));
    side.queue(2, 2);
    side.cntr.count(0);
    side.cntr.count(0);
    while side.log().len() != 2 {
        std::thread::yield_now();
    }
    assert_eq!(side.log(), ["1", "2"]);
}

/// A thread that sleeps at a queue wakes for what another thread makes due.
#[test]
fn the_descriptor_reports_due_work() {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use std::os::fd::BorrowedFd;

    let side = Side::new();
    let fd = side.triggers.wait_fd().unwrap();
    // SAFETY: the descriptor is open as long as the queue of deferred work, which outlives the
    // borrow.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    let is_readable = || {
        let mut fds = [PollFd::new(&fd, PollFlags::IN)];
        let at_once = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        poll(&mut fds, Some(&at_once)).unwrap() != 0
    };
    side.queue(1, 1);
    assert!(!is_readable());
    side.cntr.count(0);
    assert!(is_readable());
    side.triggers.progress();
    assert!(!is_readable());
    assert_eq!(side.log(), ["1"]);
}
