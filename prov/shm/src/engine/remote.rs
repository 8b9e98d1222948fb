//! Remote memory access (fi_rma(3)) and atomic operations (fi_atomic(3)), on both sides.

use prov_base::bounded;
use prov_base::bounds::OPERATIONS;

use fabric_abi::{FI_REMOTE_READ, FI_REMOTE_WRITE, FI_RMA};
use prov_base::atomic_ops::Form;
use prov_base::errno::{Errno, Result};
use prov_local::channel::{Head, MODERATE, Record};
use prov_local::copies::Copies as _;
use prov_local::link::payload::Payload;
use prov_local::onesided::ring_writes::Settled;
use prov_local::onesided::window::Outcome;
use prov_message::peers::{Bytes, Copies, Deferred, Destination, Lent};
use prov_message::{AtomicRequest, Op, Reaching as _, Refusal, RmaTarget, Visitor};
use prov_util::mr::Grants;
use prov_util::request::{Access, Atomic, RemoteAccess};

use super::Core;
use super::keys::{EpKey, LinkKey, to_peer};
use super::link::outgoing::{ReadReply, Writing};
use super::link::pending::Pending;
use super::link::{Fault, Link, Parts};
use super::records::{
    ATOMIC, AtomicWord, HAS_DATA, MORE, READ, REMOTE_LIST, RESULT, WAS_READ, WRITE,
    read_list_behind, read_remote_list, remote_list,
};
use super::replaying::copy_part;
use super::sending::copy;
use crate::params::{ATOMIC_LIMIT, SIZES};
use prov_local::switch_points::EAGER;

impl Core {
    pub(super) fn post_access(&mut self, ep: EpKey, access: &mut RemoteAccess) -> Result {
        SIZES.check_access(access)?;
        match self.reach(ep, access.peer)? {
            Destination::Open(key) => {
                let link = self.links.get(key);
                if link.is_some_and(|link| link.holds_access(access.access)) {
                    let op = Op::of_access(ep, access);
                    return self.wait_behind(key, op, || Deferred::access(access));
                }
                self.start_access(key, access, None)
            }
            Destination::Waits(peer) => {
                self.defer(peer, Op::of_access(ep, access), || Deferred::access(access))
            }
        }
    }

    pub(super) fn post_atomic(&mut self, ep: EpKey, atomic: &mut Atomic) -> Result {
        SIZES.check_atomic(atomic)?;
        match self.reach(ep, atomic.peer)? {
            Destination::Open(key) => {
                if self.links.get(key).is_some_and(Link::holds_messages) {
                    let op = Op::of_atomic(ep, atomic);
                    return self.wait_behind(key, op, || Deferred::atomic(atomic));
                }
                self.start_atomic(key, atomic, None)
            }
            Destination::Waits(peer) => {
                self.defer(peer, Op::of_atomic(ep, atomic), || Deferred::atomic(atomic))
            }
        }
    }

    /// Returns a link on which another request can be posted.
    fn may_request(&mut self, key: LinkKey) -> Result<&mut Link> {
        let link = self.links.get_mut(key).ok_or(Errno::EAGAIN)?;
        match link.may_request() {
            true => Ok(link),
            false => Err(Errno::EAGAIN),
        }
    }

    /// Begins a read or a write: copies, if that is possible, or sends a request to the peer.
    ///
    /// # Errors
    /// `-FI_EAGAIN` if there is no space.
    pub(super) fn start_access(
        &mut self,
        key: LinkKey,
        access: &mut RemoteAccess,
        copied: Option<&[u8]>,
    ) -> Result {
        let bytes = Bytes::of(&access.local, copied);
        if let Some(op) = self.write_in_ring(key, access, &bytes) {
            self.endpoints.report(&op, Ok(()));
            return Ok(());
        }
        match self.copy(key, access, &bytes)? {
            Some((op, outcome)) => {
                self.endpoints.report(&op, outcome);
                Ok(())
            }
            None => self.ask_to_access(key, access, copied),
        }
    }

    /// Copies the data of a read or a write, without the peer. Returns `None` if the peer has to
    /// carry out the access. That is also so while the peer has not answered earlier requests,
    /// which keeps the order of both methods; and, for an application that has requested that order
    /// (`FI_ORDER_WAS`, `FI_ORDER_RAS`), while the peer has not received earlier messages.
    ///
    /// # Errors
    /// `-FI_EAGAIN` if there is no space for the notification of the peer.
    fn copy(
        &mut self,
        key: LinkKey,
        access: &RemoteAccess,
        bytes: &Bytes<'_>,
    ) -> Result<Option<(Op, Result)>> {
        let Some(link) = self.links.get_mut(key) else {
            return Ok(None);
        };
        match link.settle_ring_writes() {
            Settled::All => {}
            Settled::Busy => return Err(Errno::EAGAIN),
            Settled::ByOwner => return Ok(None),
        }
        if link.has_requests() {
            return Ok(None);
        }
        let order = access.access.behind_messages();
        let endpoint = self.endpoints.get(link.ep);
        let is_ordered = endpoint.is_some_and(|endpoint| endpoint.own.msg_order & order != 0);
        if is_ordered && link.has_untaken() {
            return Ok(None);
        }
        let Link {
            window,
            channel,
            wire,
            broken,
            ..
        } = link;
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
        let outcome = match window.access(access, bytes, socket, has_room) {
            Outcome::Done { is_told: false } => Ok(()),
            Outcome::Done { is_told: true } => {
                link.tell_of(access);
                Ok(())
            }
            Outcome::Failed(error) => Err(error),
            Outcome::NoRoom => return Err(Errno::EAGAIN),
            Outcome::Ask => return Ok(None),
            Outcome::Forbidden(error) => {
                log::info!(
                    target: crate::LOG.ep_data,
                    "the memory of process {} is accessed through shared memory: {error}",
                    wire.pid
                );
                link.window = None;
                return Ok(None);
            }
        };
        Ok(Some((Op::of_access(link.ep, access), outcome)))
    }

    /// Sends a request for a read or a write to the peer.
    ///
    /// # Errors
    /// `-FI_EAGAIN` if there is no space.
    fn ask_to_access(
        &mut self,
        key: LinkKey,
        access: &mut RemoteAccess,
        copied: Option<&[u8]>,
    ) -> Result {
        let link = self.links.get_mut(key).ok_or(Errno::EAGAIN)?;
        let is_read = access.access == Access::Read;
        let may_start = match is_read {
            true => link.may_read(),
            false => link.may_write(),
        };
        if !may_start {
            return Err(Errno::EAGAIN);
        }
        let op = Op::of_access(link.ep, access);
        let ticket = self.endpoints.begin(op)?;
        let link = self.links.get_mut(key).ok_or(Errno::EAGAIN)?;
        let list = remote_list(&access.remote);
        let (list, count) = (list.bytes(), access.remote.pieces().len() as u64);
        let len = access.local.len();
        let waits = !link.writings.is_empty();
        let name = link.pending.insert(match is_read {
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
            link.post(head, list.len(), |to| {
                to.write_at(0, list);
            })
        } else if len <= EAGER && !waits {
            head.kind = WRITE;
            head.words[0] = data.unwrap_or(0);
            if data.is_some() {
                head.flags = HAS_DATA;
            }
            link.post(head, len + list.len(), |to| {
                copy(&Bytes::of(&access.local, copied), &to.slice(0, len));
                to.slice(len, list.len()).write_at(0, list);
            })
        } else {
            let is_kept = access.is_inject();
            let payload = Payload::of(Lent::of(&mut access.local, copied), is_kept);
            link.writings.push_back(Writing {
                name,
                payload,
                remote: access.remote,
                data,
                done: 0,
                len,
            });
            bounded!(link.writings, OPERATIONS);
            self.is_busy(key);
            if !waits {
                // The link records that the channel is broken, and ends in its turn.
                let _ = self.send_parts(key);
                // A sleeping thread does not know that there is data to send.
                self.wake_for_copies();
            }
            return Ok(());
        };
        self.posted(key, name, sent == Ok(true))
    }

    /// Keeps an operation until the operations that were posted before it on a link are complete.
    ///
    /// # Errors
    /// `-FI_EAGAIN` if the endpoint has too many operations in progress.
    pub(super) fn wait_behind(
        &mut self,
        key: LinkKey,
        op: Op,
        request: impl FnOnce() -> Deferred,
    ) -> Result {
        let ticket = self.endpoints.begin(op)?;
        let link = self.links.get_mut(key).ok_or(Errno::EAGAIN)?;
        link.wait_behind(request(), ticket);
        self.is_busy(key);
        Ok(())
    }

    /// Withdraws a request that was not sent.
    fn posted(&mut self, key: LinkKey, name: super::keys::PendingKey, sent: bool) -> Result {
        if sent {
            return Ok(());
        }
        let pending = self
            .links
            .get_mut(key)
            .and_then(|link| link.pending.remove(name));
        if let Some(ticket) = pending.and_then(Pending::into_ticket) {
            self.endpoints.settle(ticket);
        }
        Err(Errno::EAGAIN)
    }

    /// Begins an atomic operation.
    ///
    /// # Errors
    /// `-FI_EAGAIN` if there is no space.
    pub(super) fn start_atomic(
        &mut self,
        key: LinkKey,
        atomic: &mut Atomic,
        copies: Option<Copies<'_>>,
    ) -> Result {
        let link = self.may_request(key)?;
        let op = Op::of_atomic(link.ep, atomic);
        let ticket = self.endpoints.begin(op)?;
        let link = self.links.get_mut(key).ok_or(Errno::EAGAIN)?;
        let name = link.pending.insert(match atomic.kind.take_result() {
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
        let sent = link.post(head, list.len() + first + second, |to| {
            to.write_at(0, list);
            copy(&operand, &to.slice(list.len(), first));
            copy(&compare, &to.slice(list.len() + first, second));
        });
        self.posted(key, name, sent == Ok(true))
    }

    /// Returns the registered memory of this process, the rights of a link's peer, and the link.
    pub(super) fn visited(&mut self, key: LinkKey) -> Option<(&mut RmaTarget, Visitor<'_>, &Link)> {
        let link = self.links.get(key)?;
        let (_, visitor) = self.endpoints.get_mut(link.ep)?.visited(link.src);
        Some((self.target.as_mut()?, visitor, link))
    }

    /// Handles a peer's write.
    pub(super) fn written(
        &mut self,
        key: LinkKey,
        record: &Record,
    ) -> std::result::Result<(), Fault> {
        let Head { flags, words, .. } = record.head;
        let Some(link) = self.links.get_mut(key) else {
            return Ok(());
        };
        let list = read_list_behind(&link.bytes(record), words[2]);
        let (list, len) = list.ok_or(Fault::Protocol("list of a write"))?;
        let is_last = flags & MORE == 0;
        let name = words[1];
        // The last part of a write that was refused may never arrive.
        let before = link.parts.take().filter(|parts| parts.name == name);
        let (done, to) = match before {
            Some(Parts { to: None, .. }) => {
                link.parts = before.filter(|_| !is_last);
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
        if data.is_some() {
            self.find_source(key);
        }
        let Some((target, visitor, link)) = self.visited(key) else {
            return Ok(());
        };
        let grants = match to {
            Some(grants) => Ok(grants),
            None => target.resolve(&visitor, FI_REMOTE_WRITE, list.pieces(), data),
        };
        let outcome = grants
            .inspect(|grants| {
                let (bytes, _) = link.bytes(record).split(len);
                let memory = &mut target.memory;
                grants.copy_from(memory, done, &bytes.into());
                if is_last {
                    target.was_written(&visitor, grants, FI_RMA, data);
                }
            })
            .map_err(|refusal| refusal.error());
        if let Some(link) = self.links.get_mut(key) {
            let to = outcome.ok();
            let parts = Parts { name, len: end, to };
            link.parts = (!is_last).then_some(parts);
        }
        if is_last || outcome.is_err() {
            self.done(key, name, outcome.map(|_| ()));
        }
        Ok(())
    }

    /// Handles the notification of an access that the peer has carried out.
    pub(super) fn was_accessed(
        &mut self,
        key: LinkKey,
        record: &Record,
    ) -> std::result::Result<(), Fault> {
        let Head { kind, flags, words } = record.head;
        let Some(link) = self.links.get(key) else {
            return Ok(());
        };
        let list = read_remote_list(link.bytes(record).into(), words[2]);
        let (list, _) = list.ok_or(Fault::Protocol("list of an access"))?;
        let data = (flags & HAS_DATA != 0).then_some(words[0]);
        if data.is_some() {
            self.find_source(key);
        }
        if let Some((target, visitor, _)) = self.visited(key) {
            match kind {
                WAS_READ => target.has_been_read(&visitor, list.pieces()),
                _ => target.has_been_written(&visitor, list.pieces(), data),
            }
        }
        Ok(())
    }

    /// Handles a peer's read.
    pub(super) fn read(&mut self, key: LinkKey, record: &Record) -> std::result::Result<(), Fault> {
        let [len, name, count] = record.head.words;
        let Some(link) = self.links.get_mut(key) else {
            return Ok(());
        };
        let list = read_remote_list(link.bytes(record).into(), count);
        let (list, _) = list.ok_or(Fault::Protocol("list of a read"))?;
        if list.len() != len {
            return Err(Fault::Protocol("bytes of a read"));
        }
        // Short reads may overtake long ones.
        let is_at_once = len <= EAGER as u64;
        if link.pending.has_too_many_reads() {
            return Err(Fault::Protocol("more reads than may be under way"));
        }
        let Some((target, visitor, _)) = self.visited(key) else {
            return Ok(());
        };
        let grants = match target.resolve(&visitor, FI_REMOTE_READ, list.pieces(), None) {
            Ok(grants) => grants,
            Err(refusal) => {
                self.done(key, name, Err(refusal.error()));
                return Ok(());
            }
        };
        let len = grants.len();
        if is_at_once {
            let head = Head {
                kind: RESULT,
                flags: 0,
                words: [name, 0, 0],
            };
            if grants.has_device(&mut target.memory) {
                let mut copy = Vec::new();
                grants.append_to(&mut target.memory, &mut copy);
                match grants.take_failure(&mut target.memory) {
                    Ok(()) => {
                        target.was_read(&visitor, &grants);
                        self.answer(key, head, &copy);
                    }
                    Err(error) => self.done(key, name, Err(error)),
                }
                return Ok(());
            }
            target.was_read(&visitor, &grants);
            let Core { links, target, .. } = self;
            let Some(link) = links.get_mut(key) else {
                return Ok(());
            };
            let sent = link.answers.is_empty()
                && link.post(head, len, |to| copy_part(&grants, target, 0, to))?;
            if !sent && let Some(target) = target {
                let mut copy = Vec::new();
                grants.append_to(&mut target.memory, &mut copy);
                self.answer(key, head, &copy);
            }
            return Ok(());
        }
        let Some(link) = self.links.get_mut(key) else {
            return Ok(());
        };
        let offered = link.pending.insert(Pending::Read(grants));
        link.streams.push_back(ReadReply {
            offer: offered,
            to: name,
            done: 0,
            len,
        });
        bounded!(link.streams, OPERATIONS);
        self.is_busy(key);
        Ok(())
    }

    /// Notes that a peer has received the data of its read.
    pub(super) fn was_read(&mut self, key: LinkKey, grants: &Grants) {
        if let Some((target, visitor, _)) = self.visited(key) {
            target.was_read(&visitor, grants);
        }
    }

    /// Handles a peer's atomic operation.
    pub(super) fn atomic_requested(
        &mut self,
        key: LinkKey,
        record: &Record,
    ) -> std::result::Result<(), Fault> {
        let [data, name, word] = record.head.words;
        let word = AtomicWord::unpack(word).ok_or(Fault::Protocol("atomic operation"))?;
        let Some(link) = self.links.get(key) else {
            return Ok(());
        };
        let list = read_remote_list(link.bytes(record).into(), word.count.into());
        let (list, bytes) = list.ok_or(Fault::Protocol("list of an atomic operation"))?;
        if list.len() > ATOMIC_LIMIT as u64 || bytes.len() > MODERATE {
            return Err(Fault::Protocol("bytes of an atomic operation"));
        }
        let form = Form::of_code(word.form);
        let form = form.ok_or(Fault::Protocol("form of an atomic operation"))?;
        let data = (record.head.flags & HAS_DATA != 0).then_some(data);
        let mut operands = std::mem::take(&mut self.operands);
        let mut result = std::mem::take(&mut self.result);
        operands.clear();
        operands.resize(bytes.len(), 0);
        bytes.read_once(&mut operands);
        if data.is_some() {
            self.find_source(key);
        }
        let request = AtomicRequest {
            form,
            op: word.op.into(),
            datatype: word.datatype.into(),
            operands: &operands,
            data,
        };
        let outcome = match self.visited(key) {
            Some((target, visitor, _)) => {
                target.atomic(&visitor, list.pieces(), &request, &mut result)
            }
            None => Ok(()),
        };
        match outcome {
            Ok(()) if form == Form::Base => self.done(key, name, Ok(())),
            Ok(()) => {
                let head = Head {
                    kind: RESULT,
                    flags: 0,
                    words: [name, 0, 0],
                };
                self.answer(key, head, &result);
            }
            Err(Refusal::Malformed(what)) => return Err(Fault::Protocol(what)),
            Err(refusal) => self.done(key, name, Err(refusal.error())),
        }
        (self.operands, self.result) = (operands, result);
        Ok(())
    }
}
