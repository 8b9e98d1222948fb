//! Bytes of devices that are read before they are needed, so that nothing waits for a device while it
//! holds a lock.
//!
//! Who sends bytes of a loan asks for them by their position in what it sends. If the device has not
//! copied them yet, it asks again later. While they are used, the next ones are on the way.

use super::{Iov, STAGED};
use crate::device_memory::{Fetching, Kind};
use crate::errno::Result;

/// The bytes on their way of one stream. Positions are never used again for other bytes, unless
/// [`Ahead::forget`] is called in between.
#[derive(Default)]
pub struct Ahead {
    /// In order, of which the first may be in use.
    fetches: Vec<Fetch>,
}

/// One of them.
struct Fetch {
    position: u64,
    len: usize,
    copy: Box<dyn Fetching>,
    is_done: bool,
}

impl Fetch {
    fn end(&self) -> u64 {
        self.position + self.len as u64
    }
}

/// What [`Ahead::read`] has done.
pub(super) enum Read {
    /// It has so many bytes, at least one.
    Bytes(usize),
    /// The device has not copied them yet.
    Later,
}

impl Ahead {
    /// Drops what was read, since other bytes follow.
    pub fn forget(&mut self) {
        self.fetches.clear();
    }

    /// Whether bytes were asked for that were not used yet.
    pub fn is_waiting(&self) -> bool {
        !self.fetches.is_empty()
    }

    /// Copies bytes from the begin of the first segment of `memory`, which is at `position`, to `bytes`.
    ///
    /// # Errors
    /// `-FI_EIO` if the device does not copy.
    pub(super) fn read(
        &mut self,
        memory: &Iov<'_>,
        position: u64,
        bytes: &mut [u8],
    ) -> Result<Read> {
        let Some((kind, piece)) = memory.segments().next() else {
            return Ok(Read::Bytes(0));
        };
        let len = piece.iov_len;
        if kind.is_host() {
            return Ok(Read::Bytes(memory.slice(0, len).read_at(0, bytes)));
        }
        self.fetches.retain(|fetch| fetch.end() > position);
        let is_here = self
            .fetches
            .first()
            .is_some_and(|fetch| fetch.position <= position);
        if !is_here {
            self.fetches.clear();
            if !self.begin(kind, memory, position, 0)? {
                let now = len.min(bytes.len());
                let room = bytes.get_mut(..now).unwrap_or_default();
                let part = memory.slice(0, now);
                part.read_at(0, room);
                part.take_failure()?;
                return Ok(Read::Bytes(now));
            }
        }
        let Some(fetch) = self.fetches.first_mut() else {
            return Ok(Read::Later);
        };
        if !fetch.is_done {
            match fetch.copy.poll() {
                None => return Ok(Read::Later),
                Some(Ok(())) => fetch.is_done = true,
                Some(Err(error)) => {
                    self.fetches.clear();
                    return Err(error);
                }
            }
        }
        let at = (position - fetch.position) as usize;
        let count = bytes.len().min(fetch.len - at).min(len);
        fetch
            .copy
            .copy_out(at, bytes.get_mut(..count).unwrap_or_default());
        let (end, ahead) = (fetch.end(), fetch.len - at);
        if self.fetches.len() == 1 && ahead < len {
            self.begin(kind, memory, end, ahead)?;
        }
        Ok(Read::Bytes(count))
    }

    /// Begins to read from an offset of the first segment on; `false` if the device has no buffer for
    /// that.
    fn begin(&mut self, kind: Kind, memory: &Iov<'_>, position: u64, at: usize) -> Result<bool> {
        let part = memory.slice(at, STAGED);
        let Some(piece) = part.pieces().first() else {
            return Ok(false);
        };
        // SAFETY: the segment is memory of that kind, lent to an operation that ends only when its
        // bytes were sent; a device that still reads for one that was given up only reads.
        let begun = unsafe { kind.begin_read(piece.iov_base.cast(), piece.iov_len)? };
        let Some((len, copy)) = begun else {
            return Ok(false);
        };
        self.fetches.push(Fetch {
            position,
            len,
            copy,
            is_done: false,
        });
        Ok(true)
    }
}

/// What [`Iov::read_ahead`] has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fetched {
    /// All bytes are there.
    All,
    /// The device has not copied all of them yet.
    Later,
}

impl Iov<'_> {
    /// Copies the first bytes, which are at `position` of a stream, to all of `bytes`; those behind
    /// them are on the way afterwards.
    ///
    /// # Errors
    /// `-FI_EIO` if a device does not copy.
    #[cold]
    pub fn read_part_ahead(
        &self,
        position: u64,
        bytes: &mut [u8],
        ahead: &mut Ahead,
    ) -> Result<Fetched> {
        let (mut done, len) = (0, bytes.len().min(self.len()));
        while done < len {
            let room = bytes.get_mut(done..len).unwrap_or_default();
            let rest = self.slice(done, usize::MAX);
            match ahead.read(&rest, position + done as u64, room)? {
                Read::Bytes(count) => done += count,
                Read::Later => return Ok(Fetched::Later),
            }
        }
        Ok(Fetched::All)
    }

    /// Copies the bytes from `at` on, which are at `position` of a stream, to all of `bytes`, of which
    /// those that have come are written.
    ///
    /// # Errors
    /// `-FI_EIO` if a device does not copy.
    #[cold]
    pub fn read_ahead(&self, at: usize, bytes: &Iov<'_>, ahead: &mut Ahead) -> Result<Fetched> {
        let mut stage = vec![0; bytes.len().min(STAGED)];
        let mut done = 0;
        while done < bytes.len() {
            let from = at + done;
            let rest = self.slice(from, bytes.len() - done);
            if rest.is_empty() {
                break;
            }
            match ahead.read(&rest, from as u64, &mut stage)? {
                Read::Bytes(count) => {
                    bytes.write_at(done, stage.get(..count).unwrap_or_default());
                    done += count;
                }
                Read::Later => return Ok(Fetched::Later),
            }
        }
        ahead.forget();
        Ok(Fetched::All)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::buffer::AppIov;
    use crate::device_memory::{Copier, Underway};
    use crate::errno::Errno;

    /// A device with buffers of three bytes, which has made as many copies as it was told to.
    #[derive(Default)]
    struct Slow {
        begun: AtomicUsize,
        made: Arc<AtomicUsize>,
    }

    struct Copy {
        number: usize,
        made: Arc<AtomicUsize>,
        bytes: Vec<u8>,
    }

    impl Underway for Copy {
        fn poll(&mut self) -> Option<Result> {
            match self.made.load(Ordering::Relaxed) {
                usize::MAX => Some(Err(Errno::EIO)),
                made => (made > self.number).then_some(Ok(())),
            }
        }
    }

    impl Fetching for Copy {
        fn copy_out(&self, at: usize, to: &mut [u8]) {
            to.copy_from_slice(&self.bytes[at..at + to.len()]);
        }
    }

    impl Copier for Slow {
        unsafe fn read(&self, _: *const u8, _: *mut u8, _: usize) -> Result {
            Err(Errno::EIO)
        }

        unsafe fn write(&self, _: *const u8, _: *mut u8, _: usize) -> Result {
            Err(Errno::EIO)
        }

        unsafe fn copy(&self, _: *const u8, _: *mut u8, _: usize) -> Result {
            Err(Errno::EIO)
        }

        unsafe fn begin_read(
            &self,
            from: *const u8,
            len: usize,
        ) -> Result<Option<(usize, Box<dyn Fetching>)>> {
            let mut bytes = vec![0; len.min(3)];
            // SAFETY: the caller guarantees that the range is valid.
            unsafe { std::ptr::copy(from, bytes.as_mut_ptr(), bytes.len()) };
            let (len, made) = (bytes.len(), self.made.clone());
            let number = self.begun.fetch_add(1, Ordering::Relaxed);
            Ok(Some((
                len,
                Box::new(Copy {
                    number,
                    made,
                    bytes,
                }),
            )))
        }

        fn family(&self) -> Option<u32> {
            None
        }

        fn identity(&self) -> (u32, u64) {
            (9, 0)
        }
    }

    #[test]
    fn bytes_of_a_device_are_used_when_they_have_come_and_none_twice() {
        let slow = Arc::new(Slow::default());
        let made = slow.made.clone();
        let kind = Kind::new(slow.clone()).unwrap();
        let mut bytes = *b"abcdefgh";
        // SAFETY: the test keeps the bytes, which are those of the device.
        let memory = unsafe { AppIov::from_raw(bytes.as_mut_ptr(), 8).of_kind(kind) };
        let (mut ahead, mut place) = (Ahead::default(), [0; 8]);
        // SAFETY: the test keeps the place, and reads it between the calls.
        let to = unsafe { AppIov::from_raw(place.as_mut_ptr(), 8) };
        assert_eq!(memory.read_ahead(0, &to, &mut ahead), Ok(Fetched::Later));
        assert!(ahead.is_waiting());
        made.store(1, Ordering::Relaxed);
        assert_eq!(memory.read_ahead(0, &to, &mut ahead), Ok(Fetched::Later));
        made.store(100, Ordering::Relaxed);
        assert_eq!(memory.read_ahead(0, &to, &mut ahead), Ok(Fetched::All));
        assert!(!ahead.is_waiting());
        assert_eq!(&place, b"abcdefgh");
        // What follows at the same positions is read anew.
        bytes.reverse();
        assert_eq!(memory.read_ahead(0, &to, &mut ahead), Ok(Fetched::All));
        assert_eq!(&place, b"hgfedcba");
        // A part of what was read, and then the rest of it.
        let mut some = [0; 2];
        for (position, expected) in [(0, b"hg"), (2, b"f\0"), (3, b"ed")] {
            some.fill(0);
            let part = memory.slice(position, 8);
            let read = ahead.read(&part, position as u64, &mut some);
            assert!(matches!(read, Ok(Read::Bytes(1..))));
            assert_eq!(&some, expected);
        }
        made.store(usize::MAX, Ordering::Relaxed);
        ahead.forget();
        let failed = memory.read_ahead(0, &to, &mut ahead);
        assert_eq!(failed, Err(Errno::EIO));
        kind.end();
    }
}
