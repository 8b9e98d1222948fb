//! One receive queue: posted receives on one side, unexpected messages on the
//! other, at any time no pair of them that matches.

use fabric_abi::FI_MULTI_RECV;

use super::multi::{MultiBuffers, MultiKey};
pub use super::posted::Single;
use super::posted::{Posted, PostedQueue, Space};
use super::unexpected::{NO_ORIGIN, UnexpectedQueue};
use crate::request::ONE_MESSAGE;

use super::{Filter, Matched, Message, MessageId, MultiId, Receive, ReceiveBuffer};

/// See the [module](super) description.
#[derive(Debug)]
pub struct ReceiveQueue<B, U> {
    posted: PostedQueue<B>,
    unexpected: UnexpectedQueue<U>,
    multi: MultiBuffers<B>,
    min_multi_recv: usize,
}

/// A receive that left the queue without a message.
#[derive(Clone, Debug)]
pub struct Cancelled<B> {
    /// See [`Receive::context`].
    pub context: usize,
    /// See [`Receive::flags`].
    pub flags: u64,
    /// See [`Receive::tag`].
    pub tag: u64,
    /// The buffer, the application's again. `None`: a multi-receive buffer that
    /// takes no more messages but holds some that are still being received. Its
    /// release goes with the last of those ([`ReceiveQueue::finish_multi`]), so
    /// that there is no completion to report now.
    pub buf: Option<B>,
}

impl<B: ReceiveBuffer, U> ReceiveQueue<B, U> {
    /// A queue for plain messages: every tag matches.
    pub fn untagged(min_multi_recv: usize) -> Self {
        Self::new(u64::MAX, min_multi_recv)
    }

    /// A queue for tagged messages.
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

    /// Posts a receive. Returns the oldest unexpected message that it accepts,
    /// off the queue, and the receive's buffer for it; otherwise the receive
    /// waits.
    ///
    /// A multi-receive buffer goes on waiting behind its first match: for the
    /// other unexpected messages that fit into it, call
    /// [`ReceiveQueue::refill`] until that has no more.
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

    /// Posts a receive with a buffer for one message with a few instructions, if no
    /// message waits at all, and few receives, fewer than `most`; `false` leaves it
    /// to [`ReceiveQueue::post`].
    #[inline(always)]
    pub fn post_at_once(
        &mut self,
        context: usize,
        flags: u64,
        filter: Filter,
        buf: &B,
        most: usize,
    ) -> bool
    where
        B: Copy,
    {
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

    /// Takes one more unexpected message into a multi-receive buffer, if one
    /// waits that it accepts and the buffer still has room.
    pub fn refill(&mut self, id: MultiId) -> Option<(Matched<B>, Message<U>)> {
        let index = self.posted.find_multi(id.0)?;
        self.match_posted(index)
    }

    /// Pairs a waiting receive with the oldest unexpected message it accepts.
    fn match_posted(&mut self, index: u32) -> Option<(Matched<B>, Message<U>)> {
        let filter = self.posted.get(index)?.filter();
        let found = self.unexpected.find(filter)?;
        let message = self.unexpected.remove(found)?;
        let matched = self.take(index, message.len)?;
        Some((matched, message))
    }

    /// Finds the receive for a message of `len` bytes that arrives now. `None`:
    /// nobody waits for it, and the provider decides whether to
    /// [`keep`](ReceiveQueue::keep) it.
    #[inline]
    pub fn arrive(&mut self, src: u64, tag: u64, len: usize) -> Option<Matched<B>> {
        let index = self.posted.find(src, tag)?;
        self.take(index, len)
    }

    /// [`ReceiveQueue::arrive`] for a message of any length. `None`: nobody waits
    /// for it, or it goes into a buffer for many, so that it is for that method.
    #[inline(always)]
    pub fn take_single(&mut self, src: u64, tag: u64) -> Option<Single<'_, B>> {
        self.posted.take_single(src, tag)
    }

    /// Uses a waiting receive for a message of `len` bytes.
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

    /// Reports that a message in a multi-receive buffer has completed, well or
    /// badly. True if that was the last one: its completion carries
    /// `FI_MULTI_RECV`, and the buffer is the application's again.
    pub fn finish_multi(&mut self, id: MultiId) -> bool {
        self.multi.finish(id.0)
    }

    /// Keeps a message for which [`arrive`](ReceiveQueue::arrive) found no
    /// receive.
    pub fn keep(&mut self, message: Message<U>) -> MessageId {
        self.keep_of(NO_ORIGIN, message)
    }

    /// As [`keep`](ReceiveQueue::keep), for a message of `origin`: what it came on,
    /// as a small number, for which memory is taken.
    /// [`withdraw_of`](ReceiveQueue::withdraw_of) and
    /// [`relabel_of`](ReceiveQueue::relabel_of) look at the messages of one origin
    /// only.
    pub fn keep_of(&mut self, origin: u32, message: Message<U>) -> MessageId {
        MessageId(self.unexpected.push(origin, message))
    }

    /// The payload of a kept message, `None` once a receive has taken it.
    pub fn payload_mut(&mut self, id: MessageId) -> Option<&mut U> {
        let index = self.unexpected.index_of(id.0)?;
        self.unexpected.payload_mut(index)
    }

    /// Takes a kept message back, claimed or not.
    pub fn withdraw(&mut self, id: MessageId) -> Option<Message<U>> {
        let index = self.unexpected.index_of(id.0)?;
        self.unexpected.remove(index)
    }

    /// Takes back all kept messages, claimed ones too, for which `gone` is true:
    /// those of a dead connection.
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

    /// The oldest unexpected message that `filter` accepts (`FI_PEEK`).
    pub fn peek(&mut self, filter: Filter) -> Option<&Message<U>> {
        let index = self.unexpected.find(filter)?;
        self.unexpected.get(index)
    }

    /// As [`peek`](ReceiveQueue::peek), and sets the message aside for
    /// [`claim`](ReceiveQueue::claim) with the same context
    /// (`FI_PEEK | FI_CLAIM`).
    pub fn peek_claim(&mut self, filter: Filter, context: usize) -> Option<&Message<U>> {
        let index = self.unexpected.find(filter)?;
        self.unexpected.claim_for(index, context);
        self.unexpected.get(index)
    }

    /// As [`peek`](ReceiveQueue::peek), and takes the message out for the
    /// provider to drop (`FI_PEEK | FI_DISCARD`).
    pub fn peek_discard(&mut self, filter: Filter) -> Option<Message<U>> {
        let index = self.unexpected.find(filter)?;
        self.unexpected.remove(index)
    }

    /// The message set aside for `context`, to be received (`FI_CLAIM`) or
    /// dropped (`FI_CLAIM | FI_DISCARD`).
    pub fn claim(&mut self, context: usize) -> Option<Message<U>> {
        let index = self.unexpected.find_claimed(context)?;
        self.unexpected.remove(index)
    }

    /// Takes the oldest receive posted with `context` off the queue
    /// (`fi_cancel`). `None`: there is none, it has its message already or
    /// never was.
    pub fn cancel(&mut self, context: usize) -> Option<Cancelled<B>> {
        let index = self.posted.find_context(context)?;
        self.withdraw_posted(index)
    }

    /// Takes all receives off the queue, oldest first: the endpoint closes, or
    /// its connection ends.
    pub fn cancel_all(&mut self) -> Vec<Cancelled<B>> {
        self.posted
            .in_order(|_| true)
            .into_iter()
            .filter_map(|index| self.withdraw_posted(index))
            .collect()
    }

    /// Takes the receives that name `src` as their only source off the queue,
    /// oldest first: that peer is gone.
    pub fn cancel_from(&mut self, src: u64) -> Vec<Cancelled<B>> {
        self.posted
            .in_order(|posted| posted.src == src)
            .into_iter()
            .filter_map(|index| self.withdraw_posted(index))
            .collect()
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

    /// Takes back the kept messages of an origin, claimed ones too, for which `gone`
    /// is true: the connection has ended. The others are to be passed on
    /// ([`ReceiveQueue::pass_on`]) before the number is given to another connection.
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

    /// Gives the messages of an origin another one, with [`HEIR`](super::HEIR) in its
    /// number.
    pub fn pass_on(&mut self, origin: u32, heir: u32) {
        self.unexpected.pass_on(origin, heir);
    }

    /// Whether messages of an origin are here, claimed ones, too.
    pub fn has_of(&self, origin: u32) -> bool {
        self.unexpected.has_of(origin)
    }

    /// Gives kept messages a source, or takes it from them: `source` returns the
    /// new one for the messages that change.
    ///
    /// Directed receives may now match messages that waited: all such pairs are
    /// returned, off the queue.
    pub fn relabel(
        &mut self,
        mut source: impl FnMut(&Message<U>) -> Option<u64>,
    ) -> Vec<(Matched<B>, Message<U>)> {
        let all = self.unexpected.waiting_and_claimed();
        self.relabel_some(all, &mut source)
    }

    /// As [`relabel`](ReceiveQueue::relabel), for the messages of an origin: the
    /// address vector has learnt or forgotten the peer.
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
        // No receive that waits accepts any of the others.
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

    /// Receives that wait.
    #[inline]
    pub fn posted_len(&self) -> usize {
        self.posted.len()
    }

    /// Messages that wait for a receive, without claimed ones.
    #[inline]
    pub fn unexpected_len(&self) -> usize {
        self.unexpected.len()
    }

    /// Messages set aside by [`peek_claim`](ReceiveQueue::peek_claim).
    pub fn claimed_len(&self) -> usize {
        self.unexpected.claimed_len()
    }
}

#[cfg(test)]
impl<B, U> ReceiveQueue<B, U> {
    /// Messages that operations have looked at or moved so far.
    pub(super) fn steps(&self) -> usize {
        self.unexpected.steps
    }
}
