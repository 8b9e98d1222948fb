//! Large reads and writes between two processes of one host: who is to have the
//! bytes copies them from the memory of who has them. What goes through a
//! socket is copied twice.
//!
//! [`acquaintance`](super::acquaintance) finds out who may.

use std::time::Instant;

use fabric_abi::FI_REMOTE_WRITE;
use prov_local::process::OtherProcess;
use prov_message::lane::Errand;
use prov_message::{Op, Place, Target};
use prov_util::errno::{Errno, Result};
use prov_util::mr::Grants;
use prov_util::process_memory::OtherIov;
use prov_util::request::RemoteAccess;

use crate::engine::Core;
use crate::engine::link::connection::{Named, Owner};
use crate::engine::link::copies::Transfer;
use crate::engine::link::fault::{Fault, Step};
use crate::engine::link::keys::{ConnKey, EpKey};
use crate::engine::link::messages::{Ack, Placing, Then};
use crate::engine::link::post::Post;
use crate::wire::WireError;
use crate::wire::direct::{decode, encode};
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
        let Transfer { placing, from } = &mut self.transfer;
        let start = placing.done;
        let until = start + BYTES_PER_TURN;
        while placing.done < until && (placing.done as u64) < from.len() {
            let done = placing.done;
            let mut outcome = Ok(());
            let room = placing
                .place
                .part(&mut self.target, done, until - done, |to| {
                    outcome = self
                        .memory
                        .copy(&from.slice(done as u64, to.len() as u64), to);
                });
            if let Err(error) = outcome {
                self.outcome = Err(error);
                return false;
            }
            placing.done += room;
        }
        placing.done - start <= SHORT
    }
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
        if access.is_inject() || access.local.len() < self.params.local_write_size {
            return false;
        }
        let Some(conn) = self.conns.get_mut(key) else {
            return false;
        };
        if !conn.copies.is_mutual() || !self.is_neighbour(key) {
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
        self.copy_later(key, Transfer { placing, from })
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
        self.copy_later(key, Transfer { placing, from })
    }

    fn copy_later(&mut self, key: ConnKey, transfer: Transfer) -> Step {
        let conn = self.conns.get_mut(key).ok_or(Fault::Gone)?;
        conn.copies.writes += usize::from(transfer.is_write());
        conn.copies.transfers.push_back(transfer);
        if conn.copies.transfers.len() == 1 && !conn.copies.is_away {
            self.copy_in_turn(key);
        }
        Ok(())
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
            if let Then::Read(ticket) = transfer.placing.then {
                self.endpoints.finish(ticket, Err(Errno::ESHUTDOWN));
            }
            return;
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

    fn copied_well(&mut self, key: ConnKey, transfer: Transfer) -> Step {
        let conn = self.conns.get_mut(key).ok_or(Fault::Gone)?;
        if (transfer.placing.done as u64) < transfer.from.len() {
            conn.copies.transfers.push_front(transfer);
        } else {
            conn.copies.writes -= usize::from(transfer.is_write());
            self.placed(key, transfer.placing)?;
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
