//! The endpoints of one lane, and their inboxes.

pub mod actions;
pub mod arrival;
pub mod arriving;
pub mod behind;
pub mod cross_lane_srx;
pub mod imported_srx;
pub mod inbox;
pub mod keeping;
pub(crate) mod left;
pub mod placing;
pub mod plain;
pub mod receiving;
pub(crate) mod room;
mod shared_srx;
pub mod target;
pub mod transport;
pub mod unexpected;
pub mod whole;

use prov_base::bounded;
use prov_base::bounds::OBJECTS;
use prov_base::buffer::AppIov;
use prov_base::errno::{Errno, Result};
use prov_util::av::Changes;
use prov_util::mr::Job;
use slotmap::SlotMap;

use crate::endpoints::actions::{Action, Actions};
use crate::endpoints::behind::Behind;
use crate::endpoints::inbox::Inbox;
use crate::endpoints::keeping::{Keeping, Limits};
use crate::endpoints::left::{AllLeft, LeftKey};
use crate::endpoints::transport::Transport;
use crate::operation::EpKey;
use crate::operation::{Ledger, Op, Ticket};
use crate::receipt::{InboxKey, Receipt};
use crate::reports::Reports;

/// An endpoint's state in its lane.
pub struct Endpoint<T: Transport> {
    pub reports: Reports,
    /// The inbox to which its receives are posted.
    pub inbox: InboxKey,
    /// Inboxes that it had before it was bound to a shared context in another lane: no messages
    /// arrive there, receives may still be posted.
    pub(crate) behind: Vec<InboxKey>,
    pub ledger: Ledger,
    /// Whether receives are matched by source (`FI_DIRECTED_RECV`).
    pub directed: bool,
    /// The job that its peers belong to: it decides which authorized regions they may access.
    pub job: Job,
    /// Whether peers can reach it that are neither in its address vector nor accepted by the
    /// application.
    pub meets_strangers: bool,
    /// Limit of posted receives of an inbox of its own.
    most_receives: usize,
    /// Complete messages of links that have ended; used only if the inbox is shared.
    pub(crate) left: Vec<LeftKey>,
    /// The provider's own data.
    pub own: T::Endpoint,
}

/// The attributes with which an endpoint is opened.
#[derive(Clone, Copy, Debug)]
pub struct Attributes {
    /// Limit of outstanding transmit operations.
    pub tx_size: usize,
    /// Limit of posted receives.
    pub most_receives: usize,
    /// Whether receives are matched by source (`FI_DIRECTED_RECV`).
    pub directed: bool,
    /// See [`Endpoint::job`].
    pub job: Job,
}

/// See the [module](self) description. A method that affects messages which have already arrived
/// queues [`Action`]s, which the provider carries out in
/// [`Core::follow_up`](crate::Core::follow_up).
pub struct Endpoints<T: Transport> {
    pub(crate) eps: SlotMap<EpKey, Endpoint<T>>,
    pub(crate) inboxes: SlotMap<InboxKey, Inbox<T>>,
    pub(crate) actions: Actions<T>,
    is_acting: bool,
    /// See the [`imported_srx`] module.
    pub(crate) is_deaf: bool,
    /// Imported receives that ended while the lane was deaf; they are reported when the
    /// owner enters.
    pub(crate) late: Vec<(Receipt<T::Ack>, AppIov, Result)>,
    /// Operations that wait for a device.
    pub(crate) behind: Vec<Behind<T::Ack>>,
    pub(crate) kept: Keeping<T>,
    /// Complete messages of links that have ended.
    pub(crate) left: AllLeft<T>,
    /// The state of the address vectors when all sources were last looked up.
    pub(crate) changes: Changes,
}

impl<T: Transport> Default for Endpoints<T> {
    fn default() -> Self {
        Endpoints::new(Limits::default())
    }
}

impl<T: Transport> Endpoints<T> {
    /// Creates an empty set.
    pub fn new(limits: Limits) -> Self {
        Endpoints {
            eps: SlotMap::with_key(),
            inboxes: SlotMap::with_key(),
            actions: Actions::new(),
            left: AllLeft::new(),
            is_acting: false,
            is_deaf: false,
            late: Vec::new(),
            behind: Vec::new(),
            kept: Keeping::new(limits),
            changes: Changes::default(),
        }
    }

    /// Adds an endpoint with an inbox of its own.
    pub fn add(&mut self, attributes: Attributes, own: T::Endpoint) -> EpKey {
        let inbox = self.add_inbox(attributes.most_receives, false);
        self.eps.insert(Endpoint {
            reports: Reports::default(),
            inbox,
            behind: Vec::new(),
            ledger: Ledger::new(attributes.tx_size),
            directed: attributes.directed,
            job: attributes.job,
            meets_strangers: false,
            most_receives: attributes.most_receives,
            left: Vec::new(),
            own,
        })
    }

    /// Adds an inbox for up to `size` posted receives.
    pub fn add_inbox(&mut self, size: usize, shared: bool) -> InboxKey {
        let key = self.inboxes.insert(Inbox::new(size, shared));
        bounded!(self.inboxes, OBJECTS);
        key
    }

    /// Sets `FI_OPT_MIN_MULTI_RECV` of an endpoint's own inbox; a shared inbox is left unchanged.
    pub fn set_min_multi_recv(&mut self, ep: EpKey, bytes: usize) {
        if let Some(state) = self.eps.get(ep)
            && let Some(inbox) = self.inboxes.get_mut(state.inbox)
            && !inbox.shared
        {
            inbox.set_min_multi_recv(bytes);
        }
    }

    /// Returns the endpoint, unless it is closed.
    #[inline]
    pub fn get(&self, ep: EpKey) -> Option<&Endpoint<T>> {
        self.eps.get(ep)
    }

    /// Like [`Endpoints::get`], mutable.
    #[inline]
    pub fn get_mut(&mut self, ep: EpKey) -> Option<&mut Endpoint<T>> {
        self.eps.get_mut(ep)
    }

    /// Returns an inbox, unless it is closed.
    pub fn inbox(&self, inbox: InboxKey) -> Option<&Inbox<T>> {
        self.inboxes.get(inbox)
    }

    /// Like [`Endpoints::inbox`], mutable.
    pub fn inbox_mut(&mut self, inbox: InboxKey) -> Option<&mut Inbox<T>> {
        self.inboxes.get_mut(inbox)
    }

    /// Iterates over all endpoints.
    pub fn iter(&self) -> impl Iterator<Item = (EpKey, &Endpoint<T>)> {
        self.eps.iter()
    }

    /// Counts an operation as outstanding, whether or not the limit is reached.
    #[inline]
    pub fn count(&mut self, op: Op) -> Option<Ticket> {
        Some(self.eps.get_mut(op.ep)?.ledger.count(op))
    }

    /// Like [`Endpoints::count`], for an operation that the peer acknowledges
    /// ([`Ledger::count_acknowledged`]).
    #[inline]
    pub fn count_acknowledged(&mut self, op: Op) -> Option<Ticket> {
        Some(self.eps.get_mut(op.ep)?.ledger.count_acknowledged(op))
    }

    /// Counts a new operation as outstanding.
    ///
    /// # Errors `-FI_EAGAIN` if the limit of outstanding operations is reached, `-FI_EOPBADSTATE`
    /// if the endpoint is closed.
    #[inline]
    pub fn begin(&mut self, op: Op) -> Result<Ticket> {
        let ep = self.eps.get_mut(op.ep).ok_or(Errno::EOPBADSTATE)?;
        match ep.ledger.has_room() {
            true => Ok(ep.ledger.count(op)),
            false => Err(Errno::EAGAIN),
        }
    }

    /// [`Endpoints::begin`] for an operation to a peer to which this many are outstanding, where each
    /// peer has the limit for itself: one that does not answer fills nobody else's queue.
    ///
    /// # Errors
    /// Those of [`Endpoints::begin`].
    #[inline]
    pub fn begin_to_peer(&mut self, op: Op, outstanding: usize) -> Result<Ticket> {
        let ep = self.eps.get_mut(op.ep).ok_or(Errno::EOPBADSTATE)?;
        match ep.ledger.has_room_for_peer(outstanding) {
            true => Ok(ep.ledger.count(op)),
            false => Err(Errno::EAGAIN),
        }
    }

    /// Removes an operation from the outstanding ones without reporting it; its caller continues
    /// with it.
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

    /// Reports the end of an operation that was never counted.
    #[inline]
    pub fn report(&self, op: &Op, outcome: Result) {
        if let Some(ep) = self.eps.get(op.ep) {
            ep.reports.operation(op, outcome);
        }
    }

    /// Returns whether the application is informed when the operation ends.
    #[inline]
    pub fn tells_of(&self, op: &Op) -> bool {
        let ep = self.eps.get(op.ep);
        ep.is_some_and(|ep| ep.reports.tells_of(op))
    }

    /// Removes an operation from the outstanding ones and reports its end.
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

    /// Returns whether there are actions to carry out and nobody is carrying them out. If so, the
    /// caller has to do it ([`Endpoints::next_action`]).
    #[inline]
    pub(crate) fn start_acting(&mut self) -> bool {
        !self.actions.is_empty() && !self.is_deaf && !std::mem::replace(&mut self.is_acting, true)
    }

    /// Returns the next action. With `None`, the caller's turn that `start_acting` began is over.
    #[inline]
    pub(crate) fn next_action(&mut self) -> Option<Action<T>> {
        let next = self.actions.pop_front();
        self.is_acting = next.is_some();
        next
    }
}
