//! Receives that the application posts (fi_msg(3), fi_tagged(3)), and messages
//! that came before them.

use fabric_abi::{
    FI_CLAIM, FI_COMPLETION, FI_DISCARD, FI_MSG, FI_MULTI_RECV, FI_PEEK, FI_RECV,
    FI_REMOTE_CQ_DATA, FI_TAGGED,
};
use prov_util::buffer::AppIov;
use prov_util::errno::{Errno, Result};
use prov_util::matching::{ANY_SOURCE, Filter, Matched, Message, Receive as Posted, ReceiveQueue};
use prov_util::request::{Receive, Select};

use super::Core;
use super::endpoint::{Kind, Queues, Receiver};
use super::incoming::{Ack, Body, Incoming, Kept, Placing, Receipt, Rendezvous, Then, Unexpected};
use super::keys::{ConnKey, EpKey, ReceiverKey};
use super::op::Context;
use super::place::Place;
use prov_util::cq::{Completion, ErrorCompletion};

impl Receiver {
    /// The queue of plain or of tagged messages.
    #[inline]
    pub fn queue(&mut self, tagged: bool) -> &mut ReceiveQueue<AppIov, Unexpected> {
        if tagged {
            &mut self.matching.tagged
        } else {
            &mut self.matching.msg
        }
    }
}

impl Core {
    /// Posts a receive to an endpoint.
    #[inline(always)]
    pub fn receive(&mut self, ep: EpKey, receive: &Receive) -> Result {
        let state = self.eps.get(ep).ok_or(Errno::EOPBADSTATE)?;
        let (key, directed) = (state.receiver, state.directed);
        if directed {
            return self.receive_directed(ep, key, receive);
        }
        self.post_receive(key, Some(ep), false, receive)
    }

    #[inline(never)]
    fn receive_directed(&mut self, ep: EpKey, key: ReceiverKey, receive: &Receive) -> Result {
        if let Some(state) = self.eps.get(ep)
            && let Kind::Rdm(rdm) = &state.kind
            && (rdm.av_changed() || !rdm.lost.is_empty())
        {
            self.look_for_peer(ep, receive.peer);
        }
        self.post_receive(key, Some(ep), true, receive)
    }

    /// Posts a receive to a receive context.
    #[inline(always)]
    pub fn post_receive(
        &mut self,
        key: ReceiverKey,
        ep: Option<EpKey>,
        directed: bool,
        receive: &Receive,
    ) -> Result {
        let receiver = self.receivers.get_mut(key).ok_or(Errno::EOPBADSTATE)?;
        let (tagged, filter) = select(receive, directed);
        let size = receiver.size;
        let queue = receiver.queue(tagged);
        let context = Context::of(receive.context).0;
        if receive.flags & (FI_PEEK | FI_CLAIM) == 0
            && queue.posted_len() < size
            && queue.post_waiting(context, receive.flags, filter, &receive.buffers)
        {
            return Ok(());
        }
        self.post_special_receive(key, ep, directed, receive)
    }

    /// Posts a receive that may not just wait.
    #[inline(never)]
    fn post_special_receive(
        &mut self,
        key: ReceiverKey,
        ep: Option<EpKey>,
        directed: bool,
        receive: &Receive,
    ) -> Result {
        if receive.flags & (FI_PEEK | FI_CLAIM) != 0 {
            return self.look(key, ep, directed, receive);
        }
        let receiver = self.receivers.get_mut(key).ok_or(Errno::EOPBADSTATE)?;
        let (tagged, filter) = select(receive, directed);
        let size = receiver.size;
        let queue = receiver.queue(tagged);
        if queue.posted_len() >= size {
            return self.receive_without_room(key, ep, filter, receive);
        }
        let taken = queue.post(posted(receive, filter));
        if let Some((matched, message)) = taken {
            self.catch_up(key, tagged, matched, message);
        }
        Ok(())
    }

    /// A receive was posted for a message that had come before.
    #[inline(never)]
    pub(super) fn catch_up(
        &mut self,
        key: ReceiverKey,
        tagged: bool,
        matched: Matched<AppIov>,
        message: Message<Unexpected>,
    ) {
        let multi = matched.multi;
        self.deliver(key, tagged, matched, message);
        // A buffer for many messages takes all that fit.
        while let Some(multi) = multi
            && let Some(receiver) = self.receivers.get_mut(key)
            && let Some((matched, message)) = receiver.queue(tagged).refill(multi)
        {
            self.deliver(key, tagged, matched, message);
        }
        self.admit_held_back();
    }

    /// Brings a message that came before to the receive that took it.
    fn deliver(
        &mut self,
        receiver: ReceiverKey,
        tagged: bool,
        matched: Matched<AppIov>,
        message: Message<Unexpected>,
    ) {
        let Message {
            src,
            tag,
            len,
            data,
            flags,
            payload:
                Unexpected {
                    conn,
                    ep,
                    ack,
                    body,
                },
        } = message;
        self.unexpected_bytes -= Core::keeping_cost(len, &body);
        let receipt = Receipt {
            receiver,
            tagged,
            context: Context(matched.context),
            flags: matched.flags,
            multi: matched.multi,
            src,
            tag,
            data: (flags & FI_REMOTE_CQ_DATA != 0).then_some(data),
            len,
            ack,
        };
        match body {
            Body::Complete(bytes) => {
                matched.buf.write_at(0, &bytes);
                self.received(conn, ep, &receipt, &matched.buf, Ok(()));
            }
            Body::Arriving(bytes) => {
                matched.buf.write_at(0, &bytes);
                if let Some(conn) = self.conns.get_mut(conn) {
                    conn.incoming = Incoming::Place(Box::new(Placing {
                        place: Place::App(matched.buf),
                        done: bytes.len(),
                        then: Then::Receive(receipt),
                    }));
                }
            }
            Body::HeldBack => {
                if let Some(state) = self.conns.get_mut(conn) {
                    state.held_back = None;
                    if len > 0 {
                        state.incoming = Incoming::Place(Box::new(Placing {
                            place: Place::App(matched.buf),
                            done: 0,
                            then: Then::Receive(receipt),
                        }));
                    } else {
                        self.received(conn, ep, &receipt, &matched.buf, Ok(()));
                    }
                    self.resume(conn);
                }
            }
            Body::Announced(name) => {
                self.announcement_taken(conn);
                self.ask_for(conn, name, matched.buf, Some(receipt), len);
            }
        }
    }

    /// Goes on with a connection that was held back.
    fn resume(&mut self, key: ConnKey) {
        let Some(conn) = self.conns.get_mut(key) else {
            return;
        };
        let backlog = std::mem::take(&mut conn.backlog);
        self.take_in(key, &backlog);
        self.read_later(key);
    }

    /// Lets connections go on that were held back for want of room.
    pub(super) fn admit_held_back(&mut self) {
        self.release_throttle();
        while let Some(&key) = self.held_back.front() {
            let waits = self.conns.get(key).and_then(|conn| conn.held_back);
            let Some(kept) = waits else {
                self.held_back.pop_front();
                continue;
            };
            let len = self.conns[key].stream.payload_left();
            let cost = Core::keeping_cost(len, &Body::Arriving(Vec::new()));
            if !self.has_room_to_keep(key, cost) {
                return;
            }
            self.held_back.pop_front();
            self.keep_after_all(key, kept, len);
            self.unexpected_bytes += cost;
            self.resume(key);
        }
    }

    fn keep_after_all(&mut self, key: ConnKey, kept: Kept, len: usize) {
        let (Some(conn), Some(receiver)) = (
            self.conns.get_mut(key),
            self.receivers.get_mut(kept.receiver),
        ) else {
            return;
        };
        conn.held_back = None;
        let Some(message) = receiver.queue(kept.tagged).payload_mut(kept.id) else {
            return;
        };
        if len == 0 {
            message.body = Body::Complete(Vec::new());
            let ack = message.ack;
            if ack == Ack::Next {
                message.ack = Ack::None;
                self.acknowledge(key, ack);
            }
        } else {
            message.body = Body::Arriving(Vec::new());
            conn.incoming = Incoming::Keep(kept);
        }
    }

    /// `FI_PEEK` and `FI_CLAIM`: looks at what came before its receive.
    fn look(
        &mut self,
        key: ReceiverKey,
        ep: Option<EpKey>,
        directed: bool,
        receive: &Receive,
    ) -> Result {
        let (tagged, filter) = select(receive, directed);
        let context = Context::of(receive.context).0;
        let discard = receive.flags & FI_DISCARD != 0;
        if receive.flags & FI_PEEK == 0 {
            let receiver = self.receivers.get_mut(key).ok_or(Errno::EOPBADSTATE)?;
            let message = receiver.queue(tagged).claim(context).ok_or(Errno::ENOMSG)?;
            if discard {
                let seen = Seen::of(&message);
                self.drop_message(message);
                self.report_seen(key, ep, tagged, receive, Some(seen));
            } else {
                let matched = Matched {
                    context,
                    buf: receive.buffers,
                    flags: receive.flags,
                    multi: None,
                };
                self.deliver(key, tagged, matched, message);
            }
            self.admit_held_back();
            return Ok(());
        }
        let mut seen = None;
        for attempt in 0..2 {
            if attempt > 0 {
                self.progress();
            }
            let receiver = self.receivers.get_mut(key).ok_or(Errno::EOPBADSTATE)?;
            let queue = receiver.queue(tagged);
            if discard {
                if let Some(message) = queue.peek_discard(filter) {
                    seen = Some(Seen::of(&message));
                    self.drop_message(message);
                }
            } else if receive.flags & FI_CLAIM != 0 {
                seen = queue.peek_claim(filter, context).map(Seen::of);
            } else {
                seen = queue.peek(filter).map(Seen::of);
            }
            if seen.is_some() {
                break;
            }
        }
        self.report_seen(key, ep, tagged, receive, seen);
        self.admit_held_back();
        Ok(())
    }

    fn report_seen(
        &mut self,
        key: ReceiverKey,
        ep: Option<EpKey>,
        tagged: bool,
        receive: &Receive,
        seen: Option<Seen>,
    ) {
        let queues = match ep {
            Some(ep) => self.eps.get(ep).map(|ep| &ep.queues),
            None => self.receivers.get(key).map(|receiver| &receiver.queues),
        };
        let Some(cq) = queues.and_then(|queues| queues.rx_cq.as_ref()) else {
            return;
        };
        let flags = FI_RECV | if tagged { FI_TAGGED } else { FI_MSG };
        let mut completion = Completion::new(receive.context, flags);
        match seen {
            Some(seen) => {
                completion.flags |= seen.flags;
                completion.len = seen.len;
                completion.data = seen.data;
                completion.tag = seen.tag;
                completion.src = match ep.and_then(|ep| self.eps.get(ep)) {
                    Some(ep) => ep.queues.source(seen.src),
                    None => seen.src,
                };
                if receive.flags & FI_COMPLETION != 0 {
                    cq.write(&completion);
                }
            }
            None => {
                completion.tag = match receive.select {
                    Select::Tagged { tag, .. } => tag,
                    Select::Untagged => 0,
                };
                cq.write_error(ErrorCompletion::new(completion, Errno::ENOMSG));
            }
        }
    }

    /// Drops a message that nobody will receive.
    pub(super) fn drop_message(&mut self, message: Message<Unexpected>) {
        let Unexpected {
            conn, ack, body, ..
        } = message.payload;
        self.unexpected_bytes -= Core::keeping_cost(message.len, &body);
        match body {
            Body::Complete(_) => {}
            Body::Arriving(_) => {
                if let Some(conn) = self.conns.get_mut(conn) {
                    conn.incoming = Incoming::Discard;
                }
            }
            Body::HeldBack => {
                if let Some(state) = self.conns.get_mut(conn) {
                    state.held_back = None;
                    if message.len > 0 {
                        state.incoming = Incoming::Discard;
                    }
                    self.resume(conn);
                }
            }
            Body::Announced(name) => {
                self.announcement_taken(conn);
                self.ask_for(conn, name, AppIov::EMPTY, None, message.len);
                if matches!(name, Rendezvous::Wide(_)) {
                    // Saying that it is not wanted is answer enough.
                    return;
                }
            }
        }
        self.acknowledge(conn, ack);
    }

    /// `fi_cancel`
    pub fn cancel(&mut self, key: ReceiverKey, ep: Option<EpKey>, context: Context) -> Result {
        let receiver = self.receivers.get_mut(key).ok_or(Errno::EOPBADSTATE)?;
        let (cancelled, tagged) = match receiver.matching.msg.cancel(context.0) {
            Some(cancelled) => (cancelled, false),
            None => match receiver.matching.tagged.cancel(context.0) {
                Some(cancelled) => (cancelled, true),
                None => return Err(Errno::ENOENT),
            },
        };
        if cancelled.buf.is_some() {
            self.report_cancelled(key, ep, tagged, &cancelled, Errno::ECANCELED);
        }
        Ok(())
    }

    pub(super) fn report_cancelled(
        &self,
        key: ReceiverKey,
        ep: Option<EpKey>,
        tagged: bool,
        cancelled: &prov_util::matching::Cancelled<AppIov>,
        error: Errno,
    ) {
        let queues = match ep {
            Some(ep) => self.eps.get(ep).map(|ep| &ep.queues),
            None => self.shared_queues(key),
        };
        let Some(queues) = queues else {
            return;
        };
        if let Some(counter) = &queues.recv {
            counter.count_error();
        }
        if let Some(cq) = &queues.rx_cq {
            let kind = if tagged { FI_TAGGED } else { FI_MSG };
            let flags = FI_RECV | kind | (cancelled.flags & FI_MULTI_RECV);
            let completion = Completion {
                tag: cancelled.tag,
                ..Completion::new(Context(cancelled.context).pointer(), flags)
            };
            cq.write_error(ErrorCompletion::new(completion, error));
        }
    }

    /// Where a shared receive context reports what belongs to no endpoint: to
    /// queues of its own, or else, as fi_endpoint(3) has none for it, to those
    /// of an endpoint that receives through it.
    fn shared_queues(&self, key: ReceiverKey) -> Option<&Queues> {
        let own = self.receivers.get(key).map(|receiver| &receiver.queues);
        own.filter(|queues| queues.rx_cq.is_some() || queues.recv.is_some())
            .or_else(|| {
                let mut eps = self.eps.values();
                eps.find(|ep| ep.receiver == key).map(|ep| &ep.queues)
            })
    }

    /// Takes in what changed in an endpoint's address vector.
    pub(super) fn follow_av(&mut self, ep: EpKey) {
        let Some(rdm) = self.rdm(ep) else {
            return;
        };
        rdm.follow_av();
        for (conn, src) in std::mem::take(&mut rdm.changed) {
            self.relabel(conn, src);
        }
    }

    /// Gives messages on a connection another source: the address vector
    /// learnt or forgot the peer.
    fn relabel(&mut self, key: ConnKey, src: u64) {
        let Some(conn) = self.conns.get_mut(key) else {
            return;
        };
        conn.src = src;
        let Some((_, receiver_key)) = self.receiver_of(key) else {
            return;
        };
        for tagged in [false, true] {
            let Some(receiver) = self.receivers.get_mut(receiver_key) else {
                return;
            };
            let pairs = receiver
                .queue(tagged)
                .relabel(|message| (message.payload.conn == key).then_some(src));
            for (matched, message) in pairs {
                self.deliver(receiver_key, tagged, matched, message);
            }
        }
    }
}

/// What a look at a message shows.
struct Seen {
    src: u64,
    tag: u64,
    len: usize,
    data: u64,
    flags: u64,
}

impl Seen {
    fn of(message: &Message<Unexpected>) -> Self {
        Seen {
            src: message.src,
            tag: message.tag,
            len: message.len,
            data: message.data,
            flags: message.flags,
        }
    }
}

/// A receive as the queue takes it.
#[inline]
pub(super) fn posted(receive: &Receive, filter: Filter) -> Posted<AppIov> {
    Posted {
        context: Context::of(receive.context).0,
        buf: receive.buffers,
        src: filter.src,
        tag: filter.tag,
        ignore: filter.ignore,
        flags: receive.flags,
    }
}

#[inline(always)]
fn select(receive: &Receive, directed: bool) -> (bool, Filter) {
    let src = if directed { receive.peer } else { ANY_SOURCE };
    match receive.select {
        Select::Untagged => (false, Filter { src, ..Filter::ANY }),
        Select::Tagged { tag, ignore } => (true, Filter { src, tag, ignore }),
    }
}
