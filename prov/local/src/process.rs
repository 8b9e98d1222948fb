//! Another process of this host, whose memory this process may read and write.

#[cfg(test)]
pub(crate) mod child;
mod devices;
mod files;
mod itself;
mod life;
mod memory;
mod spare;
mod users;

use std::os::fd::BorrowedFd;
use std::sync::OnceLock;

use libc::iovec;
use prov_base::buffer::{AppIov, IOV_LIMIT, Iov, STAGED};
use prov_base::device_sharing::Location;
use prov_base::errno::{Errno, Result};
use prov_base::process_memory::{OtherIov, OtherPiece, Token, read, write};

use self::devices::{Course, Devices};
pub use self::files::{Card, OtherFiles, Reading};
pub use self::itself::Ends;
pub(crate) use self::itself::Itself;
pub use self::life::Life;
use self::memory::CopyDirection;
pub(crate) use self::memory::Memory;
use crate::switch_points::BY_FILE;

/// Another process whose memory can be read.
#[derive(Clone, Debug)]
pub struct OtherProcess {
    pid: libc::pid_t,
    seal: Token,
    /// `None` if the system cannot report the end of the process, in which case nothing is written
    /// to it.
    itself: Option<Itself>,
    /// The file for short copies, opened for the first of them; `None` if the system has no such file.
    memory: OnceLock<Option<Memory>>,
    /// The process's memory of devices that this one has opened.
    devices: Devices,
}

impl OtherProcess {
    /// Returns the process `pid`, and the secret beside the seal, if this process may read its
    /// memory and finds the seal there. Returns `-FI_EPERM` if the system does not permit that
    /// (ptrace(2), "Ptrace access mode checking"), and `-FI_ESHUTDOWN` if the id belongs to another
    /// process or to none.
    pub fn find(pid: u32, seal: Token) -> Result<(OtherProcess, u64)> {
        let pid = libc::pid_t::try_from(pid).map_err(|_| Errno::EINVAL)?;
        if pid == 0 {
            return Err(Errno::EINVAL);
        }
        // This precedes the check of the seal: a process that has the seal after this has had the
        // id all the time.
        let itself = Itself::of(pid).ok();
        let mut found = [0u64; 2];
        let len = size_of_val(&found);
        let near = iovec {
            iov_base: found.as_mut_ptr().cast(),
            iov_len: len,
        };
        let far = iovec {
            iov_base: std::ptr::without_provenance_mut(seal.addr as usize),
            iov_len: len,
        };
        // SAFETY: `near` describes `found`, which is writable for `len` bytes and in which every
        // bit pattern is valid.
        if unsafe { read(pid, &[near], &[far]) }? < len {
            return Err(Errno::EFAULT);
        }
        let [value, secret] = found;
        if value != seal.value {
            return Err(Errno::ESHUTDOWN);
        }
        let process = OtherProcess {
            pid,
            seal,
            memory: OnceLock::new(),
            itself,
            devices: Devices::default(),
        };
        Ok((process, secret))
    }

    /// Returns the file for short copies, for one of `len` bytes.
    fn memory_for(&self, len: usize) -> Option<&Memory> {
        match len <= BY_FILE {
            true => self.memory(),
            false => None,
        }
    }

    fn memory(&self) -> Option<&Memory> {
        let open = || Memory::of(self.itself.as_ref()?, self.pid, self.seal).ok();
        self.memory.get_or_init(open).as_ref()
    }

    /// Whether this process may write there: it can detect the end of the other one.
    pub(crate) fn can_be_written(&self) -> bool {
        self.itself.is_some()
    }

    /// Copies `from` to segments of the process's memory. `socket` is connected to a socket of the
    /// process, which closes when another program is executed in it; nothing is written to that
    /// program. `ends` belongs to this process and this socket.
    ///
    /// # Errors
    /// After an error, a part may have been written. `-FI_EINVAL` if the lengths differ,
    /// `-FI_EFAULT` if memory is not mapped, `-FI_ESHUTDOWN` if the process or its end of the
    /// socket has ended, `-FI_EPERM` if the system does not permit the copy.
    pub fn write(
        &self,
        from: &Iov<'_>,
        to: &OtherIov,
        socket: BorrowedFd<'_>,
        ends: &Ends,
    ) -> Result {
        if from.len() as u64 != to.len() {
            return Err(Errno::EINVAL);
        }
        if to.has_device() {
            return self.write_to_devices(from, to, socket, ends);
        }
        if from.has_device() {
            return staged(from.len(), |at, bytes| {
                from.read_at(at, bytes);
                from.take_failure()?;
                let part = to.slice(at as u64, bytes.len() as u64);
                self.write_bytes(bytes, &part, socket, ends)
            });
        }
        let memory = self.memory_for(from.len());
        if let Some(copied) = memory.and_then(|memory| memory.copy(CopyDirection::ToPeer, from, to))
        {
            return copied;
        }
        // Immediately before the copy, the id must belong to the process, and the process must
        // execute the program that has the socket: process_vm_writev(2) cannot check that.
        let itself = self.itself.as_ref().ok_or(Errno::EPERM)?;
        if itself.has_left(socket, ends)? {
            return Err(Errno::ESHUTDOWN);
        }
        let mut done = 0;
        while done < from.len() {
            let near = from.slice(done, MOST);
            let far = to.slice(done as u64, MOST as u64);
            let mut pieces = [NOTHING; IOV_LIMIT];
            for (slot, piece) in pieces.iter_mut().zip(far.pieces()) {
                *slot = piece.iov();
            }
            let pieces = pieces.get(..far.pieces().len()).unwrap_or_default();
            // SAFETY: `near` describes memory of an operation in progress, which is valid for its
            // length and only read.
            match unsafe { write(self.pid, near.pieces(), pieces) }? {
                0 => return Err(Errno::EFAULT),
                copied => done += copied,
            }
        }
        Ok(())
    }

    /// As [`OtherProcess::write`], for bytes of the library's own.
    ///
    /// # Errors
    /// Those of [`OtherProcess::write`].
    pub fn write_bytes(
        &self,
        from: &[u8],
        to: &OtherIov,
        socket: BorrowedFd<'_>,
        ends: &Ends,
    ) -> Result {
        // SAFETY: `from` is borrowed until the copy is made, and a write only reads it.
        let from = unsafe { AppIov::from_raw(from.as_ptr().cast_mut(), from.len()) };
        self.write(&from, to, socket, ends)
    }

    /// Copies segments of the process's memory to `to`, without a limit of the length.
    ///
    /// # Errors
    /// Those of [`OtherProcess::copy`].
    pub fn read(&self, from: &OtherIov, to: &Iov<'_>) -> Result {
        let memory = self.memory_for(to.len());
        if let Some(copied) =
            memory.and_then(|memory| memory.copy(CopyDirection::FromPeer, to, from))
        {
            return copied;
        }
        if from.has_device() {
            return self.copy_from_devices(from, to);
        }
        let mut done = 0;
        while done < to.len() {
            let near = to.slice(done, MOST);
            self.copy(&from.slice(done as u64, MOST as u64), &near)?;
            done += near.len();
        }
        Ok(())
    }

    /// As [`OtherProcess::copy`], to bytes of the library's own.
    ///
    /// # Errors
    /// Those of [`OtherProcess::copy`].
    pub fn copy_out(&self, from: &OtherIov, to: &mut [u8]) -> Result {
        // SAFETY: `to` is borrowed mutably until the copy is made.
        self.copy(from, &unsafe {
            AppIov::from_raw(to.as_mut_ptr(), to.len())
        })
    }

    /// Copies all of `from` to `to`, with one system call.
    ///
    /// # Errors
    /// After an error, a part of `to` may have been filled, with arbitrary data. `-FI_EINVAL` if
    /// the lengths differ, `-FI_EFAULT` if memory is not mapped, `-FI_ESHUTDOWN` if the process has
    /// ended, or if its seal or that of a segment was not valid at the end.
    pub fn copy(&self, from: &OtherIov, to: &Iov<'_>) -> Result {
        if from.len() != to.len() as u64 {
            return Err(Errno::EINVAL);
        }
        if from.has_device() {
            return self.copy_from_devices(from, to);
        }
        if to.has_device() {
            return staged(to.len(), |at, bytes| {
                self.copy_out(&from.slice(at as u64, bytes.len() as u64), bytes)?;
                to.write_at(at, bytes);
                Ok(())
            });
        }
        let (mut near, mut far) = (List::default(), List::default());
        near.extend(to.pieces().iter().copied())?;
        far.extend(from.pieces().iter().map(OtherPiece::iov))?;
        let mut expected = to.len();
        // The seals are copied after the bytes: the system copies in order, and within one address
        // space.
        let seals = from.pieces().iter().filter_map(|piece| piece.seal);
        let seals = seals.chain([self.seal]);
        let mut numbers = [0u64; 1 + IOV_LIMIT];
        for (seal, number) in seals.clone().zip(&mut numbers) {
            let len = size_of::<u64>();
            near.extend([iovec {
                iov_base: std::ptr::from_mut(number).cast(),
                iov_len: len,
            }])?;
            far.extend([iovec {
                iov_base: std::ptr::without_provenance_mut(seal.addr as usize),
                iov_len: len,
            }])?;
            expected += len;
        }
        // SAFETY: `near` describes memory of an operation in progress and elements of `numbers`,
        // all writable for their lengths.
        if unsafe { read(self.pid, near.pieces(), far.pieces()) }? < expected {
            return Err(Errno::EFAULT);
        }
        let mut found = seals.zip(numbers);
        match found.all(|(seal, number)| seal.value == number) {
            true => Ok(()),
            false => Err(Errno::ESHUTDOWN),
        }
    }
}

impl OtherProcess {
    /// [`OtherProcess::read`], where segments are memory of a device.
    #[cold]
    fn copy_from_devices(&self, from: &OtherIov, to: &Iov<'_>) -> Result {
        each_piece(from, to, |piece, to| match Location::is_one(piece.addr) {
            true => self.copy_of_device(Course::FromPeer, piece, to),
            false => self.read(&single(piece), to),
        })
    }

    /// [`OtherProcess::write`], where segments are memory of a device.
    #[cold]
    fn write_to_devices(
        &self,
        from: &Iov<'_>,
        to: &OtherIov,
        socket: BorrowedFd<'_>,
        ends: &Ends,
    ) -> Result {
        let itself = self.itself.as_ref().ok_or(Errno::EPERM)?;
        if itself.has_left(socket, ends)? {
            return Err(Errno::ESHUTDOWN);
        }
        each_piece(to, from, |piece, from| match Location::is_one(piece.addr) {
            true => self.copy_of_device(Course::ToPeer, piece, from),
            false => self.write(from, &single(piece), socket, ends),
        })
    }
}

/// Calls `copy` for each segment of the other process with the part of `near` that belongs to it.
fn each_piece(
    far: &OtherIov,
    near: &Iov<'_>,
    mut copy: impl FnMut(&OtherPiece, &Iov<'_>) -> Result,
) -> Result {
    if far.len() != near.len() as u64 {
        return Err(Errno::EINVAL);
    }
    let mut at = 0;
    for piece in far.pieces() {
        let len = usize::try_from(piece.len).map_err(|_| Errno::EINVAL)?;
        copy(piece, &near.slice(at, len))?;
        at += len;
    }
    Ok(())
}

fn single(piece: &OtherPiece) -> OtherIov {
    let mut list = OtherIov::default();
    list.push(*piece);
    list
}

/// Copies `len` bytes in parts through a buffer of the host: `copy` gets the offset of a part.
///
/// # Errors
/// Those of `copy`, and `-FI_ENOMEM`.
#[cold]
fn staged(len: usize, mut copy: impl FnMut(usize, &mut [u8]) -> Result) -> Result {
    let mut stage = Vec::new();
    let room = len.min(STAGED);
    stage.try_reserve_exact(room).map_err(|_| Errno::ENOMEM)?;
    stage.resize(room, 0);
    let mut at = 0;
    while at < len {
        let part = room.min(len - at);
        copy(at, stage.get_mut(..part).unwrap_or_default())?;
        at += part;
    }
    Ok(())
}

/// Number of bytes that one call copies, 1 GiB: the system copies at most about twice as many.
const MOST: usize = 1 << 30;
const NOTHING: iovec = iovec {
    iov_base: std::ptr::null_mut(),
    iov_len: 0,
};

/// The segments of a copy, with their seals.
struct List {
    pieces: [iovec; 2 * IOV_LIMIT + 1],
    count: usize,
}

impl Default for List {
    fn default() -> Self {
        List {
            pieces: [NOTHING; _],
            count: 0,
        }
    }
}

impl List {
    fn extend(&mut self, pieces: impl IntoIterator<Item = iovec>) -> Result {
        for piece in pieces {
            *self.pieces.get_mut(self.count).ok_or(Errno::EINVAL)? = piece;
            self.count += 1;
        }
        Ok(())
    }

    #[allow(
        clippy::indexing_slicing,
        reason = "`extend` counts no more than there are"
    )]
    fn pieces(&self) -> &[iovec] {
        &self.pieces[..self.count]
    }
}

#[cfg(test)]
mod tests {
    use prov_base::process_memory::Seal;

    use super::*;

    fn memory(bytes: &mut [u8]) -> AppIov {
        // SAFETY: the tests keep the bytes alive and unborrowed while they use the result.
        unsafe { AppIov::from_raw(bytes.as_mut_ptr(), bytes.len()) }
    }

    fn own(parts: &mut [&mut [u8]], seal: Option<Token>) -> OtherIov {
        let mut all = OtherIov::default();
        for part in parts {
            assert!(all.push_own(&memory(part), seal));
        }
        all
    }

    fn piece(addr: u64, len: u64) -> OtherPiece {
        OtherPiece {
            addr,
            len,
            seal: None,
        }
    }

    /// Returns this process as another one. It can be copied from as long as the seal lives.
    fn this_process() -> (OtherProcess, Seal) {
        let seal = Seal::new().unwrap();
        let process = OtherProcess::find(std::process::id(), seal.token());
        let (process, secret) = process.unwrap();
        assert_eq!(secret, seal.secret());
        (process, seal)
    }

    #[test]
    fn bytes_are_gathered_from_the_pieces() {
        let (mut a, mut b) = (*b"one ", *b"two three");
        let from = own(&mut [&mut a, &mut b], None);
        assert_eq!(from.len(), 13);
        let mut to = [0; 13];
        let (process, _seal) = this_process();
        process.copy(&from, &memory(&mut to)).unwrap();
        assert_eq!(&to, b"one two three");
        let mut to = [0; 5];
        let part = from.slice(2, 5);
        process.copy(&part, &memory(&mut to)).unwrap();
        assert_eq!(&to, b"e two");
        assert_eq!(from.slice(13, 1), OtherIov::default());
        assert_eq!(from.slice(u64::MAX, u64::MAX), OtherIov::default());
    }

    #[test]
    fn every_piece_of_a_full_list_is_copied_and_vouched_for() {
        let (mut a, mut b, mut c, mut d) = ([1u8], [2u8], [3u8], [4u8]);
        let vouches = Seal::new().unwrap();
        let token = Some(vouches.token());
        let mut from = own(&mut [&mut a, &mut b, &mut c, &mut d], token);
        assert!(!from.push(OtherPiece::default()));
        let mut to = [0; 4];
        let (process, seal) = this_process();
        process.copy(&from, &memory(&mut to)).unwrap();
        assert_eq!(to, [1, 2, 3, 4]);
        vouches.destroy();
        let copied = process.copy(&from, &memory(&mut to));
        assert_eq!(copied, Err(Errno::ESHUTDOWN));
        let unsealed = own(&mut [&mut a, &mut b, &mut c, &mut d], None);
        process.copy(&unsealed, &memory(&mut to)).unwrap();
        drop(seal);
        let copied = process.copy(&unsealed, &memory(&mut to));
        assert_eq!(copied, Err(Errno::ESHUTDOWN));
    }

    #[test]
    fn a_process_without_the_seal_is_not_read_as_if_it_were_the_other() {
        let seal = Seal::new().unwrap();
        let Token { addr, value } = seal.token();
        let token = Token {
            addr,
            value: value ^ 1,
        };
        let found = OtherProcess::find(std::process::id(), token);
        assert_eq!(found.err(), Some(Errno::ESHUTDOWN));
        let nowhere = Token { addr: 0, value };
        let found = OtherProcess::find(std::process::id(), nowhere);
        assert_eq!(found.err(), Some(Errno::EFAULT));
        for pid in [0, u32::MAX] {
            let found = OtherProcess::find(pid, Token { addr, value });
            assert_eq!(found.err(), Some(Errno::EINVAL));
        }
    }

    #[test]
    fn memory_that_is_not_mapped_is_an_error() {
        let mut to = [0; 16];
        let mut from = OtherIov::default();
        from.push(piece(8, 16));
        let (process, _seal) = this_process();
        let copied = process.copy(&from, &memory(&mut to));
        assert_eq!(copied, Err(Errno::EFAULT));
    }

    #[test]
    fn lengths_have_to_agree() {
        let mut from = [0u8; 4];
        let from = own(&mut [&mut from], None);
        let (process, _seal) = this_process();
        let copied = process.copy(&from, &memory(&mut [0; 3]));
        assert_eq!(copied, Err(Errno::EINVAL));
        let mut endless = from;
        endless.push(piece(1, u64::MAX));
        let copied = process.copy(&endless, &memory(&mut [0; 3]));
        assert_eq!(copied, Err(Errno::EINVAL));
    }
}
