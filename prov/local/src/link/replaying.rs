//! Operations that have waited for a link, and data that is sent in parts: both continue when there
//! is space.

use prov_base::bounded;
use prov_base::bounds::OPERATIONS;
use prov_base::device_memory::has_failures;
use prov_message::keys::to_peer;
use prov_message::peers::{Deferred, Request};
use prov_message::{Endpoints, Op, RmaTarget, Ticket};
use prov_util::request::RemoteIov;

use super::outgoing::{ReadReply, Writing, copy_part};
use super::pending::Pending;
use super::records::{HAS_DATA, MORE, RESULT, WRITE, remote_list};
use super::{At, Fault, Link, LinkOf, Links, LocalTransport, remote};
use crate::channel::Head;
use crate::switch_points::EAGER;

/// Number of bytes that are sent in parts in one turn, after which other links can send.
const TURN_BYTES: usize = 256 << 10;

/// Posts the operations that have waited for a link or for earlier operations, as long as there is space.
pub fn replay<L: Links>(lane: &mut L, key: LinkOf<L>) {
    while let Some((request, ticket)) = next_to_replay(lane, key) {
        let Some(At {
            link, endpoints, ..
        }) = lane.at(key)
        else {
            return;
        };
        let ep = link.ep;
        // Posting counts the operation again, unless it completes immediately.
        endpoints.settle(ticket);
        let mut replay = request.replay();
        let (request, copies) = replay.parts();
        let copied = copies.map(|copies| copies.payload);
        let (op, posted) = match request {
            Request::Transmit(message) => {
                let op = Op::of_transmit(ep, message);
                // The caller of the operation has returned, so it cannot get -FI_EAGAIN.
                let is_eager = link.is_eager(message.buffers.len()) == Ok(true);
                let sent = link.send(message, copied, is_eager, endpoints);
                if sent == Ok(true) {
                    lane.has_offered(key);
                }
                (op, sent.map(|_| ()))
            }
            Request::Access(access) => (
                Op::of_access(ep, access),
                remote::start_access(lane, key, access, copied),
            ),
            Request::Atomic(atomic) => (
                Op::of_atomic(ep, atomic),
                link.start_atomic(atomic, copies, endpoints),
            ),
        };
        if let Err(error) = posted {
            lane.endpoints().report(&op, Err(error));
        }
    }
}

/// Returns the next operation that has waited on a link, if it may be posted.
fn next_to_replay<L: Links>(lane: &mut L, key: LinkOf<L>) -> Option<(Deferred, Ticket)> {
    let is_message = match lane.at(key)?.link.is_message_behind() {
        Some(is_message) => is_message,
        None => lane.is_message_deferred(key)?,
    };
    let At { link, lists, .. } = lane.at(key)?;
    let may_follow = link.writings.is_empty() && !link.pending.has_long_results();
    let has_room = may_follow && link.has_room();
    let may_be = match is_message {
        true => link.pending.has_room_for_message(),
        false => link.may_request(),
    };
    if !has_room || !may_be {
        link.waits_for_turn(key, lists);
        return None;
    }
    match link.next_behind() {
        None => lane.next_deferred(key),
        next => next,
    }
}

/// Sends the data of links, as long as there is space. Returns whether there was progress.
#[inline]
pub fn send_more<L: Links>(lane: &mut L) -> bool {
    !lane.lists().busy.is_empty() && send_for_busy(lane)
}

#[inline(never)]
fn send_for_busy<L: Links>(lane: &mut L) -> bool {
    let mut any = false;
    for key in std::mem::take(&mut lane.lists().busy) {
        let Some(At {
            link,
            endpoints,
            target,
            ..
        }) = lane.at(key)
        else {
            continue;
        };
        link.is_busy = false;
        match link.send_more(endpoints, target) {
            Ok(has_sent) => any |= has_sent,
            Err(fault) => {
                lane.breaks(key, fault);
                continue;
            }
        }
        replay(lane, key);
        if let Some(At { link, lists, .. }) = lane.at(key)
            && link.has_something_to_send()
        {
            // Progress alone does not count: a thread may sleep while the next data waits for
            // space.
            any |= link.has_room_for_next();
            link.waits_for_space(key, lists);
        }
    }
    any
}

impl<T: LocalTransport> Link<T> {
    /// Sends what waits, as long as there is space. Returns whether there was progress.
    fn send_more(
        &mut self,
        endpoints: &mut Endpoints<T>,
        target: &mut Option<RmaTarget>,
    ) -> Result<bool, Fault> {
        let mut any = false;
        while let Some(answer) = self.answers.pop_front() {
            let len = answer.bytes.len();
            let sent = self.post(answer.head, len, |to| {
                to.write_at(0, &answer.bytes);
            })?;
            if !sent {
                self.answers.push_front(answer);
                bounded!(self.answers, OPERATIONS);
                return Ok(any);
            }
            self.answer_bytes -= len;
            any = true;
        }
        Ok(any | self.send_parts(endpoints, target)?)
    }

    /// Sends parts of writes, and of data that the peer reads, as long as there is space. Returns
    /// whether there was progress.
    pub(super) fn send_parts(
        &mut self,
        endpoints: &mut Endpoints<T>,
        target: &mut Option<RmaTarget>,
    ) -> Result<bool, Fault> {
        let (mut any, mut bytes) = (false, 0);
        while bytes < TURN_BYTES {
            let sent = [
                self.send_part_of_write(endpoints)?,
                self.send_part_of_stream(endpoints, target)?,
            ];
            if sent == [None; 2] {
                break;
            }
            any = true;
            bytes += sent.into_iter().flatten().sum::<usize>();
        }
        Ok(any)
    }

    /// Sends the next part of a write. Returns its length, if there was a part and space for it. A write
    /// whose bytes a device does not read ends; the peer has parts of it.
    fn send_part_of_write(&mut self, endpoints: &mut Endpoints<T>) -> Result<Option<usize>, Fault> {
        // The rest of a write of which the peer has refused a part is dropped.
        while let Some(next) = self.writings.front()
            && !self.pending.contains_key(next.name)
        {
            self.writings.pop_front();
        }
        let Some(writing) = self.writings.pop_front() else {
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
                to_peer(name),
                remote.pieces().len() as u64,
            ],
        };
        let list = list.bytes();
        let sent = self.post(head, part + list.len(), |to| {
            writing.payload.copy_to(done, &to.slice(0, part));
            to.slice(part, list.len()).write_at(0, list);
        })?;
        let sent = sent.then_some(part);
        if has_failures()
            && let Err(error) = writing.payload.take_failure()
            && let Some(Pending::Op(ticket)) = self.pending.remove(name)
        {
            endpoints.finish(ticket, Err(error));
            return Ok(sent);
        }
        if sent.is_none() || !is_last {
            self.writings.push_front(Writing {
                done: done + sent.unwrap_or(0),
                ..writing
            });
            bounded!(self.writings, OPERATIONS);
        }
        Ok(sent)
    }

    /// Sends the next part of data that the peer reads. Returns its length, if there was a part and
    /// space for it.
    fn send_part_of_stream(
        &mut self,
        endpoints: &mut Endpoints<T>,
        target: &mut Option<RmaTarget>,
    ) -> Result<Option<usize>, Fault> {
        while let Some(next) = self.streams.front()
            && !self.pending.contains_key(next.offer)
        {
            self.streams.pop_front();
        }
        let Some(stream) = self.streams.pop_front() else {
            return Ok(None);
        };
        let (Some(&Pending::Read(grants)), Some(memory)) =
            (self.pending.get(stream.offer), target.as_mut())
        else {
            return Ok(None);
        };
        let part = (stream.len - stream.done).min(EAGER);
        let is_last = stream.done + part == stream.len;
        let head = Head {
            kind: RESULT,
            flags: if is_last { 0 } else { MORE },
            words: [stream.to, 0, 0],
        };
        let channel = self.channel.as_mut();
        let channel = channel.ok_or(Fault::Protocol("no channel"))?;
        let space = channel.space(part);
        let space = space.inspect_err(|broken| self.broken = Some(*broken))?;
        let Some(space) = space else {
            self.streams.push_front(stream);
            bounded!(self.streams, OPERATIONS);
            return Ok(None);
        };
        copy_part(&grants, memory, stream.done, &space.bytes());
        if let Err(error) = grants.take_failure(&mut memory.memory) {
            self.pending.remove(stream.offer);
            self.done(stream.to, Err(error));
            return Ok(Some(part));
        }
        if space.publish(head) {
            self.wake_peer();
        }
        if !is_last {
            self.streams.push_front(ReadReply {
                done: stream.done + part,
                ..stream
            });
            bounded!(self.streams, OPERATIONS);
        } else {
            self.pending.remove(stream.offer);
            self.was_read(&grants, endpoints, target);
        }
        Ok(Some(part))
    }
}
