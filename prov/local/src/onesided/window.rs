//! The initiator's side: another process's registered memory, as far as its owner has
//! published it.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use fabric_abi::{FI_COMMIT_COMPLETE, FI_REMOTE_READ, FI_REMOTE_WRITE};
use prov_base::buffer::Iov;
use prov_base::errno::{Errno, Result};
use prov_base::process_memory::{OtherIov, OtherPiece};
use prov_message::peers::Bytes;
use prov_util::mr::publish::Published;
use prov_util::request::{Access, RemoteAccess, RemoteIov, RemotePiece};

use super::protocol::{Flight, Flights, Words};
use super::table::{MAGIC, Sheet, TABLE};
use crate::channel::FlightWords;
use crate::process::{Ends, OtherProcess, open_to_read};
use crate::segment::Segment;

/// See the [module](self) description.
pub struct Window {
    sheet: Sheet,
    flights: Flights<FlightWords>,
    owner: Owner,
}

/// Whose memory it is.
struct Owner {
    process: OtherProcess,
    /// Of the process, and of the link's socket there.
    ends: Ends,
}

/// What has become of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is carried out.
    Done {
        /// Whether the owner is to be told, in a message behind it.
        is_told: bool,
    },
    /// It is refused (`-FI_ENOKEY`, `-FI_EACCES`), or the owner is gone
    /// (`-FI_ESHUTDOWN`).
    Failed(Errno),
    /// There is no room for that message. Nothing has been copied.
    NoRoom,
    /// The owner has to carry it out.
    Ask,
    /// The same of all: the system does not let this process copy.
    Forbidden(Errno),
}

/// What comes of a search.
pub(super) enum Found<'w> {
    /// It is permitted.
    Granted(Granted<'w>),
    /// It is not: `-FI_ENOKEY`, `-FI_EACCES`.
    Refused(Errno),
    /// The owner has to be asked.
    Unknown,
}

/// An access that is permitted. The owner keeps the memory as long as this lives.
pub(super) struct Granted<'w> {
    _flight: Flight<'w, FlightWords>,
    owner: &'w Owner,
    memory: OtherIov,
    /// Whether the owner wants to hear of it.
    pub(super) is_counted: bool,
}

impl Window {
    /// That of a process which has sent this descriptor of its
    /// [`RegionTable`](super::table::RegionTable), at a link with these words.
    ///
    /// # Errors
    /// `-FI_EPROTO` if it is none of this version, `-FI_EPERM` where the system does not
    /// say when the process ends, others of mmap(2).
    pub fn attach(fd: BorrowedFd<'_>, words: FlightWords, owner: OtherProcess) -> Result<Window> {
        if !owner.can_be_written() {
            return Err(Errno::EPERM);
        }
        let sheet = Sheet::new(Segment::attach_to_read(fd, TABLE)?).ok_or(Errno::EPROTO)?;
        match sheet.magic().load(Ordering::Relaxed) {
            MAGIC => Ok(Window {
                sheet,
                flights: Flights::new(words),
                owner: Owner {
                    process: owner,
                    ends: Ends::default(),
                },
            }),
            _ => Err(Errno::EPROTO),
        }
    }

    /// [`Window::attach`] for a process that has the table as this file.
    ///
    /// # Errors
    /// The same, and those of [`open_to_read`].
    pub fn open(pid: u32, number: u64, words: FlightWords, owner: OtherProcess) -> Result<Window> {
        let number = u32::try_from(number).map_err(|_| Errno::EINVAL)?;
        let fd = open_to_read(pid, number)?;
        Window::attach(fd.as_fd(), words, owner)
    }

    /// Carries out an access, with these bytes if it is a write. `socket` is the link's, which
    /// shows its end, and `has_room` says whether there is room for a message to the owner.
    pub fn access(
        &mut self,
        access: &RemoteAccess,
        bytes: &Bytes<'_>,
        socket: BorrowedFd<'_>,
        has_room: impl FnOnce() -> bool,
    ) -> Outcome {
        // What is copied may be in no more than this processor's caches.
        if access.flags & FI_COMMIT_COMPLETE != 0 {
            return Outcome::Ask;
        }
        let has_data = access.immediate().is_some();
        let granted = match self.find(access.access, &access.remote, has_data) {
            Found::Granted(granted) => granted,
            Found::Refused(error) => return Outcome::Failed(error),
            Found::Unknown => return Outcome::Ask,
        };
        let is_told = has_data || granted.is_counted;
        if is_told && !has_room() {
            return Outcome::NoRoom;
        }
        let copied = match (access.access, bytes) {
            (Access::Read, _) => granted.read(&access.local),
            (Access::Write, Bytes::App(memory)) => granted.write(memory, socket),
            (Access::Write, Bytes::Own(bytes)) => granted.write_bytes(bytes, socket),
        };
        match copied {
            Ok(()) => Outcome::Done { is_told },
            Err(Errno::ESHUTDOWN) => Outcome::Failed(Errno::ESHUTDOWN),
            // Not all memory can be copied by others, but its owner can.
            Err(Errno::EFAULT) => Outcome::Ask,
            Err(error) => Outcome::Forbidden(error),
        }
    }

    /// The memory that an access means. One of no bytes and without immediate data
    /// succeeds whatever its keys, and is told nobody where these are not valid.
    pub(super) fn find(&mut self, access: Access, remote: &RemoteIov, has_data: bool) -> Found<'_> {
        let Window {
            sheet,
            flights,
            owner,
        } = self;
        let kind = match access {
            Access::Read => FI_REMOTE_READ,
            Access::Write => FI_REMOTE_WRITE,
        };
        let Some(flight) = flights.begin() else {
            return Found::Unknown;
        };
        let mut memory = OtherIov::default();
        let mut counted = sheet.counted().load(Ordering::Relaxed);
        let mut refusal = None;
        for piece in remote.pieces() {
            let region = sheet
                .probe(piece.key)
                .find_map(|(_, entry)| entry.find(piece.key));
            let region = match region {
                Some(region) => region,
                None if sheet.unlisted().load(Ordering::Acquire) != 0 => return Found::Unknown,
                None => {
                    refusal = refusal.or(Some(Errno::ENOKEY));
                    continue;
                }
            };
            counted |= region.counted;
            match grant(&region, kind, piece) {
                Some(addr) if piece.len != 0 => {
                    let (len, seal) = (piece.len, None);
                    memory.push(OtherPiece { addr, len, seal });
                }
                Some(_) => {}
                None => refusal = refusal.or(Some(Errno::EACCES)),
            }
        }
        if has_data && remote.pieces().is_empty() {
            refusal = Some(Errno::ENOKEY);
        }
        let is_counted = refusal.is_none() && counted & kind != 0;
        match refusal {
            Some(error) if has_data || !remote.is_empty() => Found::Refused(error),
            _ => Found::Granted(Granted {
                _flight: flight,
                owner,
                memory,
                is_counted,
            }),
        }
    }
}

/// Where the part of a region that an access means is in the owner's memory.
fn grant(region: &Published, kind: u64, piece: &RemotePiece) -> Option<u64> {
    let offset = piece.addr.checked_sub(region.base)?;
    let is_within = offset.checked_add(piece.len)? <= region.len;
    let is_permitted = region.access & kind == kind && piece.len <= isize::MAX as u64;
    let addr = region.addr.checked_add(offset)?;
    (is_within && is_permitted).then_some(addr)
}

impl Granted<'_> {
    /// Copies `from` there. `socket` is the link's, which shows its end.
    ///
    /// # Errors
    /// Those of [`OtherProcess::write`]. The memory has been written in part after one.
    pub(super) fn write(&self, from: &Iov<'_>, socket: BorrowedFd<'_>) -> Result {
        let Owner { process, ends } = self.owner;
        process.write(from, &self.memory, socket, ends)
    }

    /// [`Granted::write`] of bytes of this process's own.
    ///
    /// # Errors
    /// The same.
    pub(super) fn write_bytes(&self, from: &[u8], socket: BorrowedFd<'_>) -> Result {
        let Owner { process, ends } = self.owner;
        process.write_bytes(from, &self.memory, socket, ends)
    }

    /// Copies what is there to `to`.
    ///
    /// # Errors
    /// Those of [`OtherProcess::copy`]. `to` has been filled in part, or with
    /// anything, after one.
    pub(super) fn read(&self, to: &Iov<'_>) -> Result {
        self.owner.process.read(&self.memory, to)
    }
}

impl Words for FlightWords {
    #[inline]
    fn flight(&self) -> &AtomicU64 {
        self.flight()
    }

    #[inline]
    fn revoked(&self) -> &AtomicU64 {
        self.revoked()
    }
}
