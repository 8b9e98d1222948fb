//! The endpoints that share a lock, and their inboxes.

pub(crate) mod actions;
pub mod arriving;
pub mod foreign;
pub mod inbox;
pub mod keeping;
pub(crate) mod left;
pub mod receiving;
pub mod target;
pub mod whole;

use prov_util::av::Changes;
use prov_util::buffer::AppIov;
use prov_util::errno::{Errno, Result};
use prov_util::mr::Job;
use slotmap::SlotMap;

use crate::endpoints::actions::Actions;
use crate::endpoints::inbox::{Action, Inbox, Transport};
use crate::endpoints::keeping::{Keeping, Limits};
use crate::endpoints::left::{AllLeft, LeftKey};
use crate::operation::EpKey;
use crate::operation::{Ledger, Op, Ticket};
use crate::receipt::{InboxKey, Receipt};
use crate::reports::Reports;

/// An endpoint.
pub struct Endpoint<T: Transport> {
    pub reports: Reports,
    /// Where its receives are posted.
    pub inbox: InboxKey,
    pub ledger: Ledger,
    /// Whether receives name the peer they are for (`FI_DIRECTED_RECV`).
    pub directed: bool,
    /// To whom its peers belong: the regions that they may access.
    pub job: Job,
    /// Whether peers reach it that its address vector does not know, and which the
    /// application has not accepted either.
    pub meets_strangers: bool,
    /// What of its links have left that have ended, where its inbox is shared.
    pub(crate) left: Vec<LeftKey>,
    /// The provider's part.
    pub own: T::Endpoint,
}

/// What an endpoint is opened with.
#[derive(Clone, Copy, Debug)]
pub struct Attributes {
    /// Transmits that may be outstanding.
    pub tx_size: usize,
    /// Receives that may be posted.
    pub rx_size: usize,
    /// Whether receives name the peer they are for (`FI_DIRECTED_RECV`).
    pub directed: bool,
    /// See [`Endpoint::job`].
    pub job: Job,
}

/// See the [module](self) description. A method that makes something of
/// messages which came earlier leaves [`Action`]s behind, for the provider to
/// act upon in [`Core::follow_up`](crate::Core::follow_up).
pub struct Endpoints<T: Transport> {
    pub(crate) eps: SlotMap<EpKey, Endpoint<T>>,
    pub(crate) inboxes: SlotMap<InboxKey, Inbox<T>>,
    pub(crate) actions: Actions<T>,
    is_acting: bool,
    /// See the [`foreign`](crate::endpoints::foreign) module.
    pub(crate) is_deaf: bool,
    /// Receives of another provider's that have ended while this is deaf.
    pub(crate) late: Vec<(Receipt<T::Ack>, AppIov, Result)>,
    pub(crate) kept: Keeping<T>,
    /// What links have left that have ended.
    pub(crate) left: AllLeft<T>,
    /// The address vectors as they were when sources were last looked up for all.
    pub(crate) changes: Changes,
}

impl<T: Transport> Default for Endpoints<T> {
    fn default() -> Self {
        Endpoints::new(Limits::default())
    }
}

impl<T: Transport> Endpoints<T> {
    /// None.
    pub fn new(limits: Limits) -> Self {
        Endpoints {
            eps: SlotMap::with_key(),
            inboxes: SlotMap::with_key(),
            actions: Actions::new(),
            left: AllLeft::new(),
            is_acting: false,
            is_deaf: false,
            late: Vec::new(),
            kept: Keeping::new(limits),
            changes: Changes::default(),
        }
    }

    /// Adds an endpoint with an inbox of its own.
    pub fn add(&mut self, attributes: Attributes, own: T::Endpoint) -> EpKey {
        let inbox = self.add_inbox(attributes.rx_size, false);
        self.eps.insert(Endpoint {
            reports: Reports::default(),
            inbox,
            ledger: Ledger::new(attributes.tx_size),
            directed: attributes.directed,
            job: attributes.job,
            meets_strangers: false,
            left: Vec::new(),
            own,
        })
    }

    /// Adds an inbox for up to `size` receives.
    pub fn add_inbox(&mut self, size: usize, shared: bool) -> InboxKey {
        self.inboxes.insert(Inbox::new(size, shared))
    }

    /// Has an endpoint take its receives from a shared inbox.
    pub fn share(&mut self, ep: EpKey, inbox: InboxKey) -> Result {
        let state = self.eps.get_mut(ep).ok_or(Errno::EOPBADSTATE)?;
        let own = std::mem::replace(&mut state.inbox, inbox);
        self.inboxes.remove(own);
        Ok(())
    }

    /// Sets `FI_OPT_MIN_MULTI_RECV` of an endpoint's own inbox.
    pub fn set_min_multi_recv(&mut self, ep: EpKey, bytes: usize) {
        if let Some(state) = self.eps.get(ep)
            && let Some(inbox) = self.inboxes.get_mut(state.inbox)
            && !inbox.shared
        {
            inbox.set_min_multi_recv(bytes);
        }
    }

    /// The endpoint, unless it is closed.
    #[inline]
    pub fn get(&self, ep: EpKey) -> Option<&Endpoint<T>> {
        self.eps.get(ep)
    }

    /// As [`Endpoints::get`].
    #[inline]
    pub fn get_mut(&mut self, ep: EpKey) -> Option<&mut Endpoint<T>> {
        self.eps.get_mut(ep)
    }

    /// An inbox, unless it is closed.
    pub fn inbox(&self, inbox: InboxKey) -> Option<&Inbox<T>> {
        self.inboxes.get(inbox)
    }

    /// As [`Endpoints::inbox`].
    pub fn inbox_mut(&mut self, inbox: InboxKey) -> Option<&mut Inbox<T>> {
        self.inboxes.get_mut(inbox)
    }

    /// All endpoints.
    pub fn iter(&self) -> impl Iterator<Item = (EpKey, &Endpoint<T>)> {
        self.eps.iter()
    }

    /// Counts an operation that is under way from now on.
    #[inline]
    pub fn count(&mut self, op: Op) -> Option<Ticket> {
        Some(self.eps.get_mut(op.ep)?.ledger.count(op))
    }

    /// As [`Endpoints::count`], for an operation that may not be begun:
    /// `-FI_EAGAIN` where too many are outstanding.
    #[inline]
    pub fn begin(&mut self, op: Op) -> Result<Ticket> {
        let ep = self.eps.get_mut(op.ep).ok_or(Errno::EOPBADSTATE)?;
        match ep.ledger.has_room() {
            true => Ok(ep.ledger.count(op)),
            false => Err(Errno::EAGAIN),
        }
    }

    /// Takes an operation off the count that goes on otherwise.
    #[inline]
    pub fn settle(&mut self, ticket: Ticket) -> Op {
        match self.eps.get_mut(ticket.op().ep) {
            Some(ep) => ep.ledger.settle(ticket),
            None => {
                let op = *ticket.op();
                ticket.abandon();
                op
            }
        }
    }

    /// Tells the application how an operation ended that was never counted.
    #[inline]
    pub fn report(&self, op: &Op, outcome: Result) {
        if let Some(ep) = self.eps.get(op.ep) {
            ep.reports.operation(op, outcome);
        }
    }

    /// Whether the application hears how an operation ends.
    #[inline]
    pub fn tells_of(&self, op: &Op) -> bool {
        let ep = self.eps.get(op.ep);
        ep.is_some_and(|ep| ep.reports.tells_of(op))
    }

    /// Tells the application how an operation ended.
    #[inline]
    pub fn finish(&mut self, ticket: Ticket, outcome: Result) {
        match self.eps.get_mut(ticket.op().ep) {
            Some(ep) => {
                let op = ep.ledger.settle(ticket);
                ep.reports.operation(&op, outcome);
            }
            None => ticket.abandon(),
        }
    }

    /// Whether there is something to do that may be done, and nobody is at it:
    /// whoever asked is,
    /// from now on.
    #[inline]
    pub(crate) fn start_acting(&mut self) -> bool {
        !self.actions.is_empty() && !self.is_deaf && !std::mem::replace(&mut self.is_acting, true)
    }

    /// The next thing to do, until there is nothing left.
    #[inline]
    pub(crate) fn next_action(&mut self) -> Option<Action<T>> {
        let next = self.actions.pop_front();
        self.is_acting = next.is_some();
        next
    }
}
