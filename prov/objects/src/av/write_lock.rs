//! An exclusive write lock on a file, among all open files of it.
//!
//! It is a record lock of the open file (`F_OFD_SETLK`, fcntl_locking(2)), so that it also excludes
//! the other threads of a process, ends with its holder, and is independent of flock(2).

use std::fs::File;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use prov_base::errno::{Errno, Result};

/// How long to wait for a holder. A writer holds the lock for microseconds; one that holds it for
/// longer was stopped, and may never continue.
pub const PATIENCE: Duration = Duration::from_secs(1);
/// Pause between two attempts: short compared with the milliseconds that inserting many addresses
/// takes.
const PAUSE: Duration = Duration::from_micros(100);

/// Holds the lock until it is dropped.
pub struct WriteLock<'a>(&'a File);

impl<'a> WriteLock<'a> {
    /// Waits until the lock is free, for at most [`PATIENCE`].
    ///
    /// # Errors
    /// `-FI_EAGAIN` if another holder keeps it all that time, `-FI_EBADF` if the file is not open
    /// for writing, `-FI_ENOLCK`.
    pub fn take(file: &'a File) -> Result<Self> {
        Self::take_within(file, PATIENCE)
    }

    fn take_within(file: &'a File, patience: Duration) -> Result<Self> {
        let begin = Instant::now();
        loop {
            match set(file, libc::F_WRLCK) {
                Ok(()) => return Ok(WriteLock(file)),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN | Errno::EACCES) if begin.elapsed() < patience => {
                    std::thread::sleep(PAUSE);
                }
                Err(Errno::EAGAIN | Errno::EACCES) => {
                    log::warn!(
                        target: prov_base::logging::UTIL.av,
                        "another process holds the lock of a shared address table for longer \
                         than {} s; it may have been stopped",
                        patience.as_secs()
                    );
                    return Err(Errno::EAGAIN);
                }
                Err(error) => return Err(error),
            }
        }
    }
}

impl Drop for WriteLock<'_> {
    fn drop(&mut self) {
        // Releasing a lock that is held cannot fail.
        let _ = set(self.0, libc::F_UNLCK);
    }
}

/// Sets a lock on the whole file.
fn set(file: &File, kind: libc::c_int) -> Result {
    let lock = libc::flock {
        l_type: kind as _,
        l_whence: libc::SEEK_SET as _,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    // SAFETY: the descriptor is open while `file` is; the system reads `lock`
    // during the call.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) } {
        -1 => Err(std::io::Error::last_os_error().into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;

    use super::*;

    /// One file, opened twice.
    fn twice() -> [File; 2] {
        let file = rustix::fs::memfd_create("write lock", rustix::fs::MemfdFlags::CLOEXEC);
        let file = File::from(file.unwrap());
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let again = OpenOptions::new().read(true).write(true).open(path);
        [file, again.unwrap()]
    }

    /// Returns whether another lock prevents this open file from locking.
    fn is_locked(file: &File) -> bool {
        let mut lock = libc::flock {
            l_type: libc::F_WRLCK as _,
            l_whence: libc::SEEK_SET as _,
            l_start: 0,
            l_len: 0,
            l_pid: 0,
        };
        // SAFETY: the descriptor is open while `file` is; the system writes to `lock` during the
        // call.
        let asked = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) };
        assert_eq!(asked, 0);
        libc::c_int::from(lock.l_type) != libc::F_UNLCK
    }

    #[test]
    fn the_lock_excludes_others_of_the_same_process_until_it_is_dropped() {
        let [one, other] = twice();
        let lock = WriteLock::take(&one).unwrap();
        assert!(is_locked(&other));
        assert!(!is_locked(&one));
        drop(lock);
        assert!(!is_locked(&other));
        drop(WriteLock::take(&other).unwrap());
    }

    #[test]
    fn a_holder_that_never_lets_go_does_not_hold_others_for_ever() {
        let [one, other] = twice();
        let lock = WriteLock::take(&one).unwrap();
        let refused = WriteLock::take_within(&other, Duration::from_millis(5));
        assert_eq!(refused.err(), Some(Errno::EAGAIN));
        drop(lock);
        drop(WriteLock::take(&other).unwrap());
    }

    #[test]
    fn the_lock_ends_with_its_open_file() {
        let [one, other] = twice();
        std::mem::forget(WriteLock::take(&one).unwrap());
        assert!(is_locked(&other));
        drop(one);
        assert!(!is_locked(&other));
    }

    #[test]
    fn the_lock_and_that_of_the_whole_file_know_nothing_of_each_other() {
        let [one, other] = twice();
        one.lock_shared().unwrap();
        other.lock_shared().unwrap();
        let _lock = WriteLock::take(&one).unwrap();
        other.try_lock_shared().unwrap();
    }

    #[test]
    fn a_file_that_is_only_read_cannot_be_locked() {
        let file = File::open("/proc/self/stat").unwrap();
        assert_eq!(WriteLock::take(&file).err(), Some(Errno::EBADF));
    }
}
