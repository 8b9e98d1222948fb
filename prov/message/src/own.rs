//! Operations between endpoints of one lane, and of an endpoint on itself: no bytes leave the
//! process.
//!
//! A short message is copied when it is posted, to its receive or to the inbox (eager), and so is any
//! message of an endpoint to itself. A long message to another endpoint without a posted receive stays
//! with its sender, which is informed when the message was taken (rendezvous).

use fabric_abi::{FI_COMMIT_COMPLETE, FI_DELIVERY_COMPLETE};
use prov_base::bounded;
use prov_base::bounds::OPERATIONS;
use prov_base::buffer::AppIov;
use prov_base::errno::{Errno, Result};
use prov_util::request::{Atomic, RemoteAccess, Transmit};
use slotmap::{SlotMap, new_key_type};

use crate::endpoints::Endpoints;
use crate::endpoints::actions::{Action, Fetch};
use crate::endpoints::arrival::Arrival;
use crate::endpoints::target::{Refusal, RmaTarget, Visitor};
use crate::endpoints::transport::Transport;
use crate::endpoints::whole::Taken;
use crate::names::Names;
use crate::operation::EpKey;
use crate::operation::{Op, Ticket};

/// Eager limit in bytes: a longer message is not buffered if no receive is posted for it.
const EAGER: usize = 64 << 10;

new_key_type! {
    /// The key of a message whose sender waits.
    pub struct SendKey;
}

/// A transport for messages within a lane.
pub enum Within {}

impl Transport for Within {
    /// The sending endpoint.
    type Link = EpKey;
    type Ack = SendKey;
    type Name = SendKey;
    type Endpoint = Member;

    const LINKS_OUTLIVE_ENDPOINTS: bool = true;
}

/// The data of an endpoint that other endpoints use.
pub struct Member {
    /// The endpoint's address vector.
    pub names: Names,
    /// The endpoint's memory.
    pub target: RmaTarget,
}

/// The destination of an operation.
#[derive(Clone, Copy, Debug)]
pub struct Far {
    /// The endpoint.
    pub ep: EpKey,
    /// The number of the posting endpoint in the destination's address vector.
    pub src: u64,
}

/// See the [module](self) description.
#[derive(Default)]
pub struct Own {
    sent: SlotMap<SendKey, Sent>,
}

struct Sent {
    ticket: Ticket,
    to: EpKey,
    bytes: AppIov,
}

impl Own {
    /// Posts a message; if `far` is `None`, it fails with `-FI_EHOSTUNREACH`.
    ///
    /// # Errors
    /// `-FI_EAGAIN` if too many operations are outstanding or there is no room for the message.
    pub fn transmit(
        &mut self,
        endpoints: &mut Endpoints<Within>,
        message: &mut Transmit,
        ep: EpKey,
        far: Option<Far>,
    ) -> Result {
        let op = Op::of_transmit(ep, message);
        let Some(Far { ep: to, src }) = far else {
            endpoints.report(&op, Err(Errno::EHOSTUNREACH));
            return Ok(());
        };
        // It ends at once, or when the application has received it.
        let ticket = endpoints.count_acknowledged(op);
        let ticket = ticket.ok_or(Errno::EOPBADSTATE)?;
        let mut arrival = Arrival::of(message, ep, to, src);
        let bytes = message.buffers.take();
        let name = self.sent.insert(Sent { ticket, to, bytes });
        bounded!(self.sent, OPERATIONS);
        let until_received = message.flags & (FI_DELIVERY_COMPLETE | FI_COMMIT_COMPLETE) != 0;
        if until_received {
            arrival.ack = name;
        }
        let (may_stay, is_own) = (!message.is_inject(), ep == to);
        if is_own {
            endpoints.link_is_own(ep);
        }
        let taken = match self.sent.get(name) {
            Some(sent) if !may_stay || arrival.len <= EAGER || is_own => {
                endpoints.take_in(&arrival, &sent.bytes)
            }
            _ => Taken::Refused,
        };
        match taken {
            Taken::Kept if until_received && !is_own => {}
            Taken::Kept | Taken::Received(_) => self.done(endpoints, name, Ok(())),
            Taken::Refused if may_stay && endpoints.announced(&arrival, name) => {}
            Taken::Refused => {
                if let Some(sent) = self.sent.remove(name) {
                    endpoints.settle(sent.ticket);
                }
                return Err(Errno::EAGAIN);
            }
        }
        Ok(())
    }

    fn done(&mut self, endpoints: &mut Endpoints<Within>, name: SendKey, outcome: Result) {
        if let Some(sent) = self.sent.remove(name) {
            endpoints.finish(sent.ticket, outcome);
        }
    }

    /// Carries out an action that a receive has caused.
    pub fn act(&mut self, endpoints: &mut Endpoints<Within>, action: Action<Within>) {
        match action {
            Action::Acknowledge(_, name) | Action::Refuse(_, name, ..) => {
                self.done(endpoints, name, Ok(()));
            }
            Action::Fetch(_, fetch) => self.fetch(endpoints, fetch),
            // Messages arrive whole, and no sender is held back.
            Action::Redirect(..) | Action::Resume(..) | Action::Throttle(..) => {}
        }
    }

    fn fetch(&mut self, endpoints: &mut Endpoints<Within>, fetch: Fetch<Within>) {
        let outcome = match self.sent.get(fetch.name) {
            Some(sent) => {
                sent.bytes.copy_to(&fetch.memory);
                Ok(())
            }
            None => Err(Errno::ECONNRESET),
        };
        endpoints.received(&fetch.receipt, fetch.memory, outcome);
        self.done(endpoints, fetch.name, Ok(()));
    }

    /// Performs a read or a write; its destination is as for [`Own::transmit`].
    pub fn access(
        endpoints: &mut Endpoints<Within>,
        ep: EpKey,
        far: Option<Far>,
        access: &RemoteAccess,
    ) {
        visit(
            endpoints,
            &Op::of_access(ep, access),
            far,
            |target, visitor| target.access(visitor, access),
        );
    }

    /// Performs an atomic operation, likewise.
    pub fn atomic(endpoints: &mut Endpoints<Within>, ep: EpKey, far: Option<Far>, atomic: &Atomic) {
        visit(
            endpoints,
            &Op::of_atomic(ep, atomic),
            far,
            |target, visitor| target.atomic_of(visitor, atomic),
        );
    }

    /// Follows the changes in the address vector of `ep`: waiting messages may need another source.
    /// `name` returns an endpoint's name in address vectors.
    pub fn follow(endpoints: &mut Endpoints<Within>, ep: EpKey, name: impl Fn(EpKey) -> String) {
        let state = endpoints.get_mut(ep);
        if !state.is_some_and(|state| state.own.names.have_changed()) {
            return;
        }
        for from in everybody(endpoints) {
            if let Some(state) = endpoints.get(ep) {
                let src = state.own.names.source(name(from).as_bytes());
                endpoints.relabel(ep, from, src);
            }
        }
        // Those of endpoints that have closed.
        for (left, from) in endpoints.left_at(ep) {
            if let Some(state) = endpoints.get(ep) {
                let src = state.own.names.source(name(from).as_bytes());
                endpoints.relabel_left(left, src);
            }
        }
    }

    /// Closes an endpoint. Messages to it that wait end with `-FI_ECONNRESET`.
    pub fn close(&mut self, endpoints: &mut Endpoints<Within>, ep: EpKey) -> Option<Member> {
        let own = endpoints.close(ep);
        for other in everybody(endpoints) {
            endpoints.link_ended(other, ep, Errno::ECONNRESET);
        }
        let ends = |(_, sent): &(_, &Sent)| sent.to == ep || sent.ticket.op().ep == ep;
        let ended: Vec<_> = self
            .sent
            .iter()
            .filter(ends)
            .map(|(name, _)| name)
            .collect();
        for name in ended {
            self.done(endpoints, name, Err(Errno::ECONNRESET));
        }
        own
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        for (_, sent) in self.sent.drain() {
            sent.ticket.abandon();
        }
    }
}

fn visit(
    endpoints: &mut Endpoints<Within>,
    op: &Op,
    far: Option<Far>,
    work: impl FnOnce(&mut RmaTarget, &Visitor<'_>) -> std::result::Result<(), Refusal>,
) {
    let reached = far.and_then(|far| Some((endpoints.get_mut(far.ep)?, far.src)));
    let outcome = match reached {
        None => Err(Errno::EHOSTUNREACH),
        Some((far, src)) => {
            let (member, visitor) = far.visited(src);
            work(&mut member.target, &visitor).map_err(|refusal| refusal.error())
        }
    };
    endpoints.report(op, outcome);
}

fn everybody(endpoints: &Endpoints<Within>) -> Vec<EpKey> {
    endpoints.iter().map(|(ep, _)| ep).collect()
}
