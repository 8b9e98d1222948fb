//! Large reads and writes between two processes of one host: who is to have the
//! bytes copies them from the memory of who has them. What goes through a
//! socket is copied twice.
//!
//! [`neighbour`](crate::local::neighbour) finds out who may.

use std::time::Instant;

use fabric_abi::{FI_DELIVERY_COMPLETE, FI_REMOTE_WRITE};
use prov_base::errno::{Errno, Result};
use prov_base::process_memory::OtherIov;
use prov_local::copies;
use prov_local::copies::{Back, Copier, Copies, Copying, Helping, LEAST, Offer, Source, Transfer};
use prov_message::{Core as _, Course, Expected, Op, Target, Unmatched};
use prov_util::mr::Grants;
use prov_util::request::RemoteAccess;

use crate::engine::Core;
use crate::engine::link::connection::{Connection, Named, Owner};
use crate::engine::link::copies::Held;
use crate::engine::link::detours::Detour;
use crate::engine::link::fault::{Fault, Step};
use crate::engine::link::keys::ConnKey;
use crate::engine::link::messages::{Ack, Arrival, Placing, Rendezvous, Tcp, Then};
use crate::engine::link::post::Post;
use crate::engine::transfer::rendezvous::ASKED_LIMIT;
use crate::engine::transfer::sending::ack_flag;
use crate::engine::transfer::ways::ALWAYS_ANNOUNCED;
use crate::wire::WireError;
use crate::wire::direct::{MAX_LIST, decode};
use crate::wire::header::refusal::Refused;
use crate::wire::header::{self, Header, RmaIov};
use prov_message::peers::Bytes;

/// Where a copy from a peer's memory goes.
pub type Goal = copies::Goal<Tcp>;

impl Core {
    /// Writes: tells the peer where the bytes are. `false` if that is not
    /// possible.
    pub(crate) fn write_directly(&mut self, key: ConnKey, access: &RemoteAccess, op: Op) -> bool {
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
            || conn.takes_at_once(access.local.len())
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
        let remote = access.remote.pieces();
        header.rma_count = remote.len() as u8;
        header.flags = header::NAMED | ack_flag(access.flags | FI_DELIVERY_COMPLETE);
        header.carry(access.immediate());
        let mut list = [0; MAX_LIST];
        let list = from.write(&mut list);
        header.payload = list.len();
        let waits = conn.unacknowledged(ticket, &header);
        header.id = conn.name_op(Named::Ack(waits));
        self.post_list(key, header, remote, list);
        true
    }

    /// Tells the peer where a message is, which copies it and says when it has.
    pub(crate) fn offer_message(
        &mut self,
        key: ConnKey,
        message: &Post<'_>,
        from: OtherIov,
        flags: u64,
        op: Op,
    ) {
        let Bytes::App(memory) = message.payload else {
            return;
        };
        let (Some(conn), Some(ticket)) = (self.conns.get_mut(key), self.endpoints.count(op)) else {
            return;
        };
        let mut header = message.header;
        if header.op == header::Op::Tagged {
            header.flags |= header::TAGGED;
        }
        header.op = header::Op::DirectMsg;
        header.size = header.payload as u64;
        header.flags |= ack_flag(flags);
        let mut list = [0; MAX_LIST];
        let list = from.write(&mut list);
        header.payload = list.len();
        let waits = conn.unacknowledged(ticket, &header);
        let memory = *memory;
        let len = memory.len() as u64;
        header.id = conn.name_op(Named::Offered { waits, memory });
        let may_help = len >= LEAST && conn.shortcut.is_some();
        self.post_list(key, header, &[], list);
        if may_help {
            self.copier.may_help(key);
        }
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
        let mut held = Held {
            offer: Some(header.id),
            ..Held::unnamed(from)
        };
        match header.wants_ack() {
            true => arrival.ack = Ack::Named(header.id),
            false => held.ack = Some(header.id),
        }
        if len > ALWAYS_ANNOUNCED {
            return self.announced_directly(key, &arrival, header.id, held);
        }
        if let Some(Expected { memory, receipt }) = self.endpoints.arrive(&arrival) {
            let placing = Placing::receive(memory, receipt);
            self.copy_held(key, held, placing.into());
            return Ok(());
        }
        match self.endpoints.unmatched(&arrival) {
            Unmatched::Keep(kept) => self.copy_held(key, held, Course::Keep(kept).into()),
            Unmatched::Complete => {}
            Unmatched::HeldBack => {
                let conn = self.conns.get_mut(key).ok_or(Fault::Gone)?;
                conn.copies.held_back = Some(held);
                self.hold_back(key);
            }
            Unmatched::Gone => return Err(Fault::Gone),
        }
        self.follow_up();
        Ok(())
    }

    /// A message that stays in the peer's memory until somebody receives it.
    fn announced_directly(&mut self, key: ConnKey, arrival: &Arrival, id: u64, held: Held) -> Step {
        let conn = self.conns.get_mut(key).ok_or(Fault::Gone)?;
        let announced = &mut conn.copies.announced;
        if announced.len() >= ASKED_LIMIT || announced.insert(id, held).is_some() {
            return Err(Fault::Protocol(WireError::Field("direct message")));
        }
        self.note_or_hold_back(key, arrival, Rendezvous::Direct(id))
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
        let Held { from, ack, offer } = held;
        let Some(conn) = self.conns.get_mut(key) else {
            return self.abandon(to);
        };
        let is_read = matches!(&to, Goal::Place(placing) if matches!(placing.then, Then::Read(_)));
        let transfer = Transfer {
            to,
            from,
            name: ack,
            offer,
            goes_first: !is_read,
        };
        conn.detours.set(Detour::Copying, true);
        if conn.copies.transfers.push(transfer) {
            self.copy_in_turn(key);
        }
    }

    /// Answers a read: tells the peer where the bytes are. `false` if that is
    /// not possible.
    pub(crate) fn offer(&mut self, key: ConnKey, grants: &Grants, len: usize) -> bool {
        if len < self.params.local_read_size || !self.is_neighbour(key) {
            return false;
        }
        let conn = self.conns.get_mut(key);
        if conn.is_some_and(|conn| conn.takes_at_once(len)) {
            return false;
        }
        let mut from = OtherIov::default();
        let Some(Target { memory, .. }) = &mut self.target else {
            return false;
        };
        let is_possible = grants.offer(memory, &mut from)
            && (grants.can_be_copied(memory) || from.can_be_copied());
        if is_possible {
            let mut list = [0; MAX_LIST];
            let list = from.write(&mut list);
            let mut header = Header::new(header::Op::DirectRead);
            header.payload = list.len();
            self.post_list(key, header, &[], list);
        }
        is_possible
    }

    fn post_list(&mut self, key: ConnKey, header: Header, remote: &[RmaIov], list: &[u8]) {
        self.post(key, Post::own(header, remote, list));
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
        self.copy_held(key, Held::unnamed(from), placing.into());
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
        let from = decode(bytes, list.len())?;
        let (target, visitor) = self.visited(key)?;
        let data = header.immediate();
        let grants = match target.resolve(&visitor, FI_REMOTE_WRITE, list.pieces(), data) {
            Ok(grants) => grants,
            Err(refusal) => return self.refuse_access(key, Refused::Named(header.id), refusal),
        };
        let placing = Placing::remote_write(grants, data, Ack::Named(header.id))
            .persistent(header.flags & header::COMMIT_COMPLETE != 0);
        self.copy_held(key, Held::unnamed(from), placing.into());
        Ok(())
    }

    /// The connection of a copy is gone.
    fn abandon(&mut self, to: Goal) {
        let placing = to.abandon();
        let read = placing.and_then(|placing| self.endpoints.abandon(placing, Errno::ESHUTDOWN));
        if let Some(ticket) = read {
            self.endpoints.finish(ticket, Err(Errno::ESHUTDOWN));
        }
    }

    fn copied_one(&mut self, key: ConnKey, mut transfer: Transfer<Tcp>, outcome: Result) -> Step {
        let Some(conn) = self.conns.get_mut(key) else {
            self.abandon(transfer.to);
            return Err(Fault::Gone);
        };
        if let Err(error) = outcome {
            log::warn!(
                target: crate::LOG.ep_data,
                "cannot copy from the memory of {}: {error}",
                conn.peer_text()
            );
            // Ends with the others.
            conn.copies.transfers.put_back(transfer);
            return Err(Fault::Io(error));
        }
        let is_whole = transfer.is_whole();
        // The course of what is kept, which others may go before.
        let course = match transfer.to {
            Goal::Keep { .. } => conn.copies.course.take(),
            Goal::Place(_) | Goal::Discard => None,
        };
        transfer.keep(course, &mut self.endpoints, &mut self.target);
        if !is_whole {
            conn.copies.transfers.put_back(transfer);
            return Ok(());
        }
        conn.copies.transfers.ended(&transfer);
        if let Some(name) = transfer.name {
            self.acknowledge(key, Ack::Named(name));
        }
        match transfer.to {
            Goal::Place(placing) => self.placed(key, *placing),
            Goal::Keep { kept, .. } => {
                self.endpoints.kept(kept);
                self.follow_up();
            }
            Goal::Discard => {}
        }
        Ok(())
    }

    /// What is behind copies that ended while the owner of receives was away.
    pub(crate) fn go_on_for_owner(&mut self) {
        if self.endpoints.is_deaf() {
            self.has_chores |= !self.behind_copies.is_empty();
            return;
        }
        for key in std::mem::take(&mut self.behind_copies) {
            if let Err(fault) = self.go_on_after_copies(key) {
                self.break_with(key, fault);
            }
        }
    }

    fn go_on_after_copies(&mut self, key: ConnKey) -> Step {
        if self.endpoints.is_deaf() {
            // That is for the owner.
            self.behind_copies.push(key);
            self.has_chores = true;
            self.wake_for_copies();
            return Ok(());
        }
        self.go_on_behind_copies(key)?;
        let conn = self.conns.get_mut(key).ok_or(Fault::Gone)?;
        let is_done = conn.copies.transfers.is_empty();
        let waits = conn.copies.waiting.is_some() && !conn.detours.has(Detour::Unreported);
        let is_copying = !is_done || waits;
        conn.detours.set(Detour::Copying, is_copying);
        if is_done {
            self.read_later(key);
        } else {
            self.copy_in_turn(key);
        }
        Ok(())
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
        if conn.detours.has(Detour::Unreported) {
            // It waits for the application to read completions, too.
            conn.copies.waiting = waiting;
            return Ok(());
        }
        if self.lacks_room(key, &header) {
            self.report_later(key, header);
            return Ok(());
        }
        let conn = self.conns.get_mut(key).ok_or(Fault::Gone)?;
        let backlog = std::mem::take(&mut conn.backlog);
        let mut bytes = &backlog[..];
        self.begin(key, &header, &mut bytes)?;
        self.take_in(key, bytes);
        Ok(())
    }
}

impl Copies for Core {
    fn copier(&mut self) -> &mut Copier<Tcp> {
        &mut self.copier
    }

    fn wake_for_copies(&mut self) {
        if self.must_wake() {
            self.poller.wake_at(Instant::now());
        }
    }

    fn next_copy(&mut self) -> Option<Box<Copying<Tcp>>> {
        let (conns, endpoints) = (&mut self.conns, &mut self.endpoints);
        self.copier.next(|key, batch| {
            let conn = conns.get_mut(key)?;
            let Owner::Ep(ep) = conn.owner else {
                return None;
            };
            let memory = conn.neighbour.memory().cloned()?;
            conn.copies.transfers.take(batch)?;
            batch.make_room(endpoints);
            Some((ep, memory))
        })
    }

    fn next_help(&mut self) -> Option<Box<Helping>> {
        let conns = &self.conns;
        self.copier.next_help(
            |key| Some(&conns.get(key)?.shortcut.as_ref()?.joint()?.far),
            |key| conns.get(key).is_some_and(Connection::has_large_offers),
            |key, name| {
                let conn = conns.get(key)?;
                let Owner::Ep(ep) = conn.owner else {
                    return None;
                };
                Some(Offer {
                    ep,
                    memory: conn.neighbour.memory().cloned()?,
                    bytes: Source::App(conn.offered(name)?),
                })
            },
        )
    }

    fn note_work(&mut self) {
        self.idle_calls = 0;
    }

    fn take_back(&mut self, copying: Box<Copying<Tcp>>) -> Option<Back<Tcp>> {
        let conn = self.conns.get_mut(copying.link());
        self.copier
            .back(copying, conn.map(|conn| &mut conn.copies.transfers))
    }

    fn copied(&mut self, key: ConnKey, transfers: &mut Vec<Transfer<Tcp>>, outcome: Result) {
        let mut step = Ok(());
        for transfer in transfers.drain(..) {
            step = step.and(self.copied_one(key, transfer, outcome));
        }
        if let Err(fault) = step.and_then(|()| self.go_on_after_copies(key)) {
            self.break_with(key, fault);
        }
    }

    fn heard_late(&mut self, key: ConnKey, [name, ..]: [u64; 3]) {
        if let Err(fault) = self.acknowledged_by_name(key, name) {
            self.break_with(key, fault);
        }
    }
}
