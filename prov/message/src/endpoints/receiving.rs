//! Receives that the application posts (fi_msg(3), fi_tagged(3)), and what they
//! do to messages that came before them.

use fabric_abi::{FI_CLAIM, FI_COMPLETION, FI_DISCARD, FI_MULTI_RECV, FI_PEEK, FI_PEER_TRANSFER};
use prov_util::buffer::AppIov;
use prov_util::errno::{Errno, Result};
use prov_util::matching::{ANY_SOURCE, Cancelled, Filter, Matched, Receive as Posted};
use prov_util::request::{Receive, Select};

use crate::endpoints::Endpoints;
use crate::endpoints::inbox::{Transport, Unexpected, origin};
use crate::operation::Context;
use crate::operation::EpKey;
use crate::receipt::InboxKey;
use crate::reports::{Reports, Seen};

/// What a posted receive has come to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Posting {
    /// It waits, or has taken messages that had come: see to the actions.
    Done,
    /// Nothing was found by a look at messages that wait (`FI_PEEK`).
    NotFound,
}

/// Who posts a receive.
#[derive(Clone, Copy, Debug)]
pub struct Poster {
    /// Where to.
    pub inbox: InboxKey,
    /// The endpoint; none for a shared context.
    pub ep: Option<EpKey>,
    /// Whether the receive names the peer it is for.
    pub directed: bool,
}

impl<T: Transport> Endpoints<T> {
    /// An endpoint as the poster of receives.
    #[inline(always)]
    pub fn poster(&self, ep: EpKey) -> Result<Poster> {
        let state = self.eps.get(ep).ok_or(Errno::EOPBADSTATE)?;
        Ok(Poster {
            inbox: state.inbox,
            ep: Some(ep),
            directed: state.directed,
        })
    }

    /// Posts a receive that just waits, if that takes a few instructions; `false`,
    /// and nothing has happened, for all else, which is for [`Endpoints::post`]. The
    /// receive stays in registers: nobody is told where it is.
    #[inline(always)]
    pub fn post_at_once(&mut self, poster: Poster, receive: &Receive) -> bool {
        let Some(inbox) = self.inboxes.get_mut(poster.inbox) else {
            return false;
        };
        let (tagged, filter) = select(receive, poster.directed);
        let size = inbox.size;
        let queue = inbox.queue(tagged);
        let context = Context::of(receive.context).0;
        receive.flags & (FI_PEEK | FI_CLAIM | FI_MULTI_RECV | FI_PEER_TRANSFER) == 0
            && queue.post_at_once(context, receive.flags, filter, &receive.buffers, size)
    }

    /// Posts a receive, or looks at messages that wait for one.
    ///
    /// # Errors
    /// `-FI_EAGAIN` where there is no room for it, `-FI_ENOMSG` for a claim of a tagged
    /// message that was not set aside, `-FI_ENOSYS` where another provider has the
    /// receives. One that no message will come for is taken, and ends at once
    /// with an error entry, as those posted before the end do: its application
    /// may not know of the end yet.
    #[inline(never)]
    pub fn post(&mut self, poster: Poster, receive: &Receive) -> Result<Posting> {
        let inbox = self.inboxes.get(poster.inbox);
        if inbox.is_some_and(|inbox| inbox.foreign.is_some()) {
            return Err(Errno::ENOSYS);
        }
        let posting = if receive.flags & FI_PEEK != 0 {
            self.peek(poster, receive)
        } else if receive.flags & FI_CLAIM != 0 {
            match (self.claim(poster, receive), receive.select) {
                // The flag means something for tagged messages, and for those that an
                // endpoint buffers: what is not one of them is an ordinary receive.
                (Err(Errno::ENOMSG), Select::Untagged) => {
                    let flags = receive.flags & !(FI_CLAIM | FI_DISCARD);
                    self.post_to_queue(poster, &Receive { flags, ..*receive })
                }
                (claimed, _) => claimed,
            }
        } else {
            self.post_to_queue(poster, receive)
        };
        self.admit_held_back();
        posting
    }

    fn post_to_queue(&mut self, poster: Poster, receive: &Receive) -> Result<Posting> {
        let key = poster.inbox;
        let inbox = self.inboxes.get_mut(key).ok_or(Errno::EOPBADSTATE)?;
        // A peer hears of all its transfers, and where they come from is told by their tags and sources alone.
        let is_transfer = receive.flags & FI_PEER_TRANSFER != 0;
        let flags = match is_transfer {
            true => receive.flags & !FI_COMPLETION,
            false => receive.flags,
        };
        let (tagged, filter) = select(receive, poster.directed || is_transfer);
        let (size, ended) = (inbox.size, inbox.ended);
        let queue = inbox.queue(tagged);
        if queue.posted_len() >= size && ended.is_none() {
            return Err(Errno::EAGAIN);
        }
        let mut taken = queue.post(Posted {
            context: Context::of(receive.context).0,
            buf: receive.buffers,
            src: filter.src,
            tag: filter.tag,
            ignore: filter.ignore,
            flags,
        });
        // A buffer for many messages takes all that fit.
        while let Some((matched, message)) = taken {
            let multi = matched.multi;
            self.deliver(key, matched, message);
            taken = multi.and_then(|multi| self.inboxes.get_mut(key)?.queue(tagged).refill(multi));
        }
        if let (Some(cause), Some(ep)) = (ended, poster.ep) {
            // And gets no more.
            self.cancel_receives(ep, cause);
        }
        Ok(Posting::Done)
    }

    /// `FI_CLAIM` without `FI_PEEK`: receives or drops what was set aside.
    fn claim(&mut self, poster: Poster, receive: &Receive) -> Result<Posting> {
        let (tagged, _) = select(receive, poster.directed);
        let context = Context::of(receive.context).0;
        let inbox = self.inboxes.get_mut(poster.inbox);
        let queue = inbox.ok_or(Errno::EOPBADSTATE)?.queue(tagged);
        let message = queue.claim(context).ok_or(Errno::ENOMSG)?;
        if receive.flags & FI_DISCARD != 0 {
            let seen = Seen::of(&message);
            self.drop_message(message);
            self.report_look(poster, receive, Some(&seen));
        } else {
            let matched = Matched {
                context,
                buf: receive.buffers,
                // Completions say so of messages that were buffered alone.
                flags: receive.flags & !FI_CLAIM,
                multi: None,
            };
            self.deliver(poster.inbox, matched, message);
        }
        Ok(Posting::Done)
    }

    fn peek(&mut self, poster: Poster, receive: &Receive) -> Result<Posting> {
        let (tagged, filter) = select(receive, poster.directed);
        let inbox = self.inboxes.get_mut(poster.inbox);
        let queue = inbox.ok_or(Errno::EOPBADSTATE)?.queue(tagged);
        let seen = if receive.flags & FI_DISCARD != 0 {
            let message = queue.peek_discard(filter);
            let seen = message.as_ref().map(Seen::of);
            if let Some(message) = message {
                self.drop_message(message);
            }
            seen
        } else if receive.flags & FI_CLAIM != 0 {
            let context = Context::of(receive.context).0;
            queue.peek_claim(filter, context).map(Seen::of)
        } else {
            queue.peek(filter).map(Seen::of)
        };
        let Some(seen) = seen else {
            return Ok(Posting::NotFound);
        };
        self.report_look(poster, receive, Some(&seen));
        Ok(Posting::Done)
    }

    /// Tells the application that a look has found nothing.
    pub fn report_nothing_found(&self, poster: Poster, receive: &Receive) {
        self.report_look(poster, receive, None);
    }

    fn report_look(&self, poster: Poster, receive: &Receive, seen: Option<&Seen>) {
        let reports = match poster.ep {
            Some(ep) => self.eps.get(ep).map(|ep| &ep.reports),
            None => self.inboxes.get(poster.inbox).map(|inbox| &inbox.reports),
        };
        if let Some(reports) = reports {
            reports.look(receive, seen);
        }
    }

    /// `fi_cancel`: `-FI_ENOENT` where no such receive waits.
    pub fn cancel(&mut self, poster: Poster, context: Context) -> Result {
        let inbox = self.inboxes.get_mut(poster.inbox);
        let inbox = inbox.ok_or(Errno::EOPBADSTATE)?;
        for tagged in [false, true] {
            if let Some(cancelled) = inbox.queue(tagged).cancel(context.0) {
                self.report_cancelled(
                    poster.inbox,
                    poster.ep,
                    tagged,
                    &cancelled,
                    Errno::ECANCELED,
                );
                return Ok(());
            }
        }
        Err(Errno::ENOENT)
    }

    /// Ends an endpoint's receives for this cause, unless others share them.
    pub fn cancel_receives(&mut self, ep: EpKey, cause: Errno) {
        let Some(key) = self.eps.get(ep).map(|ep| ep.inbox) else {
            return;
        };
        for tagged in [false, true] {
            let Some(inbox) = self.inboxes.get_mut(key).filter(|inbox| !inbox.shared) else {
                return;
            };
            for cancelled in inbox.queue(tagged).cancel_all() {
                self.report_cancelled(key, Some(ep), tagged, &cancelled, cause);
            }
        }
    }

    /// Ends an endpoint's receives that only messages from `src` could have
    /// filled, for this cause.
    pub fn cancel_receives_from(&mut self, ep: EpKey, src: u64, cause: Errno) {
        let Some(key) = self.eps.get(ep).map(|ep| ep.inbox) else {
            return;
        };
        if src == ANY_SOURCE {
            return;
        }
        for tagged in [false, true] {
            let Some(inbox) = self.inboxes.get_mut(key) else {
                return;
            };
            for cancelled in inbox.queue(tagged).cancel_from(src) {
                self.report_cancelled(key, Some(ep), tagged, &cancelled, cause);
            }
        }
    }

    /// The only link that could bring messages for an endpoint's own inbox has
    /// ended, for this cause: its receives end, and no more are taken but for what
    /// has come.
    pub fn end_receives(&mut self, ep: EpKey, cause: Errno) {
        if let Some(state) = self.eps.get(ep)
            && let Some(inbox) = self.inboxes.get_mut(state.inbox)
            && !inbox.shared
        {
            inbox.size = 0;
            inbox.ended = Some(cause);
            self.cancel_receives(ep, cause);
        }
    }

    fn report_cancelled(
        &self,
        inbox: InboxKey,
        ep: Option<EpKey>,
        tagged: bool,
        cancelled: &Cancelled<AppIov>,
        cause: Errno,
    ) {
        let reports = match ep {
            Some(ep) => self.eps.get(ep).map(|ep| &ep.reports),
            None => self.shared_reports(inbox),
        };
        // A buffer for many messages is reported with the last of those that
        // are still arriving.
        if cancelled.buf.is_some()
            && let Some(reports) = reports
        {
            reports.cancelled_receive(tagged, cancelled, cause);
        }
    }

    /// Where a shared receive context reports what belongs to no endpoint: to
    /// queues of its own, or else, as fi_endpoint(3) has none for it, to those
    /// of an endpoint that receives through it.
    fn shared_reports(&self, key: InboxKey) -> Option<&Reports> {
        let own = self.inboxes.get(key).map(|inbox| &inbox.reports);
        own.filter(|own| own.rx_cq.is_some() || own.counters.recv.is_some())
            .or_else(|| {
                let mut eps = self.eps.values();
                eps.find(|ep| ep.inbox == key).map(|ep| &ep.reports)
            })
    }

    /// Gives the messages of a link another source: the address vector learnt or
    /// forgot the peer.
    pub fn relabel(&mut self, ep: EpKey, link: T::Link, src: u64) {
        let Some(key) = self.eps.get(ep).map(|ep| ep.inbox) else {
            return;
        };
        for tagged in [false, true] {
            let Some(inbox) = self.inboxes.get_mut(key) else {
                return;
            };
            if let Some(foreign) = &mut inbox.foreign {
                foreign.relabel(link, src);
                break;
            }
            let pairs = inbox.queue(tagged).relabel_of(origin(link), src);
            for (matched, message) in pairs {
                self.deliver(key, matched, message);
            }
        }
        self.link_known(ep, link, src);
        self.admit_held_back();
    }

    /// A link of an endpoint has ended: its messages that are not complete are
    /// dropped. Receives that have got one, of which the provider does not know
    /// yet, end with `error`.
    pub fn link_ended(&mut self, ep: EpKey, link: T::Link, error: Errno) {
        self.end_actions(link, error);
        if let Some(key) = self.eps.get(ep).map(|ep| ep.inbox) {
            for tagged in [false, true] {
                let Some(inbox) = self.inboxes.get_mut(key) else {
                    break;
                };
                let queue = inbox.queue(tagged);
                let gone = queue.withdraw_of(origin(link), |m| !m.payload.is_complete());
                for message in gone {
                    self.refund(&message);
                }
            }
            self.leave(ep, key, link);
            self.lose_messages(key, link, error);
        }
        self.kept.forget(link);
        self.admit_held_back();
    }

    /// Nothing is to be done any more for a link.
    fn end_actions(&mut self, link: T::Link, error: Errno) {
        for action in self.actions.take_of(link) {
            if let Some((receipt, memory)) = action.receive() {
                self.received(&receipt, &memory, Err(error));
            }
        }
    }

    /// Closes an endpoint, whose links have ended, and returns the provider's
    /// part.
    pub fn close(&mut self, ep: EpKey) -> Option<T::Endpoint> {
        let state = self.eps.remove(ep)?;
        let shared = self
            .inboxes
            .get(state.inbox)
            .is_some_and(|inbox| inbox.shared);
        if !shared {
            self.close_inbox(state.inbox);
        } else {
            for left in state.left {
                self.drop_left(left);
            }
            if T::LINKS_OUTLIVE_ENDPOINTS {
                self.drop_messages(state.inbox, |unexpected| unexpected.ep == ep);
            }
            self.admit_held_back();
        }
        Some(state.own)
    }

    /// Closes an inbox with all that waits in it.
    pub fn close_inbox(&mut self, key: InboxKey) {
        self.drop_messages(key, |_| true);
        self.withdraw(key);
        self.inboxes.remove(key);
        self.admit_held_back();
    }

    /// Drops messages without a word to their senders.
    fn drop_messages(&mut self, key: InboxKey, is_gone: impl Fn(&Unexpected<T>) -> bool) {
        for tagged in [false, true] {
            let Some(inbox) = self.inboxes.get_mut(key) else {
                return;
            };
            let gone = inbox
                .queue(tagged)
                .withdraw_if(|message| is_gone(&message.payload));
            for message in gone {
                self.refund(&message);
            }
        }
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
