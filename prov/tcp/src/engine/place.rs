//! Where a message goes to or comes from: memory of an operation, or memory
//! that the application registered for peers.
//!
//! Registered memory can be closed at any time. Whoever touches it holds the
//! region open for that moment, and what was closed is left alone.

use std::os::fd::BorrowedFd;

use prov_util::buffer::{AppIov, Incoming, Outgoing};
use prov_util::errno::{Errno, Result};
use prov_util::mr::Grant;

/// See the module description.
pub enum Place {
    /// Of an operation in flight.
    App(AppIov),
    /// Registered, one after another.
    Registered(Vec<Grant>),
}

impl Place {
    /// Copies bytes to their place `at` the offset, as far as there is room.
    #[inline]
    pub fn write_at(&self, at: usize, bytes: &[u8]) {
        match self {
            Place::App(memory) => {
                memory.write_at(at, bytes);
            }
            Place::Registered(grants) => write_granted(grants, at, bytes),
        }
    }

    /// The application's memory, as far as it is an operation's.
    pub fn memory(&self) -> AppIov {
        match self {
            Place::App(memory) => *memory,
            Place::Registered(_) => AppIov::EMPTY,
        }
    }

    /// Receives up to `len` bytes for the offset `at`, and what comes behind
    /// into `behind`. Returns how many bytes there was room for, how many of
    /// those here, and how many came.
    pub fn receive(
        &self,
        at: usize,
        len: usize,
        behind: &mut [u8],
        socket: BorrowedFd<'_>,
    ) -> (usize, usize, Result<usize>) {
        let receive = |memory: &AppIov, behind: &mut [u8]| {
            let mut transfer = Incoming::default();
            transfer.push_app(memory);
            transfer.push(behind);
            let room = transfer.len();
            let received = transfer.receive(socket, libc::MSG_DONTWAIT);
            (room, memory.len(), received)
        };
        if let Place::App(memory) = self {
            return receive(&memory.slice(at, len), behind);
        }
        let mut received = None;
        let part = self.part(at, len, |memory| {
            // Behind this part there may be another, so its end is the end.
            let behind = match memory.len() == len {
                true => &mut *behind,
                false => &mut [],
            };
            received = Some(receive(memory, behind));
        });
        // Closed: its bytes are read and dropped.
        received.unwrap_or_else(|| {
            let room = part.min(behind.len());
            receive(&AppIov::EMPTY, &mut behind[..room])
        })
    }

    /// Calls `work` with the memory from the offset on, up to `len` bytes and to
    /// the end of its part; not if that is closed. Returns how many bytes the
    /// memory has, or would have.
    pub fn part(&self, at: usize, len: usize, work: impl FnOnce(&AppIov)) -> usize {
        match self {
            Place::App(memory) => {
                let part = memory.slice(at, len);
                work(&part);
                part.len()
            }
            Place::Registered(grants) => {
                let Some((grant, start)) = find(grants, at) else {
                    return 0;
                };
                let len = len.min(grant.len() - start);
                grant.with(|memory| work(&memory.slice(start, len)));
                len
            }
        }
    }
}

/// The part at an offset, and the offset in it.
fn find(grants: &[Grant], mut at: usize) -> Option<(&Grant, usize)> {
    for grant in grants {
        if at < grant.len() {
            return Some((grant, at));
        }
        at -= grant.len();
    }
    None
}

fn write_granted(grants: &[Grant], mut at: usize, mut bytes: &[u8]) {
    for grant in grants {
        if bytes.is_empty() {
            return;
        }
        if at >= grant.len() {
            at -= grant.len();
            continue;
        }
        let (part, rest) = bytes.split_at(bytes.len().min(grant.len() - at));
        grant.with(|memory| memory.write_at(at, part));
        bytes = rest;
        at = 0;
    }
}

/// Sends `out` and then registered memory from an offset on; the bytes that
/// the socket took, or `-FI_EACCES` if the memory is closed.
pub fn send_registered(
    mut out: Outgoing<'_>,
    grant: &Grant,
    from: usize,
    socket: BorrowedFd<'_>,
) -> Result<usize> {
    grant
        .with(|memory| {
            out.push_app(&memory.slice(from, usize::MAX));
            out.send(socket, libc::MSG_DONTWAIT)
        })
        .unwrap_or(Err(Errno::EACCES))
}
