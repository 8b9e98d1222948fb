//! Messages that arrive through a channel.

use prov_base::bounded;
use prov_base::bounds::PEERS;
use prov_base::buffer::Iov;
use prov_base::errno::Errno;
use prov_local::channel::{Head, Record};
use prov_local::link::payload::Payload;
use prov_message::peers::UNKNOWN_SOURCE;
use prov_message::{Core as _, Reaching as _, Taken};

use super::Core;
use super::keys::{EpKey, LinkKey, from_peer};
use super::link::pending::Pending;
use super::link::{Fault, Link};
use super::messages::{Ack, Action, Arrival, Offered, Placing};
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

    /// The slow path: receives messages of any kind.
    #[inline(never)]
    pub(super) fn take_in_slowly(&mut self, key: LinkKey) -> bool {
        let (mut any, mut bytes) = (false, 0);
        if self.endpoints.is_deaf() {
            return false;
        }
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
        let is_reported = match kind {
            WRITE => flags & (HAS_DATA | MORE) == HAS_DATA,
            WAS_WRITTEN | ATOMIC => flags & HAS_DATA != 0,
            _ => false,
        };
        if is_reported && !self.has_room_unasked(key) {
            return Ok(false);
        }
        match kind {
            MESSAGE => return Ok(self.message(key, record)),
            OFFERED => return self.offered(key, record),
            DONE => self.is_done(key, words),
            WRITE if flags == IN_RING => return self.written_in_ring(key, record),
            WRITE => self.written(key, record)?,
            WAS_WRITTEN | WAS_READ => self.was_accessed(key, record)?,
            READ => self.read(key, record)?,
            RESULT => self.result(key, record)?,
            ATOMIC => self.atomic_requested(key, record)?,
            THROTTLE => self.link_mut(key)?.pending.offer_only(words[0] != 0),
            _ => return Err(Fault::Protocol("kind of a message")),
        }
        match self.links.get(key) {
            Some(link) if link.answers.len() > ANSWERS || link.answer_bytes > ANSWER_BYTES => {
                Err(Fault::Protocol("more requests than answers are read"))
            }
            _ => Ok(true),
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

    fn link_mut(&mut self, key: LinkKey) -> Result<&mut Link, Fault> {
        self.links.get_mut(key).ok_or(Fault::Ended(Errno::ENOTCONN))
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

    fn arrival(&mut self, key: LinkKey, head: Head, len: usize) -> Option<Arrival> {
        self.find_source(key);
        let link = self.links.get(key)?;
        Some(Arrival {
            link: key,
            ep: link.ep,
            src: link.src,
            tagged: head.flags & TAGGED != 0,
            tag: head.words[0],
            len,
            data: (head.flags & HAS_DATA != 0).then_some(head.words[1]),
            ack: Ack {
                name: head.words[2],
                until_placed: head.flags & UNTIL_PLACED != 0,
            },
            announces: true,
        })
    }

    fn message(&mut self, key: LinkKey, record: &Record) -> bool {
        let Some(arrival) = self.arrival(key, record.head, record.len()) else {
            return true;
        };
        let Some(link) = self.links.get(key) else {
            return true;
        };
        match self
            .endpoints
            .take_in(&arrival, &Iov::from(link.bytes(record)))
        {
            Taken::Received(Ack { name: 0, .. }) | Taken::Kept => true,
            Taken::Received(Ack { name, .. }) => {
                self.done(key, name, Ok(()));
                true
            }
            Taken::Refused => false,
        }
    }

    fn offered(&mut self, key: LinkKey, record: &Record) -> Result<bool, Fault> {
        let from = read_offered_list(&self.link_mut(key)?.bytes(record).into());
        let from = from.ok_or(Fault::Protocol("place of a message"))?;
        let mut head = record.head;
        // The end of the transfer is reported when the payload is copied.
        let name = std::mem::take(&mut head.words[2]);
        let Some(arrival) = self.arrival(key, head, from.len() as usize) else {
            return Ok(true);
        };
        let offered = Offered { name, from };
        if self.endpoints.is_own_link(key) && !self.endpoints.ask_for(&arrival, offered) {
            return Ok(self.keep_own(key, &arrival, name));
        }
        Ok(self.endpoints.is_own_link(key) || self.endpoints.announced(&arrival, offered))
    }

    /// Keeps a long message of an endpoint to itself for which no receive is posted. The sender is
    /// done with it, as with the C library: it may wait for that before it posts the receive. Returns
    /// `false` if there is no memory for it: it is tried again later.
    fn keep_own(&mut self, key: LinkKey, arrival: &Arrival, name: u64) -> bool {
        let sender = self
            .links
            .get(key)
            .and_then(|link| self.own_sender(link.ep));
        let sender = sender.and_then(|sender| self.links.get(sender));
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
                self.done(key, name, Ok(()));
                true
            }
        }
    }

    /// The side of an endpoint's link to itself on which the endpoint sends.
    fn own_sender(&self, ep: EpKey) -> Option<LinkKey> {
        let own = &self.endpoints.get(ep)?.own;
        own.peers.own_link()
    }

    /// Carries out what a receive, or the lack of one, requires of a link.
    pub(super) fn act_on(&mut self, action: Action) {
        match action {
            Action::Acknowledge(key, Ack { name, .. }) => self.done(key, name, Ok(())),
            Action::Refuse(key, offered, ..) => self.done(key, offered.name, Ok(())),
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
                self.answer(key, head, &[]);
            }
            // All messages arrive whole, or are offered.
            Action::Redirect(..) | Action::Resume(..) => {}
        }
    }

    /// Handles the peer's report that an operation or an offer is complete. Reports about one that
    /// is over are ignored.
    pub(super) fn is_done(&mut self, key: LinkKey, words: [u64; 3]) {
        let Some(link) = self.links.get_mut(key) else {
            return;
        };
        let outcome = match words[1] {
            0 => Ok(()),
            number => Err(Errno::new(i32::try_from(number).unwrap_or(0))),
        };
        match link.pending.remove(from_peer(words[0])) {
            None => {}
            Some(Pending::Op(ticket) | Pending::Offer { ticket, .. }) => {
                self.endpoints.finish(ticket, outcome);
            }
            // The operation succeeds only with its result.
            Some(Pending::Result { ticket, .. }) => {
                let outcome = outcome.and(Err(Errno::EPROTO));
                self.endpoints.finish(ticket, outcome);
            }
            Some(Pending::Read(grants)) => self.was_read(key, &grants),
        }
    }

    /// Handles the data of a read, or the result of an atomic operation.
    fn result(&mut self, key: LinkKey, record: &Record) -> Result<(), Fault> {
        let name = from_peer(record.head.words[0]);
        let link = self.link_mut(key)?;
        let result = link.pending.result(name);
        let (to, done) = result.ok_or(Fault::Protocol("name of a result"))?;
        let (before, len) = (*done, record.len());
        let is_last = record.head.flags & MORE == 0;
        let fits = match is_last {
            true => len == to.len() - before,
            false => len != 0 && len < to.len() - before,
        };
        if fits {
            *done += len;
            if let Some(Pending::Result { to, .. }) = link.pending.get(name) {
                link.bytes(record).copy_to(&to.slice(before, len));
            }
        } else if !is_last {
            return Err(Fault::Protocol("bytes of a result"));
        }
        if is_last && let Some(Pending::Result { ticket, to, .. }) = link.pending.remove(name) {
            let outcome = if fits { Ok(()) } else { Err(Errno::EPROTO) };
            self.endpoints.finish_read(ticket, to, outcome);
        }
        Ok(())
    }
}
