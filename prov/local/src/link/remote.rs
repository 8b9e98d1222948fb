//! Remote memory access (fi_rma(3)) and atomic operations (fi_atomic(3)), on both sides.

use fabric_abi::{FI_REMOTE_READ, FI_REMOTE_WRITE, FI_RMA};
use prov_base::atomic_ops::Form;
use prov_base::bounded;
use prov_base::bounds::OPERATIONS;
use prov_base::device_memory::has_failures;
use prov_base::errno::{Errno, Result};
use prov_message::keys::to_peer;
use prov_message::peers::{Bytes, Copies, Deferred, Lent};
use prov_message::{AtomicRequest, Endpoints, EpKey, Op, Refusal, RmaTarget, Visitor};
use prov_util::mr::Grants;
use prov_util::request::{Access, Atomic, RemoteAccess};

use super::outgoing::{ReadReply, Writing, copy, copy_part, wait_behind};
use super::payload::Payload;
use super::pending::{Pending, PendingKey};
use super::records::{
    ATOMIC, AtomicWord, HAS_DATA, MORE, READ, REMOTE_LIST, RESULT, WAS_READ, WRITE,
    read_list_behind, read_remote_list, remote_list,
};
use super::{At, Fault, Link, LinkOf, Links, LocalTransport, Parts, Wire as _, ring_writes};
use crate::channel::{Head, MODERATE, Record};
use crate::onesided::ring_writes::Settled;
use crate::switch_points::EAGER;

/// Largest number of bytes of operands of an atomic operation: such a request is one message of the
/// channel.
pub const ATOMIC_LIMIT: usize = 4096;

/// Buffers for a peer's atomic operation.
#[derive(Default)]
pub(super) struct Atomics {
    operands: Vec<u8>,
    result: Vec<u8>,
}

/// Posts a read or a write, which the caller has checked.
///
/// # Errors
/// `-FI_EAGAIN` if there is no space.
pub fn post_access<L: Links>(
    lane: &mut L,
    ep: EpKey,
    key: LinkOf<L>,
    access: &mut RemoteAccess,
) -> Result {
    let holds = |at: At<'_, _>| at.link.holds_access(access.access);
    if lane.at(key).is_some_and(holds) {
        let op = Op::of_access(ep, access);
        return wait_behind(lane, key, op, || Deferred::access(access));
    }
    start_access(lane, key, access, None)
}

/// Posts an atomic operation, which the caller has checked.
///
/// # Errors
/// `-FI_EAGAIN` if there is no space.
pub fn post_atomic<L: Links>(
    lane: &mut L,
    ep: EpKey,
    key: LinkOf<L>,
    atomic: &mut Atomic,
) -> Result {
    let At {
        link, endpoints, ..
    } = lane.at(key).ok_or(Errno::EAGAIN)?;
    if link.holds_messages() {
        let op = Op::of_atomic(ep, atomic);
        return wait_behind(lane, key, op, || Deferred::atomic(atomic));
    }
    link.start_atomic(atomic, None, endpoints)
}

/// Begins a read or a write: copies, if that is possible, or sends a request to the peer.
///
/// # Errors
/// `-FI_EAGAIN` if there is no space.
pub(super) fn start_access<L: Links>(
    lane: &mut L,
    key: LinkOf<L>,
    access: &mut RemoteAccess,
    copied: Option<&[u8]>,
) -> Result {
    let at = lane.at(key).ok_or(Errno::EAGAIN)?;
    let bytes = Bytes::of(&access.local, copied);
    if ring_writes::write_in_ring(at, key, access, &bytes).is_some() {
        return Ok(());
    }
    let At {
        link,
        endpoints,
        target,
        lists,
    } = lane.at(key).ok_or(Errno::EAGAIN)?;
    if let Some((op, outcome)) = link.copy(access, &bytes, endpoints)? {
        endpoints.report(&op, outcome);
        return Ok(());
    }
    if link.ask_to_access(access, copied, endpoints)? {
        link.waits_for_space(key, lists);
        if link.writings.len() == 1 {
            // The link records that the channel is broken, and ends in its turn.
            let _ = link.send_parts(endpoints, target);
            // A sleeping thread does not know that there is data to send.
            lane.wake_for_copies();
        }
    }
    Ok(())
}

impl<T: LocalTransport> Link<T> {
    /// Copies the data of a read or a write, without the peer. Returns `None` if the peer has to
    /// carry out the access. That is also so while the peer has not answered earlier requests,
    /// which keeps the order of both methods; and, for an application that has requested that order
    /// (`FI_ORDER_WAS`, `FI_ORDER_RAS`), while the peer has not received earlier messages.
    ///
    /// # Errors
    /// `-FI_EAGAIN` if there is no space for the notification of the peer.
    fn copy(
        &mut self,
        access: &RemoteAccess,
        bytes: &Bytes<'_>,
        endpoints: &Endpoints<T>,
    ) -> Result<Option<(Op, Result)>> {
        match self.settle_ring_writes() {
            Settled::All => {}
            Settled::Busy => return Err(Errno::EAGAIN),
            Settled::ByOwner => return Ok(None),
        }
        if self.has_requests() {
            return Ok(None);
        }
        let order = access.access.behind_messages();
        let endpoint = endpoints.get(self.ep);
        let is_ordered =
            endpoint.is_some_and(|endpoint| T::rules(&endpoint.own).msg_order & order != 0);
        if is_ordered && self.has_untaken() {
            return Ok(None);
        }
        let Link {
            window,
            channel,
            wire,
            broken,
            ..
        } = self;
        let (Some(window), Some(socket)) = (window, wire.socket()) else {
            return Ok(None);
        };
        let has_room = || {
            let room = channel
                .as_mut()
                .map(|channel| channel.has_room(REMOTE_LIST));
            if let Some(Err(error)) = room {
                *broken = Some(error);
            }
            room == Some(Ok(true))
        };
        let Some(accessed) = window.access(access, bytes, socket, has_room)? else {
            return Ok(None);
        };
        if accessed.is_told {
            self.tell_of(access);
        }
        Ok(Some((Op::of_access(self.ep, access), accessed.outcome)))
    }

    /// Sends a request for a read or a write to the peer. Returns whether it is a write that waits to be
    /// sent in parts.
    ///
    /// # Errors
    /// `-FI_EAGAIN` if there is no space, `-FI_EIO` if a device does not read.
    fn ask_to_access(
        &mut self,
        access: &mut RemoteAccess,
        copied: Option<&[u8]>,
        endpoints: &mut Endpoints<T>,
    ) -> Result<bool> {
        let is_read = access.access == Access::Read;
        let may_start = match is_read {
            true => self.may_read(),
            false => self.may_write(),
        };
        if !may_start {
            return Err(Errno::EAGAIN);
        }
        // Nothing is sent of what a device does not read.
        let mut of_device = Vec::new();
        let copied = match !is_read && access.local.has_device() && access.local.len() <= EAGER {
            true => {
                access.local.append_to(&mut of_device);
                access.local.take_failure()?;
                Some(&*of_device)
            }
            false => copied,
        };
        let ticket = endpoints.begin(Op::of_access(self.ep, access))?;
        let list = remote_list(&access.remote);
        let (list, count) = (list.bytes(), access.remote.pieces().len() as u64);
        let len = access.local.len();
        let waits = !self.writings.is_empty();
        let name = self.pending.insert(match is_read {
            true => Pending::Result {
                ticket,
                to: access.local.take(),
                done: 0,
            },
            false => Pending::Op(ticket),
        });
        let data = access.immediate();
        let mut head = Head {
            kind: READ,
            flags: 0,
            words: [len as u64, to_peer(name), count],
        };
        let sent = if is_read {
            self.post(head, list.len(), |to| {
                to.write_at(0, list);
            })
        } else if len <= EAGER && !waits {
            head.kind = WRITE;
            head.words[0] = data.unwrap_or(0);
            if data.is_some() {
                head.flags = HAS_DATA;
            }
            self.post(head, len + list.len(), |to| {
                copy(&Bytes::of(&access.local, copied), &to.slice(0, len));
                to.slice(len, list.len()).write_at(0, list);
            })
        } else {
            let is_kept = access.is_inject();
            let payload = Payload::of(Lent::of(&mut access.local, copied), is_kept);
            self.writings.push_back(Writing {
                name,
                payload,
                remote: access.remote,
                data,
                done: 0,
                len,
            });
            bounded!(self.writings, OPERATIONS);
            return Ok(true);
        };
        self.posted(name, sent == Ok(true), endpoints)?;
        Ok(false)
    }

    /// Withdraws a request that was not sent.
    fn posted(&mut self, name: PendingKey, sent: bool, endpoints: &mut Endpoints<T>) -> Result {
        if sent {
            return Ok(());
        }
        if let Some(ticket) = self.pending.remove(name).and_then(Pending::into_ticket) {
            endpoints.settle(ticket);
        }
        Err(Errno::EAGAIN)
    }

    /// Begins an atomic operation.
    ///
    /// # Errors
    /// `-FI_EAGAIN` if there is no space.
    pub(super) fn start_atomic(
        &mut self,
        atomic: &mut Atomic,
        copies: Option<Copies<'_>>,
        endpoints: &mut Endpoints<T>,
    ) -> Result {
        if !self.may_request() {
            return Err(Errno::EAGAIN);
        }
        let ticket = endpoints.begin(Op::of_atomic(self.ep, atomic))?;
        let name = self.pending.insert(match atomic.kind.take_result() {
            Some(to) => Pending::Result {
                ticket,
                to,
                done: 0,
            },
            None => Pending::Op(ticket),
        });
        let data = atomic.immediate();
        let word = AtomicWord {
            op: atomic.op as u8,
            datatype: atomic.datatype as u8,
            form: atomic.kind.form().code(),
            count: atomic.remote.pieces().len() as u8,
        };
        let head = Head {
            kind: ATOMIC,
            flags: if data.is_some() { HAS_DATA } else { 0 },
            words: [data.unwrap_or(0), to_peer(name), word.pack()],
        };
        let list = remote_list(&atomic.remote);
        let list = list.bytes();
        let operand = Bytes::of(&atomic.operand, copies.map(|copies| copies.payload));
        let compare = Bytes::of(atomic.kind.compare(), copies.map(|copies| copies.compared));
        let (first, second) = (operand.len(), compare.len());
        let sent = self.post(head, list.len() + first + second, |to| {
            to.write_at(0, list);
            copy(&operand, &to.slice(list.len(), first));
            copy(&compare, &to.slice(list.len() + first, second));
        });
        self.posted(name, sent == Ok(true), endpoints)
    }

    /// Returns the registered memory of this process, and the rights of the peer.
    pub(super) fn visited<'a>(
        &self,
        endpoints: &'a mut Endpoints<T>,
        target: &'a mut Option<RmaTarget>,
    ) -> Option<(&'a mut RmaTarget, Visitor<'a>)> {
        let (_, visitor) = endpoints.get_mut(self.ep)?.visited(self.src);
        Some((target.as_mut()?, visitor))
    }

    /// Handles a peer's write.
    pub(super) fn written(
        &mut self,
        record: &Record,
        endpoints: &mut Endpoints<T>,
        target: &mut Option<RmaTarget>,
    ) -> std::result::Result<(), Fault> {
        let Head { flags, words, .. } = record.head;
        let list = read_list_behind(&self.bytes(record), words[2]);
        let (list, len) = list.ok_or(Fault::Protocol("list of a write"))?;
        let is_last = flags & MORE == 0;
        let name = words[1];
        // The last part of a write that was refused may never arrive.
        let before = self.parts.take().filter(|parts| parts.name == name);
        let (done, to) = match before {
            Some(Parts { to: None, .. }) => {
                self.parts = before.filter(|_| !is_last);
                return Ok(());
            }
            Some(Parts { len, to, .. }) => (len, to),
            None => (0, None),
        };
        let all = to.map_or(list.len(), |grants| grants.len() as u64) as usize;
        let end = done.saturating_add(len);
        let fits = if is_last { end == all } else { end < all };
        if !fits || !is_last && len == 0 {
            return Err(Fault::Protocol("bytes of a write"));
        }
        let data = (flags & HAS_DATA != 0).then_some(words[0]);
        let Some((target, visitor)) = self.visited(endpoints, target) else {
            return Ok(());
        };
        let grants = match to {
            Some(grants) => Ok(grants),
            None => target.resolve(&visitor, FI_REMOTE_WRITE, list.pieces(), data),
        };
        let outcome = grants.map_err(|refusal| refusal.error());
        let outcome = outcome.and_then(|grants| {
            let (bytes, _) = self.bytes(record).split(len);
            let memory = &mut target.memory;
            grants.copy_from(memory, done, &bytes.into());
            if has_failures() {
                grants.take_failure(memory)?;
            }
            if is_last {
                target.was_written(&visitor, &grants, FI_RMA, data);
            }
            Ok(grants)
        });
        self.parts = (!is_last).then_some(Parts {
            name,
            len: end,
            to: outcome.ok(),
        });
        if is_last || outcome.is_err() {
            self.done(name, outcome.map(|_| ()));
        }
        Ok(())
    }

    /// Handles the notification of an access that the peer has carried out.
    pub(super) fn was_accessed(
        &mut self,
        record: &Record,
        endpoints: &mut Endpoints<T>,
        target: &mut Option<RmaTarget>,
    ) -> std::result::Result<(), Fault> {
        let Head { kind, flags, words } = record.head;
        let list = read_remote_list(self.bytes(record).into(), words[2]);
        let (list, _) = list.ok_or(Fault::Protocol("list of an access"))?;
        let data = (flags & HAS_DATA != 0).then_some(words[0]);
        if let Some((target, visitor)) = self.visited(endpoints, target) {
            match kind {
                WAS_READ => target.has_been_read(&visitor, list.pieces()),
                _ => target.has_been_written(&visitor, list.pieces(), data),
            }
        }
        Ok(())
    }

    /// Handles a peer's read.
    pub(super) fn read(
        &mut self,
        record: &Record,
        endpoints: &mut Endpoints<T>,
        target: &mut Option<RmaTarget>,
    ) -> std::result::Result<(), Fault> {
        let [len, name, count] = record.head.words;
        let list = read_remote_list(self.bytes(record).into(), count);
        let (list, _) = list.ok_or(Fault::Protocol("list of a read"))?;
        if list.len() != len {
            return Err(Fault::Protocol("bytes of a read"));
        }
        // Short reads may overtake long ones.
        let is_at_once = len <= EAGER as u64;
        if self.pending.has_too_many_reads() {
            return Err(Fault::Protocol("more reads than may be under way"));
        }
        let Some((target, visitor)) = self.visited(endpoints, target) else {
            return Ok(());
        };
        let grants = match target.resolve(&visitor, FI_REMOTE_READ, list.pieces(), None) {
            Ok(grants) => grants,
            Err(refusal) => {
                self.done(name, Err(refusal.error()));
                return Ok(());
            }
        };
        let len = grants.len();
        if !is_at_once {
            let offer = self.pending.insert(Pending::Read(grants));
            self.streams.push_back(ReadReply {
                offer,
                to: name,
                done: 0,
                len,
            });
            bounded!(self.streams, OPERATIONS);
            return Ok(());
        }
        let head = Head {
            kind: RESULT,
            flags: 0,
            words: [name, 0, 0],
        };
        let has_device = grants.has_device(&mut target.memory);
        if !has_device {
            target.was_read(&visitor, &grants);
            if self.answers.is_empty()
                && self.post(head, len, |to| copy_part(&grants, target, 0, to))?
            {
                return Ok(());
            }
        }
        let mut copy = Vec::new();
        grants.append_to(&mut target.memory, &mut copy);
        if has_device {
            if let Err(error) = grants.take_failure(&mut target.memory) {
                self.done(name, Err(error));
                return Ok(());
            }
            target.was_read(&visitor, &grants);
        }
        self.answer(head, &copy);
        Ok(())
    }

    /// Notes that a peer has received the data of its read.
    pub(super) fn was_read(
        &mut self,
        grants: &Grants,
        endpoints: &mut Endpoints<T>,
        target: &mut Option<RmaTarget>,
    ) {
        if let Some((target, visitor)) = self.visited(endpoints, target) {
            target.was_read(&visitor, grants);
        }
    }

    /// Handles a peer's atomic operation.
    pub(super) fn atomic_requested(
        &mut self,
        record: &Record,
        endpoints: &mut Endpoints<T>,
        target: &mut Option<RmaTarget>,
        atomics: &mut Atomics,
    ) -> std::result::Result<(), Fault> {
        let [data, name, word] = record.head.words;
        let word = AtomicWord::unpack(word).ok_or(Fault::Protocol("atomic operation"))?;
        let list = read_remote_list(self.bytes(record).into(), word.count.into());
        let (list, bytes) = list.ok_or(Fault::Protocol("list of an atomic operation"))?;
        if list.len() > ATOMIC_LIMIT as u64 || bytes.len() > MODERATE {
            return Err(Fault::Protocol("bytes of an atomic operation"));
        }
        let form = Form::of_code(word.form);
        let form = form.ok_or(Fault::Protocol("form of an atomic operation"))?;
        let data = (record.head.flags & HAS_DATA != 0).then_some(data);
        let Atomics { operands, result } = atomics;
        operands.clear();
        operands.resize(bytes.len(), 0);
        bytes.read_once(operands);
        let request = AtomicRequest {
            form,
            op: word.op.into(),
            datatype: word.datatype.into(),
            operands,
            data,
        };
        let outcome = match self.visited(endpoints, target) {
            Some((target, visitor)) => target.atomic(&visitor, list.pieces(), &request, result),
            None => Ok(()),
        };
        match outcome {
            Ok(()) if form == Form::Base => self.done(name, Ok(())),
            Ok(()) => {
                let head = Head {
                    kind: RESULT,
                    flags: 0,
                    words: [name, 0, 0],
                };
                self.answer(head, result);
            }
            Err(Refusal::Malformed(what)) => return Err(Fault::Protocol(what)),
            Err(refusal) => self.done(name, Err(refusal.error())),
        }
        Ok(())
    }
}
