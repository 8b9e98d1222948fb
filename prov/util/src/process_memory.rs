//! Memory of another process of this host (process_vm_readv(2)).
//!
//! Nothing here follows an address of the other process: the system copies,
//! and refuses what the other process has not mapped or this one may not read.
//! Which process is which is shown by a [`Token`].

use std::sync::OnceLock;

use libc::iovec;

use crate::buffer::{AppIov, IOV_LIMIT};
use crate::errno::{Errno, Result};

/// A piece of another process's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OtherPiece {
    /// Its address in that process.
    pub addr: u64,
    /// Bytes.
    pub len: u64,
}

impl OtherPiece {
    /// As the system takes it.
    fn iov(&self) -> iovec {
        iovec {
            iov_base: std::ptr::without_provenance_mut(self.addr as usize),
            iov_len: self.len as usize,
        }
    }
}

const NOTHING: iovec = iovec {
    iov_base: std::ptr::null_mut(),
    iov_len: 0,
};

/// Up to [`IOV_LIMIT`] pieces of another process's memory, one after another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OtherIov {
    pieces: [OtherPiece; IOV_LIMIT],
    count: usize,
}

impl OtherIov {
    /// The pieces, in order.
    pub fn pieces(&self) -> &[OtherPiece] {
        &self.pieces[..self.count]
    }

    /// Bytes in all pieces; saturates.
    pub fn len(&self) -> u64 {
        let lens = self.pieces().iter().map(|piece| piece.len);
        lens.fold(0, u64::saturating_add)
    }

    /// Whether there is not one byte.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds a piece; `false` where there are [`IOV_LIMIT`] already.
    pub fn push(&mut self, piece: OtherPiece) -> bool {
        match self.pieces.get_mut(self.count) {
            Some(slot) => {
                *slot = piece;
                self.count += 1;
                true
            }
            None => false,
        }
    }

    /// Adds what this process calls `memory`; `false` where it does not fit.
    pub fn push_own(&mut self, memory: &AppIov) -> bool {
        memory.pieces().iter().all(|piece| {
            self.push(OtherPiece {
                addr: piece.iov_base.expose_provenance() as u64,
                len: piece.iov_len as u64,
            })
        })
    }

    /// Whether other processes can copy these pieces of this one's memory, as
    /// far as the first byte of each tells: they cannot copy what belongs to a
    /// device, for one.
    pub fn can_be_copied(&self) -> bool {
        let mut bytes = [0u8; IOV_LIMIT];
        let near = iovec {
            iov_base: bytes.as_mut_ptr().cast(),
            iov_len: self.count,
        };
        let mut far = [NOTHING; IOV_LIMIT];
        for (slot, piece) in far.iter_mut().zip(self.pieces()) {
            *slot = OtherPiece { len: 1, ..*piece }.iov();
        }
        let pid = libc::pid_t::try_from(std::process::id());
        // SAFETY: `near` describes `bytes`, of which there is one per piece.
        let copied = pid.map(|pid| unsafe { read(pid, &[near], &far[..self.count]) });
        matches!(copied, Ok(Ok(count)) if count == self.count)
    }

    /// At most `len` bytes from `offset` on.
    #[must_use]
    pub fn slice(&self, mut offset: u64, mut len: u64) -> OtherIov {
        let mut part = OtherIov::default();
        for piece in self.pieces() {
            let skipped = offset.min(piece.len);
            offset -= skipped;
            let taken = len.min(piece.len - skipped);
            len -= taken;
            if taken != 0 {
                part.push(OtherPiece {
                    addr: piece.addr.wrapping_add(skipped),
                    len: taken,
                });
            }
        }
        part
    }
}

/// A random number and where it stands in the memory of the process that drew
/// it: who finds it there reads the memory of that process, not that of one
/// which has got its number since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    /// Where the number stands.
    pub addr: u64,
    /// The number.
    pub value: u64,
}

impl Token {
    /// This process's; `-FI_EIO` without random numbers.
    pub fn own() -> Result<Token> {
        static NUMBER: OnceLock<u64> = OnceLock::new();
        let number = match NUMBER.get() {
            Some(number) => number,
            None => {
                let drawn = getrandom::u64().map_err(|_| Errno::EIO)?;
                NUMBER.get_or_init(|| drawn)
            }
        };
        Ok(Token {
            addr: std::ptr::from_ref(number).expose_provenance() as u64,
            value: *number,
        })
    }
}

/// Another process whose memory can be read.
#[derive(Clone, Copy, Debug)]
pub struct OtherProcess {
    pid: libc::pid_t,
    token: Token,
}

impl OtherProcess {
    /// The process `pid` if this one may read its memory and finds the token
    /// there. `-FI_EPERM` where the system does not let it (ptrace(2),
    /// "Ptrace access mode checking"), `-FI_ESHUTDOWN` if it is another process or
    /// none.
    pub fn find(pid: u32, token: Token) -> Result<OtherProcess> {
        let pid = libc::pid_t::try_from(pid).map_err(|_| Errno::EINVAL)?;
        if pid == 0 {
            return Err(Errno::EINVAL);
        }
        let this = OtherProcess { pid, token };
        this.copy(&OtherIov::default(), &AppIov::EMPTY)?;
        Ok(this)
    }

    /// Copies all of `from` to `to`.
    ///
    /// # Errors
    /// `-FI_EINVAL` for different lengths, `-FI_EFAULT` where one of the two
    /// is not mapped, which leaves `to` filled in part, `-FI_ESHUTDOWN` if the
    /// process has ended or become another one.
    pub fn copy(&self, from: &OtherIov, to: &AppIov) -> Result {
        if from.len() != to.len() as u64 {
            return Err(Errno::EINVAL);
        }
        // The token comes along, behind the bytes: the system makes all of
        // the copy in one and the same address space.
        let mut value = 0u64;
        let token = iovec {
            iov_base: std::ptr::from_mut(&mut value).cast(),
            iov_len: size_of::<u64>(),
        };
        let mut near = [NOTHING; IOV_LIMIT + 1];
        let near = fill(&mut near, to.pieces().iter().copied(), token);
        let token = OtherPiece {
            addr: self.token.addr,
            len: size_of::<u64>() as u64,
        };
        let mut far = [NOTHING; IOV_LIMIT + 1];
        let far = fill(
            &mut far,
            from.pieces().iter().map(OtherPiece::iov),
            token.iov(),
        );
        let expected = to.len() + size_of::<u64>();
        // SAFETY: `near` describes memory of an operation in flight and
        // `value`, both valid for their lengths.
        match unsafe { read(self.pid, near, far) }? {
            copied if copied < expected => Err(Errno::EFAULT),
            _ if value != self.token.value => Err(Errno::ESHUTDOWN),
            _ => Ok(()),
        }
    }
}

/// Copies from pieces of another process's memory, which only the system looks
/// at, to pieces of this one's; how many bytes.
///
/// # Safety
/// `near` describes memory that may be written to.
unsafe fn read(pid: libc::pid_t, near: &[iovec], far: &[iovec]) -> Result<usize> {
    // SAFETY: as the caller promises; the system checks `far` against the
    // other process's mappings.
    let copied = unsafe {
        libc::process_vm_readv(
            pid,
            near.as_ptr(),
            near.len() as libc::c_ulong,
            far.as_ptr(),
            far.len() as libc::c_ulong,
            0,
        )
    };
    usize::try_from(copied).map_err(|_| match Errno::last_os_error() {
        error if error.number() == libc::ESRCH => Errno::ESHUTDOWN,
        error => error,
    })
}

fn fill(
    list: &mut [iovec; IOV_LIMIT + 1],
    pieces: impl Iterator<Item = iovec>,
    last: iovec,
) -> &[iovec] {
    let mut count = 0;
    for (slot, piece) in list.iter_mut().zip(pieces.chain([last])) {
        *slot = piece;
        count += 1;
    }
    &list[..count]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(bytes: &mut [u8]) -> AppIov {
        // SAFETY: the tests keep the bytes while they use the result.
        unsafe { AppIov::from_raw(bytes.as_mut_ptr(), bytes.len()) }
    }

    fn own(parts: &mut [&mut [u8]]) -> OtherIov {
        let mut all = OtherIov::default();
        for part in parts {
            assert!(all.push_own(&memory(part)));
        }
        all
    }

    fn this_process() -> OtherProcess {
        OtherProcess::find(std::process::id(), Token::own().unwrap()).unwrap()
    }

    #[test]
    fn bytes_are_gathered_from_the_pieces() {
        let (mut a, mut b) = (*b"one ", *b"two three");
        let from = own(&mut [&mut a, &mut b]);
        assert_eq!(from.len(), 13);
        let mut to = [0; 13];
        this_process().copy(&from, &memory(&mut to)).unwrap();
        assert_eq!(&to, b"one two three");
        let mut to = [0; 5];
        let part = from.slice(2, 5);
        this_process().copy(&part, &memory(&mut to)).unwrap();
        assert_eq!(&to, b"e two");
        assert_eq!(from.slice(13, 1), OtherIov::default());
        assert_eq!(from.slice(u64::MAX, u64::MAX), OtherIov::default());
    }

    #[test]
    fn every_piece_of_a_full_list_is_copied() {
        let (mut a, mut b, mut c, mut d) = ([1u8], [2u8], [3u8], [4u8]);
        let mut from = own(&mut [&mut a, &mut b, &mut c, &mut d]);
        assert!(!from.push(OtherPiece::default()));
        let mut to = [0; 4];
        this_process().copy(&from, &memory(&mut to)).unwrap();
        assert_eq!(to, [1, 2, 3, 4]);
    }

    #[test]
    fn a_process_without_the_token_is_not_read_as_if_it_were_the_other() {
        let Token { addr, value } = Token::own().unwrap();
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
    fn what_is_not_mapped_is_an_error() {
        let mut to = [0; 16];
        let mut from = OtherIov::default();
        from.push(OtherPiece { addr: 8, len: 16 });
        let copied = this_process().copy(&from, &memory(&mut to));
        assert_eq!(copied, Err(Errno::EFAULT));
    }

    #[test]
    fn what_others_cannot_copy_is_known() {
        let (mut a, mut b) = ([1u8; 3], [2u8; 5]);
        let mut list = own(&mut [&mut a, &mut b]);
        assert!(list.can_be_copied());
        assert!(OtherIov::default().can_be_copied());
        list.push(OtherPiece { addr: 8, len: 16 });
        assert!(!list.can_be_copied());
    }

    #[test]
    fn lengths_have_to_agree() {
        let mut from = [0u8; 4];
        let from = own(&mut [&mut from]);
        let copied = this_process().copy(&from, &memory(&mut [0; 3]));
        assert_eq!(copied, Err(Errno::EINVAL));
        let mut endless = from;
        endless.push(OtherPiece {
            addr: 1,
            len: u64::MAX,
        });
        let copied = this_process().copy(&endless, &memory(&mut [0; 3]));
        assert_eq!(copied, Err(Errno::EINVAL));
    }
}
