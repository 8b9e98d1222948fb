//! Operations and offers of this side that a link's peer will answer, and what they forbid until
//! then.

use prov_base::bounded;
use prov_base::bounds::OPERATIONS;
use std::ops::Deref;

use prov_base::buffer::AppIov;
use prov_message::{OpClass, Ticket};
use prov_util::mr::Grants;
use slotmap::{SlotMap, new_key_type};

use super::payload::Payload;
use crate::switch_points::EAGER;

new_key_type! {
    /// An operation or an offer that the peer will answer.
    pub struct PendingKey;
}

/// Largest number of replies of one link that wait for space in the channel.
pub(super) const ANSWERS: usize = 1 << 20;

/// Largest number of requests of one link that the peer has not answered: bounds the replies that
/// it must hold.
pub const REQUESTS: usize = 4096;

/// Largest number of operations and offers of one link that the peer has not answered, beyond which
/// messages that it answers wait: it keeps answers until this side reads them, and these have to fit
/// into what it keeps together with those to requests.
const UNANSWERED: usize = ANSWERS - 2 * REQUESTS;

/// An operation or offer that the peer will answer.
pub enum Pending {
    /// An operation whose completion the peer reports.
    Op(Ticket),
    /// A read, or an atomic operation with a result: the destination, and the number of bytes that
    /// have arrived.
    Result {
        ticket: Ticket,
        to: AppIov,
        done: usize,
    },
    /// An offer of a message, and the operation that is complete when the peer has fetched it.
    Offer { ticket: Ticket, payload: Payload },
    /// Memory of which data is sent to the peer in parts.
    Read(Grants),
}

impl Pending {
    /// Whether the peer answers it as soon as it receives it.
    fn is_request(&self) -> bool {
        match self {
            Pending::Op(ticket) => {
                let class = ticket.op().class;
                !matches!(class, OpClass::Send | OpClass::TaggedSend)
            }
            Pending::Result { .. } => true,
            Pending::Offer { .. } | Pending::Read(_) => false,
        }
    }

    /// Returns the operation.
    pub fn into_ticket(self) -> Option<Ticket> {
        match self {
            Pending::Op(ticket)
            | Pending::Result { ticket, .. }
            | Pending::Offer { ticket, .. } => Some(ticket),
            Pending::Read(_) => None,
        }
    }

    /// Whether the result is too long for the peer's reply.
    fn is_long_result(&self) -> bool {
        matches!(self, Pending::Result { to, .. } if to.len() > EAGER)
    }

    /// Whether the peer reads it.
    fn is_read(&self) -> bool {
        matches!(self, Pending::Read(_))
    }
}

/// All operations and offers that the peer will answer.
#[derive(Default)]
pub struct PendingRequests {
    all: SlotMap<PendingKey, Pending>,
    /// Number of these that the peer answers as soon as it receives them.
    requests: usize,
    /// Number of these that the peer reads.
    reads: usize,
    /// Why messages may not take the fast path: [`OFFERS_ONLY`] for a peer that wants messages
    /// to be announced, [`HAS_BEHIND`] while operations wait behind long ones, and
    /// [`LONG_RESULT`] for each long result that is to come.
    detours: usize,
}

/// Flag in [`PendingRequests::detours`]: the peer wants messages to be offered.
const OFFERS_ONLY: usize = 1;
const HAS_BEHIND: usize = 2;
const LONG_RESULT: usize = 4;

impl PendingRequests {
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub fn insert(&mut self, pending: Pending) -> PendingKey {
        self.requests += usize::from(pending.is_request());
        self.reads += usize::from(pending.is_read());
        self.detours += LONG_RESULT * usize::from(pending.is_long_result());
        let key = self.all.insert(pending);
        bounded!(self.all, OPERATIONS);
        key
    }

    pub fn remove(&mut self, name: PendingKey) -> Option<Pending> {
        let pending = self.all.remove(name)?;
        self.requests -= usize::from(pending.is_request());
        self.reads -= usize::from(pending.is_read());
        self.detours -= LONG_RESULT * usize::from(pending.is_long_result());
        Some(pending)
    }

    /// Whether the protocol permits another request.
    #[inline]
    pub fn has_room_for_request(&self) -> bool {
        self.requests < REQUESTS
    }

    /// Whether there may be another message that the peer answers.
    pub fn has_room_for_message(&self) -> bool {
        self.all.len() < UNANSWERED
    }

    /// Whether requests are outstanding, which the peer answers as soon as it receives them.
    #[inline]
    pub fn has_requests(&self) -> bool {
        self.requests != 0
    }

    /// Whether messages may not take the fast path.
    #[inline(always)]
    pub fn has_detours(&self) -> bool {
        self.detours != 0
    }

    /// Whether the peer wants messages to be offered, not sent eagerly.
    pub fn offers_only(&self) -> bool {
        self.detours & OFFERS_ONLY != 0
    }

    /// Sets whether the peer wants messages to be offered.
    pub fn offer_only(&mut self, only: bool) {
        self.detours = self.detours & !OFFERS_ONLY | if only { OFFERS_ONLY } else { 0 };
    }

    /// Whether operations wait for long ones to complete.
    pub(super) fn has_behind(&self) -> bool {
        self.detours & HAS_BEHIND != 0
    }

    pub(super) fn note_behind(&mut self, are_any: bool) {
        self.detours = self.detours & !HAS_BEHIND | if are_any { HAS_BEHIND } else { 0 };
    }

    /// Whether long results are outstanding. The peer reads its memory for them when there is
    /// space, so no operation may follow that changes this memory, or makes the peer change it.
    pub fn has_long_results(&self) -> bool {
        self.detours >= LONG_RESULT
    }

    /// Whether the peer has more reads outstanding than it ever has, including those that it has
    /// not acknowledged.
    pub fn has_too_many_reads(&self) -> bool {
        self.reads > 2 * REQUESTS
    }

    /// Returns the destination of a result, and the number of bytes that have arrived.
    pub fn result(&mut self, name: PendingKey) -> Option<(&AppIov, &mut usize)> {
        match self.all.get_mut(name)? {
            Pending::Result { to, done, .. } => Some((to, done)),
            _ => None,
        }
    }

    pub fn into_all(self) -> impl Iterator<Item = Pending> {
        self.all.into_iter().map(|(_, pending)| pending)
    }
}

impl Deref for PendingRequests {
    type Target = SlotMap<PendingKey, Pending>;

    fn deref(&self) -> &Self::Target {
        &self.all
    }
}
