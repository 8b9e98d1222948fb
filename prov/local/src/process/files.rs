//! The files of another process, which it has as descriptors.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::sync::OnceLock;

use prov_base::errno::{Errno, Result};
use prov_base::kept_errno::KeptErrno;
use prov_base::process_memory::Token;
use prov_base::{file_limit, memory_file};
use rustix::fs::{AtFlags, FileType, MemfdFlags, StatxFlags, fstat, statx};
use rustix::process::{PidfdGetfdFlags, pidfd_getfd};

use super::itself::Itself;
use super::users;

/// The descriptors of another process, from which its files are had.
///
/// The system decides who may: a process that has access rights to the other one (ptrace(2), "Ptrace
/// access mode checking").
#[derive(Clone, Debug)]
pub struct OtherFiles {
    pid: u32,
    /// With this, a file is duplicated (pidfd_getfd(2)), which takes a fifth of the time of opening it by
    /// its name in proc(5).
    itself: Option<Itself>,
}

impl OtherFiles {
    /// Returns those of the process that has this id now.
    ///
    /// # Errors
    /// `-FI_EINVAL` if it is not the id of a process.
    pub fn of(pid: u64) -> Result<OtherFiles> {
        let id = libc::pid_t::try_from(pid).map_err(|_| Errno::EINVAL)?;
        Ok(OtherFiles {
            pid: id.unsigned_abs(),
            itself: Itself::of(id).ok(),
        })
    }

    /// Returns the process's id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns the users of the process: real, effective, saved, and of the file system; `None` where
    /// the system tells them in proc_pid_status(5) only.
    pub fn users(&self) -> Option<[u32; 4]> {
        let process = self.itself.as_ref()?.descriptor()?;
        users::of(process).ok().flatten()
    }

    /// Returns the inode number of the socket that the process has as its descriptor `number`.
    ///
    /// # Errors
    /// `-FI_EPERM` if it is none, and those of pidfd_getfd(2) and readlink(2).
    pub fn socket_inode(&self, number: u64) -> Result<u64> {
        if let Some(socket) = self.duplicate(number)? {
            let stat = fstat(socket)?;
            let is_socket = FileType::from_raw_mode(stat.st_mode) == FileType::Socket;
            return is_socket.then_some(stat.st_ino).ok_or(Errno::EPERM);
        }
        let _errno = KeptErrno::begin();
        let held = std::fs::read_link(format!("/proc/{}/fd/{number}", self.pid))?;
        let held = held.to_str().and_then(|held| held.strip_prefix("socket:["));
        let inode = held.and_then(|held| held.strip_suffix(']')?.parse().ok());
        inode.ok_or(Errno::EPERM)
    }

    /// Returns the [`Segment`](crate::segment::Segment) that the process has as its descriptor
    /// `number`, to attach to it.
    ///
    /// # Errors
    /// `-FI_EPERM` if the file is not a memory file; those of pidfd_getfd(2) and open(2).
    pub fn segment(&self, number: u64) -> Result<OwnedFd> {
        Ok(self.memory_file(number, true)?.into())
    }

    /// As [`OtherFiles::segment`], for one that only its owner writes to.
    ///
    /// # Errors
    /// Those of [`OtherFiles::segment`].
    pub fn segment_to_read(&self, number: u64) -> Result<OwnedFd> {
        Ok(self.memory_file(number, false)?.into())
    }

    /// Reads the card that the process has as its descriptor `number`.
    ///
    /// # Errors
    /// Those of [`OtherFiles::segment`], and `-FI_EIO` if the file is not a card.
    pub fn read_card(&self, number: u64) -> Result<Reading> {
        let card = self.memory_file(number, false)?;
        let mut bytes = [0; 3 * FIELD];
        card.read_exact_at(&mut bytes, 0)?;
        let (fields, _) = bytes.as_chunks::<FIELD>();
        let &[inode, addr, value] = fields else {
            return Err(Errno::EIO);
        };
        Ok(Reading {
            inode: u64::from_ne_bytes(inode),
            seal: Token {
                addr: u64::from_ne_bytes(addr),
                value: u64::from_ne_bytes(value),
            },
        })
    }

    /// Returns the memory file (memfd_create(2)) that the process has as its descriptor `number`, to
    /// read and, if it `writes`, to write.
    fn memory_file(&self, number: u64, writes: bool) -> Result<File> {
        if let Some(file) = self.duplicate(number)? {
            return is_memory_file(&file)?
                .then_some(file.into())
                .ok_or(Errno::EPERM);
        }
        let _errno = KeptErrno::begin();
        // Opening a file of another type could have an effect, or block: O_PATH only refers to it.
        let path = format!("/proc/{}/fd/{number}", self.pid);
        let pointer = File::options()
            .read(true)
            .custom_flags(libc::O_PATH)
            .open(path)?;
        if !is_memory_file(&pointer)? {
            return Err(Errno::EPERM);
        }
        let path = format!("/proc/self/fd/{}", pointer.as_raw_fd());
        Ok(File::options().read(true).write(writes).open(path)?)
    }

    /// Returns a duplicate of the process's descriptor `number`; `None` if the system does not make any,
    /// or not for this process.
    fn duplicate(&self, number: u64) -> Result<Option<OwnedFd>> {
        let number = i32::try_from(number).map_err(|_| Errno::EINVAL)?;
        let Some(process) = self.itself.as_ref().and_then(Itself::descriptor) else {
            return Ok(None);
        };
        match pidfd_getfd(process, number, PidfdGetfdFlags::empty()) {
            Ok(file) => Ok(Some(file)),
            Err(rustix::io::Errno::NOSYS | rustix::io::Errno::PERM) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// A file with the location of a [`Seal`](prov_base::process_memory::Seal) in this process. Only
/// processes that may open this process's files can read it; the location is not told otherwise.
#[derive(Debug)]
pub struct Card(File);

/// The contents of another process's [`Card`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The inode number of the socket that the card is for.
    pub inode: u64,
    /// The seal.
    pub seal: Token,
}

/// Size in bytes of each of the three numbers on a card.
const FIELD: usize = 8;

impl Card {
    /// Creates a card for a socket, with a seal. Returns the error of memfd_create(2) or write(2).
    pub fn new(inode: u64, seal: Token) -> Result<Card> {
        let file = Card::blank()?;
        let fields = [inode, seal.addr, seal.value].map(u64::to_ne_bytes);
        file_limit::write_all_at(&file, fields.as_flattened(), 0)?;
        Ok(Card(file))
    }

    fn blank() -> Result<File> {
        let file = memory_file::create("libfabric card", MemfdFlags::CLOEXEC)?;
        Ok(file.into())
    }

    /// Returns the number of its descriptor, which locates it among the files of this process.
    pub fn number(&self) -> u32 {
        self.0.as_raw_fd().unsigned_abs()
    }
}

/// The type of a file, and the numbers of its device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Place {
    kind: FileType,
    device: (u32, u32),
}

impl Place {
    fn of(file: impl AsFd) -> Result<Place> {
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let stat = statx(file, "", flags, StatxFlags::TYPE)?;
        Ok(Place {
            kind: FileType::from_raw_mode(stat.stx_mode.into()),
            device: (stat.stx_dev_major, stat.stx_dev_minor),
        })
    }
}

/// Whether a file is a memory file: all of these are on one internal file system, which has no other files
/// and stays as long as the kernel runs.
fn is_memory_file(file: impl AsFd) -> Result<bool> {
    static PLACE: OnceLock<Place> = OnceLock::new();
    let place = match PLACE.get() {
        Some(place) => *place,
        None => {
            let place = Place::of(Card::blank()?)?;
            *PLACE.get_or_init(|| place)
        }
    };
    Ok(Place::of(file)? == place)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use prov_base::process_memory::Seal;

    use super::*;

    /// Returns the files of this process as another one sees them: by a descriptor of the process, and by
    /// their names.
    fn this_process() -> [OtherFiles; 2] {
        let files = OtherFiles::of(std::process::id().into()).unwrap();
        let named = OtherFiles {
            itself: None,
            ..files.clone()
        };
        [files, named]
    }

    #[test]
    fn a_socket_is_known_by_its_inode() {
        let (socket, _far) = UnixStream::pair().unwrap();
        let inode = fstat(&socket).unwrap().st_ino;
        let number = socket.as_raw_fd().unsigned_abs().into();
        let card = Card::new(1, Seal::new().unwrap().token()).unwrap();
        for files in this_process() {
            assert_eq!(files.socket_inode(number), Ok(inode));
            let other = files.socket_inode(card.number().into());
            assert_eq!(other, Err(Errno::EPERM));
            assert!(files.socket_inode(u64::MAX).is_err());
        }
    }

    #[test]
    fn a_card_has_the_contents_that_were_written() {
        let seal = Seal::new().unwrap();
        let card = Card::new(77, seal.token()).unwrap();
        for files in this_process() {
            let number = u64::from(card.number());
            // A card is read as often as it is shown.
            for _ in 0..2 {
                let reading = files.read_card(number).unwrap();
                assert_eq!((reading.inode, reading.seal), (77, seal.token()));
            }
            for number in [u32::MAX.into(), u64::MAX] {
                assert!(files.read_card(number).is_err());
            }
        }
    }

    #[test]
    fn a_file_that_is_not_a_card_is_not_opened() {
        let folder = std::env::temp_dir().join(format!("no-card-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let fifo = folder.join("fifo");
        let file = folder.join("file");
        std::fs::write(&file, [7; 24]).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, 0o600.into()).unwrap();
        for path in [&fifo, &file, std::path::Path::new("/dev/null")] {
            let mut options = File::options();
            let options = options.read(true).custom_flags(libc::O_PATH);
            let other = options.open(path).unwrap();
            let number = other.as_raw_fd().unsigned_abs().into();
            for files in this_process() {
                // Opening a FIFO would wait for a writer.
                let read = files.read_card(number);
                assert_eq!(read, Err(Errno::EPERM), "{path:?}");
            }
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
