//! The operations of connected endpoints, as work requests.

mod atomics;

use prov_base::errno::{Errno, Result};
use prov_message::OpClass;
use prov_util::request::{Access, Receive, RemoteAccess, Transmit};

use crate::device::{Device, Local, Remote, RemoteKind, Verb};
use crate::lane::{Operation, Posted, Seat, Seats, Work};

pub use atomics::{ATOMICS, is_offered};

/// The sizes with which an endpoint was opened.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Largest number of outstanding sends.
    pub sends: usize,
    /// Largest number of posted receives.
    pub receives: usize,
    /// Largest number of segments of a send.
    pub send_pieces: usize,
    /// Largest number of segments of a receive.
    pub receive_pieces: usize,
    /// Largest number of inline bytes of a send.
    pub inline: usize,
    /// Largest number of bytes of an operation.
    pub longest: usize,
}

impl Sizes {
    /// Checks the size of an operation: `-FI_EINVAL` for too many segments, `-FI_EMSGSIZE` for too
    /// many bytes.
    #[inline(always)]
    pub fn check(&self, pieces: usize, len: usize) -> Result {
        if pieces > self.send_pieces {
            return Err(Errno::EINVAL);
        }
        if len > self.longest {
            return Err(Errno::EMSGSIZE);
        }
        Ok(())
    }
}

impl<D: Device> Seats<D> {
    /// Returns the member that sends. `-FI_EOPBADSTATE` if there is none.
    #[inline(always)]
    pub fn sender(&self) -> Result<&Seat<D>> {
        self.send.as_ref().ok_or(Errno::EOPBADSTATE)
    }

    /// Returns the member that receives, likewise.
    #[inline(always)]
    pub fn receiver(&self) -> Result<&Seat<D>> {
        self.receive.as_ref().ok_or(Errno::EOPBADSTATE)
    }

    /// Sends a message to the connected peer. If that fails, the message is whole.
    pub fn transmit(&self, sizes: &Sizes, message: &mut Transmit) -> Result {
        let seat = self.sender()?;
        let len = message.buffers.len();
        sizes.check(message.buffers.pieces().len(), len)?;
        let mut local = D::Local::empty();
        let keys = local.fill(&mut message.buffers, &message.desc)?;
        let work = Work {
            verb: Verb::Send,
            local: &mut local,
            keys,
            len,
            immediate: message.immediate().map(|data| data as u32),
        };
        let posted = seat.lane.send(seat.name, operation(message), work);
        posted.inspect_err(|_| local.give_back(&mut message.buffers))
    }

    /// Posts a receive, likewise.
    #[inline]
    pub fn receive(&self, sizes: &Sizes, receive: &mut Receive) -> Result {
        let seat = self.receiver()?;
        if receive.buffers.pieces().len() > sizes.receive_pieces {
            return Err(Errno::EINVAL);
        }
        let entry = Posted::of(receive);
        let mut local = D::Local::empty();
        local.fill(&mut receive.buffers, &receive.desc)?;
        let posted = seat.lane.receive(seat.name, &mut local, entry);
        posted.inspect_err(|_| local.give_back(&mut receive.buffers))
    }

    /// Reads or writes memory of the connected peer, likewise.
    #[inline]
    pub fn access(&self, sizes: &Sizes, access: &mut RemoteAccess) -> Result {
        let seat = self.sender()?;
        let len = access.local.len();
        sizes.check(access.local.pieces().len(), len)?;
        let remote = match access.remote.pieces() {
            [piece] if piece.len == len as u64 => *piece,
            [] if len == 0 => Default::default(),
            _ => return Err(Errno::EINVAL),
        };
        let (address, key) = (remote.addr, remote_key(remote.key)?);
        let (class, kind, immediate) = match access.access {
            Access::Read => (OpClass::Read, RemoteKind::Read, None),
            Access::Write => {
                let immediate = access.immediate().map(|data| data as u32);
                (OpClass::Write, RemoteKind::Write, immediate)
            }
        };
        let operation = Operation {
            class,
            flags: access.flags,
            context: access.context,
        };
        let mut local = D::Local::empty();
        let keys = local.fill(&mut access.local, &access.desc)?;
        let work = Work {
            verb: Verb::Remote(Remote { address, key, kind }),
            local: &mut local,
            keys,
            len,
            immediate,
        };
        let posted = seat.lane.send(seat.name, operation, work);
        posted.inspect_err(|_| local.give_back(&mut access.local))
    }
}

/// Returns the operation that the application requests with a message.
#[inline(always)]
pub fn operation(message: &Transmit) -> Operation {
    Operation {
        class: OpClass::Send,
        flags: message.flags,
        context: message.context,
    }
}

/// Converts a key for the device. `-FI_EKEYREJECTED` for an invalid one.
#[inline(always)]
fn remote_key(key: u64) -> Result<u32> {
    u32::try_from(key).map_err(|_| Errno::EKEYREJECTED)
}
