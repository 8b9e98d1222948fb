//! The initiator's side: the registered memory of another process, as published by its owner.

use std::os::fd::{AsFd as _, BorrowedFd};

use fabric_abi::{FI_COMMIT_COMPLETE, FI_REMOTE_READ, FI_REMOTE_WRITE};
use prov_base::buffer::Iov;
use prov_base::errno::{Errno, Result};
use prov_base::process_memory::{OtherIov, OtherPiece};
use prov_base::shared_words::{AtomicU64, Ordering};
use prov_message::peers::Bytes;
use prov_util::mr::publish::Published;
use prov_util::request::{Access, RemoteAccess, RemoteIov, RemotePiece};

use super::protocol::{Flight, Flights, Words};
use super::table::{MAGIC, Sheet, TABLE};
use crate::channel::FlightWords;
use crate::process::{Ends, OtherFiles, OtherProcess};
use crate::segment::Segment;

/// See the [module](self) description.
pub struct Window {
    sheet: Sheet,
    flights: Flights<FlightWords>,
    owner: Owner,
    /// Whether the system has not permitted this process to copy.
    is_forbidden: bool,
}

/// The owner of the memory.
struct Owner {
    process: OtherProcess,
    /// Detects the end of the process, and of the link's socket there.
    ends: Ends,
}

/// An access that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accessed {
    /// `-FI_EACCES` if it was refused, `-FI_ESHUTDOWN` if the owner has ended, `-FI_EIO` if a device has
    /// not copied.
    pub outcome: Result,
    /// Whether the owner has to be told, in a message that follows.
    pub is_told: bool,
}

/// The outcome of looking up an access.
pub(super) enum Found<'w> {
    /// The access is permitted.
    Granted(Granted<'w>),
    /// The access is refused: `-FI_EACCES`.
    Refused(Errno),
    /// The table does not tell: the owner has to be asked.
    Unknown,
}

/// A permitted access. The owner keeps the memory registered as long as this lives.
pub(super) struct Granted<'w> {
    _flight: Flight<'w, FlightWords>,
    owner: &'w Owner,
    memory: OtherIov,
    /// Whether the owner counts this access, and has to be told.
    pub(super) is_counted: bool,
}

impl Window {
    /// Maps the table of a process that has sent the descriptor of its
    /// [`RegionTable`](super::table::RegionTable), for a link with these words.
    ///
    /// # Errors
    /// `-FI_EPROTO` if the descriptor is not a table of this version, `-FI_EPERM` if the system
    /// cannot report the end of the process, and others of mmap(2).
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
                is_forbidden: false,
            }),
            _ => Err(Errno::EPROTO),
        }
    }

    /// As [`Window::attach`], for a process that has the table as its descriptor `number`.
    ///
    /// # Errors
    /// Those of [`Window::attach`] and [`OtherFiles::segment_to_read`].
    pub fn open(
        files: &OtherFiles,
        number: u64,
        words: FlightWords,
        owner: OtherProcess,
    ) -> Result<Window> {
        let fd = files.segment_to_read(number)?;
        Window::attach(fd.as_fd(), words, owner)
    }

    /// Carries out an access; for a write, with these bytes. `socket` is the link's, which shows
    /// whether its other end is open, and `has_room` tells whether there is space for a message to
    /// the owner. Returns `None` if the owner has to carry out the access.
    ///
    /// # Errors
    /// `-FI_EAGAIN` if there is no space for that message. Nothing has been copied.
    pub fn access(
        &mut self,
        access: &RemoteAccess,
        bytes: &Bytes<'_>,
        socket: BorrowedFd<'_>,
        has_room: impl FnOnce() -> bool,
    ) -> Result<Option<Accessed>> {
        // A copy may be in this processor's caches only, so the owner has to commit it.
        if access.flags & FI_COMMIT_COMPLETE != 0 || self.is_forbidden {
            return Ok(None);
        }
        let has_data = access.immediate().is_some();
        let granted = match self.find(access.access, &access.remote, has_data) {
            Found::Granted(granted) => granted,
            Found::Refused(error) => {
                return Ok(Some(Accessed {
                    outcome: Err(error),
                    is_told: false,
                }));
            }
            Found::Unknown => return Ok(None),
        };
        let is_told = has_data || granted.is_counted;
        if is_told && !has_room() {
            return Err(Errno::EAGAIN);
        }
        let copied = match (access.access, bytes) {
            (Access::Read, _) => granted
                .read(&access.local)
                .and_then(|()| access.local.take_failure()),
            (Access::Write, Bytes::App(memory)) => granted.write(memory, socket),
            (Access::Write, Bytes::Own(bytes)) => granted.write_bytes(bytes, socket),
        };
        drop(granted);
        let outcome = match copied {
            // Some memory cannot be copied by another process, but its owner can copy it.
            Err(Errno::EFAULT) => return Ok(None),
            Err(error) if !matches!(error, Errno::ESHUTDOWN | Errno::EIO) => {
                log::info!("the owner of memory on this host is asked for each access: {error}");
                self.is_forbidden = true;
                return Ok(None);
            }
            outcome => outcome,
        };
        let is_told = is_told && outcome.is_ok();
        Ok(Some(Accessed { outcome, is_told }))
    }

    /// Whether a write of this piece is permitted, and concerns the owner no further: it does not count
    /// such writes, and no device has to copy, which may fail.
    pub fn permits(&mut self, to: &RemotePiece) -> bool {
        let remote = RemoteIov::from(*to);
        match self.find(Access::Write, &remote, false) {
            Found::Granted(granted) => !granted.is_counted && !granted.memory.has_device(),
            Found::Refused(_) | Found::Unknown => false,
        }
    }

    /// Writes to memory of the owner. `socket` is the link's.
    ///
    /// # Errors
    /// `-FI_EACCES` if that is refused, `-FI_EAGAIN` if the owner has to do it, and those of
    /// [`OtherProcess::write`].
    pub fn write(&mut self, to: &RemotePiece, from: &[u8], socket: BorrowedFd<'_>) -> Result {
        match self.find(Access::Write, &RemoteIov::from(*to), false) {
            Found::Granted(granted) => granted.write_bytes(from, socket),
            Found::Refused(error) => Err(error),
            Found::Unknown => Err(Errno::EAGAIN),
        }
    }

    /// Looks up the memory of an access. An access to no bytes without immediate data succeeds
    /// whatever its keys are, and is not reported to the owner if they are invalid.
    pub(super) fn find(&mut self, access: Access, remote: &RemoteIov, has_data: bool) -> Found<'_> {
        let Window {
            sheet,
            flights,
            owner,
            ..
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
                    refusal = refusal.or(Some(Errno::EACCES));
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
            refusal = Some(Errno::EACCES);
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

/// Returns the address in the owner's memory of the part of a region that an access refers to.
fn grant(region: &Published, kind: u64, piece: &RemotePiece) -> Option<u64> {
    let offset = piece.addr.checked_sub(region.base)?;
    let is_within = offset.checked_add(piece.len)? <= region.len;
    let is_permitted = region.access & kind == kind && piece.len <= isize::MAX as u64;
    let addr = region.addr.checked_add(offset)?;
    (is_within && is_permitted).then_some(addr)
}

impl Granted<'_> {
    /// Copies `from` to the memory. `socket` is the link's, which shows whether its other end is
    /// open.
    ///
    /// # Errors
    /// Those of [`OtherProcess::write`]. After an error, a part may have been written.
    pub(super) fn write(&self, from: &Iov<'_>, socket: BorrowedFd<'_>) -> Result {
        let Owner { process, ends } = self.owner;
        process.write(from, &self.memory, socket, ends)
    }

    /// As [`Granted::write`], for bytes of the library's own.
    ///
    /// # Errors
    /// Those of [`Granted::write`].
    pub(super) fn write_bytes(&self, from: &[u8], socket: BorrowedFd<'_>) -> Result {
        let Owner { process, ends } = self.owner;
        process.write_bytes(from, &self.memory, socket, ends)
    }

    /// Copies the memory to `to`.
    ///
    /// # Errors
    /// Those of [`OtherProcess::copy`]. After an error, a part of `to` may have been filled, with
    /// arbitrary data.
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
