//! Copies to memory of devices that are under way, so that nothing waits for a device which is slow.
//!
//! A loan whose owner can wait ([`Iov::defer`](crate::buffer::Iov::defer)) is written behind: its bytes are in a
//! buffer of the copier's when the function that has them returns. Who reports the operation asks
//! whether all copies of its loan have been made ([`Iov::is_settled`](crate::buffer::Iov::is_settled)), and
//! otherwise keeps it until they have.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::{Kind, note_failure};
use crate::errno::Result;
use crate::warn_again;

/// A copy that a device makes.
pub trait Underway: Send {
    /// Returns the outcome once the copy has been made or has failed for good.
    fn poll(&mut self) -> Option<Result>;
}

/// A copy of a device's memory to a buffer of its copier.
pub trait Fetching: Underway + Sync {
    /// Copies bytes from an offset of the buffer on, once the copy has been made.
    fn copy_out(&self, at: usize, to: &mut [u8]);
}

struct Copying {
    address: usize,
    len: usize,
    copy: Box<dyn Underway>,
}

impl Copying {
    /// Asks for the outcome, and notes a failure.
    fn is_under_way(&mut self) -> bool {
        match self.copy.poll() {
            None => true,
            Some(Ok(())) => false,
            Some(Err(error)) => {
                failed(self.address, self.len, error);
                false
            }
        }
    }
}

/// The copies under way. Each has one of the copiers' buffers, of which there are few.
static COPIES: Mutex<Vec<Copying>> = Mutex::new(Vec::new());

/// Their number, which is asked without the lock.
static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);

/// Keeps those of the copies for which this returns true.
fn retain(stays: impl FnMut(&mut Copying) -> bool) {
    let mut copies = COPIES.lock();
    copies.retain_mut(stays);
    UNDER_WAY.store(copies.len(), Ordering::Relaxed);
}

/// Operations that are kept until their copies have been made.
static WAITING: AtomicUsize = AtomicUsize::new(0);

/// Whether operations are kept for copies, in any lane of the process. Cheap.
#[inline(always)]
pub fn anybody_waits() -> bool {
    WAITING.load(Ordering::Relaxed) != 0
}

/// An operation that is kept for its copies, while this value exists.
pub struct Waits(());

impl Waits {
    /// Counts an operation.
    #[expect(clippy::new_without_default, reason = "it counts")]
    pub fn new() -> Self {
        WAITING.fetch_add(1, Ordering::Relaxed);
        Waits(())
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        WAITING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Begins to copy the host's bytes to a device's memory; returns how many there was a buffer for, from
/// the first one on. A failure is noted for the rest.
///
/// # Safety
/// `from` is valid for `len` bytes during the call, and `to` until the copies have been made
/// ([`is_settled`]), and of that kind.
pub(crate) unsafe fn write_behind(from: *const u8, kind: Kind, to: *mut u8, len: usize) -> usize {
    let Ok(Some(copier)) = kind.copier() else {
        return 0;
    };
    let (mut begun, mut has_collected) = (0, false);
    while begun < len {
        let (from, to) = (from.wrapping_add(begun), to.wrapping_add(begun));
        // SAFETY: the caller guarantees that both ranges are valid, as long as is asked.
        match unsafe { copier.begin_write(from, to, len - begun) } {
            Ok(Some((count, copy))) if count != 0 => {
                let address = to.addr();
                let len = count;
                let mut copies = COPIES.lock();
                copies.push(Copying { address, len, copy });
                UNDER_WAY.store(copies.len(), Ordering::Relaxed);
                begun += count;
            }
            // Copies that have been made still have their buffers, if nobody has asked for them.
            Ok(_) if !has_collected => {
                has_collected = true;
                collect();
            }
            Ok(_) => break,
            Err(error) => {
                failed(to.addr(), len - begun, error);
                return len;
            }
        }
    }
    begun
}

fn failed(address: usize, len: usize, error: crate::errno::Errno) {
    warn_again!(target: super::LOG, "copying {len} bytes to a device at {address:#x} failed: {error}");
    note_failure(address, len);
}

/// Whether no copy to this memory is under way any more; failures have been noted then.
pub(crate) fn is_settled(address: usize, len: usize) -> bool {
    let mut settled = true;
    retain(|copying| {
        let (at, count) = (copying.address, copying.len);
        let is_of_it = at.saturating_add(count) > address && address.saturating_add(len) > at;
        let stays = !is_of_it || copying.is_under_way();
        settled &= !(is_of_it && stays);
        stays
    });
    settled
}

/// Takes back the buffers of all copies that have been made.
#[cold]
fn collect() {
    retain(Copying::is_under_way);
}

/// Copies under way with which who reads from a network waits before it reads more: fewer than the small
/// buffers of a copier, so that there are some for what it has read already.
const MOST: usize = 96;

/// Whether devices have fewer copies to make than [`MOST`]. Cheap.
#[inline(always)]
pub fn keeps_up() -> bool {
    let has_few = || UNDER_WAY.load(Ordering::Relaxed) < MOST;
    has_few() || {
        collect();
        has_few()
    }
}
