//! Messages that arrive through a channel.

use prov_base::bounded;
use prov_base::bounds::PEERS;
use prov_base::buffer::{AppIov, Iov};
use prov_base::errno::Errno;
use prov_message::keys::from_peer;
use prov_message::peers::UNKNOWN_SOURCE;
use prov_message::{Arrival, Endpoints, Placing, Receipt, RmaTarget, Taken};

use super::payload::Payload;
use super::pending::{ANSWERS, Pending};
use super::pulling;
use super::records::*;
use super::{Ack, At, Fault, Link, LinkOf, Links, LocalTransport, Offered, Wire as _};
use crate::channel::{Head, Record};

/// Number of messages that are received from one link before the other links have their turn.
pub(super) const TURN: usize = 64;
/// Number of bytes after which the turn of a link ends as well, so that this side can send.
const TURN_BYTES: usize = 512 << 10;
/// Largest number of bytes in replies of one link that wait for space: more than peers with this library
/// have requested at a time.
const ANSWER_BYTES: usize = 128 << 20;

/// Largest number of turns in which the messages left in a peer's channel are received: the channel
/// has fewer messages.
const LAST_TURNS: usize = 4096 / TURN;

/// The outcome of a turn on the fast path; whether any messages were received.
enum Plain {
    /// The turn is over.
    All(bool),
    /// The slow path goes on.
    Until(bool),
}

/// Receives the messages that have arrived on a link. Returns whether there were any. After an
/// unsuccessful turn (`is_idle`) it receives one message only: the application waits for it, and polling
/// the next slot, which is not filled yet, takes as long as a message takes to arrive.
#[inline(always)]
pub fn take_in<L: Links>(lane: &mut L, key: LinkOf<L>, is_idle: bool) -> bool {
    let most = if is_idle { 1 } else { TURN };
    take_in_plain::<L, false>(lane, key, most)
}

/// As [`take_in`]: a separate copy of the code for messages that are not contained in their slots.
#[inline(never)]
fn take_in_long<L: Links>(lane: &mut L, key: LinkOf<L>) -> bool {
    take_in_plain::<L, true>(lane, key, TURN)
}

/// The fast path: receives messages that need no special handling, and leaves the first one that does to
/// the slow path. `LONG` says whether it receives messages that are not contained in their slots.
#[inline(always)]
fn take_in_plain<L: Links, const LONG: bool>(lane: &mut L, key: LinkOf<L>, most: usize) -> bool {
    let Some(At {
        link, endpoints, ..
    }) = lane.at(key)
    else {
        return false;
    };
    let Some(channel) = &mut link.channel else {
        return false;
    };
    let receiver = &mut channel.receiver;
    let Some(mut next) = receiver.peek() else {
        if most == 1 {
            receiver.fetch_ahead();
        }
        // The sender is told what was received when the receiver is otherwise idle.
        if receiver.has_untold() && receiver.tell() {
            link.wire.wake();
        }
        return false;
    };
    let src = link.src;
    if src == UNKNOWN_SOURCE {
        return take_in_slowly(lane, key, most);
    }
    let Some(mut plain) = endpoints.plain(link.ep) else {
        return false;
    };
    let mut turns = most;
    loop {
        // A message to acknowledge needs special handling.
        let is_plain = next.is(MESSAGE, TAGGED) && next.word(2) == 0;
        let bytes = match next.bytes() {
            Some(bytes) if is_plain => bytes,
            None if is_plain && !LONG => return take_in_long(lane, key) || turns != most,
            None if is_plain => match receiver.far_bytes(&next) {
                Some(bytes) => bytes,
                None => return take_in_slowly(lane, key, most) || turns != most,
            },
            _ => return take_in_slowly(lane, key, most) || turns != most,
        };
        let tag = next.has(TAGGED).then(|| next.word(0));
        if !plain.take(src, tag, &bytes) {
            return take_in_slowly(lane, key, most) || turns != most;
        }
        if receiver.take(bytes.len()) {
            link.wire.wake();
        }
        turns -= 1;
        if turns == 0 {
            return true;
        }
        next = match receiver.peek() {
            Some(next) => next,
            None => return true,
        };
    }
}

/// The fast path where the receives belong to another provider, which drives the lane.
fn take_in_imported<L: Links>(lane: &mut L, key: LinkOf<L>, most: usize) -> Plain {
    let Some(At {
        link, endpoints, ..
    }) = lane.at(key)
    else {
        return Plain::All(false);
    };
    let (src, Some(channel)) = (link.src, &mut link.channel) else {
        return Plain::All(false);
    };
    let Some(mut plain) = endpoints.plain_imported(link.ep) else {
        return Plain::Until(false);
    };
    let receiver = &mut channel.receiver;
    for turn in 0..most {
        let Some(next) = receiver.peek() else {
            return Plain::All(turn != 0);
        };
        let is_plain = src != UNKNOWN_SOURCE && next.is(MESSAGE, TAGGED) && next.word(2) == 0;
        let tag = next.has(TAGGED).then(|| next.word(0));
        let taken = match next.bytes() {
            Some(bytes) if is_plain && plain.take(key, (src, tag), &bytes) => bytes.len(),
            _ => return Plain::Until(turn != 0),
        };
        if receiver.take(taken) {
            link.wire.wake();
        }
    }
    Plain::All(true)
}

/// The slow path: receives messages of any kind, after as many as `most` where the receives belong to
/// another provider.
#[inline(never)]
pub(super) fn take_in_slowly<L: Links>(lane: &mut L, key: LinkOf<L>, most: usize) -> bool {
    if lane.endpoints().is_deaf() {
        return false;
    }
    let (mut any, mut bytes) = match take_in_imported(lane, key, most) {
        Plain::All(any) => return any,
        Plain::Until(any) => (any, 0),
    };
    for _ in 0..TURN {
        let Some(At { link, .. }) = lane.at(key) else {
            break;
        };
        let Some(channel) = &link.channel else {
            break;
        };
        let record = match channel.receiver.next() {
            Ok(Some(record)) => record,
            Ok(None) => break,
            Err(broken) => {
                lane.breaks(key, broken.into());
                break;
            }
        };
        let handled = handle(lane, key, &record);
        let Some(At { link, lists, .. }) = lane.at(key) else {
            break;
        };
        match handled {
            Ok(true) => {
                any = true;
                bytes += record.len();
                link.waits_for_space(key, lists);
                link.is_stalled = false;
                if let Some(channel) = &mut link.channel
                    && channel.receiver.take(record.len())
                {
                    link.wake_peer();
                }
            }
            Ok(false) => {
                link.is_stalled = true;
                break;
            }
            Err(fault) => {
                lane.breaks(key, fault);
                break;
            }
        }
        lane.follow_up();
        if bytes >= TURN_BYTES {
            break;
        }
    }
    if !lane.lists().unreported.is_empty() {
        has_had_turn(lane, key, any);
    }
    if let Some(At { link, .. }) = lane.at(key)
        && let Some(channel) = &mut link.channel
        && channel.receiver.tell()
    {
        link.wake_peer();
    }
    any
}

/// Handles a message. Returns `false` if there is no space for it, in which case it stays in the channel.
fn handle<L: Links>(lane: &mut L, key: LinkOf<L>, record: &Record) -> Result<bool, Fault> {
    let Head { kind, words, flags } = record.head;
    let has_data = flags & HAS_DATA != 0;
    let is_reported = match kind {
        WRITE => has_data && flags & MORE == 0,
        WAS_WRITTEN | ATOMIC => has_data,
        _ => false,
    };
    if is_reported && !has_room_unasked(lane, key) {
        return Ok(false);
    }
    if has_data || matches!(kind, MESSAGE | OFFERED) {
        lane.find_source(key);
    }
    if kind == OFFERED {
        return offered(lane, key, record);
    }
    let At {
        link,
        endpoints,
        target,
        lists,
    } = lane.at(key).ok_or(Fault::Ended(Errno::ENOTCONN))?;
    match kind {
        MESSAGE => return Ok(link.message(key, record, endpoints)),
        DONE => link.is_done(words, endpoints, target),
        WRITE if flags == IN_RING => return link.written_in_ring(record, endpoints, target),
        WRITE => link.written(record, endpoints, target)?,
        WAS_WRITTEN | WAS_READ => link.was_accessed(record, endpoints, target)?,
        READ => link.read(record, endpoints, target)?,
        RESULT => link.result(record, endpoints)?,
        ATOMIC => link.atomic_requested(record, endpoints, target, &mut lists.atomics)?,
        THROTTLE => link.pending.offer_only(words[0] != 0),
        _ => return Err(Fault::Protocol("kind of a message")),
    }
    match link.answers.len() > ANSWERS || link.answer_bytes > ANSWER_BYTES {
        true => Err(Fault::Protocol("more requests than answers are read")),
        false => Ok(true),
    }
}

/// Whether an operation of the peer that consumes no receive may be reported. If not, the link waits
/// until the application has read completions, and the links before it have had their turns.
#[cold]
fn has_room_unasked<L: Links>(lane: &mut L, key: LinkOf<L>) -> bool {
    while let Some(&first) = lane.lists().unreported.front()
        && lane.at(first).is_none()
    {
        lane.lists().unreported.pop_front();
    }
    let Some(At {
        link,
        endpoints,
        lists,
        ..
    }) = lane.at(key)
    else {
        return true;
    };
    let endpoint = endpoints.get(link.ep);
    let has_room = endpoint.is_none_or(|endpoint| endpoint.reports.has_room_unasked());
    match lists.unreported.front() {
        Some(first) if *first == key => return has_room,
        None if has_room => return true,
        _ => {}
    }
    if !std::mem::replace(&mut link.is_unreported, true) {
        lists.unreported.push_back(key);
        bounded!(lists.unreported, PEERS);
    }
    false
}

/// Ends the turn of the first waiting link, if it has reported something.
#[cold]
fn has_had_turn<L: Links>(lane: &mut L, key: LinkOf<L>, any: bool) {
    if lane.lists().unreported.front() != Some(&key) {
        return;
    }
    let Some(At { link, lists, .. }) = lane.at(key) else {
        lane.lists().unreported.pop_front();
        return;
    };
    if !any && link.is_stalled {
        return;
    }
    lists.unreported.pop_front();
    link.is_unreported = link.is_stalled;
    if link.is_stalled {
        lists.unreported.push_back(key);
        bounded!(lists.unreported, PEERS);
    }
}

/// Receives the last messages of a peer that has ended, and ends the link when there are no more.
pub fn drain<L: Links>(lane: &mut L, key: LinkOf<L>) {
    for _ in 0..LAST_TURNS {
        if !take_in_slowly(lane, key, TURN) {
            return pulling::drain_if_ended(lane, key);
        }
    }
    lane.breaks(key, Fault::Protocol("messages after the end"));
}

fn offered<L: Links>(lane: &mut L, key: LinkOf<L>, record: &Record) -> Result<bool, Fault> {
    let At {
        link, endpoints, ..
    } = lane.at(key).ok_or(Fault::Ended(Errno::ENOTCONN))?;
    let from = read_offered_list(&link.bytes(record).into());
    let from = from.ok_or(Fault::Protocol("place of a message"))?;
    let mut head = record.head;
    // The end of the transfer is reported when the payload is copied.
    let name = std::mem::take(&mut head.words[2]);
    let arrival = link.arrival(key, head, from.len() as usize);
    let offered = <L::Transport as LocalTransport>::name(Offered { name, from });
    if !endpoints.is_own_link(key) {
        return Ok(endpoints.announced(&arrival, offered));
    }
    Ok(endpoints.ask_for(&arrival, offered) || keep_own(lane, key, &arrival, name))
}

/// Keeps a long message of an endpoint to itself for which no receive is posted. The sender is done with
/// it, as with the C library: it may wait for that before it posts the receive. Returns `false` if there
/// is no memory for it: it is tried again later.
fn keep_own<L: Links>(
    lane: &mut L,
    key: LinkOf<L>,
    arrival: &Arrival<L::Transport>,
    name: u64,
) -> bool {
    let own = lane.endpoints().get(arrival.ep).map(|ep| &ep.own);
    let Some(sender) = own.and_then(<L::Transport as LocalTransport>::own_link) else {
        return true;
    };
    let Some(At {
        link, endpoints, ..
    }) = lane.at(sender)
    else {
        return true;
    };
    let taken = match link.pending.get(from_peer(name)) {
        Some(Pending::Offer { payload, .. }) => match payload {
            Payload::App(memory) => {
                let memory: &Iov<'_> = memory;
                endpoints.keep_whole(arrival, memory)
            }
            Payload::Own(bytes) => endpoints.keep_whole(arrival, &**bytes),
            Payload::Aside(copy) => endpoints.keep_whole(arrival, copy.bytes()),
        },
        // The sender has ended, and its messages with it.
        _ => return true,
    };
    match taken {
        Taken::Refused => false,
        Taken::Kept | Taken::Received(_) => {
            acknowledge(lane, key, name);
            true
        }
    }
}

/// Tells the peer that this side is done with the message that the peer calls `name`.
pub fn acknowledge<L: Links>(lane: &mut L, key: LinkOf<L>, name: u64) {
    reply(lane, key, |link| link.done(name, Ok(())));
}

/// Fetches the payload of an announced message into the `memory` of a receive.
pub fn fetch<L: Links>(
    lane: &mut L,
    key: LinkOf<L>,
    offered: &Offered,
    memory: AppIov,
    receipt: Receipt<<L::Transport as prov_message::Transport>::Ack>,
) {
    let len = memory.len() as u64;
    let placing = Placing::receive(memory, receipt);
    let mut from = &offered.from;
    let part;
    if from.len() > len {
        part = from.slice(0, len);
        from = &part;
    }
    pulling::pull(lane, key, placing, from, offered.name);
}

/// Tells the peer whether messages have to be announced.
pub fn throttle<L: Links>(lane: &mut L, key: LinkOf<L>, is_on: bool) {
    let head = Head {
        kind: THROTTLE,
        flags: 0,
        words: [is_on.into(), 0, 0],
    };
    reply(lane, key, |link| link.answer(head, &[]));
}

fn reply<L: Links>(lane: &mut L, key: LinkOf<L>, reply: impl FnOnce(&mut Link<L::Transport>)) {
    if let Some(At { link, lists, .. }) = lane.at(key) {
        reply(link);
        link.waits_for_space(key, lists);
    }
}

impl<T: LocalTransport> Link<T> {
    fn arrival(&self, key: T::Link, head: Head, len: usize) -> Arrival<T> {
        Arrival {
            link: key,
            ep: self.ep,
            src: self.src,
            tagged: head.flags & TAGGED != 0,
            tag: head.words[0],
            len,
            data: (head.flags & HAS_DATA != 0).then_some(head.words[1]),
            ack: T::ack(Ack {
                name: head.words[2],
                until_placed: head.flags & UNTIL_PLACED != 0,
            }),
            announces: true,
        }
    }

    /// Handles an eager message. Returns `false` if there is no space for it.
    fn message(&mut self, key: T::Link, record: &Record, endpoints: &mut Endpoints<T>) -> bool {
        let arrival = self.arrival(key, record.head, record.len());
        match endpoints.take_in(&arrival, &Iov::from(self.bytes(record))) {
            Taken::Kept => true,
            Taken::Received(_) => {
                if record.head.words[2] != 0 {
                    self.done(record.head.words[2], Ok(()));
                }
                true
            }
            Taken::Refused => false,
        }
    }

    /// Handles the peer's report that an operation or an offer is complete. Reports about one that
    /// is over are ignored.
    fn is_done(
        &mut self,
        words: [u64; 3],
        endpoints: &mut Endpoints<T>,
        target: &mut Option<RmaTarget>,
    ) {
        let outcome = match words[1] {
            0 => Ok(()),
            number => Err(Errno::new(i32::try_from(number).unwrap_or(0))),
        };
        match self.pending.remove(from_peer(words[0])) {
            None => {}
            Some(Pending::Op(ticket) | Pending::Offer { ticket, .. }) => {
                endpoints.finish(ticket, outcome);
            }
            // The operation succeeds only with its result.
            Some(Pending::Result { ticket, .. }) => {
                endpoints.finish(ticket, outcome.and(Err(Errno::EPROTO)));
            }
            Some(Pending::Read(grants)) => self.was_read(&grants, endpoints, target),
        }
    }

    /// Handles the data of a read, or the result of an atomic operation.
    fn result(&mut self, record: &Record, endpoints: &mut Endpoints<T>) -> Result<(), Fault> {
        let name = from_peer(record.head.words[0]);
        let result = self.pending.result(name);
        let (to, done) = result.ok_or(Fault::Protocol("name of a result"))?;
        let (before, len) = (*done, record.len());
        let is_last = record.head.flags & MORE == 0;
        let fits = match is_last {
            true => len == to.len() - before,
            false => len != 0 && len < to.len() - before,
        };
        if fits {
            *done += len;
            if let Some(Pending::Result { to, .. }) = self.pending.get(name) {
                self.bytes(record).copy_to(&to.slice(before, len));
            }
        } else if !is_last {
            return Err(Fault::Protocol("bytes of a result"));
        }
        if is_last && let Some(Pending::Result { ticket, to, .. }) = self.pending.remove(name) {
            let outcome = if fits { Ok(()) } else { Err(Errno::EPROTO) };
            endpoints.finish_read(ticket, to, outcome);
        }
        Ok(())
    }
}
