//! Rendezvous between two processes of one host: the sender announces the location of the payload,
//! and the receiver fetches it ([`prov_local::copies`]). That avoids the two copies through a
//! socket.
//!
//! [`neighbour`](crate::local::neighbour) determines whether the two processes may do so.

use std::time::Instant;

use prov_base::errno::Result;
use prov_base::process_memory::OtherIov;
use prov_local::copies;
use prov_local::copies::{Copier, Copies, Pulls, Transfer};
use prov_local::link::payload::Payload;
use prov_message::{Core as _, Course, Expected, Op, Unmatched};

use crate::engine::Core;
use crate::engine::link::connection::Connection;
use crate::engine::link::copies::Held;
use crate::engine::link::detours::Detour;
use crate::engine::link::fault::{Fault, LinkResult};
use crate::engine::link::keys::ConnKey;
use crate::engine::link::messages::{Ack, Arrival, Placing, Rendezvous, Tcp};
use crate::engine::link::outstanding::Named;
use crate::engine::link::post::Post;
use crate::engine::link::ready::Why;
use crate::engine::transfer::rendezvous::ASKED_LIMIT;
use crate::engine::transfer::sending::ack_flag;
use crate::engine::transfer::ways::ALWAYS_ANNOUNCED;
use crate::wire::WireError;
use crate::wire::direct::{MAX_LIST, decode};
use crate::wire::header::{self, Header};
use prov_message::peers::Lent;

/// Where a copy from a peer's memory goes.
pub type Goal = copies::Goal<Tcp>;

impl Core {
    /// Offers a message to the peer, which fetches the payload and reports that.
    pub(crate) fn offer_message(
        &mut self,
        key: ConnKey,
        message: Post<'_>,
        from: OtherIov,
        flags: u64,
        op: Op,
    ) {
        let Lent::App(memory) = message.payload else {
            return;
        };
        let (Some(conn), Some(ticket)) = (
            self.conns.get_mut(key),
            self.endpoints.count_acknowledged(op),
        ) else {
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
        let ack = header.wants_ack();
        header.id = conn.name_op(Named::Offered {
            ticket: Some(ticket),
            payload: Payload::App(memory.take()),
            ack,
            end: conn.end_of_next(&header),
        });
        let shortcut = conn.local.shortcut.as_ref();
        let can_relocate = shortcut.is_some_and(|shortcut| shortcut.can_relocate());
        self.has_offered(key);
        self.post(key, Post::own(header, &[], list));
        if !ack && can_relocate {
            self.watch_what_is_announced(key);
        }
        self.expects_answer(key);
    }

    /// A message comes that is in the peer's memory.
    pub(crate) fn direct_message(
        &mut self,
        key: ConnKey,
        header: &Header,
        bytes: &[u8],
    ) -> LinkResult {
        let conn = self.conns.get(key).ok_or(Fault::Gone)?;
        if conn.local.neighbour.memory().is_none() || header.size == 0 {
            return Err(Fault::Protocol(WireError::Field("direct message")));
        }
        let is_msg = conn.is_msg();
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
        // Memory of a device may be one that this process cannot open: its owner sends it in parts, and
        // only to a receive.
        let stays = len > ALWAYS_ANNOUNCED || held.from.has_device();
        if stays && !is_msg && !self.endpoints.is_own_link(key) {
            return self.announced_directly(key, &arrival, header.id, held);
        }
        if let Some(Expected { memory, receipt }) = self.endpoints.arrive(&arrival) {
            let placing = Placing::receive(memory, receipt);
            self.copy_held(key, held, placing.into());
            return Ok(());
        }
        self.note_what_is_awaited(key);
        match self.endpoints.unmatched(&arrival) {
            Unmatched::Keep(kept) => self.copy_held(key, held, Course::Keep(kept).into()),
            Unmatched::Complete => {}
            Unmatched::HeldBack => {
                let conn = self.conns.get_mut(key).ok_or(Fault::Gone)?;
                conn.local.copies.held_back = Some(held);
                self.hold_back(key);
            }
            Unmatched::Gone => return Err(Fault::Gone),
        }
        self.follow_up();
        Ok(())
    }

    /// A message that stays in the peer's memory until somebody receives it.
    fn announced_directly(
        &mut self,
        key: ConnKey,
        arrival: &Arrival,
        id: u64,
        held: Held,
    ) -> LinkResult {
        let conn = self.conns.get_mut(key).ok_or(Fault::Gone)?;
        let announced = &mut conn.local.copies.announced;
        if announced.len() >= ASKED_LIMIT || announced.insert(id, held).is_some() {
            return Err(Fault::Protocol(WireError::Field("direct message")));
        }
        self.note_or_hold_back(key, arrival, Rendezvous::Direct(id))
    }

    /// What becomes of such a message.
    pub(crate) fn copy_announced(&mut self, key: ConnKey, id: u64, to: Goal) {
        let conn = self.conns.get_mut(key);
        if let Some(held) = conn.and_then(|conn| conn.local.copies.announced.remove(&id)) {
            self.copy_held(key, held, to);
        }
    }

    /// Copies a message from the peer's memory.
    pub(crate) fn copy_held(&mut self, key: ConnKey, held: Held, to: Goal) {
        let Held { from, ack, offer } = held;
        let Some(conn) = self.conns.get_mut(key) else {
            return self.give_up(to);
        };
        // A connection has one message that is kept while it is copied.
        let is_ordered = conn.is_msg();
        let goes_first = is_ordered || matches!(to, Goal::Keep { .. });
        conn.detours.set(Detour::CopiesFirst, is_ordered);
        let transfer = Transfer {
            to,
            from,
            name: ack,
            offer,
            goes_first,
            is_unreadable: false,
        };
        if conn.local.copies.transfers.push(transfer) {
            self.copy_in_turn(key);
        }
    }

    fn copied_one(
        &mut self,
        key: ConnKey,
        mut transfer: Transfer<Tcp>,
        outcome: Result,
    ) -> LinkResult {
        let conn = self.conns.get_mut(key).ok_or(Fault::Gone)?;
        if let Err(error) = outcome {
            log::warn!(
                target: crate::LOG.ep_data,
                "cannot copy from the memory of {}: {error}",
                conn.peer_text()
            );
            // Ends with the others.
            let _ = conn.local.copies.transfers.push(transfer);
            return Err(Fault::Io(error));
        }
        // The course of what is kept, which others may go before.
        let course = match transfer.to {
            Goal::Keep { .. } => conn.local.copies.course.take(),
            Goal::Place(_) | Goal::Discard => None,
        };
        transfer.keep(course, &mut self.endpoints, &mut self.target);
        if conn.local.copies.transfers.is_empty() {
            conn.detours.set(Detour::CopiesFirst, false);
        }
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
            return;
        }
        for _ in 0..self.ready.of(Why::Copied).len() {
            let Some(key) = self.next_due(Why::Copied) else {
                break;
            };
            if let Err(fault) = self.go_on_after_copies(key) {
                self.break_with(key, fault);
            }
        }
    }

    fn go_on_after_copies(&mut self, key: ConnKey) -> LinkResult {
        if self.endpoints.is_deaf() {
            // That is for the owner.
            self.is_due(key, Why::Copied);
            self.wake_for_copies();
            return Ok(());
        }
        let conn = self.conns.get(key).ok_or(Fault::Gone)?;
        if conn.detours.has(Detour::BehindCopies) {
            self.begin_waiting(key)?;
        }
        let conn = self.conns.get(key).ok_or(Fault::Gone)?;
        if conn.local.copies.transfers.is_empty() {
            self.read_later(key);
        }
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

    fn pulls(&mut self, key: ConnKey) -> Option<Pulls<'_, Tcp>> {
        let conn = self.conns.get_mut(key)?;
        Some(Pulls {
            ep: conn.ep()?,
            memory: conn.local.neighbour.memory(),
            transfers: &mut conn.local.copies.transfers,
            endpoints: &mut self.endpoints,
        })
    }

    fn offered(&self, key: ConnKey, name: u64) -> Option<&Payload> {
        self.conns.get(key)?.offered(name)
    }

    fn has_offers(&self, key: ConnKey) -> bool {
        self.conns.get(key).is_some_and(Connection::has_offers)
    }

    fn note_work(&mut self) {
        self.idle_calls = 0;
    }

    fn copied(&mut self, key: ConnKey, transfer: Transfer<Tcp>, outcome: Result) {
        let step = self.copied_one(key, transfer, outcome);
        if let Err(fault) = step.and_then(|()| self.go_on_after_copies(key)) {
            self.break_with(key, fault);
        }
    }
}
