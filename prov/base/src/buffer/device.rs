//! Loans that have memory of a device among their segments. Their bytes go through the device's
//! copier ([`crate::device_memory`]); all functions of this file are called from the slow path of the
//! one for host memory.

use libc::iovec;

use super::{AppIov, Iov, Shape};
use crate::device_memory::{self, Kind, Place};
use crate::errno::{Errno, Result};

/// Bytes of a buffer through which memory of a device passes on its way to or from a socket: what
/// the kernel takes from a socket's buffer in one go, and few enough that the next ones are copied
/// while these are on the wire.
pub const STAGED: usize = 256 << 10;

/// Bytes that are written at a time where a device's memory is filled.
const FILLED: usize = 64 << 10;

impl<'m> Iov<'m> {
    /// Whether a segment is memory of a device.
    #[inline(always)]
    pub fn has_device(&self) -> bool {
        self.shape.has_device()
    }

    /// Returns the kind of a segment, by its position in [`Iov::pieces`].
    pub fn kind(&self, position: usize) -> Kind {
        match position < self.shape.count() {
            true => self.shape.kind(position),
            false => Kind::HOST,
        }
    }

    /// Declares whose memory a segment is, which is the host's before.
    ///
    /// # Safety
    /// The memory is of that kind.
    pub unsafe fn set_kind(&mut self, position: usize, kind: Kind) {
        if position < self.shape.count() {
            self.shape.set_kind(position, kind);
        }
    }

    /// Declares whose memory all segments are.
    ///
    /// # Safety
    /// As for [`Iov::set_kind`].
    pub unsafe fn of_kind(mut self, kind: Kind) -> Self {
        for position in 0..self.shape.count() {
            self.shape.set_kind(position, kind);
        }
        self
    }

    /// Lets bytes for a device's memory be written behind: who reports the operation asks whether they
    /// are there ([`Iov::is_settled`]), or waits for them ([`Iov::take_failure`]).
    pub fn defer(&mut self) {
        if self.has_device() {
            self.shape.0 |= Shape::DEFERRED;
        }
    }

    /// Whether nothing that was written behind is under way any more.
    #[inline(always)]
    pub fn is_settled(&self) -> bool {
        !self.shape.is_deferred() || self.is_device_settled()
    }

    #[cold]
    fn is_device_settled(&self) -> bool {
        let mut devices = self.segments().filter(|(kind, _)| !kind.is_host());
        devices.all(|(_, piece)| device_memory::is_settled(piece.iov_base.addr(), piece.iov_len))
    }

    /// Returns the segments with their kinds.
    pub(super) fn segments(&self) -> impl Iterator<Item = (Kind, &iovec)> {
        let pieces = self.pieces().iter().enumerate();
        pieces.map(|(position, piece)| (self.shape.kind(position), piece))
    }

    /// Returns the segments that are memory of the host.
    pub(super) fn host_pieces(&self) -> impl Iterator<Item = &iovec> {
        let segments = self.segments();
        segments.filter_map(|(kind, piece)| kind.is_host().then_some(piece))
    }

    /// Returns `-FI_EIO` if a copy from or to a device's memory in this loan has failed since the
    /// last call for it; nothing can fail with memory of the host. Waits for what was written behind.
    ///
    /// # Errors
    /// As said.
    #[inline(always)]
    pub fn take_failure(&self) -> Result {
        match self.has_device() {
            true => self.device_failure(),
            false => Ok(()),
        }
    }

    #[cold]
    fn device_failure(&self) -> Result {
        while !self.is_settled() {
            std::thread::yield_now();
        }
        let mut outcome = Ok(());
        for (_, piece) in self.segments().filter(|(kind, _)| !kind.is_host()) {
            // Each is asked, so that none is left behind.
            let failed = device_memory::take_failure(piece.iov_base.addr(), piece.iov_len);
            outcome = outcome.and(failed);
        }
        outcome
    }

    #[cold]
    pub(super) fn write_device(&self, offset: usize, bytes: &[u8]) -> usize {
        // SAFETY: `bytes` is borrowed until the copy is made, which only reads it.
        let source = unsafe { AppIov::from_raw(bytes.as_ptr().cast_mut(), bytes.len()) };
        source.copy_with_device(&self.slice(offset, bytes.len()))
    }

    #[cold]
    pub(super) fn read_device(&self, offset: usize, bytes: &mut [u8]) -> usize {
        let part = self.slice(offset, bytes.len());
        // SAFETY: `bytes` is borrowed mutably until the copy is made.
        let target = unsafe { AppIov::from_raw(bytes.as_mut_ptr(), bytes.len()) };
        part.copy_with_device(&target)
    }

    #[cold]
    pub(super) fn append_device_to(&self, bytes: &mut Vec<u8>) {
        let at = bytes.len();
        bytes.resize(at + self.len, 0);
        if let Some(room) = bytes.get_mut(at..) {
            self.read_device(0, room);
        }
    }

    #[cold]
    pub(super) fn fill_device(&self, byte: u8) {
        let bytes = vec![byte; self.len.min(FILLED)];
        let mut at = 0;
        while at < self.len {
            at += self.write_device(at, &bytes);
        }
    }

    /// [`Iov::copy_to`]; returns how many bytes there were to copy, also if the copy has failed: the
    /// failure is noted, and bytes of the host that were to be overwritten are zeros.
    #[cold]
    pub(super) fn copy_with_device(&self, target: &Iov<'_>) -> usize {
        let mut done = 0;
        for (kind, piece) in self.segments() {
            let room = target.slice(done, piece.iov_len);
            let mut address = piece.iov_base.cast::<u8>();
            for (its_kind, place) in room.segments() {
                let behind =
                    match kind.is_host() && !its_kind.is_host() && target.shape.is_deferred() {
                        // SAFETY: the piece is valid, and the place until its operation is reported,
                        // which waits for the copies.
                        true => unsafe {
                            let to = place.iov_base.cast();
                            device_memory::write_behind(address, its_kind, to, place.iov_len)
                        },
                        false => 0,
                    };
                let left = place.iov_len - behind;
                if left == 0 {
                    address = address.wrapping_add(place.iov_len);
                    continue;
                }
                let from = Place {
                    kind,
                    address: address.wrapping_add(behind),
                };
                let to = Place {
                    kind: its_kind,
                    address: place.iov_base.cast::<u8>().wrapping_add(behind),
                };
                // SAFETY: both describe memory of operations in progress, of the kinds that their
                // owners have declared, and the place is at most as long as the rest of the piece.
                unsafe {
                    let copied = device_memory::copy(from, to, left);
                    if copied.is_err() && its_kind.is_host() {
                        to.address.write_bytes(0, left);
                    }
                }
                address = address.wrapping_add(place.iov_len);
            }
            done += room.len();
        }
        done
    }
}

/// A buffer for bytes of a device on their way.
pub(super) fn stage(len: usize) -> Result<Vec<u8>> {
    let mut stage = Vec::new();
    let len = len.min(STAGED);
    stage.try_reserve_exact(len).map_err(|_| Errno::ENOMEM)?;
    stage.resize(len, 0);
    Ok(stage)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use crate::device_memory::{Copier, Kind, Underway};

    use super::*;

    /// A device whose memory is that of the host, at addresses that differ by a bit, so that an
    /// access that does not pass through it is a fault.
    struct Twisted {
        fails: bool,
    }

    /// An address with this bit set is not one of a process.
    const TWIST: usize = 1 << 62;

    fn real(address: *const u8) -> *mut u8 {
        address.map_addr(|address| address & !TWIST).cast_mut()
    }

    impl Copier for Twisted {
        unsafe fn read(&self, from: *const u8, to: *mut u8, len: usize) -> Result {
            if self.fails {
                return Err(Errno::EIO);
            }
            assert_ne!(from.addr() & TWIST, 0);
            // SAFETY: the caller guarantees that both ranges are valid.
            unsafe { std::ptr::copy(real(from), to, len) };
            Ok(())
        }

        unsafe fn write(&self, from: *const u8, to: *mut u8, len: usize) -> Result {
            if self.fails {
                return Err(Errno::EIO);
            }
            assert_ne!(to.addr() & TWIST, 0);
            // SAFETY: the caller guarantees that both ranges are valid.
            unsafe { std::ptr::copy(from, real(to), len) };
            Ok(())
        }

        unsafe fn copy(&self, from: *const u8, to: *mut u8, len: usize) -> Result {
            // SAFETY: the caller guarantees that both ranges are valid.
            unsafe { self.write(real(from), to, len) }
        }

        fn family(&self) -> Option<u32> {
            (!self.fails).then_some(7)
        }

        fn identity(&self) -> (u32, u64) {
            (7, 0)
        }
    }

    fn device(fails: bool) -> Kind {
        Kind::new(Arc::new(Twisted { fails })).unwrap()
    }

    /// The parts as segments, every other one in the memory of the device.
    fn lend(parts: &mut [&mut [u8]], kind: Kind) -> AppIov {
        let pieces: Vec<iovec> = parts
            .iter_mut()
            .enumerate()
            .map(|(at, part)| iovec {
                iov_base: part
                    .as_mut_ptr()
                    .map_addr(|address| address | if at % 2 == 0 { TWIST } else { 0 })
                    .cast(),
                iov_len: part.len(),
            })
            .collect();
        // SAFETY: the tests keep the parts, and every other one is the device's.
        unsafe {
            let mut memory = AppIov::from_iov(pieces.as_ptr(), pieces.len()).unwrap();
            (0..parts.len())
                .step_by(2)
                .for_each(|at| memory.set_kind(at, kind));
            memory
        }
    }

    #[test]
    fn bytes_of_a_device_go_through_its_copier_alone_and_of_the_host_as_before() {
        let kind = device(false);
        let (mut one, mut two, mut three) = (*b"abcd", *b"efg", *b"hijkl");
        let memory = lend(&mut [&mut one, &mut two, &mut three], kind);
        assert!(memory.has_device() && !memory.slice(4, 3).has_device());
        assert_eq!(memory.slice(6, 4).kind(1), kind);
        let mut all = Vec::new();
        memory.append_to(&mut all);
        assert_eq!(all, b"abcdefghijkl");
        let mut some = [0; 6];
        assert_eq!(memory.read_at(3, &mut some), 6);
        assert_eq!(&some, b"defghi");
        assert_eq!(memory.read_once(&mut some), 6);
        assert_eq!(&some, b"abcdef");
        assert_eq!(memory.write_at(2, b"CDEFGH"), 6);
        memory.slice(9, 2).fill(b'-');
        let (mut near, mut far) = ([0; 7], [0; 9]);
        let place = lend(&mut [&mut near, &mut far], kind);
        assert_eq!(memory.copy_to(&place), 12);
        assert_eq!((&near, &far[..5]), (b"abCDEFG", &b"Hi--l"[..]));
        assert!(place.take_failure().is_ok());
        let mut memory = memory;
        let (front, back) = (memory.split_to(4), memory.into_slice(0, 5));
        let both = front.followed_by(back).unwrap();
        assert_eq!([0, 1, 2].map(|at| both.kind(at)), [kind, Kind::HOST, kind]);
        kind.end();
    }

    /// A device that copies when it is told to.
    #[derive(Default)]
    struct Slow(Arc<AtomicBool>);

    struct Later(Arc<AtomicBool>, Vec<u8>, usize);

    impl Underway for Later {
        fn poll(&mut self) -> Option<Result> {
            let Later(may_copy, bytes, to) = self;
            may_copy.load(Ordering::Relaxed).then(|| {
                let to = std::ptr::with_exposed_provenance_mut(*to);
                // SAFETY: the test keeps the memory until it has seen the copy settled.
                unsafe { std::ptr::copy(bytes.as_ptr(), to, bytes.len()) };
                Ok(())
            })
        }
    }

    impl Copier for Slow {
        unsafe fn read(&self, _: *const u8, _: *mut u8, _: usize) -> Result {
            Err(Errno::EIO)
        }

        unsafe fn write(&self, _: *const u8, _: *mut u8, _: usize) -> Result {
            Err(Errno::EIO)
        }

        unsafe fn begin_write(
            &self,
            from: *const u8,
            to: *mut u8,
            len: usize,
        ) -> Result<Option<(usize, Box<dyn Underway>)>> {
            let mut bytes = vec![0; len.min(3)];
            // SAFETY: the caller guarantees that the range is valid.
            unsafe { std::ptr::copy(from, bytes.as_mut_ptr(), bytes.len()) };
            let count = bytes.len();
            let later = Later(self.0.clone(), bytes, to.expose_provenance());
            Ok(Some((count, Box::new(later))))
        }

        unsafe fn copy(&self, _: *const u8, _: *mut u8, _: usize) -> Result {
            Err(Errno::EIO)
        }

        fn family(&self) -> Option<u32> {
            None
        }

        fn identity(&self) -> (u32, u64) {
            (8, 0)
        }
    }

    #[test]
    fn bytes_are_written_behind_where_the_owner_can_wait_and_nowhere_else() {
        let slow = Slow::default();
        let may_copy = slow.0.clone();
        let kind = Kind::new(Arc::new(slow)).unwrap();
        let (mut one, mut two) = ([0; 8], [0; 8]);
        let [mut loan, other] = [&mut one, &mut two].map(|bytes| {
            // SAFETY: the test keeps the bytes, which are those of the device.
            unsafe { AppIov::from_raw(bytes.as_mut_ptr(), 8).of_kind(kind) }
        });
        loan.defer();
        assert_eq!(loan.slice(1, 7).write_at(0, b"1234567"), 7);
        assert!(!loan.is_settled() && loan.slice(0, 1).is_settled());
        may_copy.store(true, Ordering::Relaxed);
        assert!(loan.is_settled() && loan.take_failure().is_ok());
        assert_eq!(&one, b"\x001234567");
        // This device does not copy at once.
        assert_eq!(other.write_at(0, b"12"), 2);
        assert_eq!(other.take_failure(), Err(Errno::EIO));
        kind.end();
    }

    #[test]
    fn a_failed_copy_is_reported_once_and_to_its_loan_alone() {
        let kind = device(true);
        let (mut one, mut two, mut host) = ([1; 4], [2; 4], [3; 4]);
        let failing = lend(&mut [&mut one], kind);
        let other = lend(&mut [&mut two], kind);
        assert_eq!(failing.read_at(0, &mut host), 4);
        assert_eq!(host, [0; 4]);
        assert!(other.take_failure().is_ok());
        assert_eq!(failing.take_failure(), Err(Errno::EIO));
        assert!(failing.take_failure().is_ok());
        // Its number does not stand for anything any more.
        kind.end();
        assert_eq!(other.write_at(0, &host), 4);
        assert_eq!(other.take_failure(), Err(Errno::EIO));
    }
}
