//! The memory of another process as a file of the system (proc_pid_mem(5)).

use std::fs::File;
use std::os::fd::AsFd as _;
use std::sync::{Arc, Mutex, Weak};

use libc::iovec;
use prov_base::buffer::Iov;
use prov_base::device_sharing::Location;
use prov_base::errno::{Errno, Result};
use prov_base::kept_errno::KeptErrno;
use prov_base::process_memory::{OtherIov, Token, read_at, write_at};
use prov_base::shared_words::step;

use super::itself::Itself;
use super::spare::Spare;
use crate::switch_points::BY_FILE;

/// The memory of the program that a process executed when the file was opened. The file refers to
/// that memory only: not to another program that is executed later, nor to another process with the
/// same id. So no check is needed before a copy.
#[derive(Clone, Debug)]
pub(crate) struct Memory(Arc<Opened>);

#[derive(Debug)]
struct Opened {
    file: File,
    _spare: Spare,
}

/// The files in use, by process id: there is one for all links to a process.
static KNOWN: Mutex<Vec<(libc::pid_t, Weak<Opened>)>> = Mutex::new(Vec::new());

/// The direction of a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CopyDirection {
    /// From the other process.
    FromPeer,
    /// To it.
    ToPeer,
}

impl Memory {
    /// Returns the memory of the process `itself`, which has this id and this seal.
    ///
    /// # Errors
    /// `-FI_EACCES` and others of open(2) if the system does not permit it, or has no such files;
    /// `-FI_EMFILE` if there is no descriptor to spare; `-FI_ESHUTDOWN` if the process ends, or does not have the seal.
    pub(super) fn of(itself: &Itself, pid: libc::pid_t, seal: Token) -> Result<Memory> {
        Memory::find(itself, pid, |memory| memory.has(seal))
    }

    /// Returns the memory of the program that the process executes now.
    ///
    /// # Errors
    /// Those of [`Memory::of`].
    pub(crate) fn of_program(itself: &Itself, pid: libc::pid_t) -> Result<Memory> {
        Memory::find(itself, pid, |memory| !memory.is_gone())
    }

    fn find(itself: &Itself, pid: libc::pid_t, is_it: impl Fn(&Memory) -> bool) -> Result<Memory> {
        let _errno = KeptErrno::begin();
        // After a fork in another thread the lock may never be released.
        let mut known = KNOWN.try_lock().ok();
        if let Some(known) = &mut known {
            known.retain(|(_, file)| file.strong_count() != 0);
            let same = known.iter().filter(|(number, _)| *number == pid);
            let mut same = same.filter_map(|(_, file)| file.upgrade().map(Memory));
            if let Some(memory) = same.find(&is_it) {
                return Ok(memory);
            }
        }
        let spare = Spare::take().ok_or(Errno::EMFILE)?;
        let path = format!("/proc/{pid}/mem");
        let file = File::options().read(true).write(true).open(path)?;
        let file = spare.keep(file).ok_or(Errno::EMFILE)?;
        let memory = Memory(Arc::new(Opened {
            file,
            _spare: spare,
        }));
        // The id was the process's when the file was opened, if it still is.
        if !is_it(&memory) || itself.has_ended()? {
            return Err(Errno::ESHUTDOWN);
        }
        if let Some(known) = &mut known {
            known.push((pid, Arc::downgrade(&memory.0)));
        }
        Ok(memory)
    }

    /// Returns whether no thread with this memory is left: the process has ended, or executes
    /// another program.
    pub(crate) fn is_gone(&self) -> bool {
        let mut byte = 0u8;
        let near = iovec {
            iov_base: std::ptr::from_mut(&mut byte).cast(),
            iov_len: 1,
        };
        // If there is memory, but not at this address, read_at returns an error.
        // SAFETY: `near` describes `byte`, which is writable for one byte.
        unsafe { read_at(self.0.file.as_fd(), near, 0) == Ok(0) }
    }

    fn has(&self, seal: Token) -> bool {
        let mut found = 0u64;
        let near = iovec {
            iov_base: std::ptr::from_mut(&mut found).cast(),
            iov_len: size_of::<u64>(),
        };
        // SAFETY: `near` describes `found`, which is writable for its 8 bytes and in which every
        // bit pattern is valid.
        let read = unsafe { read_at(self.0.file.as_fd(), near, seal.addr) };
        read == Ok(near.iov_len) && found == seal.value
    }

    /// Copies one short segment; `None` if the other method has to be used, which also finds
    /// errors. A part may have been copied in any case.
    ///
    /// # Errors
    /// `-FI_ESHUTDOWN` if the memory does not exist any longer: the process has ended, or executes
    /// another program.
    pub(super) fn copy(
        &self,
        direction: CopyDirection,
        near: &Iov<'_>,
        far: &OtherIov,
    ) -> Option<Result> {
        if near.has_device() {
            return None;
        }
        let (&[near], &[far]) = (near.pieces(), far.pieces()) else {
            return None;
        };
        let is_other = far.seal.is_some() || Location::is_one(far.addr);
        if near.iov_len > BY_FILE || near.iov_len as u64 != far.len || is_other {
            return None;
        }
        step();
        // SAFETY: `near` describes memory of an operation in progress, valid for its length; a read
        // may write to it.
        let copied = unsafe {
            match direction {
                CopyDirection::FromPeer => read_at(self.0.file.as_fd(), near, far.addr),
                CopyDirection::ToPeer => write_at(self.0.file.as_fd(), near, far.addr),
            }
        };
        match copied {
            Ok(copied) if copied == near.iov_len => Some(Ok(())),
            Ok(0) => Some(Err(Errno::ESHUTDOWN)),
            Ok(_) | Err(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _, pipe};
    use std::os::fd::AsRawFd as _;
    use std::os::unix::net::UnixStream;

    use prov_base::buffer::AppIov;
    use prov_base::process_memory::Seal;

    use super::super::child::Child;
    use super::super::{Ends, OtherProcess};
    use super::*;

    fn memory(bytes: &mut [u8]) -> AppIov {
        // SAFETY: the tests keep the bytes alive and unborrowed while they use the result.
        unsafe { AppIov::from_raw(bytes.as_mut_ptr(), bytes.len()) }
    }

    fn place(bytes: &mut [u8]) -> OtherIov {
        let mut list = OtherIov::default();
        assert!(list.push_own(&memory(bytes), None));
        list
    }

    fn find(child: &Child, seal: &Seal) -> OtherProcess {
        let (process, _) = OtherProcess::find(child.pid().unsigned_abs(), seal.token()).unwrap();
        process
    }

    #[test]
    fn short_copies_access_the_memory_that_was_found_even_if_the_process_id_is_reused() {
        let seal = Seal::new().unwrap();
        let (mut there, mut bytes) = (*b"before", *b"behind");
        let to = place(&mut there);
        let (socket, _far) = UnixStream::pair().unwrap();
        let [child, other] = [(); 2].map(|()| Child::new(|| {}));
        let (mut process, stranger) = (find(&child, &seal), find(&other, &seal));
        assert!(process.memory().is_some() && stranger.memory().is_some());
        let of = |process: &OtherProcess| {
            let mut copy = [0; 6];
            process.read(&to, &memory(&mut copy)).map(|()| copy)
        };
        let number = std::mem::replace(&mut process.pid, stranger.pid);
        let write = |process: &OtherProcess, bytes: &mut [u8]| {
            process.write(&memory(bytes), &to, socket.as_fd(), &Ends::default())
        };
        assert_eq!(write(&process, &mut bytes), Ok(()));
        assert_eq!(
            (of(&process), of(&stranger)),
            (Ok(*b"behind"), Ok(*b"before"))
        );
        process.pid = number;
        child.end();
        drop(child);
        process.pid = stranger.pid;
        assert_eq!(write(&process, &mut bytes), Err(Errno::ESHUTDOWN));
        assert_eq!(of(&process), Err(Errno::ESHUTDOWN));
        assert_eq!(of(&stranger), Ok(*b"before"));
    }

    #[test]
    fn nothing_is_written_to_another_program_in_the_process() {
        let seal = Seal::new().unwrap();
        let (mut there, mut bytes) = (*b"before", *b"behind");
        let to = place(&mut there);
        let (socket, _far) = UnixStream::pair().unwrap();
        let (go, mut goes) = pipe().unwrap();
        let (mut end, ends) = pipe().unwrap();
        let child = Child::new(|| {
            let arguments = [c"sleep".as_ptr(), c"1000".as_ptr(), std::ptr::null()];
            let mut byte = 0u8;
            // SAFETY: close(2) and execvp(3) may be called after fork(2) here, since the child
            // allocates nothing; the descriptor is open, and the arguments are terminated strings
            // in a terminated array.
            unsafe {
                libc::close(end.as_raw_fd());
                libc::read(go.as_raw_fd(), std::ptr::from_mut(&mut byte).cast(), 1);
                libc::execvp(arguments[0], arguments.as_ptr());
            }
        });
        drop(ends);
        let process = find(&child, &seal);
        let write =
            |bytes: &mut [u8]| process.write(&memory(bytes), &to, socket.as_fd(), &Ends::default());
        assert_eq!(write(&mut bytes), Ok(()));
        goes.write_all(&[0]).unwrap();
        // The child's end is closed when the other program is executed.
        assert_eq!(end.read(&mut [0]).unwrap(), 0);
        assert_eq!(write(&mut bytes), Err(Errno::ESHUTDOWN));
        // A link to the new program needs a file of its own.
        let itself = Itself::of(child.pid()).unwrap();
        let found = Memory::of(&itself, child.pid(), seal.token());
        assert_eq!(found.err(), Some(Errno::ESHUTDOWN));
    }

    #[test]
    fn all_links_to_a_process_have_one_file() {
        let seal = Seal::new().unwrap();
        let child = Child::new(|| {});
        let find = || find(&child, &seal).memory().unwrap().clone();
        // Other tests may hold the lock of the list, in which case each call opens a file of its
        // own.
        let mut pairs = (0..1000).map(|_| (find(), find()));
        assert!(pairs.any(|(one, other)| Arc::ptr_eq(&one.0, &other.0)));
    }

    #[test]
    fn copies_that_the_file_does_not_support_use_the_other_method() {
        let seal = Seal::new().unwrap();
        let child = Child::new(|| {});
        let process = find(&child, &seal);
        let memory_of = process.memory().unwrap().clone();
        let (socket, _far) = UnixStream::pair().unwrap();
        let mut long = vec![1; BY_FILE + 1];
        let to = place(&mut long);
        let from = memory(&mut long);
        assert!(memory_of.copy(CopyDirection::ToPeer, &from, &to).is_none());
        assert_eq!(
            process.write(&from, &to, socket.as_fd(), &Ends::default()),
            Ok(())
        );
        let (short, near) = (to.slice(0, BY_FILE as u64), from.slice(0, BY_FILE));
        assert_eq!(
            memory_of.copy(CopyDirection::ToPeer, &near, &short),
            Some(Ok(()))
        );
        // No process has memory at this address.
        let nowhere = OtherIov::read(&[8u64, 6, 0, 0].map(u64::to_ne_bytes).concat()).unwrap();
        let mut bytes = *b"behind";
        let write = process.write(
            &memory(&mut bytes),
            &nowhere,
            socket.as_fd(),
            &Ends::default(),
        );
        assert_eq!(write, Err(Errno::EFAULT));
        let read = process.read(&nowhere, &memory(&mut bytes));
        assert_eq!(read, Err(Errno::EFAULT));
    }
}
