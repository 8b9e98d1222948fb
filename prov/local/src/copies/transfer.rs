//! One transfer: a rendezvous payload that stays with its sender until it is fetched, its
//! destination, and its progress.

use prov_base::buffer::AppIov;
use prov_base::process_memory::OtherIov;
use prov_message::{
    Course, Endpoints, PayloadBuffer, Placing, RmaTarget, Transport, UnexpectedHandle,
};

/// A payload to fetch from a peer.
pub struct Transfer<T: Transport> {
    pub to: Goal<T>,
    /// Location in the peer's memory.
    pub from: Box<OtherIov>,
    /// The peer's name for the transfer, if it has to be told that the transfer is over.
    pub name: Option<u64>,
    /// The peer's name for the offer, if it can send the payload in parts.
    pub offer: Option<u64>,
    /// Whether nothing that the peer does later may overtake the transfer.
    pub goes_first: bool,
    /// Whether the system has refused to let this process read the payload.
    pub is_unreadable: bool,
}

/// The destination of a payload.
pub enum Goal<T: Transport> {
    /// A buffer, which may be shorter than the message.
    Place(Box<Placing<T>>),
    /// The queue of unexpected messages.
    Keep {
        kept: UnexpectedHandle,
        /// Number of bytes that the queue has.
        done: usize,
        /// Buffer for the next bytes. Its length and contents before the copy are arbitrary, since
        /// buffers are reused.
        next: Vec<u8>,
        /// Number of bytes of the buffer that were copied.
        copied: usize,
    },
    /// The payload is not wanted.
    Discard,
}

impl<T: Transport> From<Placing<T>> for Goal<T> {
    fn from(placing: Placing<T>) -> Self {
        Goal::Place(Box::new(placing))
    }
}

impl<T: Transport> From<Course<T>> for Goal<T> {
    fn from(course: Course<T>) -> Self {
        match course {
            Course::Place(placing) => Goal::Place(placing),
            Course::Keep(kept) => Goal::Keep {
                kept,
                done: 0,
                next: Vec::new(),
                copied: 0,
            },
            Course::Discard | Course::Done => Goal::Discard,
        }
    }
}

impl<T: Transport> Goal<T> {
    /// Returns the buffer of a transfer that will not be completed.
    pub fn abandon(self) -> Option<Placing<T>> {
        match self {
            Goal::Place(placing) => Some(*placing),
            Goal::Keep { .. } | Goal::Discard => None,
        }
    }
}

impl<T: Transport> Transfer<T> {
    /// Returns the number of bytes that were copied.
    pub(super) fn done(&self) -> u64 {
        match &self.to {
            Goal::Place(placing) => placing.done as u64,
            Goal::Keep { done, copied, .. } => (done + copied) as u64,
            Goal::Discard => self.from.len(),
        }
    }

    /// Counts bytes that were copied; those of an unexpected message are in the buffer.
    pub(super) fn has_copied(&mut self, len: usize) {
        match &mut self.to {
            Goal::Place(placing) => placing.done += len,
            Goal::Keep { next, copied, .. } => *copied = next.len(),
            Goal::Discard => {}
        }
    }

    /// Returns the destination, if it is memory of the application.
    pub(super) fn memory(&self) -> Option<&AppIov> {
        match &self.to {
            Goal::Place(placing) => match &placing.place {
                PayloadBuffer::App(memory) => Some(memory),
                PayloadBuffer::Registered(_) => None,
            },
            Goal::Keep { .. } | Goal::Discard => None,
        }
    }

    /// Whether the payload can be fetched again from the beginning, in parts.
    pub(super) fn can_restart(&mut self) -> bool {
        match &mut self.to {
            Goal::Place(placing) if self.offer.is_some() && !self.is_unreadable => {
                placing.done = 0;
                true
            }
            _ => false,
        }
    }

    /// Reserves a buffer for the rest of an unexpected message, reusing a spare one.
    pub fn make_room(&mut self, endpoints: &mut Endpoints<T>) {
        let left = (self.from.len() - self.done()) as usize;
        if let Goal::Keep { next, .. } = &mut self.to
            && next.capacity() < left
        {
            *next = endpoints.spare(left);
        }
    }

    /// Whether all bytes were copied.
    pub fn is_whole(&self) -> bool {
        self.done() >= self.from.len()
    }

    /// Appends the copied bytes to the unexpected message, or writes them to the destination that
    /// it has got meanwhile, `course`.
    pub fn keep(
        &mut self,
        course: Option<Course<T>>,
        endpoints: &mut Endpoints<T>,
        registered: &mut Option<RmaTarget>,
    ) {
        let Goal::Keep {
            kept,
            done,
            next,
            copied,
        } = &mut self.to
        else {
            return;
        };
        let len = std::mem::take(copied);
        next.truncate(len);
        match course.map(Goal::from) {
            None => {
                if endpoints.append_all(*kept, next) {
                    *done += len;
                } else {
                    self.to = Goal::Discard;
                }
            }
            Some(Goal::Place(mut placing)) => {
                placing.place.write_at(registered, placing.done, next);
                placing.done += next.len();
                self.to = Goal::Place(placing);
            }
            Some(other) => self.to = other,
        }
    }
}
