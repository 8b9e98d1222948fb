//! What comes through a channel.

use prov_base::buffer::Iov;
use prov_base::errno::Errno;
use prov_local::channel::{Head, Record};
use prov_message::peers::UNKNOWN_SOURCE;
use prov_message::{Core as _, Reaching as _, Taken};

use super::Core;
use super::keys::{LinkKey, from_peer};
use super::link::{Ack, Action, Arrival, Fault, Link, Offered, Pending, Placing, wake};
use super::records::*;

/// Messages that are taken in from one link before it is the others' turn.
pub const TURN: usize = 64;
/// Bytes of them after which it is, too, and the time to send.
const TURN_BYTES: usize = 512 << 10;
/// Answers that wait for room in the channel, of one link.
const ANSWERS: usize = 1 << 20;
/// Bytes in them: more than all that this library's peers ask for at once.
const ANSWER_BYTES: usize = 128 << 20;

impl Core {
    /// Takes in what has come on a link; whether there was anything. After a turn in vain
    /// that is the next message alone: the application waits for it, and to look at the
    /// slot behind it, which is not filled yet, takes as long as a message takes to cross.
    #[inline(always)]
    pub(super) fn take_in(&mut self, key: LinkKey) -> bool {
        let most = if self.idle_calls == 0 { TURN } else { 1 };
        self.take_in_plain::<false>(key, most)
    }

    /// [`Core::take_in`] that has code of its own for messages that are not in their
    /// slots.
    #[inline(never)]
    fn take_in_long(&mut self, key: LinkKey) -> bool {
        self.take_in_plain::<true>(key, TURN)
    }

    /// Takes in messages that have nothing special about them, and leaves what comes
    /// behind them to others. `LONG` says whether it takes those that are not in
    /// their slots.
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
            // What was taken is told when there is time for that.
            if receiver.has_untold() && receiver.tell() {
                wake(&link.wire);
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
            // One that is to be acknowledged has something special about it.
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
                wake(&link.wire);
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

    /// Takes in messages of any kind.
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

    /// Handles a message; `false` if there is no room for it, and it stays.
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

    /// Whether what the peer does may be reported without a receive for it. If not, it
    /// waits until the application has read completions, and those that wait already
    /// have had their turns.
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
        }
        false
    }

    /// The first of the links that wait so has had its turn, if it has brought anything.
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
            }
        }
    }

    fn link_mut(&mut self, key: LinkKey) -> Result<&mut Link, Fault> {
        self.links.get_mut(key).ok_or(Fault::Ended(Errno::ENOTCONN))
    }

    /// Looks for the source of a link whose peer the address vector did not know.
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
            ack: Ack(head.words[2]),
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
            Taken::Received(Ack(0)) | Taken::Kept => true,
            Taken::Received(Ack(name)) => {
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
        // Its end is told when it has been copied.
        let name = std::mem::take(&mut head.words[2]);
        let Some(arrival) = self.arrival(key, head, from.len() as usize) else {
            return Ok(true);
        };
        Ok(self.endpoints.announced(&arrival, Offered { name, from }))
    }

    /// Does for a link what a receive, or the lack of one, has led to.
    pub(super) fn act_on(&mut self, action: Action) {
        match action {
            Action::Acknowledge(key, Ack(name)) => self.done(key, name, Ok(())),
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
            // Messages come whole, or are offered.
            Action::Redirect(..) | Action::Resume(..) => {}
        }
    }

    /// The peer is done with an operation or an offer. Of one that is over, it may say
    /// what it likes.
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
            Some(
                Pending::Op(ticket)
                | Pending::Offer {
                    ticket: Some(ticket),
                    ..
                },
            ) => self.endpoints.finish(ticket, outcome),
            // It ends well with its bytes only.
            Some(Pending::Result { ticket, .. }) => {
                let outcome = outcome.and(Err(Errno::EPROTO));
                self.endpoints.finish(ticket, outcome);
            }
            Some(Pending::Offer {
                ticket: None,
                bytes,
            }) => self.was_read(key, &bytes),
        }
    }

    /// What was read, or the result of an atomic operation.
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
            link.bytes(record).copy_to(&to.slice(before, len));
        } else if !is_last {
            return Err(Fault::Protocol("bytes of a result"));
        }
        if is_last && let Some(Pending::Result { ticket, .. }) = link.pending.remove(name) {
            let outcome = if fits { Ok(()) } else { Err(Errno::EPROTO) };
            self.endpoints.finish(ticket, outcome);
        }
        Ok(())
    }
}
