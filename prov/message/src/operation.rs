//! Outstanding operations of the application: what their completions report, and how they are
//! counted.

use std::ffi::c_void;
use std::sync::Arc;

use fabric_abi::{
    FI_ATOMIC, FI_MSG, FI_PEER_TRANSFER, FI_READ, FI_RMA, FI_SEND, FI_TAGGED, FI_WRITE,
};
use prov_util::request::{Access, Atomic, AtomicKind, RemoteAccess, Tag, Transmit};
use prov_util::transmit_pool::TransmitPool;
use slotmap::new_key_type;

new_key_type! {
    /// The key of an endpoint in its lane.
    pub struct EpKey;
}

/// The kind of an operation, which determines completion flags and counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpClass {
    /// fi_msg(3)
    Send,
    /// fi_tagged(3)
    TaggedSend,
    /// fi_rma(3) read
    Read,
    /// fi_rma(3) write
    Write,
    /// fi_atomic(3) without a result
    Atomic,
    /// fi_atomic(3) with a result
    FetchAtomic,
    /// A message that a peer provider transfers over the endpoint (`FI_PEER_TRANSFER`, fi_peer(3)).
    /// Only the peer provider is informed of its end.
    Transfer,
}

impl OpClass {
    /// Returns whether it is a message of the application.
    #[inline]
    pub fn is_message(self) -> bool {
        matches!(self, OpClass::Send | OpClass::TaggedSend)
    }

    /// Returns the flags of the operation's completion.
    #[inline]
    pub fn completion_flags(self) -> u64 {
        match self {
            OpClass::Send => FI_MSG | FI_SEND,
            OpClass::TaggedSend => FI_TAGGED | FI_SEND,
            OpClass::Read => FI_RMA | FI_READ,
            OpClass::Write => FI_RMA | FI_WRITE,
            OpClass::Atomic => FI_ATOMIC | FI_WRITE,
            OpClass::FetchAtomic => FI_ATOMIC | FI_READ,
            OpClass::Transfer => FI_PEER_TRANSFER | FI_TAGGED | FI_SEND,
        }
    }
}

/// What a completion needs to know about an operation.
#[derive(Clone, Copy, Debug)]
pub struct Op {
    /// The endpoint to which it was posted.
    pub ep: EpKey,
    /// Its kind.
    pub class: OpClass,
    /// Whether success is reported to the completion queue. Failure always is, unless `is_inject`.
    pub report: bool,
    /// Whether the application expects no completion and has already reused the context.
    pub is_inject: bool,
    /// Bytes that it transfers.
    pub len: usize,
    /// The application's context.
    pub context: Context,
}

impl Op {
    /// Describes a message.
    #[inline(always)]
    pub fn of_transmit(ep: EpKey, message: &Transmit) -> Self {
        match message.flags & FI_PEER_TRANSFER {
            0 => Op::of_plain(ep, message),
            _ => Op::of_transfer(ep, message),
        }
    }

    /// [`Op::of_transmit`] for a message without `FI_PEER_TRANSFER`.
    #[inline(always)]
    pub fn of_plain(ep: EpKey, message: &Transmit) -> Self {
        Op {
            ep,
            class: match message.tag {
                Tag::None => OpClass::Send,
                Tag::Value(_) => OpClass::TaggedSend,
            },
            report: message.wants_completion(),
            is_inject: message.is_inject() && !message.wants_completion(),
            len: message.buffers.len(),
            context: Context::of(message.context),
        }
    }

    /// A peer provider is informed of all its transfers.
    #[cold]
    fn of_transfer(ep: EpKey, message: &Transmit) -> Self {
        Op {
            ep,
            class: OpClass::Transfer,
            report: false,
            is_inject: false,
            len: message.buffers.len(),
            context: Context::of(message.context),
        }
    }

    /// Returns whether fi_cancel(3) with this context refers to the operation. The application takes
    /// an injected one for complete.
    pub fn can_be_cancelled_by(&self, context: Context) -> bool {
        self.context == context && !self.is_inject
    }

    /// Describes a read or a write.
    #[inline]
    pub fn of_access(ep: EpKey, access: &RemoteAccess) -> Self {
        Op {
            ep,
            class: match access.access {
                _ if access.flags & FI_PEER_TRANSFER != 0 => OpClass::Transfer,
                Access::Read => OpClass::Read,
                Access::Write => OpClass::Write,
            },
            report: access.wants_completion(),
            is_inject: access.is_inject() && !access.wants_completion(),
            len: access.local.len(),
            context: Context::of(access.context),
        }
    }

    /// Describes an atomic operation.
    #[inline]
    pub fn of_atomic(ep: EpKey, atomic: &Atomic) -> Self {
        Op {
            ep,
            class: match atomic.kind {
                _ if atomic.flags & FI_PEER_TRANSFER != 0 => OpClass::Transfer,
                AtomicKind::Base => OpClass::Atomic,
                AtomicKind::Fetch { .. } | AtomicKind::Compare { .. } => OpClass::FetchAtomic,
            },
            report: atomic.wants_completion(),
            is_inject: atomic.is_inject() && !atomic.wants_completion(),
            len: atomic.remote.len() as usize,
            context: Context::of(atomic.context),
        }
    }
}

/// The application's context pointer, which is returned and never dereferenced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Context(pub usize);

impl Context {
    /// Wraps the pointer of a call.
    #[inline]
    pub fn of(context: *mut c_void) -> Self {
        Context(context.expose_provenance())
    }

    /// Returns the pointer for the completion.
    #[inline]
    pub fn pointer(self) -> *mut c_void {
        std::ptr::with_exposed_provenance_mut(self.0)
    }
}

/// The proof that an operation is counted as outstanding. It is given back once, when the operation
/// ends ([`Endpoints::finish`](crate::Endpoints::finish)): the type cannot be copied, and dropping
/// a ticket is a bug, which a debug assertion reports.
#[must_use = "the operation never ends"]
#[derive(Debug)]
pub struct Ticket {
    op: Op,
    /// Whether it is counted apart from those that are limited ([`Ledger::count_acknowledged`]).
    is_unmatched: bool,
}

impl Ticket {
    /// Only [`Ledger`] creates tickets.
    #[inline]
    fn new(op: Op, is_unmatched: bool) -> Self {
        Ticket { op, is_unmatched }
    }

    /// Returns the operation.
    #[inline]
    pub fn op(&self) -> &Op {
        &self.op
    }

    /// Ends the count, and returns the operation.
    #[inline]
    fn end(self) -> Op {
        let op = self.op;
        std::mem::forget(self);
        op
    }

    /// Gives up the operation of a closed endpoint: it ends without a completion.
    pub fn abandon(self) {
        self.end();
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        debug_assert!(
            std::thread::panicking(),
            "an operation was forgotten: {:?}",
            self.op
        );
    }
}

/// Counts the outstanding operations of an endpoint: posted and not completed, without receives.
///
/// Messages that are complete only when the peer's application has posted a receive for them are
/// counted apart, and are not limited: the receive that ends them may be one that the peer posts
/// only once it has a later message or the answer to a later operation. Their bounds are the
/// receiver's (flow control), and the space on the way to it.
#[derive(Debug)]
pub struct Ledger {
    /// Number of operations that end whatever the peer's application does.
    limited: usize,
    /// Number of messages that end when the peer's application receives them.
    unmatched: usize,
    /// Limit of `limited`; with a pool, the operations that were taken from it.
    limit: usize,
    /// Where each operation is taken from; `None` where `limit` is constant.
    pool: Option<Arc<TransmitPool>>,
}

impl Ledger {
    /// Allows up to `limit` operations.
    pub fn new(limit: usize) -> Self {
        Ledger {
            limited: 0,
            unmatched: 0,
            limit,
            pool: None,
        }
    }

    /// Counts operations together with those of other endpoints from now on
    /// (`fi_stx_context`).
    pub fn share(&mut self, pool: Arc<TransmitPool>) {
        self.leave_pool();
        pool.take(self.limited);
        self.limit = self.limited;
        self.pool = Some(pool);
    }

    fn leave_pool(&mut self) {
        if let Some(pool) = self.pool.take() {
            pool.give_back(self.limit);
        }
    }

    /// Returns whether another operation may be posted.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.limited < self.limit || self.has_room_in_pool()
    }

    /// [`Ledger::has_room`] for a peer to which this many operations are outstanding, where each peer
    /// has a limit of its own. Those of a pool have one together.
    #[inline]
    pub fn has_room_for_peer(&self, outstanding: usize) -> bool {
        match &self.pool {
            None => outstanding < self.limit,
            Some(_) => self.has_room(),
        }
    }

    #[cold]
    #[inline(never)]
    fn has_room_in_pool(&self) -> bool {
        self.pool.as_ref().is_some_and(|pool| pool.has_room())
    }

    #[cold]
    #[inline(never)]
    fn take_from_pool(&mut self) {
        if let Some(pool) = &self.pool {
            pool.take(1);
            self.limit += 1;
        }
    }

    /// Returns the number of outstanding operations of all kinds.
    pub fn outstanding(&self) -> usize {
        self.limited + self.unmatched
    }

    /// Counts an operation as outstanding.
    #[inline]
    pub fn count(&mut self, op: Op) -> Ticket {
        self.limited += 1;
        if self.limited > self.limit {
            self.take_from_pool();
        }
        Ticket::new(op, false)
    }

    /// Counts an operation that the peer acknowledges: a message is complete when the peer's
    /// application has received it, and not limited.
    #[inline]
    pub fn count_acknowledged(&mut self, op: Op) -> Ticket {
        if !op.class.is_message() {
            return self.count(op);
        }
        self.unmatched += 1;
        Ticket::new(op, true)
    }

    /// Removes an operation from the outstanding ones.
    #[inline]
    pub fn settle(&mut self, ticket: Ticket) -> Op {
        if ticket.is_unmatched {
            self.unmatched -= 1;
            return ticket.end();
        }
        self.limited -= 1;
        if let Some(pool) = &self.pool {
            pool.give_back(1);
            self.limit -= 1;
        }
        ticket.end()
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        self.leave_pool();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn op() -> Op {
        Op {
            ep: EpKey::default(),
            class: OpClass::Send,
            report: true,
            is_inject: false,
            len: 8,
            context: Context(1),
        }
    }

    #[test]
    fn each_peer_has_a_limit_of_its_own() {
        let mut ledger = Ledger::new(2);
        let tickets = [op(), op()].map(|op| ledger.count(op));
        assert!(!ledger.has_room() && !ledger.has_room_for_peer(2));
        assert!(ledger.has_room_for_peer(1));
        ledger.share(Arc::new(TransmitPool::new(2)));
        assert!(!ledger.has_room_for_peer(0));
        for ticket in tickets {
            ledger.settle(ticket);
        }
        assert!(ledger.has_room_for_peer(0));
    }

    #[test]
    fn room_is_the_number_of_operations_not_outstanding() {
        let mut ledger = Ledger::new(2);
        let first = ledger.count(op());
        assert!(ledger.has_room());
        let second = ledger.count(op());
        assert!(!ledger.has_room());
        ledger.settle(first);
        assert!(ledger.has_room());
        assert_eq!(ledger.settle(second).context, Context(1));
        assert_eq!(ledger.outstanding(), 0);
    }

    #[test]
    fn messages_that_wait_for_the_peers_application_take_no_room() {
        let mut ledger = Ledger::new(1);
        let unmatched: Vec<_> = (0..1000).map(|_| ledger.count_acknowledged(op())).collect();
        assert!(ledger.has_room());
        let limited = ledger.count(op());
        assert!(!ledger.has_room());
        assert_eq!(ledger.outstanding(), 1001);
        for ticket in unmatched {
            ledger.settle(ticket);
        }
        assert!(!ledger.has_room());
        ledger.settle(limited);
        assert!(ledger.has_room() && ledger.outstanding() == 0);
    }

    #[test]
    fn endpoints_that_share_have_as_many_operations_together() {
        let pool = Arc::new(TransmitPool::new(3));
        let [mut first, mut second] = [Ledger::new(8), Ledger::new(8)];
        // An operation that was outstanding before counts, too.
        let before = first.count(op());
        first.share(pool.clone());
        second.share(pool.clone());
        let own = [first.count(op()), first.count(op())];
        assert!(!first.has_room() && !second.has_room());
        first.settle(before);
        assert!(first.has_room() && second.has_room());
        let other = second.count(op());
        assert!(!first.has_room() && !second.has_room());
        // A closed endpoint's operations are over.
        other.abandon();
        drop(second);
        assert!(first.has_room());
        for ticket in own {
            first.settle(ticket);
        }
        drop(first);
        pool.take(2);
        assert!(pool.has_room());
        pool.take(1);
        assert!(!pool.has_room());
    }

    proptest! {
        #[test]
        fn a_counted_operation_is_outstanding_until_it_is_returned(
            steps in prop::collection::vec(prop::option::of(any::<prop::sample::Index>()), 0..if cfg!(miri) { 50 } else { 200 })
        ) {
            let mut ledger = Ledger::new(16);
            let mut tickets = Vec::new();
            for (number, step) in steps.into_iter().enumerate() {
                match step {
                    Some(which) if !tickets.is_empty() => {
                        let (number, ticket) = tickets.swap_remove(which.index(tickets.len()));
                        prop_assert_eq!(ledger.settle(ticket).context, Context(number));
                    }
                    _ if ledger.has_room() => {
                        let op = Op { context: Context(number), ..op() };
                        tickets.push((number, ledger.count(op)));
                    }
                    _ => prop_assert_eq!(tickets.len(), 16),
                }
                prop_assert_eq!(ledger.outstanding(), tickets.len());
            }
            tickets.into_iter().for_each(|(_, ticket)| ticket.abandon());
        }
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "forgotten")]
    fn a_ticket_that_is_dropped_is_noticed() {
        drop(Ledger::new(1).count(op()));
    }
}
