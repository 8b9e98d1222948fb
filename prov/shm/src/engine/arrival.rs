//! Messages that arrive through a channel.

use prov_base::bounded;
use prov_base::bounds::PEERS;
use prov_base::buffer::Iov;
use prov_base::errno::Errno;
use prov_local::channel::{Head, Record};
use prov_local::link::payload::Payload;
use prov_message::peers::UNKNOWN_SOURCE;
use prov_message::{Core as _, Reaching as _, RmaTarget, Taken};

use super::Core;
use super::keys::{LinkKey, from_peer};
use super::link::pending::Pending;
use super::link::{Fault, Link};
use super::messages::{Ack, Action, Arrival, Endpoints, Offered, Placing};
use super::records::*;

/// Number of messages that are received from one link before the other links have their turn.
pub const TURN: usize = 64;
/// Number of bytes after which the turn of a link ends as well, so that this side can send.
const TURN_BYTES: usize = 512 << 10;
/// Largest number of replies of one link that wait for space in the channel.
pub const ANSWERS: usize = 1 << 20;
/// Largest number of bytes in these replies: more than peers with this library have requested at a
/// time.
const ANSWER_BYTES: usize = 128 << 20;

/// The outcome of a turn on the fast path; whether any messages were received.
enum Plain {
    /// The turn is over.
    All(bool),
    /// The slow path goes on.
    Until(bool),
}

impl Core {
    /// Receives the messages that have arrived on a link. Returns whether there were any. After an
    /// unsuccessful turn it receives one message only: the application waits for it, and polling
    /// the next slot, which is not filled yet, takes as long as a message takes to arrive.
    #[inline(always)]
    pub(super) fn take_in(&mut self, key: LinkKey) -> bool {
        let most = if self.idle_calls == 0 { TURN } else { 1 };
        self.take_in_plain::<false>(key, most)
    }

    /// As [`Core::take_in`]: a separate copy of the code for messages that are not contained in
    /// their slots.
    #[inline(never)]
    fn take_in_long(&mut self, key: LinkKey) -> bool {
        self.take_in_plain::<true>(key, TURN)
    }

    /// The fast path: receives messages that need no special handling, and leaves the first one
    /// that does to the slow path. `LONG` says whether it receives messages that are not contained
    /// in their slots.
    #[inline(always)]
    fn take_in_plain<const LONG: bool>(&mut self, key: LinkKey, most: usize) -> bool {
        let Core {
            links, endpoints, ..
        } = self;
        let Some(link) = links.get_mut(key) else {
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
            return self.take_in_slowly(key);
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
                None if is_plain && !LONG => return self.take_in_long(key) || turns != most,
                None if is_plain => match receiver.far_bytes(&next) {
                    Some(bytes) => bytes,
                    None => return self.take_in_slowly(key) || turns != most,
                },
                _ => return self.take_in_slowly(key) || turns != most,
            };
            let tag = next.has(TAGGED).then(|| next.word(0));
            if !plain.take(src, tag, &bytes) {
                return self.take_in_slowly(key) || turns != most;
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
    fn take_in_imported(&mut self, key: LinkKey) -> Plain {
        let Core {
            links, endpoints, ..
        } = self;
        let Some(link) = links.get_mut(key) else {
            return Plain::All(false);
        };
        let (src, Some(channel)) = (link.src, &mut link.channel) else {
            return Plain::All(false);
        };
        let Some(mut plain) = endpoints.plain_imported(link.ep) else {
            return Plain::Until(false);
        };
        let receiver = &mut channel.receiver;
        let most = if self.idle_calls == 0 { TURN } else { 1 };
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

    /// The slow path: receives messages of any kind.
    #[inline(never)]
    pub(super) fn take_in_slowly(&mut self, key: LinkKey) -> bool {
        if self.endpoints.is_deaf() {
            return false;
        }
        let (mut any, mut bytes) = match self.take_in_imported(key) {
            Plain::All(any) => return any,
            Plain::Until(any) => (any, 0),
        };
        for _ in 0..TURN {
            let Some(link) = self.links.get_mut(key) else {
                break;
            };
            let Some(channel) = &link.channel else {
                break;
            };
            let record = match channel.receiver.next() {
                Ok(Some(record)) => record,
                Ok(None) => break,
                Err(broken) => {
                    self.break_link(key, broken.into());
                    break;
                }
            };
            let handled = self.handle(key, &record);
            let Some(link) = self.links.get_mut(key) else {
                break;
            };
            match handled {
                Ok(true) => {
                    any = true;
                    bytes += record.len();
                    link.waits_for_space(key, &mut self.busy);
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
                    self.break_link(key, fault);
                    break;
                }
            }
            self.follow_up();
            if bytes >= TURN_BYTES {
                break;
            }
        }
        if !self.unreported.is_empty() {
            self.has_had_turn(key, any);
        }
        if let Some(link) = self.links.get_mut(key)
            && let Some(channel) = &mut link.channel
            && channel.receiver.tell()
        {
            link.wake_peer();
        }
        any
    }

    /// Handles a message. Returns `false` if there is no space for it, in which case it stays in
    /// the channel.
    fn handle(&mut self, key: LinkKey, record: &Record) -> Result<bool, Fault> {
        let Head { kind, words, flags } = record.head;
        let has_data = flags & HAS_DATA != 0;
        let is_reported = match kind {
            WRITE => has_data && flags & MORE == 0,
            WAS_WRITTEN | ATOMIC => has_data,
            _ => false,
        };
        if is_reported && !self.has_room_unasked(key) {
            return Ok(false);
        }
        if has_data || matches!(kind, MESSAGE | OFFERED) {
            self.find_source(key);
        }
        let link = self
            .links
            .get_mut(key)
            .ok_or(Fault::Ended(Errno::ENOTCONN))?;
        match kind {
            MESSAGE => return Ok(link.message(key, record, &mut self.endpoints)),
            OFFERED => return self.offered(key, record),
            DONE => link.is_done(words, &mut self.endpoints, &mut self.target),
            WRITE if flags == IN_RING => {
                return link.written_in_ring(record, &mut self.endpoints, &mut self.target);
            }
            WRITE => link.written(record, &mut self.endpoints, &mut self.target)?,
            WAS_WRITTEN | WAS_READ => {
                link.was_accessed(record, &mut self.endpoints, &mut self.target)?
            }
            READ => link.read(record, &mut self.endpoints, &mut self.target)?,
            RESULT => link.result(record, &mut self.endpoints)?,
            ATOMIC => link.atomic_requested(
                record,
                &mut self.endpoints,
                &mut self.target,
                &mut self.atomics,
            )?,
            THROTTLE => link.pending.offer_only(words[0] != 0),
            _ => return Err(Fault::Protocol("kind of a message")),
        }
        match link.answers.len() > ANSWERS || link.answer_bytes > ANSWER_BYTES {
            true => Err(Fault::Protocol("more requests than answers are read")),
            false => Ok(true),
        }
    }

    /// Whether an operation of the peer that consumes no receive may be reported. If not, the link
    /// waits until the application has read completions, and the links before it have had their
    /// turns.
    #[cold]
    fn has_room_unasked(&mut self, key: LinkKey) -> bool {
        while let Some(&first) = self.unreported.front()
            && !self.links.contains_key(first)
        {
            self.unreported.pop_front();
        }
        let Some(link) = self.links.get_mut(key) else {
            return true;
        };
        let endpoint = self.endpoints.get(link.ep);
        let has_room = endpoint.is_none_or(|endpoint| endpoint.reports.has_room_unasked());
        match self.unreported.front() {
            Some(first) if *first == key => return has_room,
            None if has_room => return true,
            _ => {}
        }
        if !std::mem::replace(&mut link.is_unreported, true) {
            self.unreported.push_back(key);
            bounded!(self.unreported, PEERS);
        }
        false
    }

    /// Ends the turn of the first waiting link, if it has reported something.
    #[cold]
    fn has_had_turn(&mut self, key: LinkKey, any: bool) {
        if self.unreported.front() != Some(&key) {
            return;
        }
        let link = self.links.get(key);
        if !any && link.is_some_and(|link| link.is_stalled) {
            return;
        }
        self.unreported.pop_front();
        if let Some(link) = self.links.get_mut(key) {
            link.is_unreported = link.is_stalled;
            if link.is_stalled {
                self.unreported.push_back(key);
                bounded!(self.unreported, PEERS);
            }
        }
    }

    /// Looks up the source of a link whose peer was not in the address vector.
    #[inline]
    pub(super) fn find_source(&mut self, key: LinkKey) {
        let Some(link) = self
            .links
            .get(key)
            .filter(|link| link.src == UNKNOWN_SOURCE)
        else {
            return;
        };
        let ep = link.ep;
        if self.rdm(ep).is_some_and(|rdm| rdm.peers.av_changed()) {
            self.follow_av(ep);
        }
    }

    fn offered(&mut self, key: LinkKey, record: &Record) -> Result<bool, Fault> {
        let link = self.links.get(key).ok_or(Fault::Ended(Errno::ENOTCONN))?;
        let from = read_offered_list(&link.bytes(record).into());
        let from = from.ok_or(Fault::Protocol("place of a message"))?;
        let mut head = record.head;
        // The end of the transfer is reported when the payload is copied.
        let name = std::mem::take(&mut head.words[2]);
        let arrival = link.arrival(key, head, from.len() as usize);
        let offered = Offered { name, from };
        if !self.endpoints.is_own_link(key) {
            return Ok(self.endpoints.announced(&arrival, offered));
        }
        Ok(self.endpoints.ask_for(&arrival, offered) || self.keep_own(key, &arrival, name))
    }

    /// Keeps a long message of an endpoint to itself for which no receive is posted. The sender is
    /// done with it, as with the C library: it may wait for that before it posts the receive. Returns
    /// `false` if there is no memory for it: it is tried again later.
    fn keep_own(&mut self, key: LinkKey, arrival: &Arrival, name: u64) -> bool {
        let own = self.endpoints.get(arrival.ep).map(|ep| &ep.own);
        let sender = own.and_then(|own| self.links.get(own.peers.own_link()?));
        let pending = sender.and_then(|sender| sender.pending.get(from_peer(name)));
        let taken = match pending {
            Some(Pending::Offer { payload, .. }) => match payload {
                Payload::App(memory) => {
                    let memory: &Iov<'_> = memory;
                    self.endpoints.keep_whole(arrival, memory)
                }
                Payload::Own(bytes) => self.endpoints.keep_whole(arrival, &**bytes),
                Payload::Aside(copy) => self.endpoints.keep_whole(arrival, copy.bytes()),
            },
            // The sender has ended, and its messages with it.
            _ => return true,
        };
        match taken {
            Taken::Refused => false,
            Taken::Kept | Taken::Received(_) => {
                self.reply(key, |link| link.done(name, Ok(())));
                true
            }
        }
    }

    /// Carries out what a receive, or the lack of one, requires of a link.
    pub(super) fn act_on(&mut self, action: Action) {
        match action {
            Action::Acknowledge(key, Ack { name, .. }) => {
                self.reply(key, |link| link.done(name, Ok(())))
            }
            Action::Refuse(key, offered, ..) => {
                self.reply(key, |link| link.done(offered.name, Ok(())))
            }
            Action::Fetch(key, fetch) => {
                let len = fetch.memory.len() as u64;
                let placing = Placing::receive(fetch.memory, fetch.receipt);
                let mut from = &fetch.name.from;
                let part;
                if from.len() > len {
                    part = from.slice(0, len);
                    from = &part;
                }
                self.pull(key, placing, from, fetch.name.name);
            }
            Action::Throttle(key, is_on) => {
                let head = Head {
                    kind: THROTTLE,
                    flags: 0,
                    words: [is_on.into(), 0, 0],
                };
                self.reply(key, |link| link.answer(head, &[]));
            }
            // All messages arrive whole, or are offered.
            Action::Redirect(..) | Action::Resume(..) => {}
        }
    }

    fn reply(&mut self, key: LinkKey, reply: impl FnOnce(&mut Link)) {
        if let Some(link) = self.links.get_mut(key) {
            reply(link);
            link.waits_for_space(key, &mut self.busy);
        }
    }
}

impl Link {
    fn arrival(&self, key: LinkKey, head: Head, len: usize) -> Arrival {
        Arrival {
            link: key,
            ep: self.ep,
            src: self.src,
            tagged: head.flags & TAGGED != 0,
            tag: head.words[0],
            len,
            data: (head.flags & HAS_DATA != 0).then_some(head.words[1]),
            ack: Ack {
                name: head.words[2],
                until_placed: head.flags & UNTIL_PLACED != 0,
            },
            announces: true,
        }
    }

    /// Handles an eager message. Returns `false` if there is no space for it.
    fn message(&mut self, key: LinkKey, record: &Record, endpoints: &mut Endpoints) -> bool {
        let arrival = self.arrival(key, record.head, record.len());
        match endpoints.take_in(&arrival, &Iov::from(self.bytes(record))) {
            Taken::Received(Ack { name: 0, .. }) | Taken::Kept => true,
            Taken::Received(Ack { name, .. }) => {
                self.done(name, Ok(()));
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
        endpoints: &mut Endpoints,
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
    fn result(&mut self, record: &Record, endpoints: &mut Endpoints) -> Result<(), Fault> {
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
