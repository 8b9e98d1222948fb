//! Copies under way, without the lane's lock.

use std::time::{Duration, Instant};

use prov_base::errno::Result;
use prov_message::{EpKey, Errand, Target, Transport};

use super::SHORT;
use super::helping::Helping;
use super::joined::{Ends, Turn, destination};
use super::queue::Batch;
use super::transfer::Goal;
use crate::process::OtherProcess;

/// What a lane does for copies between its peers and itself.
pub enum Work<T: Transport> {
    Copy(Box<Copying<T>>),
    Help(Box<Helping>),
}

impl<T: Transport> Work<T> {
    /// Whether all there is to do is to wait for a peer's process, which may need
    /// the processor.
    pub fn waits(&self) -> bool {
        matches!(self, Work::Copy(copying) if copying.waits())
    }
}

impl<T: Transport> Errand for Work<T> {
    fn run(&mut self) -> bool {
        match self {
            Work::Copy(copying) => copying.run(),
            Work::Help(helping) => helping.run(),
        }
    }
}

/// Copies from a peer's memory.
pub struct Copying<T: Transport> {
    pub(super) link: T::Link,
    pub(super) ep: EpKey,
    pub(super) batch: Batch<T>,
    pub(super) memory: OtherProcess,
    pub(super) target: Option<Target>,
    pub(super) outcome: Result,
    /// Whether there is nothing else to copy.
    pub(super) is_only: bool,
}

impl<T: Transport> Copying<T> {
    /// From whose memory.
    pub fn link(&self) -> T::Link {
        self.link
    }

    fn waits(&self) -> bool {
        let meeting = self.batch.meeting.as_ref();
        meeting.is_some_and(|meeting| meeting.waits())
    }

    pub(super) fn is_open(&self) -> bool {
        let meeting = self.batch.meeting.as_ref();
        meeting.is_some_and(|meeting| meeting.is_open())
    }

    pub(super) fn give_up(&mut self) {
        if let Some(meeting) = &mut self.batch.meeting {
            meeting.give_up();
        }
    }

    /// So many bytes were copied in that time, if all is well.
    fn took(&self, len: u64, time: Duration) {
        if let (Some(pace), Ok(())) = (&self.batch.pace, self.outcome) {
            pace.has_copied(len, time);
        }
    }

    /// Makes copies together that are simple.
    fn copy_together(&mut self) -> bool {
        let began = Instant::now();
        let pairs = self.batch.transfers.iter().filter_map(|transfer| {
            let memory = transfer.simple()?;
            Some((&*transfer.from, memory))
        });
        self.outcome = self.memory.copy_all(pairs);
        let transfers = &self.batch.transfers;
        let count = transfers.len().max(1);
        let len: u64 = transfers.iter().map(|transfer| transfer.from.len()).sum();
        self.took(len / count as u64, began.elapsed() / count as u32);
        if self.outcome.is_ok() {
            for transfer in &mut self.batch.transfers {
                let len = transfer.from.len() as usize;
                if let Goal::Place(placing) = &mut transfer.to {
                    placing.done = len;
                }
            }
        }
        false
    }
}

impl<T: Transport> Errand for Copying<T> {
    fn run(&mut self) -> bool {
        let Batch {
            transfers, meeting, ..
        } = &mut self.batch;
        let [transfer] = &mut transfers[..] else {
            return self.copy_together();
        };
        let mut alone = None;
        if let Some(meeting) = meeting {
            if !meeting.is_open()
                && let (Some(name), Some(to)) = (transfer.offer, destination(transfer))
            {
                meeting.begin(name, &to, &self.memory);
                alone = Some(to);
            }
            if meeting.is_open()
                && let Goal::Place(placing) = &mut transfer.to
            {
                let mut ends = Ends {
                    memory: &self.memory,
                    from: &transfer.from,
                    place: &placing.place,
                    target: &mut self.target,
                };
                match meeting.go_on(&mut ends, self.is_only) {
                    Turn::GoesOn => {}
                    Turn::Copied(len) => placing.done = len as usize,
                    Turn::Failed(error) => self.outcome = Err(error),
                }
                return false;
            }
        }
        let (done, left) = (transfer.done(), transfer.left());
        let from = transfer.from.slice(done, left);
        let left = left as usize;
        let began = Instant::now();
        self.outcome = match &mut transfer.to {
            Goal::Place(placing) => {
                let mut ends = Ends {
                    memory: &self.memory,
                    from: &transfer.from,
                    place: &placing.place,
                    target: &mut self.target,
                };
                let copied = ends.copy(done, left as u64);
                self.outcome = copied.map(|()| placing.done += left);
                let time = began.elapsed();
                if let (Ok(()), Some(meeting), Some(to)) = (self.outcome, meeting, alone) {
                    meeting.was_not_asked(&to, left as u64, time);
                }
                self.took(left as u64, time);
                return self.outcome.is_ok() && left <= SHORT;
            }
            Goal::Keep { next, copied, .. } => {
                next.resize(left, 0);
                self.memory
                    .copy_out(&from, next)
                    .map(|()| *copied = next.len())
            }
            Goal::Discard => Ok(()),
        };
        self.outcome.is_ok() && left <= SHORT
    }
}
