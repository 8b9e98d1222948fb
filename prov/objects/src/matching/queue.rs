//! One receive queue: posted receives on one side, unexpected messages on the other. No pair of
//! them matches at any time.

use std::collections::HashSet;

use fabric_abi::FI_MULTI_RECV;

use super::multi::{MultiBuffers, MultiKey};
pub use super::posted::Single;
use super::posted::{Posted, PostedQueue, Space};
use super::unexpected::{NO_ORIGIN, UnexpectedQueue};
use crate::request::ONE_MESSAGE;

use super::{ANY_SOURCE, Filter, Matched, Message, MessageId, MultiId, Receive, ReceiveBuffer};

/// See the [module](super) description.
#[derive(Debug)]
pub struct ReceiveQueue<B, U> {
    posted: PostedQueue<B>,
    unexpected: UnexpectedQueue<U>,
    multi: MultiBuffers<B>,
    min_multi_recv: usize,
}

/// A receive that has left the queue without a message.
#[derive(Clone, Debug)]
pub struct Cancelled<B> {
    /// See [`Receive::context`].
    pub context: usize,
    /// See [`Receive::flags`].
    pub flags: u64,
    /// See [`Receive::tag`].
    pub tag: u64,
    /// The buffer, which is released to the application. `None`: a multi-receive buffer that
    /// accepts no more messages but contains some that are still being received. The last of those
    /// releases it ([`ReceiveQueue::finish_multi`]), so there is no completion to report here.
    pub buf: Option<B>,
}

impl<B: ReceiveBuffer, U> ReceiveQueue<B, U> {
    /// Creates a queue for untagged messages: every tag matches.
    pub fn untagged(min_multi_recv: usize) -> Self {
        Self::new(u64::MAX, min_multi_recv)
    }

    /// Creates a queue for tagged messages.
    pub fn tagged(min_multi_recv: usize) -> Self {
        Self::new(0, min_multi_recv)
    }

    fn new(ignored: u64, min_multi_recv: usize) -> Self {
        ReceiveQueue {
            posted: PostedQueue::new(),
            unexpected: UnexpectedQueue::new(ignored),
            multi: MultiBuffers::new(),
            min_multi_recv,
        }
    }

    /// See [`ReceiveContext::set_min_multi_recv`](super::ReceiveContext::set_min_multi_recv).
    pub fn set_min_multi_recv(&mut self, bytes: usize) {
        self.min_multi_recv = bytes;
    }

    /// Posts a receive. Returns the oldest unexpected message that it accepts, removed from the
    /// queue, and the receive's buffer for it; otherwise queues the receive.
    ///
    /// A multi-receive buffer stays queued after its first match: the caller repeats
    /// [`ReceiveQueue::refill`] until no further unexpected message fits into it.
    pub fn post(&mut self, receive: Receive<B>) -> Option<(Matched<B>, Message<U>)> {
        if receive.flags & FI_MULTI_RECV != 0 {
            return self.post_multi(receive);
        }
        let posted = Posted::of(&receive);
        if let Some(index) = self.unexpected.find(posted.filter()) {
            return self.post_matched(receive, index);
        }
        self.posted.push(posted, Space::Single(receive.buf));
        None
    }

    /// The fast path of [`ReceiveQueue::post`]: posts a receive with a single-message buffer in a
    /// few instructions, if there are no unexpected messages and fewer than `most` posted receives.
    /// Returns `false`, without any effect, otherwise.
    #[inline(always)]
    pub fn post_fast(
        &mut self,
        context: usize,
        flags: u64,
        filter: Filter,
        buf: &mut B,
        most: usize,
    ) -> bool {
        let Filter { src, tag, ignore } = filter;
        let posted = || Posted {
            context,
            flags,
            src,
            tag,
            ignore,
        };
        self.unexpected.is_empty() && self.posted.push_in_line(posted, buf, most)
    }

    #[cold]
    #[inline(never)]
    fn post_matched(
        &mut self,
        receive: Receive<B>,
        index: u32,
    ) -> Option<(Matched<B>, Message<U>)> {
        let message = self.unexpected.remove(index)?;
        let matched = Matched {
            context: receive.context,
            buf: receive.buf,
            flags: receive.flags,
            multi: None,
        };
        Some((matched, message))
    }

    #[cold]
    #[inline(never)]
    fn post_multi(&mut self, receive: Receive<B>) -> Option<(Matched<B>, Message<U>)> {
        let posted = Posted::of(&receive);
        let min_multi_recv = match receive.flags & ONE_MESSAGE {
            0 => self.min_multi_recv,
            _ => usize::MAX,
        };
        let key = self.multi.insert(receive.buf, min_multi_recv);
        let index = self.posted.push(posted, Space::Multi(key));
        self.match_posted(index)
    }

    /// Matches another unexpected message with a multi-receive buffer, if there is one that it
    /// accepts and the buffer has room.
    pub fn refill(&mut self, id: MultiId) -> Option<(Matched<B>, Message<U>)> {
        let index = self.posted.find_multi(id.0)?;
        self.match_posted(index)
    }

    /// Matches a queued receive with the oldest unexpected message that it accepts.
    fn match_posted(&mut self, index: u32) -> Option<(Matched<B>, Message<U>)> {
        let filter = self.posted.get(index)?.filter();
        let found = self.unexpected.find(filter)?;
        let message = self.unexpected.remove(found)?;
        let matched = self.take(index, message.len)?;
        Some((matched, message))
    }

    /// Matches an arriving message of `len` bytes. `None`: no receive accepts it, and the provider
    /// decides whether to [`keep`](ReceiveQueue::keep) it.
    #[inline]
    pub fn arrive(&mut self, src: u64, tag: u64, len: usize) -> Option<Matched<B>> {
        let index = self.posted.find(src, tag)?;
        self.take(index, len)
    }

    /// The fast path of [`ReceiveQueue::take_single`], for a message that the oldest receive accepts.
    #[inline(always)]
    pub fn take_first(&mut self, src: u64, tag: u64) -> Option<Single<'_, B>> {
        self.posted.take_first(src, tag)
    }

    /// Like [`ReceiveQueue::arrive`], for a message of any length. `None`: no receive accepts it, or
    /// it goes to a multi-receive buffer, so that the caller has to use that method.
    pub fn take_single(&mut self, src: u64, tag: u64) -> Option<Single<'_, B>> {
        self.posted.take_single(src, tag)
    }

    /// The fast path of [`ReceiveQueue::take_single_if`], for a message that the oldest receive
    /// accepts.
    #[inline(always)]
    pub fn take_first_if(
        &mut self,
        src: u64,
        tag: u64,
        wanted: impl Fn(u64, &B) -> bool,
    ) -> Option<Single<'_, B>> {
        let wanted = |posted: &Posted, buf: &B| wanted(posted.flags, buf);
        self.posted.take_first_if(src, tag, wanted)
    }

    /// Like [`ReceiveQueue::take_single`]. `None` also if the receive, of which `wanted` gets the
    /// flags and the buffer, is not wanted.
    pub fn take_single_if(
        &mut self,
        src: u64,
        tag: u64,
        wanted: impl Fn(u64, &B) -> bool,
    ) -> Option<Single<'_, B>> {
        let wanted = |posted: &Posted, buf: &B| wanted(posted.flags, buf);
        self.posted.take_single_if(src, tag, wanted)
    }

    /// Matches a queued receive with a message of `len` bytes.
    fn take(&mut self, index: u32, len: usize) -> Option<Matched<B>> {
        let posted = self.posted.get(index)?;
        let (context, flags) = (posted.context, posted.flags);
        if let Some(key) = self.posted.multi(index) {
            return self.take_multi(index, key, len);
        }
        match self.posted.remove(index) {
            Space::Single(buf) => Some(Matched {
                context,
                buf,
                flags,
                multi: None,
            }),
            Space::Multi(_) | Space::Vacant => None,
        }
    }

    #[cold]
    #[inline(never)]
    fn take_multi(&mut self, index: u32, key: MultiKey, len: usize) -> Option<Matched<B>> {
        let posted = self.posted.get(index)?;
        let (context, flags) = (posted.context, posted.flags);
        let (buf, closed) = self.multi.place(key, len)?;
        if closed {
            self.posted.remove(index);
        }
        Some(Matched {
            context,
            buf,
            flags,
            multi: Some(MultiId(key)),
        })
    }

    /// Handles the completion of a message in a multi-receive buffer, successful or not. Returns
    /// true if it was the last one: its completion has the flag `FI_MULTI_RECV`, and the buffer is
    /// released to the application.
    pub fn finish_multi(&mut self, id: MultiId) -> bool {
        self.multi.finish(id.0)
    }

    /// Returns whether messages are arriving in multi-receive buffers that accept no more.
    pub(super) fn finishes_multi(&self) -> bool {
        self.multi.any_closed()
    }

    /// Queues an unexpected message, for which [`arrive`](ReceiveQueue::arrive) found no receive.
    pub fn keep(&mut self, message: Message<U>) -> MessageId {
        self.keep_of(NO_ORIGIN, message)
    }

    /// Like [`keep`](ReceiveQueue::keep), for a message of `origin`: a number that identifies the
    /// connection on which it arrived. It should be small, since it is an index into a table.
    /// [`withdraw_of`](ReceiveQueue::withdraw_of) and [`relabel_of`](ReceiveQueue::relabel_of)
    /// examine only the messages of one origin.
    pub fn keep_of(&mut self, origin: u32, message: Message<U>) -> MessageId {
        MessageId(self.unexpected.push(origin, message))
    }

    /// Returns the payload of an unexpected message; `None` once a receive has taken it.
    pub fn payload_mut(&mut self, id: MessageId) -> Option<&mut U> {
        let index = self.unexpected.index_of(id.0)?;
        self.unexpected.payload_mut(index)
    }

    /// Removes an unexpected message, claimed or not.
    pub fn withdraw(&mut self, id: MessageId) -> Option<Message<U>> {
        let index = self.unexpected.index_of(id.0)?;
        self.unexpected.remove(index)
    }

    /// Removes all unexpected messages, including claimed ones, for which `gone` is true: those of
    /// a connection that has ended.
    pub fn withdraw_if(&mut self, mut gone: impl FnMut(&Message<U>) -> bool) -> Vec<Message<U>> {
        self.unexpected
            .waiting_and_claimed()
            .into_iter()
            .filter_map(|index| {
                let message = self.unexpected.get(index)?;
                gone(message)
                    .then(|| self.unexpected.remove(index))
                    .flatten()
            })
            .collect()
    }

    /// Returns whether there are unexpected messages, apart from claimed ones.
    pub fn has_waiting(&self) -> bool {
        !self.unexpected.is_empty()
    }

    /// Offers the unexpected messages, oldest first and without claimed ones, to receives that are
    /// not in this queue. Returns those that `take` takes, removed from the queue.
    pub fn offer<R>(
        &mut self,
        mut take: impl FnMut(&Message<U>) -> Option<R>,
    ) -> Vec<(R, Message<U>)> {
        let mut taken = Vec::new();
        for index in self.unexpected.waiting() {
            if let Some(receive) = self.unexpected.get(index).and_then(&mut take)
                && let Some(message) = self.unexpected.remove(index)
            {
                taken.push((receive, message));
            }
        }
        taken
    }

    /// Returns the oldest unexpected message that `filter` accepts (`FI_PEEK`).
    pub fn peek(&mut self, filter: Filter) -> Option<&Message<U>> {
        let index = self.unexpected.find(filter)?;
        self.unexpected.get(index)
    }

    /// Like [`peek`](ReceiveQueue::peek), and sets the message aside for
    /// [`claim`](ReceiveQueue::claim) with the same context (`FI_PEEK | FI_CLAIM`).
    pub fn peek_claim(&mut self, filter: Filter, context: usize) -> Option<&Message<U>> {
        let index = self.unexpected.find(filter)?;
        self.unexpected.claim_for(index, context);
        self.unexpected.get(index)
    }

    /// Like [`peek`](ReceiveQueue::peek), and removes the message for the provider to drop
    /// (`FI_PEEK | FI_DISCARD`).
    pub fn peek_discard(&mut self, filter: Filter) -> Option<Message<U>> {
        let index = self.unexpected.find(filter)?;
        self.unexpected.remove(index)
    }

    /// Removes the message that was set aside for `context`, to be received (`FI_CLAIM`) or dropped
    /// (`FI_CLAIM | FI_DISCARD`).
    pub fn claim(&mut self, context: usize) -> Option<Message<U>> {
        let index = self.unexpected.find_claimed(context)?;
        self.unexpected.remove(index)
    }

    /// Removes the oldest receive posted with `context` (fi_cancel(3)). `None`: there is none; it
    /// may have matched a message.
    pub fn cancel(&mut self, context: usize) -> Option<Cancelled<B>> {
        let index = self.posted.find_context(context)?;
        self.withdraw_posted(index)
    }

    /// Removes all receives, oldest first, for an endpoint that is being closed or whose connection
    /// has ended.
    pub fn cancel_all(&mut self) -> Vec<Cancelled<B>> {
        self.posted
            .in_order(|_| true)
            .into_iter()
            .filter_map(|index| self.withdraw_posted(index))
            .collect()
    }

    /// Removes the receives that name `src` as their only source and have these flags, oldest
    /// first, for a peer that is gone.
    pub fn cancel_from(&mut self, src: u64, flags: u64) -> Vec<Cancelled<B>> {
        self.posted
            .in_order(|posted| posted.src == src && posted.flags & flags == flags)
            .into_iter()
            .filter_map(|index| self.withdraw_posted(index))
            .collect()
    }

    /// Adds the sources that receives name as their only one.
    pub fn add_named_sources(&self, sources: &mut HashSet<u64>) {
        self.posted.for_each(|posted| {
            if posted.src != ANY_SOURCE {
                sources.insert(posted.src);
            }
        });
    }

    fn withdraw_posted(&mut self, index: u32) -> Option<Cancelled<B>> {
        let &Posted {
            context,
            flags,
            tag,
            ..
        } = self.posted.get(index)?;
        Some(Cancelled {
            context,
            flags,
            tag,
            buf: match self.posted.remove(index) {
                Space::Single(buf) => Some(buf),
                Space::Multi(key) => self.multi.close(key),
                Space::Vacant => None,
            },
        })
    }

    /// Removes the unexpected messages of an origin, including claimed ones, for which `gone` is
    /// true: the connection has ended. The others have to be passed on ([`ReceiveQueue::pass_on`])
    /// before the number is reused for another connection.
    pub fn withdraw_of(
        &mut self,
        origin: u32,
        mut gone: impl FnMut(&Message<U>) -> bool,
    ) -> Vec<Message<U>> {
        let mut withdrawn = Vec::new();
        for index in self.unexpected.of_origin(origin) {
            if self.unexpected.get(index).is_some_and(&mut gone) {
                withdrawn.extend(self.unexpected.remove(index));
            }
        }
        withdrawn
    }

    /// Moves the messages of an origin to another one, whose number has the bit
    /// [`HEIR`](super::HEIR).
    pub fn pass_on(&mut self, origin: u32, heir: u32) {
        self.unexpected.pass_on(origin, heir);
    }

    /// Returns whether there are messages of an origin, including claimed ones.
    pub fn has_of(&self, origin: u32) -> bool {
        self.unexpected.has_of(origin)
    }

    /// Changes the sources of unexpected messages: `source` returns the new one for the messages
    /// that change.
    ///
    /// Directed receives may then match unexpected messages: all such pairs are removed and
    /// returned.
    pub fn relabel(
        &mut self,
        mut source: impl FnMut(&Message<U>) -> Option<u64>,
    ) -> Vec<(Matched<B>, Message<U>)> {
        let all = self.unexpected.waiting_and_claimed();
        self.relabel_some(all, &mut source)
    }

    /// Like [`relabel`](ReceiveQueue::relabel), for the messages of an origin whose peer the
    /// address vector has learnt or forgotten.
    pub fn relabel_of(&mut self, origin: u32, src: u64) -> Vec<(Matched<B>, Message<U>)> {
        let of_origin = self.unexpected.of_origin(origin);
        self.relabel_some(of_origin, &mut |_| Some(src))
    }

    fn relabel_some(
        &mut self,
        mut indices: Vec<u32>,
        source: &mut dyn FnMut(&Message<U>) -> Option<u64>,
    ) -> Vec<(Matched<B>, Message<U>)> {
        indices.retain(|&index| {
            let src = self.unexpected.get(index).and_then(&mut *source);
            src.is_some_and(|src| self.unexpected.set_source(index, src))
        });
        // No queued receive accepts any of the messages whose source is unchanged.
        let mut pairs = Vec::new();
        for found in indices {
            let Some((src, tag, len)) = self
                .unexpected
                .get(found)
                .map(|message| (message.src, message.tag, message.len))
            else {
                continue;
            };
            if let Some(matched) = self.arrive(src, tag, len)
                && let Some(message) = self.unexpected.remove(found)
            {
                pairs.push((matched, message));
            }
        }
        pairs
    }

    /// Returns the number of posted receives.
    #[inline]
    pub fn posted_len(&self) -> usize {
        self.posted.len()
    }

    /// Returns the number of unexpected messages, without claimed ones.
    #[inline]
    pub fn unexpected_len(&self) -> usize {
        self.unexpected.len()
    }

    /// Returns the number of messages set aside by [`peek_claim`](ReceiveQueue::peek_claim).
    pub fn claimed_len(&self) -> usize {
        self.unexpected.claimed_len()
    }
}

#[cfg(test)]
impl<B, U> ReceiveQueue<B, U> {
    /// Number of messages that operations have examined or moved.
    pub(super) fn steps(&self) -> usize {
        self.unexpected.steps
    }
}
