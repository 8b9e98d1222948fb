//! Receives that the application posts (fi_msg(3), fi_tagged(3)), and their effect on messages that
//! have already arrived.

use std::collections::HashSet;

use fabric_abi::{FI_CLAIM, FI_COMPLETION, FI_DISCARD, FI_MULTI_RECV, FI_PEEK, FI_PEER_TRANSFER};
use prov_base::buffer::AppIov;
use prov_base::errno::{Errno, Result};
use prov_util::matching::{ANY_SOURCE, Cancelled, Filter, Matched, Receive as Posted};
use prov_util::request::{Receive, Select};

use crate::endpoints::Endpoints;
use crate::endpoints::inbox::Inbox;
use crate::endpoints::transport::{Transport, origin};
use crate::endpoints::unexpected::Unexpected;
use crate::operation::Context;
use crate::operation::EpKey;
use crate::receipt::{Dependent, InboxKey};
use crate::reports::{Reports, Seen};

/// The result of posting a receive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Posting {
    /// It was posted, or has matched messages that had arrived; actions may be queued.
    Done,
    /// A peek (`FI_PEEK`) found no message.
    NotFound,
}

/// Who posts a receive, and where.
#[derive(Clone, Copy, Debug)]
pub struct Poster {
    /// The inbox.
    pub inbox: InboxKey,
    /// The endpoint; `None` for a shared context.
    pub ep: Option<EpKey>,
    /// Whether receives are matched by source.
    pub directed: bool,
}

impl<T: Transport> Endpoints<T> {
    /// Describes an endpoint as the poster of receives.
    #[inline(always)]
    pub fn poster(&self, ep: EpKey) -> Result<Poster> {
        let state = self.eps.get(ep).ok_or(Errno::EOPBADSTATE)?;
        Ok(Poster {
            inbox: state.inbox,
            ep: Some(ep),
            directed: state.directed,
        })
    }

    /// The fast path for a receive that is appended to the queue in a few instructions, for messages
    /// from `src`. Returns `false`, without any effect, for all others, which [`Endpoints::post`]
    /// handles. The receive stays in registers, since no reference to it is passed on.
    #[inline(always)]
    pub fn post_fast(&mut self, inbox: InboxKey, receive: &mut Receive, src: u64) -> bool {
        let Some(inbox) = self.inboxes.get_mut(inbox) else {
            return false;
        };
        let (tagged, filter) = select_from(receive, src);
        let size = inbox.fast_size();
        let queue = inbox.queue(tagged);
        let context = Context::of(receive.context).0;
        receive.flags & (FI_PEEK | FI_CLAIM | FI_MULTI_RECV | FI_PEER_TRANSFER) == 0
            && queue.post_fast(context, receive.flags, filter, &mut receive.buffers, size)
    }

    /// Posts a receive, or peeks at the unexpected messages.
    ///
    /// # Errors `-FI_EAGAIN` if the queue is full, `-FI_ENOMSG` for a claim of a tagged message
    /// that was not set aside, `-FI_ENOSYS` if another provider has the receives. After the only
    /// link has ended, a receive is accepted and completes with an error entry, like those posted
    /// before the end: the application may not know of the end yet.
    #[inline(never)]
    pub fn post(&mut self, poster: Poster, receive: &mut Receive) -> Result<Posting> {
        let inbox = self.inboxes.get_mut(poster.inbox);
        if inbox.is_some_and(|inbox| inbox.imported().is_some()) {
            return Err(Errno::ENOSYS);
        }
        let posting = if receive.flags & (FI_PEEK | FI_CLAIM) != 0 {
            match (self.look(poster, receive), receive.select) {
                // `FI_CLAIM` applies to tagged messages and to those that an endpoint buffers.
                // Otherwise the receive is an ordinary one.
                (Err(Errno::ENOMSG), Select::Untagged) => {
                    receive.flags &= !(FI_CLAIM | FI_DISCARD);
                    self.post_to_queue(poster, receive)
                }
                (claimed, _) => claimed,
            }
        } else {
            self.post_to_queue(poster, receive)
        };
        self.admit_held_back();
        self.admit_awaited(poster.inbox);
        posting
    }

    /// Peeks at the unexpected messages (`FI_PEEK`), or receives the one that was set aside
    /// (`FI_CLAIM`): `-FI_ENOMSG` if there is none.
    pub fn look(&mut self, poster: Poster, receive: &mut Receive) -> Result<Posting> {
        match receive.flags & FI_PEEK {
            0 => self.claim(poster, receive),
            _ => self.peek(poster, receive),
        }
    }

    fn post_to_queue(&mut self, poster: Poster, receive: &mut Receive) -> Result<Posting> {
        let key = poster.inbox;
        let inbox = self.inboxes.get_mut(key).ok_or(Errno::EOPBADSTATE)?;
        // A peer provider is informed of all its transfers through its own callback, and their
        // matching always uses the source.
        let is_transfer = receive.flags & FI_PEER_TRANSFER != 0;
        let flags = match is_transfer {
            true => receive.flags & !FI_COMPLETION,
            false => receive.flags,
        };
        let (tagged, filter) = select(receive, poster.directed || is_transfer);
        let (size, ended) = (inbox.size, inbox.ended);
        inbox.looked(true);
        let queue = inbox.queue(tagged);
        if queue.posted_len() >= size && ended.is_none() {
            return Err(Errno::EAGAIN);
        }
        let mut taken = queue.post(Posted {
            context: Context::of(receive.context).0,
            buf: receive.buffers.take(),
            src: filter.src,
            tag: filter.tag,
            ignore: filter.ignore,
            flags,
        });
        // A multi-receive buffer takes all messages that fit.
        while let Some((matched, message)) = taken {
            let multi = matched.multi;
            self.deliver(key, matched, message);
            taken = multi.and_then(|multi| self.inboxes.get_mut(key)?.queue(tagged).refill(multi));
        }
        if let (Some(cause), Some(ep)) = (ended, poster.ep) {
            // The link has ended, so the receive cannot get further messages.
            self.cancel_receives(ep, cause);
        }
        Ok(Posting::Done)
    }

    /// `FI_CLAIM` without `FI_PEEK`: receives or drops the message that was set aside.
    fn claim(&mut self, poster: Poster, receive: &mut Receive) -> Result<Posting> {
        let (tagged, _) = select(receive, poster.directed);
        let name = self.name_for_claim(poster, receive);
        let inbox = self.inboxes.get_mut(poster.inbox);
        let queue = inbox.ok_or(Errno::EOPBADSTATE)?.queue(tagged);
        let message = queue.claim(name).ok_or(Errno::ENOMSG)?;
        if receive.flags & FI_DISCARD != 0 {
            let seen = Seen::of(&message);
            self.drop_message(message);
            self.report_look(poster, receive, Some(&seen));
        } else {
            let matched = Matched {
                context: Context::of(receive.context).0,
                buf: receive.buffers.take(),
                // Completions have this flag only for messages that an endpoint buffers
                // (`FI_BUFFERED_RECV`).
                flags: receive.flags & !FI_CLAIM,
                multi: None,
            };
            self.deliver(poster.inbox, matched, message);
        }
        Ok(Posting::Done)
    }

    /// The context that names the message which a receive sets aside or claims: that of the
    /// application, which deferred work is not posted with.
    fn name_for_claim(&self, poster: Poster, receive: &Receive) -> usize {
        let transfers = match receive.flags & FI_PEER_TRANSFER {
            0 => None,
            _ => self.reports_of(poster).and_then(|to| to.transfers.as_ref()),
        };
        let name = transfers.and_then(|transfers| transfers.name_of(receive.context));
        Context::of(name.unwrap_or(receive.context)).0
    }

    fn peek(&mut self, poster: Poster, receive: &Receive) -> Result<Posting> {
        let (tagged, filter) = select(receive, poster.directed);
        let name = self.name_for_claim(poster, receive);
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
            queue.peek_claim(filter, name).map(Seen::of)
        } else {
            queue.peek(filter).map(Seen::of)
        };
        if let Some(inbox) = self.inboxes.get_mut(poster.inbox) {
            inbox.looked(seen.is_some());
        }
        let Some(seen) = seen else {
            return Ok(Posting::NotFound);
        };
        self.report_look(poster, receive, Some(&seen));
        Ok(Posting::Done)
    }

    /// Reports a peek that found nothing.
    pub fn report_nothing_found(&self, poster: Poster, receive: &Receive) {
        self.report_look(poster, receive, None);
    }

    fn report_look(&self, poster: Poster, receive: &Receive, seen: Option<&Seen>) {
        if let Some(reports) = self.reports_of(poster) {
            reports.look(receive, seen);
        }
    }

    fn reports_of(&self, poster: Poster) -> Option<&Reports> {
        match poster.ep {
            Some(ep) => self.eps.get(ep).map(|ep| &ep.reports),
            None => self.shared_reports(poster.inbox),
        }
    }

    /// Implements fi_cancel(3): `-FI_ENOENT` if no such receive is posted.
    pub fn cancel(&mut self, poster: Poster, context: Context) -> Result {
        if !self.inboxes.contains_key(poster.inbox) {
            return Err(Errno::EOPBADSTATE);
        }
        let ep = poster.ep.and_then(|ep| self.eps.get(ep));
        let behind = ep.map_or(Vec::new(), |ep| ep.behind.clone());
        for key in [poster.inbox].into_iter().chain(behind) {
            for tagged in [false, true] {
                let queue = self.inboxes.get_mut(key).map(|inbox| inbox.queue(tagged));
                if let Some(cancelled) = queue.and_then(|queue| queue.cancel(context.0)) {
                    self.report_cancelled(key, poster.ep, tagged, &cancelled, Errno::ECANCELED);
                    return Ok(());
                }
            }
        }
        Err(Errno::ENOENT)
    }

    /// Ends the posted receives of an endpoint with this error, unless its inbox is shared.
    pub fn cancel_receives(&mut self, ep: EpKey, cause: Errno) {
        let Some(state) = self.eps.get(ep) else {
            return;
        };
        let inboxes = state.behind.iter().chain([&state.inbox]);
        for key in inboxes.copied().collect::<Vec<_>>() {
            for tagged in [false, true] {
                let Some(inbox) = self.inboxes.get_mut(key).filter(|inbox| !inbox.shared) else {
                    continue;
                };
                for cancelled in inbox.queue(tagged).cancel_all() {
                    self.report_cancelled(key, Some(ep), tagged, &cancelled, cause);
                }
            }
        }
    }

    /// Ends the posted receives of an endpoint that only messages from `src` can match, with this
    /// error, unless its inbox is shared: the peer may reach another endpoint.
    pub fn cancel_receives_from(&mut self, ep: EpKey, src: u64, which: Dependent, cause: Errno) {
        let flags = match which {
            Dependent::All => 0,
            Dependent::Transfers => FI_PEER_TRANSFER,
        };
        let Some(key) = self.eps.get(ep).map(|ep| ep.inbox) else {
            return;
        };
        if src == ANY_SOURCE {
            return;
        }
        if let Some(imported) = self.inboxes.get_mut(key).and_then(Inbox::imported) {
            return imported.ended(src, which, cause);
        }
        for tagged in [false, true] {
            let Some(inbox) = self.inboxes.get_mut(key).filter(|inbox| !inbox.shared) else {
                return;
            };
            for cancelled in inbox.queue(tagged).cancel_from(src, flags) {
                self.report_cancelled(key, Some(ep), tagged, &cancelled, cause);
            }
        }
    }

    /// Returns the sources that posted receives of an endpoint name as their only one.
    pub fn awaited_sources(&mut self, ep: EpKey) -> HashSet<u64> {
        let mut sources = HashSet::new();
        let inbox = self.eps.get(ep).map(|ep| ep.inbox);
        if let Some(inbox) = inbox.and_then(|inbox| self.inboxes.get_mut(inbox)) {
            for tagged in [false, true] {
                inbox.queue(tagged).add_named_sources(&mut sources);
            }
        }
        sources
    }

    /// Handles that the only link of an endpoint with its own inbox has ended with this error: its
    /// posted receives end, and later ones match only messages that have already arrived.
    pub fn end_receives(&mut self, ep: EpKey, cause: Errno) {
        if let Some(state) = self.eps.get(ep)
            && let Some(inbox) = self.inboxes.get_mut(state.inbox)
            && !inbox.shared
        {
            inbox.ends(Some(cause));
        }
        self.cancel_receives(ep, cause);
    }

    /// Reports a receive of a shared context that was accepted and cannot be posted, to the queue
    /// and, if it `counts`, to the counter.
    pub fn refuse(&self, poster: Poster, receive: &Receive, error: Errno, counts: bool) {
        if let Some(reports) = self.shared_reports(poster.inbox) {
            reports.refused_receive(receive, error, counts);
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
        // A multi-receive buffer is reported with the last message that is still arriving in it.
        if cancelled.buf.is_some()
            && let Some(reports) = reports
        {
            reports.cancelled_receive(tagged, cancelled, cause);
        }
    }

    /// The queues to which a shared receive context reports what belongs to no endpoint: its own,
    /// or, if none is bound (fi_endpoint(3) does not require it), those of an endpoint that uses
    /// the context.
    fn shared_reports(&self, key: InboxKey) -> Option<&Reports> {
        let inbox = self.inboxes.get(key);
        let own = inbox.map(|inbox| &inbox.reports);
        own.filter(|own| own.rx_cq.is_some() || own.counters.recv.is_some())
            .or_else(|| {
                let mut eps = self.eps.values();
                eps.find(|ep| ep.inbox == key).map(|ep| &ep.reports)
            })
            .or_else(|| inbox?.lent.as_ref())
    }

    /// Gives the messages of a link another source, after the address vector learnt or forgot the
    /// peer.
    pub fn relabel(&mut self, ep: EpKey, link: T::Link, src: u64) {
        let Some(key) = self.eps.get(ep).map(|ep| ep.inbox) else {
            return;
        };
        for tagged in [false, true] {
            let Some(inbox) = self.inboxes.get_mut(key) else {
                return;
            };
            if let Some(imported) = inbox.imported() {
                imported.relabel(link, src);
                break;
            }
            let pairs = inbox.queue(tagged).relabel_of(origin(link), src);
            for (matched, message) in pairs {
                self.deliver(key, matched, message);
            }
        }
        self.seek(key);
        self.link_known(ep, link, src);
        self.admit_held_back();
    }

    /// Handles the end of a link: its incomplete messages are dropped. Receives that have matched
    /// one of them, of which the provider does not know yet, end with `error`.
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
        self.stop_holding_back(link);
        self.kept.forget(link);
        self.admit_held_back();
    }

    /// Cancels the queued actions of a link.
    fn end_actions(&mut self, link: T::Link, error: Errno) {
        for action in self.actions.take_of(link) {
            if let Some((receipt, memory)) = action.receive() {
                self.received(&receipt, memory, Err(error));
            }
        }
    }

    /// Closes an endpoint whose links have ended, and returns the provider's data.
    pub fn close(&mut self, ep: EpKey) -> Option<T::Endpoint> {
        self.end_behind(ep);
        let state = self.eps.remove(ep)?;
        for key in state.behind {
            self.inboxes.remove(key);
        }
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

    /// Closes an inbox with everything that waits in it.
    pub fn close_inbox(&mut self, key: InboxKey) {
        self.drop_messages(key, |_| true);
        self.withdraw(key);
        self.inboxes.remove(key);
        self.admit_held_back();
    }

    /// Drops messages without informing their senders.
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
    select_from(receive, src)
}

#[inline(always)]
fn select_from(receive: &Receive, src: u64) -> (bool, Filter) {
    match receive.select {
        Select::Untagged => (false, Filter { src, ..Filter::ANY }),
        Select::Tagged { tag, ignore } => (true, Filter { src, tag, ignore }),
    }
}
