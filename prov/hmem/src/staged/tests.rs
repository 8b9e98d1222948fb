//! A device that does what a test has it do.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

/// Copies that were begun, that are under way, and that were ever at the same time.
#[derive(Default)]
struct Counts {
    begun: AtomicUsize,
    under_way: AtomicUsize,
    most: AtomicUsize,
    pinned: AtomicUsize,
}

struct Fake {
    counts: Arc<Counts>,
    /// The copy that fails, counted from 0: when it is begun, or later.
    fails: Option<(usize, bool)>,
}

/// A copy that is made when it is asked the third time.
struct Slow {
    counts: Arc<Counts>,
    job: (*const u8, *mut u8, usize),
    asked: usize,
    fails: bool,
}

// SAFETY: the tests have one thread.
unsafe impl Send for Slow {}
// SAFETY: as above.
unsafe impl Sync for Slow {}

impl Outcome for Slow {
    fn outcome(&mut self) -> Option<Result> {
        self.asked += 1;
        if self.asked < 3 {
            return None;
        }
        self.counts.under_way.fetch_sub(1, Ordering::Relaxed);
        if self.fails {
            return Some(Err(Errno::EIO));
        }
        let (from, to, len) = self.job;
        // SAFETY: both ranges are valid until the copy has been made.
        unsafe { std::ptr::copy_nonoverlapping(from, to, len) };
        Some(Ok(()))
    }
}

impl Engine for Fake {
    const INTERFACE: u32 = 77;
    type Begun = Slow;

    fn pin(&self) -> Result<Pinned> {
        self.counts.pinned.fetch_add(1, Ordering::Relaxed);
        let bytes = vec![0u8; Pinned::LEN].leak().as_mut_ptr();
        // SAFETY: the memory was allocated for this alone.
        Ok(unsafe { Pinned::new(bytes, bytes) })
    }

    unsafe fn copy(
        &self,
        _direction: Direction,
        from: *const u8,
        to: *mut u8,
        len: usize,
    ) -> Result<Slow> {
        let number = self.counts.begun.fetch_add(1, Ordering::Relaxed);
        if self.fails == Some((number, false)) {
            return Err(Errno::EIO);
        }
        let under_way = self.counts.under_way.fetch_add(1, Ordering::Relaxed) + 1;
        self.counts.most.fetch_max(under_way, Ordering::Relaxed);
        Ok(Slow {
            counts: self.counts.clone(),
            job: (from, to, len),
            asked: 0,
            fails: self.fails == Some((number, true)),
        })
    }
}

fn device(fails: Option<(usize, bool)>) -> (Staged<Fake>, Arc<Counts>) {
    let counts = Arc::new(Counts::default());
    let engine = Fake {
        counts: counts.clone(),
        fails,
    };
    (Staged::new(engine, 0), counts)
}

/// Three parts, the last of which is short.
const LONG: usize = 2 * Pinned::LEN + 5;

fn bytes() -> Vec<u8> {
    (0..LONG).map(|at| (at % 251) as u8).collect()
}

#[test]
fn a_long_copy_has_two_parts_under_way_and_two_buffers() {
    let (device, counts) = device(None);
    let (from, mut there, mut back) = (bytes(), vec![0; LONG], vec![0; LONG]);
    // SAFETY: all have the length.
    unsafe {
        assert!(
            device
                .write(from.as_ptr(), there.as_mut_ptr(), LONG)
                .is_ok()
        );
        assert!(device.read(there.as_ptr(), back.as_mut_ptr(), LONG).is_ok());
    }
    assert!(from == back);
    let count = |count: &AtomicUsize| count.load(Ordering::Relaxed);
    assert_eq!((count(&counts.begun), count(&counts.under_way)), (6, 0));
    assert_eq!((count(&counts.most), count(&counts.pinned)), (2, 2));
}

#[test]
fn nothing_is_under_way_after_a_copy_that_has_failed() {
    for fails in [(0, false), (1, false), (1, true), (2, true)] {
        let (device, counts) = device(Some(fails));
        let (from, mut to) = (bytes(), vec![0; LONG]);
        // SAFETY: both have the length.
        let copied = unsafe { device.write(from.as_ptr(), to.as_mut_ptr(), LONG) };
        assert_eq!(copied, Err(Errno::EIO));
        assert_eq!(counts.under_way.load(Ordering::Relaxed), 0);
    }
}

#[test]
fn a_buffer_whose_copy_was_not_begun_is_used_again() {
    let (device, counts) = device(Some((0, false)));
    let (from, mut to) = (bytes(), vec![0; 8]);
    // SAFETY: both are that long.
    let copied = [(); 2].map(|()| unsafe { device.write(from.as_ptr(), to.as_mut_ptr(), 8) });
    assert_eq!(copied, [Err(Errno::EIO), Ok(())]);
    assert_eq!(counts.pinned.load(Ordering::Relaxed), 1);
}
