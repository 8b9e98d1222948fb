//! A direct copy by the receiver, made without the lane's lock.

use prov_base::buffer::Iov;
use prov_base::errno::Result;
use prov_message::{EpKey, Errand, RmaTarget, Transport};

use super::SHORT;
use super::transfer::{Goal, Transfer};
use crate::process::OtherProcess;

/// A copy of the next bytes of a transfer from a peer's memory.
pub struct Copying<T: Transport> {
    pub(super) link: T::Link,
    pub(super) ep: EpKey,
    pub(super) transfer: Transfer<T>,
    pub(super) memory: OtherProcess,
    pub(super) target: Option<RmaTarget>,
    pub(super) outcome: Result,
}

impl<T: Transport> Errand for Copying<T> {
    fn run(&mut self) -> bool {
        let done = self.transfer.done();
        let len = self.transfer.from.len() - done;
        let from = self.transfer.from.slice(done, len);
        self.outcome = match &mut self.transfer.to {
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
                placing.done += if outcome.is_ok() { len as usize } else { 0 };
                outcome
            }
            Goal::Keep { next, copied, .. } => {
                next.resize(len as usize, 0);
                let outcome = self.memory.copy_out(&from, next);
                *copied = if outcome.is_ok() { next.len() } else { 0 };
                outcome
            }
            Goal::Discard => Ok(()),
        };
        self.outcome.is_ok() && len <= SHORT as u64
    }
}
