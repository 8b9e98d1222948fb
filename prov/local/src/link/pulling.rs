//! Rendezvous payloads ([`copies`](crate::copies)): this side fetches those of its peers, and sends
//! parts of its own.

use prov_base::errno::{Errno, Result};
use prov_base::process_memory::OtherIov;
use prov_message::keys::from_peer;
use prov_message::{Placing, Then};

use super::payload::Payload;
use super::pending::Pending;
use super::{At, Fault, Link, LinkOf, Links, LocalTransport};
use crate::copies::{Goal, Transfer};

/// Queues the payload that a peer has announced as `name`, to be fetched.
pub(super) fn pull<L: Links>(
    lane: &mut L,
    key: LinkOf<L>,
    placing: Placing<L::Transport>,
    from: &OtherIov,
    name: u64,
) {
    let Some(At { link, .. }) = lane.at(key) else {
        return lane.give_up(placing.into());
    };
    if from.is_empty() {
        return placed(lane, key, placing, name, Ok(()));
    }
    let transfer = Transfer {
        goes_first: false,
        to: placing.into(),
        from: Box::new(*from),
        name: Some(name),
        offer: Some(name),
        is_unreadable: false,
    };
    if link.pulls.push(transfer) {
        lane.copy_in_turn(key);
    }
}

/// Handles the end of the transfer of a payload that the peer has announced as `name`.
fn placed<L: Links>(
    lane: &mut L,
    key: LinkOf<L>,
    placing: Placing<L::Transport>,
    name: u64,
    outcome: Result,
) {
    if placing.has_data() {
        lane.find_source(key);
    }
    let Some(At {
        link,
        endpoints,
        target,
        lists,
    }) = lane.at(key)
    else {
        return lane.give_up(placing.into());
    };
    let told = match placing.then {
        Then::Read(_) => Ok(()),
        Then::Receive(_) | Then::RemoteWrite { .. } => outcome,
    };
    endpoints.placed(target, link.ep, link.src, placing, outcome);
    link.done(name, told);
    link.waits_for_space(key, lists);
}

/// Ends the link of a peer that has ended, unless there is something of it left.
pub(super) fn drain_if_ended<L: Links>(lane: &mut L, key: LinkOf<L>) {
    let Some(At { link, .. }) = lane.at(key).filter(|at| at.link.has_ended) else {
        return;
    };
    let receiver = link.channel.as_ref().map(|channel| &channel.receiver);
    let waits = receiver.is_some_and(|receiver| receiver.has_next());
    // Parts that the peer will not send are not waited for.
    let copies = !link.pulls.is_empty() && link.memory.is_some() && !link.pulls.is_open();
    if !waits && !copies {
        lane.breaks(key, Fault::Ended(Errno::ESHUTDOWN));
    }
}

/// Handles the end of a transfer ([`Copies::copied`](crate::copies::Copies::copied)).
pub fn copied<L: Links>(
    lane: &mut L,
    key: LinkOf<L>,
    transfer: Transfer<L::Transport>,
    outcome: Result,
) {
    if let (Goal::Place(placing), Some(name)) = (transfer.to, transfer.name) {
        placed(lane, key, *placing, name, outcome);
    }
    drain_if_ended(lane, key);
}

impl<T: LocalTransport> Link<T> {
    /// Returns the payload of the message that the peer was offered as `name`.
    pub fn offered(&self, name: u64) -> Option<&Payload> {
        match self.pending.get(from_peer(name))? {
            Pending::Offer { payload, .. } => Some(payload),
            _ => None,
        }
    }
}
