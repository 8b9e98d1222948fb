//! Operations that have waited for a link, and data that is sent in parts: both continue when there
//! is space.

use prov_base::bounded;
use prov_base::bounds::{OPERATIONS, PEERS};
use prov_base::buffer::Iov;
use prov_base::errno::Errno;
use prov_local::channel::Head;
use prov_message::peers::{Deferred, Request};
use prov_message::{Op, Ticket};
use prov_util::mr::Grants;
use prov_util::request::RemoteIov;

use super::Core;
use super::keys::LinkKey;
use super::link::Fault;
use super::link::outgoing::{ReadReply, Writing};
use super::link::pending::Pending;
use super::records::{self, HAS_DATA, MORE, RESULT, WRITE, remote_list};
use prov_local::switch_points::EAGER;

/// Number of bytes that are sent in parts in one turn, after which other links can send.
const TURN_BYTES: usize = 256 << 10;

impl Core {
    /// Notes that a link has data to send when there is space.
    pub(super) fn is_busy(&mut self, key: LinkKey) {
        if let Some(link) = self.links.get_mut(key)
            && !link.is_busy
        {
            link.is_busy = true;
            self.busy.push(key);
            bounded!(self.busy, PEERS);
        }
    }

    /// Posts the operations that have waited for a link or for earlier operations, as long as there
    /// is space.
    pub(super) fn replay(&mut self, key: LinkKey) {
        while let Some((request, ticket)) = self.next_to_replay(key) {
            let Some(ep) = self.links.get(key).map(|link| link.ep) else {
                return;
            };
            // Posting counts the operation again, unless it completes immediately.
            self.endpoints.settle(ticket);
            let mut replay = request.replay();
            let (request, copies) = replay.parts();
            let copied = copies.map(|copies| copies.payload);
            let (op, posted) = match request {
                Request::Transmit(message) => {
                    let op = Op::of_transmit(ep, message);
                    let link = self.links.get_mut(key);
                    // The caller of the operation has returned, so it cannot get -FI_EAGAIN.
                    let is_eager =
                        link.is_some_and(|link| link.is_eager(message.buffers.len()) == Ok(true));
                    (op, self.send(key, message, copied, is_eager))
                }
                Request::Access(access) => (
                    Op::of_access(ep, access),
                    self.start_access(key, access, copied),
                ),
                Request::Atomic(atomic) => (
                    Op::of_atomic(ep, atomic),
                    self.start_atomic(key, atomic, copies),
                ),
            };
            if let Err(error) = posted {
                self.endpoints.report(&op, Err(error));
            }
        }
    }

    /// Returns the next operation that has waited on a link, if it may be posted.
    fn next_to_replay(&mut self, key: LinkKey) -> Option<(Deferred, Ticket)> {
        let link = self.links.get(key).filter(|link| link.is_open())?;
        let (ep, peer) = (link.ep, link.peer);
        let is_behind = link.is_message_behind();
        let is_message = match (is_behind, peer) {
            (Some(is_message), _) => is_message,
            (None, Some(peer)) => {
                let (next, _) = self.rdm(ep)?.peers.waiting(peer).next()?;
                next.message_len().is_some()
            }
            (None, None) => return None,
        };
        let link = self.links.get_mut(key)?;
        let may_follow = link.writings.is_empty() && !link.pending.has_long_results();
        let has_room = may_follow && link.has_room();
        let may_be = match is_message {
            true => link.pending.has_room_for_message(),
            false => link.may_request(),
        };
        if !has_room || !may_be {
            self.is_busy(key);
            return None;
        }
        match (is_behind, peer) {
            (Some(_), _) => link.next_behind(),
            (None, Some(peer)) => self.rdm(ep)?.peers.next_waiting(peer, key),
            (None, None) => None,
        }
    }

    /// Sends the data of links, as long as there is space. Returns whether there was progress.
    #[inline(never)]
    pub(super) fn send_more(&mut self) -> bool {
        let mut any = false;
        for key in std::mem::take(&mut self.busy) {
            let Some(link) = self.links.get_mut(key) else {
                continue;
            };
            link.is_busy = false;
            match self.send_more_on(key) {
                Ok(has_sent) => any |= has_sent,
                Err(fault) => {
                    self.break_link(key, fault);
                    continue;
                }
            }
            self.replay(key);
            if let Some(link) = self.links.get_mut(key)
                && link.has_something_to_send()
            {
                // Progress alone does not count: a thread may sleep while the next data waits for
                // space.
                any |= link.has_room_for_next();
                self.is_busy(key);
            }
        }
        any
    }

    fn send_more_on(&mut self, key: LinkKey) -> Result<bool, Fault> {
        let mut any = false;
        let Some(link) = self.links.get_mut(key) else {
            return Ok(false);
        };
        while let Some(answer) = link.answers.pop_front() {
            let len = answer.bytes.len();
            let sent = link.post(answer.head, len, |to| {
                to.write_at(0, &answer.bytes);
            })?;
            if !sent {
                link.answers.push_front(answer);
                bounded!(link.answers, OPERATIONS);
                return Ok(any);
            }
            link.answer_bytes -= len;
            any = true;
        }
        Ok(any | self.send_parts(key)?)
    }

    /// Sends parts of writes, and of data that the peer reads, as long as there is space. Returns
    /// whether there was progress.
    pub(super) fn send_parts(&mut self, key: LinkKey) -> Result<bool, Fault> {
        let (mut any, mut bytes) = (false, 0);
        while bytes < TURN_BYTES {
            let sent = [
                self.send_part_of_write(key)?,
                self.send_part_of_stream(key)?,
            ];
            if sent == [None; 2] {
                break;
            }
            any = true;
            bytes += sent.into_iter().flatten().sum::<usize>();
        }
        Ok(any)
    }

    /// Sends the next part of a write. Returns its length, if there was a part and space for it.
    fn send_part_of_write(&mut self, key: LinkKey) -> Result<Option<usize>, Fault> {
        let Some(link) = self.links.get_mut(key) else {
            return Ok(None);
        };
        // The rest of a write of which the peer has refused a part is dropped.
        while let Some(next) = link.writings.front()
            && !link.pending.contains_key(next.name)
        {
            link.writings.pop_front();
        }
        let Some(writing) = link.writings.pop_front() else {
            return Ok(None);
        };
        let Writing {
            name, done, len, ..
        } = writing;
        let part = (len - done).min(EAGER);
        let is_last = done + part == len;
        // The first part has the list of the whole write.
        let remote = match done {
            0 => writing.remote,
            _ => RemoteIov::default(),
        };
        let list = remote_list(&remote);
        let mut flags = if is_last { 0 } else { MORE };
        if is_last && writing.data.is_some() {
            flags |= HAS_DATA;
        }
        let head = Head {
            kind: WRITE,
            flags,
            words: [
                writing.data.unwrap_or(0),
                super::keys::to_peer(name),
                remote.pieces().len() as u64,
            ],
        };
        let list = list.bytes();
        let sent = link.post(head, part + list.len(), |to| {
            writing.payload.copy_to(done, &to.slice(0, part));
            to.slice(part, list.len()).write_at(0, list);
        })?;
        let sent = sent.then_some(part);
        if sent.is_none() || !is_last {
            link.writings.push_front(Writing {
                done: done + sent.unwrap_or(0),
                ..writing
            });
            bounded!(link.writings, OPERATIONS);
        }
        Ok(sent)
    }

    /// Sends the next part of data that the peer reads. Returns its length, if there was a part and
    /// space for it.
    fn send_part_of_stream(&mut self, key: LinkKey) -> Result<Option<usize>, Fault> {
        let Some(link) = self.links.get_mut(key) else {
            return Ok(None);
        };
        while let Some(next) = link.streams.front()
            && !link.pending.contains_key(next.offer)
        {
            link.streams.pop_front();
        }
        let Some(stream) = link.streams.pop_front() else {
            return Ok(None);
        };
        let Some(Pending::Read(grants)) = link.pending.get(stream.offer) else {
            return Ok(None);
        };
        let part = (stream.len - stream.done).min(EAGER);
        let is_last = stream.done + part == stream.len;
        let head = Head {
            kind: RESULT,
            flags: if is_last { 0 } else { MORE },
            words: [stream.to, 0, 0],
        };
        let channel = link.channel.as_mut();
        let channel = channel.ok_or(Fault::Protocol("no channel"))?;
        let space = channel.space(part);
        let space = space.inspect_err(|broken| link.broken = Some(*broken))?;
        let Some(space) = space else {
            link.streams.push_front(stream);
            bounded!(link.streams, OPERATIONS);
            return Ok(None);
        };
        copy_part(grants, &mut self.target, stream.done, &space.bytes());
        if let Some(target) = &mut self.target
            && let Err(error) = grants.take_failure(&mut target.memory)
        {
            link.pending.remove(stream.offer);
            self.done(key, stream.to, Err(error));
            return Ok(Some(part));
        }
        if space.publish(head) {
            link.wake_peer();
        }
        if !is_last {
            link.streams.push_front(ReadReply {
                done: stream.done + part,
                ..stream
            });
            bounded!(link.streams, OPERATIONS);
        } else if let Some(Pending::Read(grants)) = link.pending.remove(stream.offer) {
            self.was_read(key, &grants);
        }
        Ok(Some(part))
    }

    /// Sends a reply, immediately or as soon as there is space.
    #[inline]
    pub(super) fn answer(&mut self, key: LinkKey, head: Head, bytes: &[u8]) {
        let Some(link) = self.links.get_mut(key) else {
            return;
        };
        let sent = link.answers.is_empty()
            && link
                .post(head, bytes.len(), |to| {
                    to.write_at(0, bytes);
                })
                .unwrap_or(true);
        if !sent {
            let bytes = bytes.to_vec();
            link.answer_bytes += bytes.len();
            link.answers
                .push_back(super::link::outgoing::Answer { head, bytes });
            self.is_busy(key);
        }
    }

    /// Reports to the peer that the operation or offer that it calls `name` is complete.
    #[inline]
    pub(super) fn done(&mut self, key: LinkKey, name: u64, outcome: Result<(), Errno>) {
        let status = outcome.err().map_or(0, |error| error.number() as u64);
        let head = Head {
            kind: records::DONE,
            flags: 0,
            words: [name, status, 0],
        };
        self.answer(key, head, &[]);
    }
}

/// Copies registered memory from an offset on, filling `to`.
pub fn copy_part(
    grants: &Grants,
    target: &mut Option<prov_message::RmaTarget>,
    offset: usize,
    to: &Iov<'_>,
) {
    let Some(target) = target else {
        return;
    };
    let mut done = 0;
    while done < to.len() {
        let room = to.slice(done, usize::MAX);
        let part = grants.part(&mut target.memory, offset + done, room.len(), |from| {
            from.copy_to(&room);
        });
        let (len, copied) = part;
        if copied.is_none() {
            room.slice(0, len).fill(0);
        }
        if len == 0 {
            return;
        }
        done += len;
    }
}
