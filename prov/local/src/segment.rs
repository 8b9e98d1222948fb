//! Memory shared by two processes.
//!
//! It has no name (memfd_create(2)): another process gets the descriptor, and the memory is freed
//! with the last process that has it. Its size is sealed, so that no process can truncate it while
//! another one uses it. Memory is allocated before it is used, at creation or on demand, so that a
//! lack of memory is an error and not a signal.

use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::OnceLock;

use prov_base::errno::{Errno, Result};
use prov_base::machine::page_size;
use prov_base::{file_limit, memory_file};
use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, fcntl_get_seals, fstat,
};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

/// The operations on a segment that are forbidden.
const SEALS: SealFlags = SealFlags::SHRINK
    .union(SealFlags::GROW)
    .union(SealFlags::SEAL);

/// A segment in this process's memory.
pub struct Segment {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is bound to no thread; whoever accesses it through the pointer answers for
// how.
unsafe impl Send for Segment {}
// SAFETY: a shared reference gives the address and the length only, which do not change.
unsafe impl Sync for Segment {}

impl Segment {
    /// Creates a segment of `len` bytes, all zero; returns it with the descriptor for the other
    /// process. The parts that are `backed` are allocated.
    ///
    /// # Errors
    /// `-FI_ENOMEM` and `-FI_ENOSPC` if there is no memory for it, `-FI_EFBIG` beyond the process's
    /// limit of the size of files, and others of memfd_create(2)
    /// and mmap(2).
    pub fn create(len: usize, backed: &[Range<usize>]) -> Result<(Segment, OwnedFd)> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = memory_file::create("libfabric segment", flags)?;
        file_limit::set_len(&fd, len as u64)?;
        for part in backed {
            let flags = FallocateFlags::empty();
            fallocate(&fd, flags, part.start as u64, part.len() as u64)?;
        }
        fcntl_add_seals(&fd, SEALS)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        Ok((Segment::map(fd.as_fd(), len, access)?, fd))
    }

    /// Creates a segment of `len` bytes, all zero and all allocated, that only this process can
    /// write to; returns it with the descriptor with which others can read it.
    ///
    /// # Errors
    /// Those of [`Segment::create`]; `-FI_EINVAL` before Linux 5.1, which cannot prevent others
    /// from writing.
    pub fn create_for_readers(len: usize) -> Result<(Segment, OwnedFd)> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = memory_file::create("libfabric regions", flags)?;
        file_limit::set_len(&fd, len as u64)?;
        fallocate(&fd, FallocateFlags::empty(), 0, len as u64)?;
        let segment = Segment::map(fd.as_fd(), len, ProtFlags::READ | ProtFlags::WRITE)?;
        fcntl_add_seals(&fd, SEALS.union(SealFlags::FUTURE_WRITE))?;
        Ok((segment, fd))
    }

    /// Maps a segment that another process has created for readers, read-only.
    ///
    /// # Errors
    /// Those of [`Segment::attach`].
    pub fn attach_to_read(fd: BorrowedFd<'_>, len: usize) -> Result<Segment> {
        Segment::check(fd, len)?;
        Segment::map(fd, len, ProtFlags::READ)
    }

    /// Maps a segment that another process has created.
    ///
    /// # Errors
    /// `-FI_EPROTO` if it does not have `len` bytes, or is not sealed.
    pub fn attach(fd: BorrowedFd<'_>, len: usize) -> Result<Segment> {
        Segment::check(fd, len)?;
        Segment::map(fd, len, ProtFlags::READ | ProtFlags::WRITE)
    }

    fn check(fd: BorrowedFd<'_>, len: usize) -> Result {
        let sealed = fcntl_get_seals(fd).is_ok_and(|seals| seals.contains(SEALS));
        if !sealed || fstat(fd)?.st_size != len as i64 {
            return Err(Errno::EPROTO);
        }
        Ok(())
    }

    fn map(fd: BorrowedFd<'_>, len: usize, access: ProtFlags) -> Result<Segment> {
        // SAFETY: the mapping is new, at an address that the system chooses, so it replaces none.
        let base = unsafe { mmap(std::ptr::null_mut(), len, access, MapFlags::SHARED, fd, 0) }?;
        let base = NonNull::new(base.cast()).ok_or(Errno::EFAULT)?;
        Ok(Segment { base, len })
    }

    /// Allocates another part of it.
    ///
    /// # Errors
    /// `-FI_ENOMEM` if there is no memory for it, and other errors of madvise(2): `-FI_EINVAL`
    /// before Linux 5.14, which does not support it.
    pub fn back(&self, part: Range<usize>) -> Result {
        if part.start > part.end || part.end > self.len {
            return Err(Errno::EINVAL);
        }
        let first = part.start - part.start % page_size();
        // SAFETY: the range is inside the mapping, which `self` owns, and populating it changes no
        // byte.
        unsafe {
            let start = self.base.as_ptr().add(first).cast();
            madvise(start, part.end - first, Advice::LinuxPopulateWrite)?;
        }
        Ok(())
    }

    /// Returns the address of its first byte. All of it is mapped as long as this lives, and may
    /// change at any time.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// Whether the system can provide a part of a segment with memory after its creation ([`Segment::back`]).
pub fn can_back() -> bool {
    static CAN: OnceLock<bool> = OnceLock::new();
    *CAN.get_or_init(|| {
        let segment = Segment::create(page_size(), &[]);
        segment.is_ok_and(|(segment, _)| segment.back(0..page_size()).is_ok())
    })
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `map` with this length, and `self`, which owned it, is
        // gone.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::ftruncate;

    use super::*;

    #[test]
    fn both_see_the_same_memory() {
        let (here, fd) = Segment::create(8192, &[]).unwrap();
        let there = Segment::attach(fd.as_fd(), 8192).unwrap();
        drop(fd);
        // SAFETY: both mappings have the byte, and no other thread accesses it.
        unsafe {
            here.base().add(8191).write(7);
            assert_eq!(there.base().add(8191).read(), 7);
        }
    }

    #[test]
    fn a_part_that_is_had_later_is_there_and_none_is_beyond_the_end() {
        let first = 0..1 << 12;
        let (segment, fd) = Segment::create(3 << 12, std::slice::from_ref(&first)).unwrap();
        let blocks = || fstat(&fd).unwrap().st_blocks * 512;
        assert_eq!(blocks(), 1 << 12);
        segment.back(1 << 12..3 << 12).unwrap();
        assert_eq!(blocks(), 3 << 12);
        assert_eq!(segment.back(1 << 12..4 << 12), Err(Errno::EINVAL));
    }

    #[test]
    fn readers_see_what_the_owner_writes_and_cannot_write() {
        let (here, fd) = Segment::create_for_readers(8192).unwrap();
        let there = Segment::attach_to_read(fd.as_fd(), 8192).unwrap();
        assert_eq!(
            Segment::attach(fd.as_fd(), 8192).err(),
            Some(Errno::EPERM),
            "a mapping to write"
        );
        assert!(rustix::io::pwrite(&fd, &[7], 0).is_err());
        // SAFETY: both mappings have the byte, and no other thread accesses it.
        unsafe {
            here.base().add(8191).write(7);
            assert_eq!(there.base().add(8191).read(), 7);
        }
    }

    #[test]
    fn a_file_that_could_shrink_or_has_another_size_is_not_mapped() {
        let (_here, fd) = Segment::create(8192, &[]).unwrap();
        assert!(ftruncate(&fd, 0).is_err());
        assert_eq!(Segment::attach(fd.as_fd(), 4096).err(), Some(Errno::EPROTO));
        let unsealed = rustix::fs::memfd_create("test", MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&unsealed, 8192).unwrap();
        assert_eq!(
            Segment::attach(unsealed.as_fd(), 8192).err(),
            Some(Errno::EPROTO)
        );
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        assert_eq!(
            Segment::attach(file.as_fd(), 8192).err(),
            Some(Errno::EPROTO)
        );
    }
}
