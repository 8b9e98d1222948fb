//! Payloads of announced messages (rendezvous), which the receiver fetches.
//!
//! While sender and receiver both make progress, a payload of more than one part goes in
//! [`parts`](crate::parts) through memory that they share. The receiver copies the first part
//! from the sender's memory by itself (process_vm_readv(2)). If the sender has begun by then,
//! the others are taken as they come; if it has not, or lets the receiver wait, the receiver
//! copies the rest with one call. Where the system does not let it read the sender's memory,
//! all goes in parts.
//!
//! A copy by the receiver is an [`Errand`](prov_message::Errand), done without the lane's
//! lock, since a page of the sender's memory may be anywhere. Parts are copied under the lock,
//! one of each link in a turn.

mod copying;
mod lane;
mod queue;
mod transfer;

use std::collections::VecDeque;

use prov_message::{EpKey, RmaTarget, Transport};
use prov_util::mr::MrTable;

pub use self::copying::Copying;
pub use self::lane::{Copies, Pulls};
pub use self::queue::Transfers;
pub use self::transfer::{Goal, Transfer};
use crate::parts::Outflow;

/// Longest copy, in bytes, after which the same thread may make another one before it looks
/// for messages.
const SHORT: usize = 64 << 10;
/// Turns in which no peer asks for parts, before the links without offers are sorted out.
const VAIN_TURNS: u32 = 64;

/// The transfers of a lane: whose turn it is, and what its peers may ask for.
pub struct Copier<T: Transport> {
    /// Links with a transfer that is to begin.
    turns: VecDeque<T::Link>,
    /// Links with one of which the receiver copies the rest by itself.
    rests: VecDeque<T::Link>,
    /// Links with one that comes in parts.
    open: Vec<T::Link>,
    /// Links whose peers may ask for parts of what they were offered.
    offering: Vec<Offering<T>>,
    /// Links that have offered something before.
    parked: Vec<Offering<T>>,
    vain_turns: u32,
    /// Whether there is nothing to be done.
    is_idle: bool,
    /// Registered memory; `None` while an errand has it.
    target: Option<RmaTarget>,
    /// The endpoint that the errand under way is for.
    ep: Option<EpKey>,
}

/// A link whose peer may ask for parts.
struct Offering<T: Transport> {
    link: T::Link,
    outflow: Box<Outflow>,
}

impl<T: Transport> Copier<T> {
    /// For places in memory that is registered in this table, and any of the application's.
    /// Without a table, nothing is ever transferred.
    pub fn new(memory: Option<&MrTable>) -> Self {
        Copier {
            turns: VecDeque::new(),
            rests: VecDeque::new(),
            open: Vec::new(),
            offering: Vec::new(),
            parked: Vec::new(),
            vain_turns: 0,
            is_idle: true,
            target: memory.map(RmaTarget::new),
            ep: None,
        }
    }

    /// Whether no transfer waits or is under way, and no peer may ask for parts.
    #[inline(always)]
    pub fn is_idle(&self) -> bool {
        self.is_idle
    }

    /// Whether the receiver has to copy something by itself.
    pub fn has_turns(&self) -> bool {
        !self.turns.is_empty() || !self.rests.is_empty()
    }

    fn note(&mut self) {
        self.is_idle = self.turns.is_empty()
            && self.rests.is_empty()
            && self.open.is_empty()
            && self.offering.is_empty();
    }

    /// A link has a transfer that is to begin. It has one turn, however often it is added.
    pub fn add(&mut self, link: T::Link) {
        if !self.turns.contains(&link) {
            self.turns.push_back(link);
        }
        self.note();
    }

    /// The peer of a link is offered something, and may ask for parts of it. `outflow` makes
    /// the link's end of these, once.
    pub fn offers(&mut self, link: T::Link, outflow: impl FnOnce() -> Option<Outflow>) {
        if self.offering.iter().any(|one| one.link == link) {
            return;
        }
        let parked = self.parked.iter().position(|one| one.link == link);
        let offering = match parked {
            Some(at) => Some(self.parked.swap_remove(at)),
            None => outflow().map(|outflow| Offering {
                link,
                outflow: Box::new(outflow),
            }),
        };
        self.offering.extend(offering);
        self.note();
    }

    /// A link has ended, and with it all of its transfers.
    pub fn link_ended(&mut self, link: T::Link) {
        self.turns.retain(|other| *other != link);
        self.rests.retain(|other| *other != link);
        self.open.retain(|other| *other != link);
        self.offering.retain(|other| other.link != link);
        self.parked.retain(|other| other.link != link);
        self.note();
    }

    /// Whether an errand is at memory of an endpoint's operations.
    pub fn is_at_work_for(&self, ep: EpKey) -> bool {
        self.ep == Some(ep)
    }

    /// Whether a peer has asked for a part and there is a slot for it.
    pub fn is_asked(&self, link: T::Link) -> bool {
        let mut offering = self.offering.iter();
        offering.any(|one| one.link == link && one.outflow.is_asked())
    }
}
