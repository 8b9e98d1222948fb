//! The receives of another provider, as an inbox takes them: what is done with them is in
//! [`endpoints::imported_srx`](crate::endpoints::imported_srx).

use std::sync::Weak;

use prov_base::bounded;
use prov_base::bounds::PEERS;
use prov_base::buffer::AppIov;
use prov_base::errno::{Errno, Result};
use prov_base::logging::UTIL;
use prov_util::av::{Av, Changes};
use prov_util::ffi::Use;
use prov_util::ffi::ends::PeerEnds;
use prov_util::ffi::srx::{
    Arrival as Found, Discarded, ForeignQueue, ImportedSrx, NewSources, Received, StartReceives,
    Started, Unexpected as Queueable, WholeMessage,
};
use prov_util::matching::{ANY_SOURCE, Matched, Message, MessageId};
use slotmap::SlotMap;

use crate::endpoints::arrival::{Arrival, Expected};
use crate::endpoints::room::Cost;
use crate::endpoints::transport::{Transport, origin};
use crate::endpoints::unexpected::{Body, Unexpected};
use crate::endpoints::whole::Whole;
use crate::operation::Context;
use crate::receipt::{Buffer, Dependent, GivenKey, InboxKey};

/// See the [module](self) description.
pub(crate) struct ImportedReceives<T: Transport> {
    queue: ForeignQueue<Unexpected<T>>,
    /// Translates sources to what the owner calls them.
    av: Option<Use<Av>>,
    translated: Translated,
    /// The last message that matched no receive: the owner's handle for it, until it is queued.
    queueable: Option<Queueable>,
    given: SlotMap<GivenKey, Received>,
    /// Links whose messages have a source that the owner does not know yet. Their messages are
    /// delivered without a source until the owner was told, so that they are not reordered.
    untold: Vec<(T::Link, u64)>,
    /// Who is told of peers that are gone, if the owner wants to know.
    ends: Option<PeerEnds>,
}

/// What an address vector reports for some of its numbers, which is looked up under its lock.
#[derive(Default)]
struct Translated {
    /// The state of the vectors, of which the pairs are.
    changes: Changes,
    /// Each in a place that its number determines.
    pairs: [Option<(u64, u64)>; TRANSLATED],
}

/// Peers whose messages alternate mostly have different places: a power of two above the number of
/// processes on most hosts that exchange short messages with one.
const TRANSLATED: usize = 32;

impl Translated {
    #[inline]
    fn of(&mut self, src: u64, av: &Av) -> u64 {
        let known = self.pairs.get(src as usize % TRANSLATED);
        match known {
            Some(Some((known, reported))) if *known == src && self.changes == Changes::now() => {
                *reported
            }
            _ => self.look_up(src, av),
        }
    }

    #[cold]
    #[inline(never)]
    fn look_up(&mut self, src: u64, av: &Av) -> u64 {
        // Before the vector is read: a later change is seen by its number.
        let now = Changes::now();
        if self.changes != now {
            *self = Translated {
                changes: now,
                ..Translated::default()
            };
        }
        let reported = av.reported(src);
        if let Some(place) = self.pairs.get_mut(src as usize % TRANSLATED) {
            *place = Some((src, reported));
        }
        reported
    }
}

impl<T: Transport> ImportedReceives<T> {
    /// Creates it for an inbox without messages.
    pub fn new(owner: ImportedSrx, home: Weak<dyn StartReceives>, av: Option<Use<Av>>) -> Self {
        ImportedReceives {
            queue: ForeignQueue::new(owner, home),
            av,
            translated: Translated::default(),
            queueable: None,
            given: SlotMap::with_key(),
            untold: Vec::new(),
            ends: None,
        }
    }

    /// Asks the owner for the receive that matches a message.
    #[inline(never)]
    pub fn arrive(&mut self, inbox: InboxKey, arrival: &Arrival<T>) -> Option<Expected<T::Ack>> {
        let src = self.reported(self.told(arrival.link, arrival.src));
        let found = self
            .queue
            .arrive(arrival.tagged, src, arrival.tag, arrival.len);
        self.queueable = None;
        let received = match found {
            Ok(Found::Received(received)) => received,
            Ok(Found::Unexpected(queueable)) => {
                self.queueable = Some(queueable);
                return None;
            }
            Err(error) => {
                log::warn!(
                    target: UTIL.ep_data,
                    "the owner of a receive queue takes no message: {error}"
                );
                return None;
            }
        };
        let (matched, buffer) = self.give(received);
        let mut expected = Expected::of(arrival, inbox, matched);
        expected.receipt.buffer = buffer;
        Some(expected)
    }

    /// Receives a whole message in one step, if the owner is of this library and has a receive for
    /// it.
    #[inline]
    pub fn take_whole(
        &mut self,
        link: T::Link,
        (src, tag): (u64, Option<u64>),
        payload: &(impl Whole + ?Sized),
    ) -> bool {
        let src = self.told(link, src);
        let message = WholeMessage {
            tagged: tag.is_some(),
            src: match &self.av {
                Some(av) if src != ANY_SOURCE => self.translated.of(src, av),
                _ => src,
            },
            tag: tag.unwrap_or(0),
            len: payload.len(),
        };
        self.queue
            .take_whole(message, |memory| payload.copy_to(memory))
    }

    /// Buffers the last message that matched no receive; `None` if the owner does not accept it.
    pub fn keep(&mut self, message: Message<Unexpected<T>>) -> Option<MessageId> {
        let queueable = self.queueable.take()?;
        let src = self.told(message.payload.link, message.src);
        let origin = origin(message.payload.link);
        let message = Message { src, ..message };
        self.queue.keep(origin, queueable, message).ok()
    }

    fn give(&mut self, received: Received) -> (Matched<AppIov>, Buffer) {
        let matched = Matched {
            context: Context::of(received.context()).0,
            // More segments than fi_info(3) allows: the message is truncated.
            buf: received.buffers().unwrap_or(AppIov::EMPTY),
            flags: received.flags(),
            multi: None,
        };
        (matched, Buffer::Imported(self.given.insert(received)))
    }

    fn told(&self, link: T::Link, src: u64) -> u64 {
        match self.untold.iter().any(|&(other, _)| other == link) {
            true => ANY_SOURCE,
            false => src,
        }
    }

    /// What the owner calls a source: as completions do.
    fn reported(&self, src: u64) -> u64 {
        match &self.av {
            Some(av) if src != ANY_SOURCE => av.reported(src),
            _ => src,
        }
    }

    /// Tells the owner that a peer is gone.
    pub fn ended(&self, src: u64, which: Dependent, error: Errno) {
        if let Some(ends) = &self.ends {
            ends.ended(self.reported(src), which == Dependent::Transfers, error);
        }
    }

    /// Records that the messages of a link have another source.
    pub fn relabel(&mut self, link: T::Link, src: u64) {
        self.untold.retain(|&(other, _)| other != link);
        let mut waits = false;
        self.queue.for_each_of(origin(link), |message| {
            if src == ANY_SOURCE {
                // The owner forgets the number by itself when it removes the address.
                message.src = ANY_SOURCE;
            }
            waits |= message.src == ANY_SOURCE;
        });
        if waits && src != ANY_SOURCE {
            self.untold.push((link, src));
            bounded!(self.untold, PEERS);
        }
    }

    /// Returns a buffered message, unless a receive has taken it.
    pub fn payload_mut(&mut self, id: MessageId) -> Option<&mut Unexpected<T>> {
        self.queue.payload_mut(id)
    }

    /// Has this one informed of peers that are gone.
    pub fn tell_ends(&mut self, ends: PeerEnds) {
        self.ends = Some(ends);
    }

    /// Returns a message that the owner has a receive for, and that receive.
    pub fn start(
        &mut self,
        started: Started,
    ) -> Result<(Message<Unexpected<T>>, Matched<AppIov>, Buffer)> {
        let (message, received) = self.queue.start(started)?;
        let (matched, buffer) = self.give(received);
        Ok((message, matched, buffer))
    }

    /// Returns a message that the owner discards.
    pub fn discard(&mut self, discarded: Discarded) -> Result<Message<Unexpected<T>>> {
        self.queue.discard(discarded)
    }

    /// Gives the owner's entry of a receive back.
    pub fn give_back(&mut self, given: GivenKey) {
        self.given.remove(given);
    }

    /// Returns the sources of waiting messages that the owner has to be told; `None` if it knows
    /// all.
    pub fn new_sources(&mut self) -> Option<NewSources> {
        if self.untold.is_empty() {
            return None;
        }
        let untold = self.untold.iter();
        let untold = untold.map(|&(link, src)| (origin(link), src, self.reported(src)));
        let untold: Vec<_> = untold.collect();
        let news = self.queue.relabel(untold.into_iter());
        if news.is_empty() {
            self.untold.clear();
            return None;
        }
        Some(news)
    }

    /// Handles the end of a link with `error`, which receives get that take its incomplete messages
    /// later. Returns what these were charged.
    pub fn lose(&mut self, link: T::Link, error: Errno) -> Vec<Cost> {
        self.untold.retain(|&(other, _)| other != link);
        let mut costs = Vec::new();
        self.queue.for_each_of(origin(link), |message| {
            let unexpected = &mut message.payload;
            if !unexpected.is_complete() {
                costs.push(unexpected.cost(message.len));
                unexpected.body = Body::Lost(error);
            }
        });
        self.queue.end_origin(origin(link));
        costs
    }

    /// Withdraws all messages from the owner.
    pub fn withdraw_all(&mut self) -> Vec<Message<Unexpected<T>>> {
        self.queue.withdraw_all()
    }
}
