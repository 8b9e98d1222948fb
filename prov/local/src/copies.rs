//! Payloads of announced messages (rendezvous), which the receiver fetches.
//!
//! The receiver copies a payload directly from the sender's memory (process_vm_readv(2)), all of it with
//! one call: the bytes are copied once, and the sender's processor has nothing to do with it. Where the
//! system does not permit reading the sender's memory, or the memory is of a kind that other processes
//! cannot read, the payload goes in [`parts`](crate::parts) through shared memory.
//!
//! A direct copy is an [`Errand`](prov_message::Errand), made without the lane's lock, since it may
//! wait for a page of the sender's memory that is not resident. Parts are copied under the lock,
//! one for each link in a turn.

mod copying;
mod lane;
mod queue;
mod transfer;

use prov_base::bounded;
use prov_base::bounds::PEERS;
use prov_base::buffer::Ahead;
use std::collections::VecDeque;

use prov_message::{EpKey, RmaTarget, Transport};
use prov_util::mr::MrTable;

pub use self::copying::Copying;
pub use self::lane::{Copies, Pulls};
pub use self::queue::Transfers;
pub use self::transfer::{Goal, Transfer};
use crate::parts::Outflow;

/// Number of consecutive turns in which no peer asks for parts, after which the links without
/// offers are no longer polled.
const VAIN_TURNS: u32 = 64;

/// The transfers of a lane, the order in which they are made, and the links whose peers may ask for
/// parts.
pub struct Copier<T: Transport> {
    /// Links with a transfer that has not begun.
    turns: VecDeque<T::Link>,
    /// Links with a transfer that arrives in parts.
    open: Vec<T::Link>,
    /// Links whose peers may ask for parts of a payload that they were offered.
    offering: Vec<Offering<T>>,
    /// Links whose peers have no offers at present, and had some before.
    parked: Vec<Offering<T>>,
    vain_turns: u32,
    /// Whether there is no work: all lists but `parked` are empty.
    is_idle: bool,
    /// Access to registered memory; `None` while an errand uses it.
    target: Option<RmaTarget>,
    /// The endpoint for which an errand is in progress.
    ep: Option<EpKey>,
}

/// A link whose peer may ask for parts.
struct Offering<T: Transport> {
    link: T::Link,
    outflow: Box<Outflow>,
    /// Bytes that a device reads for the next part of the request with this number.
    ahead: Ahead,
    request: u32,
}

impl<T: Transport> Copier<T> {
    /// Creates the state of a lane whose transfers go to memory registered in this table, or to any
    /// of the application's memory. Without a table, transfers are never started.
    pub fn new(memory: Option<&MrTable>) -> Self {
        Copier {
            turns: VecDeque::new(),
            open: Vec::new(),
            offering: Vec::new(),
            parked: Vec::new(),
            vain_turns: 0,
            is_idle: true,
            target: memory.map(RmaTarget::new),
            ep: None,
        }
    }

    /// Whether no transfer waits or is in progress, and no peer may ask for parts.
    #[inline(always)]
    pub fn is_idle(&self) -> bool {
        self.is_idle
    }

    /// Whether the receiver has a direct copy to make.
    pub fn has_turns(&self) -> bool {
        !self.turns.is_empty()
    }

    fn note(&mut self) {
        self.is_idle = self.turns.is_empty() && self.open.is_empty() && self.offering.is_empty();
    }

    /// Queues a link that has a transfer to begin. A link is in the queue at most once.
    pub fn add(&mut self, link: T::Link) {
        if !self.turns.contains(&link) {
            self.turns.push_back(link);
            bounded!(self.turns, PEERS);
        }
        self.note();
    }

    /// Whether the peer of a link has been offered payloads before, so that it is known that it may ask
    /// for parts; it may do so again.
    fn resumes(&mut self, link: T::Link) -> bool {
        if let Some(at) = self.parked.iter().position(|one| one.link == link) {
            self.offering.push(self.parked.swap_remove(at));
            self.note();
        }
        self.offering.iter().any(|one| one.link == link)
    }

    /// Adds a link whose peer may ask for parts, which leave by `outflow`.
    fn offers(&mut self, link: T::Link, outflow: Outflow) {
        self.offering.push(Offering {
            link,
            outflow: Box::new(outflow),
            ahead: Ahead::default(),
            request: 0,
        });
        bounded!(self.offering, PEERS);
        self.note();
    }

    /// Removes a link that has ended, and its turns. Its transfers end with the link.
    pub fn link_ended(&mut self, link: T::Link) {
        self.turns.retain(|other| *other != link);
        self.open.retain(|other| *other != link);
        self.offering.retain(|other| other.link != link);
        self.parked.retain(|other| other.link != link);
        self.note();
    }

    /// Whether an errand uses memory of an endpoint's operations.
    pub fn is_at_work_for(&self, ep: EpKey) -> bool {
        self.ep == Some(ep)
    }

    /// Whether a peer has asked for a part and a slot for it is free.
    pub fn is_asked(&self, link: T::Link) -> bool {
        let mut offering = self.offering.iter();
        offering.any(|one| one.link == link && one.outflow.is_asked())
    }
}
