//! Short writes that travel in the ring of a link, without a system call: the peer applies them in its
//! turn, or this process does if the peer makes no progress ([`turns`](crate::onesided::turns)).
//!
//! That is for injected writes, and for all in domains whose peers refer to memory by offsets (without
//! `FI_MR_VIRT_ADDR`), where the C library's provider has the target apply them, too. They are complete when
//! the library has their bytes or, with `FI_DELIVERY_COMPLETE`, when they are applied. A peer that sleeps would have to be woken,
//! which takes longer than a copy by this process.

use crate::channel::{Channel, FlightWords, Head, Record};
use crate::onesided::ring_writes::{MOST_BYTES, RingWrites, Settled};
use crate::onesided::turns::{Taking, Turn};
use crate::ring::Broken;
use fabric_abi::{
    FI_COMMIT_COMPLETE, FI_DELIVERY_COMPLETE, FI_FENCE, FI_REMOTE_CQ_DATA, FI_REMOTE_WRITE, FI_RMA,
};
use prov_base::bounded;
use prov_base::bounds::PEERS;
use prov_message::peers::Bytes as Payload;
use prov_message::{Endpoints, Op, RmaTarget, Ticket};
use prov_util::request::{Access, RemoteAccess, RemoteIov, RemotePiece};

use super::records::{IN_RING, WRITE, read_list_behind, remote_list};
use super::{At, Fault, Link, Links, LocalTransport, Wire as _};

/// Flags of writes that go another way.
const OTHERWISE: u64 = FI_COMMIT_COMPLETE | FI_FENCE | FI_REMOTE_CQ_DATA;

/// The writes of a link's other side.
pub(super) struct PeersWrites {
    words: FlightWords,
    taking: Taking,
}

impl PeersWrites {
    fn new(channel: &Channel) -> Self {
        PeersWrites {
            words: channel.flights_of_peer(),
            taking: Taking::default(),
        }
    }
}

/// Writes through the ring, if this is such a write.
#[inline]
pub(super) fn write_in_ring<T: LocalTransport>(
    at: At<'_, T>,
    key: T::Link,
    access: &RemoteAccess,
    bytes: &Payload<'_>,
) -> Option<()> {
    let is_short = access.local.len() <= MOST_BYTES && access.access == Access::Write;
    if !is_short || access.flags & OTHERWISE != 0 {
        return None;
    }
    let &[to] = access.remote.pieces() else {
        return None;
    };
    let At {
        link,
        endpoints,
        lists,
        ..
    } = at;
    let rules = T::rules(&endpoints.get(link.ep)?.own);
    let is_of_kind = access.is_inject() || !rules.uses_virtual_addresses;
    // This side may apply it ahead of what is in the ring before it.
    let is_behind = rules.msg_order & access.access.behind_messages() != 0 && link.has_untaken();
    if !is_of_kind || is_behind || to.len != access.local.len() as u64 || access.local.has_device()
    {
        return None;
    }
    let op = Op::of_access(link.ep, access);
    if access.flags & FI_DELIVERY_COMPLETE == 0 {
        if !link.write_in_ring(to, bytes, None) {
            return None;
        }
        endpoints.report(&op, Ok(()));
    } else {
        let mut ticket = Some(endpoints.begin(op).ok()?);
        if !link.write_in_ring(to, bytes, Some(&mut ticket)) {
            if let Some(ticket) = ticket {
                endpoints.settle(ticket);
            }
            return None;
        }
    }
    if !std::mem::replace(&mut link.has_ring_writes, true) {
        lists.ring_writes.push(key);
        bounded!(lists.ring_writes, PEERS);
    }
    Some(())
}

/// Applies the writes in the rings to peers that have applied none for some time or, before a thread
/// sleeps, all that are left, and completes those that are applied. Returns whether any was, or a peer is
/// at it.
#[inline]
pub fn settle_ring_writes<L: Links>(lane: &mut L, all: bool) -> bool {
    !lane.lists().ring_writes.is_empty() && settle_all(lane, all)
}

fn settle_all<L: Links>(lane: &mut L, all: bool) -> bool {
    let mut any = false;
    for at in (0..lane.lists().ring_writes.len()).rev() {
        let key = lane.lists().ring_writes.get(at).copied();
        let Some(At {
            link,
            endpoints,
            lists,
            ..
        }) = key.and_then(|key| lane.at(key))
        else {
            lane.lists().ring_writes.swap_remove(at);
            continue;
        };
        let settled = match link.are_ring_writes_due(all) {
            true => link.settle_ring_writes(),
            false => link.has_ring_writes_left(),
        };
        any |= settled == Settled::Busy;
        link.has_ring_writes = settled != Settled::All;
        let ended = link.ring_writes.as_mut();
        for (ticket, outcome) in ended.into_iter().flat_map(|writes| writes.ended.drain(..)) {
            endpoints.finish(ticket, outcome);
            any = true;
        }
        if settled == Settled::All {
            lists.ring_writes.swap_remove(at);
        }
    }
    any
}

impl<T: LocalTransport> Link<T> {
    /// Handles a peer's write in the ring. Returns `false` while the peer applies it itself.
    pub(super) fn written_in_ring(
        &mut self,
        record: &Record,
        endpoints: &mut Endpoints<T>,
        target: &mut Option<RmaTarget>,
    ) -> std::result::Result<bool, Fault> {
        let list = read_list_behind(&self.bytes(record), record.head.words[2]);
        let (list, len) = list.ok_or(Fault::Protocol("list of a write"))?;
        let Some(writes) = self.peers_writes() else {
            return Ok(true);
        };
        match writes.taking.begin(writes.words.applied()) {
            Turn::Apply => {}
            Turn::PassOver => return Ok(true),
            // One that has died in the middle of that completes none.
            Turn::Wait => return Ok(self.has_ended),
        }
        let is_applied = self.apply(record, &list, len, endpoints, target);
        if let Some(PeersWrites { words, taking }) = self.peers_writes() {
            let is_refused = !matches!(is_applied, Ok(true));
            taking.applied(words.applied(), words.refused(), is_refused);
        }
        is_applied.map(|_| true)
    }

    /// Returns whether the write is applied, and not refused.
    fn apply(
        &self,
        record: &Record,
        list: &RemoteIov,
        len: usize,
        endpoints: &mut Endpoints<T>,
        target: &mut Option<RmaTarget>,
    ) -> std::result::Result<bool, Fault> {
        if list.len() != len as u64 {
            return Err(Fault::Protocol("bytes of a write"));
        }
        let Some((target, visitor)) = self.visited(endpoints, target) else {
            return Ok(false);
        };
        match target.resolve(&visitor, FI_REMOTE_WRITE, list.pieces(), None) {
            Ok(grants) => {
                let (bytes, _) = self.bytes(record).split(len);
                grants.copy_from(&mut target.memory, 0, &bytes.into());
                target.was_written(&visitor, &grants, FI_RMA, None);
                Ok(true)
            }
            // It was permitted when it was sent.
            Err(refusal) => {
                log::debug!(
                    target: T::LOG.ep_data,
                    "a write of process {} is left out: {}", self.wire.pid(), refusal.error()
                );
                Ok(false)
            }
        }
    }

    /// Sends a write of one piece, if the peer permits it and is awake, and there is room; `waits` is
    /// what waits until it is applied.
    fn write_in_ring(
        &mut self,
        to: RemotePiece,
        bytes: &Payload<'_>,
        waits: Option<&mut Option<Ticket>>,
    ) -> bool {
        let (Some(window), Some(channel)) = (&mut self.window, &self.channel) else {
            return false;
        };
        // Nor ahead of what the peer has to carry out.
        let is_possible = !self.pending.has_requests()
            && self.writings.is_empty()
            && self.wire.socket().is_some();
        if !is_possible || channel.finds_asleep() || !window.permits(&to) {
            return false;
        }
        let new = || RingWrites::new(channel.flights());
        let writes = self.ring_writes.get_or_insert_with(new);
        let takes_another = writes.takes_another();
        if note(&mut self.broken, takes_another) != Some(true) {
            return false;
        }
        let mut own = [0; MOST_BYTES];
        let Some(own) = own.get_mut(..to.len as usize) else {
            return false;
        };
        match bytes {
            Payload::App(memory) => _ = memory.read_at(0, own),
            Payload::Own(bytes) if bytes.len() == own.len() => own.copy_from_slice(bytes),
            Payload::Own(_) => return false,
        }
        let list = remote_list(&RemoteIov::from(to));
        let list = list.bytes();
        let head = Head {
            kind: WRITE,
            flags: IN_RING,
            words: [0, 0, 1],
        };
        let is_sent = self.post_short(head, own.len() + list.len(), |place| {
            let (data, rest) = place.split(own.len());
            data.write(own);
            rest.write(list);
        });
        if let Some(writes) = self.ring_writes.as_mut().filter(|_| is_sent) {
            writes.push(to, own, waits.and_then(Option::take));
        }
        is_sent
    }

    /// Applies the writes in the ring that the peer has not applied, before an access that may not
    /// overtake them.
    pub fn settle_ring_writes(&mut self) -> Settled {
        let Some(writes) = &mut self.ring_writes else {
            return Settled::All;
        };
        if writes.is_empty() {
            return Settled::All;
        }
        let (Some(window), Some(socket)) = (&mut self.window, self.wire.socket()) else {
            return Settled::ByOwner;
        };
        let settled = writes.settle(window, socket);
        note(&mut self.broken, settled).unwrap_or(Settled::ByOwner)
    }

    fn are_ring_writes_due(&mut self, all: bool) -> bool {
        let Some(writes) = &mut self.ring_writes else {
            return false;
        };
        let is_overdue = writes.are_overdue();
        all || note(&mut self.broken, is_overdue) == Some(true)
    }

    fn has_ring_writes_left(&self) -> Settled {
        match &self.ring_writes {
            Some(writes) if !writes.is_empty() => Settled::ByOwner,
            _ => Settled::All,
        }
    }

    fn peers_writes(&mut self) -> Option<&mut PeersWrites> {
        let channel = self.channel.as_ref()?;
        Some(
            self.peers_writes
                .get_or_insert_with(|| Box::new(PeersWrites::new(channel))),
        )
    }
}

/// Notes that a link's channel is broken.
fn note<T>(broken: &mut Option<Broken>, result: Result<T, Broken>) -> Option<T> {
    result.inspect_err(|found| *broken = Some(*found)).ok()
}
