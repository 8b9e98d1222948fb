//! One transfer: the payload of a message that stays with its sender until it is fetched,
//! where it goes, and how far it is.

use prov_base::buffer::AppIov;
use prov_base::process_memory::OtherIov;
use prov_message::{
    Course, Endpoints, PayloadBuffer, Placing, RmaTarget, Transport, UnexpectedHandle,
};

/// A payload that is fetched from a peer.
pub struct Transfer<T: Transport> {
    pub to: Goal<T>,
    /// Where it is in the peer's memory.
    pub from: Box<OtherIov>,
    /// The peer's name for it, if it is to be told of the end by that.
    pub name: Option<u64>,
    /// The peer's name for the offer, if it delivers parts by that.
    pub offer: Option<u64>,
    /// Whether nothing that the peer does later may overtake it.
    pub goes_first: bool,
    /// Whether it turned out that this process cannot read it.
    pub is_unreadable: bool,
}

/// Where they go.
pub enum Goal<T: Transport> {
    /// To their place in memory, which may be too small for a message.
    Place(Box<Placing<T>>),
    /// Into the queue of unexpected messages.
    Keep {
        kept: UnexpectedHandle,
        /// Bytes that are there.
        done: usize,
        /// Where those behind them are copied to. There may be more of it, in which
        /// anything stands: it may have been used before.
        next: Vec<u8>,
        /// How many of these have been.
        copied: usize,
    },
    /// Nobody wants them.
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
    /// What will not come to its place any more.
    pub fn abandon(self) -> Option<Placing<T>> {
        match self {
            Goal::Place(placing) => Some(*placing),
            Goal::Keep { .. } | Goal::Discard => None,
        }
    }
}

impl<T: Transport> Transfer<T> {
    /// The bytes that are copied.
    pub(super) fn done(&self) -> u64 {
        match &self.to {
            Goal::Place(placing) => placing.done as u64,
            Goal::Keep { done, copied, .. } => (done + copied) as u64,
            Goal::Discard => self.from.len(),
        }
    }

    /// Where it goes, if that is memory of the application's.
    pub(super) fn memory(&self) -> Option<AppIov> {
        match &self.to {
            Goal::Place(placing) => match &placing.place {
                PayloadBuffer::App(memory) => Some(*memory),
                PayloadBuffer::Registered(_) => None,
            },
            Goal::Keep { .. } | Goal::Discard => None,
        }
    }

    /// Whether it can be fetched again from the beginning, in parts.
    pub(super) fn can_restart(&mut self) -> bool {
        match &mut self.to {
            Goal::Place(placing) if self.offer.is_some() && !self.is_unreadable => {
                placing.done = 0;
                true
            }
            _ => false,
        }
    }

    /// Takes memory for bytes that will be kept from where there is some to spare.
    pub fn make_room(&mut self, endpoints: &mut Endpoints<T>) {
        let left = (self.from.len() - self.done()) as usize;
        if let Goal::Keep { next, .. } = &mut self.to
            && next.capacity() < left
        {
            *next = endpoints.spare(left);
        }
    }

    /// Whether all of them are.
    pub fn is_whole(&self) -> bool {
        self.done() >= self.from.len()
    }

    /// Gives bytes that were copied to the message that is kept, or to what it has
    /// become meanwhile: this `course`, if any.
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
