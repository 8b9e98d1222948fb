//! A direct copy by the receiver, made without the lane's lock.

use prov_base::buffer::Iov;
use prov_base::errno::{Errno, Result};
use prov_base::process_memory::{OtherIov, OtherPiece};
use prov_message::{EpKey, Errand, RmaTarget, Transport};

use super::transfer::{Goal, Transfer};
use crate::process::OtherProcess;
use crate::relocation::Relocated;
use crate::switch_points::ONE_OF_SEVERAL;

/// A copy of the next bytes of a transfer from a peer's memory.
pub struct Copying<T: Transport> {
    pub(super) link: T::Link,
    pub(super) ep: EpKey,
    pub(super) transfer: Transfer<T>,
    pub(super) memory: OtherProcess,
    pub(super) relocated: Option<Relocated>,
    pub(super) target: Option<RmaTarget>,
    pub(super) outcome: Result,
}

impl<T: Transport> Copying<T> {
    /// Returns the address to which the peer has copied the payload, if it has.
    fn new_place(&self) -> Option<u64> {
        let name = self.transfer.offer?;
        self.relocated.as_ref()?.find(name)
    }

    /// Copies the rest of the payload, which the peer has at this address, or where it was offered.
    fn copy_from(&mut self, relocated: Option<u64>) -> Result {
        let done = self.transfer.done();
        let len = self.transfer.from.len() - done;
        let from = match relocated {
            None => self.transfer.from.slice(done, len),
            Some(addr) => in_one(addr, self.transfer.from.len())?.slice(done, len),
        };
        match &mut self.transfer.to {
            Goal::Place(placing) => {
                let mut at = 0;
                let mut outcome = Ok(());
                while at < len as usize && outcome.is_ok() {
                    let left = len as usize - at;
                    let mut copy = |to: &Iov<'_>| {
                        if !to.is_empty() {
                            let part = from.slice(at as u64, to.len() as u64);
                            outcome = self.memory.read(&part, to);
                        }
                    };
                    let place = &placing.place;
                    let room = place.part(&mut self.target, done as usize + at, left, &mut copy);
                    // Bytes beyond the end of the buffer are not copied.
                    at += if room == 0 { left } else { room };
                }
                outcome
            }
            Goal::Keep { next, .. } => {
                next.resize(len as usize, 0);
                self.memory.copy_out(&from, next)
            }
            Goal::Discard => Ok(()),
        }
    }
}

/// Returns a segment of the peer's memory.
fn in_one(addr: u64, len: u64) -> Result<OtherIov> {
    addr.checked_add(len).ok_or(Errno::EPROTO)?;
    let mut list = OtherIov::default();
    let piece = OtherPiece {
        addr,
        len,
        seal: None,
    };
    match list.push(piece) {
        true => Ok(list),
        false => Err(Errno::EPROTO),
    }
}

impl<T: Transport> Errand for Copying<T> {
    fn run(&mut self) -> bool {
        let len = self.transfer.from.len() - self.transfer.done();
        let before = self.new_place();
        self.outcome = self.copy_from(before);
        if before.is_none()
            && let Some(addr) = self.new_place()
        {
            // What was copied may be the application's next message.
            self.outcome = self.copy_from(Some(addr));
        }
        if self.outcome.is_ok() {
            self.transfer.has_copied(len as usize);
        }
        self.outcome.is_ok() && len <= ONE_OF_SEVERAL as u64
    }
}
