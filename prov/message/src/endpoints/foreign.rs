//! Receives that belong to another provider (fi_peer(3)): the owner's queue takes the place of an
//! endpoint's own inbox.
//!
//! The owner may be called only while it drives the lane or starts a message (see
//! [`prov_util::ffi::srx`]). At other times the lane is *deaf*: it receives nothing, carries out no
//! actions, and postpones the report of receives whose link ends.

use prov_base::bounded;
use prov_base::bounds::{OPERATIONS, PEERS};
use std::sync::Weak;

use prov_base::buffer::AppIov;
use prov_base::errno::{Errno, Result};
use prov_base::logging::UTIL;
use prov_util::av::Av;
use prov_util::ffi::Use;
use prov_util::ffi::ends::PeerEnds;
use prov_util::ffi::srx::ForeignQueue;
use prov_util::ffi::srx::{
    Arrival as Found, Discarded, ImportedSrx, NewSources, Received, StartReceives, Started,
    Unexpected as Queueable,
};
use prov_util::matching::{ANY_SOURCE, Matched, Message, MessageId};
use slotmap::SlotMap;

use crate::endpoints::Endpoints;
use crate::endpoints::arriving::{Arrival, Expected};
use crate::endpoints::inbox::{
    Body, Elsewhere, Inbox, Transport, Unexpected, UnexpectedHandle, origin,
};
use crate::operation::Context;
use crate::operation::EpKey;
use crate::receipt::GivenKey;
use crate::receipt::{Buffer, Dependent, InboxKey, Receipt};

/// See the [module](self) description.
pub(crate) struct Foreign<T: Transport> {
    queue: ForeignQueue<Unexpected<T>>,
    /// Translates sources to what the owner calls them.
    av: Option<Use<Av>>,
    /// The last message that matched no receive: the owner's handle for it, until it is queued.
    queueable: Option<Queueable>,
    given: SlotMap<GivenKey, Received>,
    /// Links whose messages have a source that the owner does not know yet. Their messages are
    /// delivered without a source until the owner was told, so that they are not reordered.
    untold: Vec<(T::Link, u64)>,
    /// Who is told of peers that are gone, if the owner wants to know.
    ends: Option<PeerEnds>,
}

impl<T: Transport> Foreign<T> {
    fn new(owner: ImportedSrx, home: Weak<dyn StartReceives>, av: Option<Use<Av>>) -> Self {
        Foreign {
            queue: ForeignQueue::new(owner, home),
            av,
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

    fn keep(&mut self, message: Message<Unexpected<T>>) -> Option<MessageId> {
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
        (matched, Buffer::Foreign(self.given.insert(received)))
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
}

impl<T: Transport> Inbox<T> {
    /// Buffers a message that matched no receive; `None` if the owner does not accept it.
    pub(crate) fn keep(&mut self, message: Message<Unexpected<T>>) -> Option<MessageId> {
        match self.foreign() {
            None => {
                let origin = origin(message.payload.link);
                Some(self.queue(message.payload.tagged).keep_of(origin, message))
            }
            Some(foreign) => foreign.keep(message),
        }
    }

    /// Returns a buffered message, unless a receive has taken it.
    pub(crate) fn payload_mut(&mut self, kept: UnexpectedHandle) -> Option<&mut Unexpected<T>> {
        if self.foreign().is_none() {
            return self.queue(kept.tagged).payload_mut(kept.id);
        }
        self.foreign()?.queue.payload_mut(kept.id)
    }
}

impl<T: Transport> Endpoints<T> {
    /// Makes an endpoint use the receives of another provider, which calls `home` for messages that
    /// are waiting.
    ///
    /// # Errors
    /// `-FI_EOPBADSTATE` for an endpoint that is closed.
    pub fn import_receives(
        &mut self,
        ep: EpKey,
        owner: ImportedSrx,
        home: Weak<dyn StartReceives>,
    ) -> Result {
        let (inbox, av) = {
            let ep = self.eps.get(ep).ok_or(Errno::EOPBADSTATE)?;
            (ep.inbox, ep.reports.av.clone())
        };
        let inbox = self.inboxes.get_mut(inbox).ok_or(Errno::EOPBADSTATE)?;
        inbox.ends(None);
        let foreign = Foreign::new(owner, home, av);
        inbox.elsewhere = Some(Elsewhere::Provider(Box::new(foreign)));
        self.is_deaf = true;
        Ok(())
    }

    /// Tells the owner of an endpoint's receives of peers that are gone.
    ///
    /// # Errors
    /// `-FI_EOPBADSTATE` if the receives are the endpoint's own.
    pub fn tell_ends(&mut self, ep: EpKey, ends: PeerEnds) -> Result {
        let (_, foreign) = self.foreign(ep).ok_or(Errno::EOPBADSTATE)?;
        foreign.ends = Some(ends);
        Ok(())
    }

    /// Returns whether nothing may be received at present.
    #[inline]
    pub fn is_deaf(&self) -> bool {
        self.is_deaf
    }

    /// Marks that the owner of the receives drives the lane, or starts a message, until
    /// [`Endpoints::owner_leaves`]. Reports what was postponed.
    pub fn owner_enters(&mut self) {
        self.is_deaf = false;
        for (receipt, memory, outcome) in std::mem::take(&mut self.late) {
            self.received(&receipt, memory, outcome);
        }
    }

    /// See [`Endpoints::owner_enters`].
    pub fn owner_leaves(&mut self) {
        self.is_deaf = true;
    }

    /// The owner has a receive for a message that is waiting.
    pub(crate) fn start(&mut self, ep: EpKey, started: Started) -> Result {
        let (inbox, foreign) = self.foreign(ep).ok_or(Errno::EOPBADSTATE)?;
        let (message, received) = foreign.queue.start(started)?;
        let (matched, buffer) = foreign.give(received);
        self.deliver_to(inbox, matched, buffer, message);
        self.admit_held_back();
        Ok(())
    }

    /// The owner discards a message that is waiting.
    pub(crate) fn discard(&mut self, ep: EpKey, discarded: Discarded) -> Result {
        let (_, foreign) = self.foreign(ep).ok_or(Errno::EOPBADSTATE)?;
        let message = foreign.queue.discard(discarded)?;
        self.drop_message(message);
        self.admit_held_back();
        Ok(())
    }

    /// Returns the sources of waiting messages that the owner has to be told; `None` if it knows
    /// all. To be called again after the owner was told.
    pub(crate) fn new_sources(&mut self, ep: EpKey) -> Option<NewSources> {
        let (_, foreign) = self.foreign(ep)?;
        if foreign.untold.is_empty() {
            return None;
        }
        let untold = foreign.untold.iter();
        let untold = untold.map(|&(link, src)| (origin(link), src, foreign.reported(src)));
        let untold: Vec<_> = untold.collect();
        let news = foreign.queue.relabel(untold.into_iter());
        if news.is_empty() {
            foreign.untold.clear();
            return None;
        }
        Some(news)
    }

    fn foreign(&mut self, ep: EpKey) -> Option<(InboxKey, &mut Foreign<T>)> {
        let key = self.eps.get(ep)?.inbox;
        let foreign = self.inboxes.get_mut(key)?.foreign()?;
        Some((key, foreign))
    }

    /// [`Endpoints::received`] for a receive that belongs to another provider.
    #[inline(never)]
    pub(crate) fn received_elsewhere(
        &mut self,
        given: GivenKey,
        receipt: &Receipt<T::Ack>,
        memory: AppIov,
        outcome: Result,
    ) -> T::Ack {
        let inbox = self.inboxes.get_mut(receipt.inbox);
        let Some(foreign) = inbox.and_then(Inbox::foreign) else {
            return T::Ack::default();
        };
        if self.is_deaf {
            self.late.push((*receipt, memory, outcome));
            bounded!(self.late, OPERATIONS);
        } else {
            if let Some(ep) = self.eps.get(receipt.ep) {
                ep.reports.receive(receipt, &memory, false, outcome);
            }
            // The owner gets its entry back after the completion was written.
            foreign.given.remove(given);
        }
        match outcome {
            Ok(()) => receipt.ack,
            Err(_) => T::Ack::default(),
        }
    }

    /// Handles the end of a link: receives of the owner that take its incomplete messages later end
    /// with `error`.
    pub(crate) fn lose_messages(&mut self, key: InboxKey, link: T::Link, error: Errno) {
        let inbox = self.inboxes.get_mut(key);
        let Some(foreign) = inbox.and_then(Inbox::foreign) else {
            return;
        };
        foreign.untold.retain(|&(other, _)| other != link);
        let mut costs = Vec::new();
        foreign.queue.for_each_of(origin(link), |message| {
            let unexpected = &mut message.payload;
            if !unexpected.is_complete() {
                costs.push(unexpected.cost(message.len));
                unexpected.body = Body::Lost(error);
            }
        });
        foreign.queue.end_origin(origin(link));
        for cost in costs {
            self.refund_link(link, cost);
        }
    }

    /// Withdraws the messages that wait in an inbox that is being closed.
    pub(crate) fn withdraw(&mut self, key: InboxKey) {
        let inbox = self.inboxes.get_mut(key);
        let Some(foreign) = inbox.and_then(Inbox::foreign) else {
            return;
        };
        for message in foreign.queue.withdraw_all() {
            self.refund(&message);
        }
    }
}
