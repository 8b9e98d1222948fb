//! Large reads and writes between two processes of one host: who is to have the
//! bytes copies them from the memory of who has them. What goes through a
//! socket is copied twice.
//!
//! [`neighbour`](prov_local::neighbour) finds out who may.

use std::time::Instant;

use fabric_abi::FI_REMOTE_WRITE;
use prov_local::process::OtherProcess;
use prov_message::lane::Errand;
use prov_message::{Core as _, Course, Expected, Op, Place, Target, Unmatched};
use prov_util::errno::{Errno, Result};
use prov_util::mr::Grants;
use prov_util::process_memory::OtherIov;
use prov_util::request::RemoteAccess;

use crate::engine::Core;
use crate::engine::link::connection::{Named, Owner};
use crate::engine::link::copies::{Goal, Held, Transfer};
use crate::engine::link::fault::{Fault, Step};
use crate::engine::link::keys::{ConnKey, EpKey};
use crate::engine::link::messages::{Ack, Arrival, Placing, Rendezvous, Then};
use crate::engine::link::post::Post;
use crate::engine::transfer::rendezvous::{ALWAYS_ANNOUNCED, ASKED_LIMIT};
use crate::engine::transfer::sending::ack_flag;
use crate::wire::WireError;
use crate::wire::direct::{decode, encode};
use crate::wire::handshake::Features;
use crate::wire::header::{self, Header, RmaList};
use prov_message::peers::Bytes;

/// Bytes that are copied at once: meanwhile, the peer may wait for an answer.
const BYTES_PER_TURN: usize = 1 << 20;
/// Bytes after which there is time for another copy.
const SHORT: usize = 32 << 10;
/// A copy from the peer's memory, which may have to wait for that: a page of it
/// may be anywhere.
pub struct Copying {
    key: ConnKey,
    transfer: Transfer,
    memory: OtherProcess,
    target: Option<Target>,
    outcome: Result<()>,
}

impl Errand for Copying {
    fn run(&mut self) -> bool {
        let done = self.transfer.done();
        let left = (self.transfer.from.len() - done).min(BYTES_PER_TURN as u64);
        let from = self.transfer.from.slice(done, left);
        let left = left as usize;
        self.outcome = match &mut self.transfer.to {
            Goal::Place(placing) => place(&self.memory, &mut self.target, placing, &from, left),
            Goal::Keep { next, .. } => {
                next.resize(left, 0);
                self.memory.copy_out(&from, next)
            }
            Goal::Discard => Ok(()),
        };
        self.outcome.is_ok() && left <= SHORT
    }
}

/// Copies `len` bytes to their place, as far as it has room for them.
fn place(
    memory: &OtherProcess,
    target: &mut Option<Target>,
    placing: &mut Placing,
    from: &OtherIov,
    len: usize,
) -> Result<()> {
    let mut copied = 0;
    while copied < len {
        let mut outcome = Ok(());
        let room = placing
            .place
            .part(target, placing.done + copied, len - copied, |to| {
                if !to.is_empty() {
                    outcome = memory.copy(&from.slice(copied as u64, to.len() as u64), to);
                }
            });
        outcome?;
        // What there is no room for is left where it is.
        copied += if room == 0 { len - copied } else { room };
    }
    placing.done += len;
    Ok(())
}

impl Core {
    /// Writes: tells the peer where the bytes are. `false` if that is not
    /// possible.
    pub(crate) fn write_directly(
        &mut self,
        key: ConnKey,
        access: &RemoteAccess,
        remote: &RmaList,
        op: Op,
    ) -> bool {
        let Some(conn) = self.conns.get_mut(key) else {
            return false;
        };
        // Through a socket, two processes with nothing else to do share the work.
        let (is_short, least) = match conn.sends_by_memory() {
            true => (true, self.params.local_message_size),
            false => (false, self.params.local_write_size),
        };
        if access.is_inject()
            || access.local.len() < least
            || !(is_short || conn.copies.is_mutual())
            || !self.is_neighbour(key)
        {
            return false;
        }
        let mut from = OtherIov::default();
        if !from.push_own(&access.local, None) || !from.can_be_copied() {
            return false;
        }
        let (Some(conn), Some(ticket)) = (self.conns.get_mut(key), self.endpoints.count(op)) else {
            return false;
        };
        let mut header = Header::new(header::Op::DirectWrite);
        header.rma_count = remote.len() as u8;
        header.flags = header::DELIVERY_COMPLETE | header::NAMED;
        if let Some(data) = access.immediate() {
            header.flags |= header::REMOTE_CQ_DATA;
            header.data = data;
        }
        let list = encode(&from);
        header.payload = list.len();
        let waits = conn.unacknowledged(ticket, &header);
        header.id = conn.name_op(Named::Ack(waits));
        self.post_list(key, header, remote, &list);
        true
    }

    /// Tells the peer where a message is, which copies it and says when it has.
    /// Through shared memory there would be two copies. `false` if it is to be
    /// sent.
    #[inline]
    pub(crate) fn send_directly(
        &mut self,
        key: ConnKey,
        message: &Post<'_>,
        flags: u64,
        op: Op,
    ) -> bool {
        let is_long = message.payload.len() >= self.params.local_message_size;
        is_long && !message.copy && self.send_long_directly(key, message, flags, op)
    }

    fn send_long_directly(&mut self, key: ConnKey, message: &Post<'_>, flags: u64, op: Op) -> bool {
        let Some(conn) = self.conns.get(key) else {
            return false;
        };
        let may_be = conn.sends_by_memory() && !conn.throttled && conn.features.has(NEEDED);
        if !may_be || !self.is_neighbour(key) {
            return false;
        }
        let Some(from) = own(&message.payload) else {
            return false;
        };
        let (Some(conn), Some(ticket)) = (self.conns.get_mut(key), self.endpoints.count(op)) else {
            return false;
        };
        let mut header = message.header;
        if header.op == header::Op::Tagged {
            header.flags |= header::TAGGED;
        }
        header.op = header::Op::DirectMsg;
        header.size = header.payload as u64;
        header.flags |= ack_flag(flags);
        let list = encode(&from);
        header.payload = list.len();
        let waits = conn.unacknowledged(ticket, &header);
        header.id = conn.name_op(Named::Ack(waits));
        self.post_list(key, header, &RmaList::EMPTY, &list);
        true
    }

    /// A message comes that is in the peer's memory.
    pub(crate) fn direct_message(&mut self, key: ConnKey, header: &Header, bytes: &[u8]) -> Step {
        let conn = self.conns.get(key).ok_or(Fault::Gone)?;
        if conn.neighbour.memory().is_none() || header.size == 0 {
            return Err(Fault::Protocol(WireError::Field("direct message")));
        }
        let from = decode(bytes, header.size)?;
        let tagged = header.flags & header::TAGGED != 0;
        let len = usize::try_from(header.size).unwrap_or(usize::MAX);
        let mut arrival = self.arrival(key, header, tagged, len)?;
        let mut held = Held { from, ack: None };
        match header.wants_ack() {
            true => arrival.ack = Ack::Named(header.id),
            false => held.ack = Some(header.id),
        }
        if len > ALWAYS_ANNOUNCED {
            return self.announced_directly(key, &arrival, header.id, held);
        }
        if let Some(Expected { memory, receipt }) = self.endpoints.arrive(&arrival) {
            let placing = Placing {
                place: Place::App(memory),
                done: 0,
                then: Then::Receive(receipt),
            };
            self.copy_held(key, held, Goal::Place(Box::new(placing)));
            return Ok(());
        }
        match self.endpoints.unmatched(&arrival) {
            Unmatched::Keep(kept) => self.copy_held(key, held, Course::Keep(kept).into()),
            Unmatched::Complete => {}
            Unmatched::HeldBack => {
                let conn = self.conns.get_mut(key).ok_or(Fault::Gone)?;
                conn.held_back = true;
                conn.copies.held_back = Some(held);
            }
            Unmatched::Gone => return Err(Fault::Gone),
        }
        self.follow_up();
        Ok(())
    }

    /// A message that stays in the peer's memory until somebody receives it.
    fn announced_directly(&mut self, key: ConnKey, arrival: &Arrival, id: u64, held: Held) -> Step {
        let fault = || Fault::Protocol(WireError::Field("direct message"));
        let conn = self.conns.get_mut(key).ok_or(Fault::Gone)?;
        let announced = &mut conn.copies.announced;
        if announced.len() >= ASKED_LIMIT || announced.insert(id, held).is_some() {
            return Err(fault());
        }
        if !self.endpoints.announced(arrival, Rendezvous::Direct(id)) {
            return Err(fault());
        }
        self.follow_up();
        Ok(())
    }

    /// What becomes of such a message.
    pub(crate) fn copy_announced(&mut self, key: ConnKey, id: u64, to: Goal) {
        let conn = self.conns.get_mut(key);
        if let Some(held) = conn.and_then(|conn| conn.copies.announced.remove(&id)) {
            self.copy_held(key, held, to);
        }
    }

    /// Copies a message from the peer's memory.
    pub(crate) fn copy_held(&mut self, key: ConnKey, held: Held, to: Goal) {
        let Held { from, ack } = held;
        self.copy_later(key, Transfer { to, from, ack });
    }

    /// Answers a read: tells the peer where the bytes are. `false` if that is
    /// not possible.
    pub(crate) fn offer(&mut self, key: ConnKey, grants: &Grants, len: usize) -> bool {
        if len < self.params.local_read_size || !self.is_neighbour(key) {
            return false;
        }
        let mut from = OtherIov::default();
        let Some(Target { memory, .. }) = &mut self.target else {
            return false;
        };
        let is_possible = grants.offer(memory, &mut from)
            && (grants.can_be_copied(memory) || from.can_be_copied());
        if is_possible {
            let list = encode(&from);
            let mut header = Header::new(header::Op::DirectRead);
            header.payload = list.len();
            self.post_list(key, header, &RmaList::EMPTY, &list);
        }
        is_possible
    }

    fn post_list(&mut self, key: ConnKey, header: Header, remote: &RmaList, list: &[u8]) {
        self.post(
            key,
            Post {
                header,
                rma: remote,
                payload: Bytes::Own(list),
                copy: true,
                op: None,
            },
        );
    }

    /// The peer says where the bytes are that the oldest read asked for.
    pub(crate) fn direct_read(&mut self, key: ConnKey, bytes: &[u8]) -> Step {
        let conn = self.conns.get_mut(key).ok_or(Fault::Gone)?;
        if conn.neighbour.memory().is_none() {
            return Err(Fault::Protocol(WireError::Field("direct read")));
        }
        let len = conn.reads.front().map_or(0, |read| read.memory.len());
        let from = decode(bytes, len as u64)?;
        let placing = conn.oldest_read()?;
        self.copy_held(
            key,
            Held { from, ack: None },
            Goal::Place(Box::new(placing)),
        );
        Ok(())
    }

    /// A peer says where the bytes are for our memory.
    pub(crate) fn direct_write(&mut self, key: ConnKey, header: &Header, bytes: &[u8]) -> Step {
        let conn = self.conns.get_mut(key).ok_or(Fault::Gone)?;
        if conn.neighbour.memory().is_none() {
            return Err(Fault::Protocol(WireError::Field("direct write")));
        }
        conn.copies.written();
        let list = *conn.stream.rma();
        let from = decode(bytes, list.total().unwrap_or(u64::MAX))?;
        let grants = self.registered(key, &list, FI_REMOTE_WRITE)?;
        let placing = Placing {
            place: Place::Registered(grants),
            done: 0,
            then: Then::RemoteWrite {
                data: header.has_data().then_some(header.data),
                ack: Ack::Named(header.id),
            },
        };
        self.copy_held(
            key,
            Held { from, ack: None },
            Goal::Place(Box::new(placing)),
        );
        Ok(())
    }

    fn copy_later(&mut self, key: ConnKey, transfer: Transfer) {
        let Some(conn) = self.conns.get_mut(key) else {
            return self.abandon_transfer(transfer);
        };
        conn.copies.writes += usize::from(transfer.goes_first());
        conn.copies.transfers.push_back(transfer);
        if conn.copies.transfers.len() == 1 && !conn.copies.is_away {
            self.copy_in_turn(key);
        }
    }

    /// The connection of a transfer is gone.
    fn abandon_transfer(&mut self, transfer: Transfer) {
        let mut receipts = Vec::new();
        let op = transfer.to.abandon(&mut receipts);
        if let Some(ticket) = op {
            self.endpoints.finish(ticket, Err(Errno::ESHUTDOWN));
        }
        for (receipt, memory) in receipts {
            self.endpoints
                .received(&receipt, &memory, Err(Errno::ESHUTDOWN));
        }
    }

    /// Has a connection's next transfer copied in its turn, which comes even if
    /// its socket has nothing to tell a thread that sleeps.
    fn copy_in_turn(&mut self, key: ConnKey) {
        self.copies.push_back(key);
        if self.has_sleepers {
            self.poller.wake_at(Instant::now());
        }
    }

    /// The next copy, to be made without the lane's lock.
    #[cold]
    pub(crate) fn next_copy(&mut self) -> Option<Copying> {
        let target = self.copier.take()?;
        while let Some(key) = self.copies.pop_front() {
            if let Some(conn) = self.conns.get_mut(key)
                && let Owner::Ep(ep) = conn.owner
                && let Some(memory) = conn.neighbour.memory()
                && let Some(transfer) = conn.copies.transfers.pop_front()
            {
                conn.copies.is_away = true;
                self.copies_for = Some(ep);
                self.idle_calls = 0;
                return Some(Copying {
                    key,
                    transfer,
                    memory,
                    target: Some(target),
                    outcome: Ok(()),
                });
            }
        }
        self.copier = Some(target);
        None
    }

    /// Whether something is being copied for an endpoint.
    pub(crate) fn is_copying_for(&self, ep: EpKey) -> bool {
        self.copies_for == Some(ep)
    }

    /// A copy has been made, or not.
    pub(crate) fn copied(&mut self, copying: Copying) {
        let Copying {
            key,
            transfer,
            target,
            outcome,
            ..
        } = copying;
        self.copier = target;
        self.copies_for = None;
        let Some(conn) = self.conns.get_mut(key) else {
            return self.abandon_transfer(transfer);
        };
        conn.copies.is_away = false;
        if let Err(error) = outcome {
            log::warn!(
                target: crate::LOG.ep_data,
                "cannot copy from the memory of {}: {error}",
                conn.peer_text()
            );
            // Ends with the others.
            conn.copies.transfers.push_front(transfer);
            return self.break_with(key, Fault::Io(error));
        }
        if let Err(fault) = self.copied_well(key, transfer) {
            self.break_with(key, fault);
        }
    }

    fn copied_well(&mut self, key: ConnKey, mut transfer: Transfer) -> Step {
        let has_ended = transfer.done() >= transfer.from.len();
        self.keep_copied(key, &mut transfer.to);
        let conn = self.conns.get_mut(key).ok_or(Fault::Gone)?;
        if has_ended {
            conn.copies.writes -= usize::from(transfer.goes_first());
            if let Some(name) = transfer.ack {
                self.acknowledge(key, Ack::Named(name));
            }
            match transfer.to {
                Goal::Place(placing) => self.placed(key, *placing)?,
                Goal::Keep { kept, .. } => {
                    self.endpoints.kept(kept);
                    self.follow_up();
                }
                Goal::Discard => {}
            }
        } else {
            conn.copies.transfers.push_front(transfer);
        }
        self.go_on_behind_copies(key)?;
        let conn = self.conns.get(key).ok_or(Fault::Gone)?;
        if conn.copies.is_copying() {
            self.copy_in_turn(key);
        } else {
            self.read_later(key);
        }
        Ok(())
    }

    /// Gives bytes that were copied to the message that is kept, or to what it has
    /// become meanwhile.
    fn keep_copied(&mut self, key: ConnKey, to: &mut Goal) {
        let Goal::Keep { kept, done, next } = to else {
            return;
        };
        let course = self
            .conns
            .get_mut(key)
            .and_then(|conn| conn.copies.course.take());
        match course.map(Goal::from) {
            None => {
                if self.endpoints.append(*kept, next, 0) {
                    *done += next.len();
                    next.clear();
                } else {
                    *to = Goal::Discard;
                }
            }
            Some(Goal::Place(mut placing)) => {
                let place = &placing.place;
                place.write_at(&mut self.target, placing.done, next);
                placing.done += next.len();
                *to = Goal::Place(placing);
            }
            Some(other) => *to = other,
        }
    }

    /// Goes on with the stream where it had to wait for copies.
    fn go_on_behind_copies(&mut self, key: ConnKey) -> Step {
        let conn = self.conns.get_mut(key).ok_or(Fault::Gone)?;
        let waiting = conn.copies.waiting.take();
        let Some(header) = waiting else {
            return Ok(());
        };
        if conn.copies.must_wait(&header) {
            conn.copies.waiting = waiting;
            return Ok(());
        }
        let backlog = std::mem::take(&mut conn.backlog);
        let mut bytes = &backlog[..];
        self.begin(key, &header, &mut bytes)?;
        self.take_in(key, bytes);
        Ok(())
    }
}

/// What messages of this kind need of the peer.
const NEEDED: Features = Features::LOCAL.or(Features::DIRECT);

/// Where a payload is in this process's memory, if others can copy it.
fn own(payload: &Bytes<'_>) -> Option<OtherIov> {
    let Bytes::App(memory) = payload else {
        return None;
    };
    let mut from = OtherIov::default();
    (from.push_own(memory, None) && from.can_be_copied()).then_some(from)
}
