//! Receives of a shared context that is in another lane (fi_srx_context(3)): the endpoint was
//! enabled before it was bound to the context. It stays in its lane, where its messages arrive and
//! wait, and asks the context for a receive for each of them.
//!
//! The lock of the context's lane is entered within the lock of the endpoint's lane, and not the
//! other way round: who posts a receive leaves the lane of the context before it enters those of
//! endpoints whose messages wait ([`Endpoints::seek`]).

use prov_base::bounded;
use prov_base::bounds::OBJECTS;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use prov_base::buffer::AppIov;
use prov_base::errno::{Errno, Result};
use prov_util::matching::{Matched, Message};

use crate::endpoints::Endpoints;
use crate::endpoints::inbox::cross_lane_srx::{Answer, CrossLaneReceives, Receives, Sought};
use crate::endpoints::inbox::{Inbox, OtherSrx};
use crate::endpoints::transport::Transport;
use crate::endpoints::unexpected::Unexpected;
use crate::operation::EpKey;
use crate::receipt::InboxKey;
use crate::reports::Reports;

impl<T: Transport> Inbox<T> {
    /// Offers the messages that wait to the context in the other lane. Returns the receives that it has
    /// for them, with the messages, in their order.
    fn offer(&mut self, tagged: bool) -> Vec<Taken<T>> {
        let Some(ask) = self.cross_lane().map(|cross_lane| cross_lane.asker()) else {
            return Vec::new();
        };
        self.queue(tagged).offer(|message| {
            ask(&Sought {
                tagged,
                src: message.src,
                tag: message.tag,
                len: message.len,
            })
        })
    }
}

/// A receive, and the message that has taken it.
type Taken<T> = (Matched<AppIov>, Message<Unexpected<T>>);

impl<T: Transport> Endpoints<T> {
    /// Makes an endpoint use a shared context in another lane: the messages that wait are received
    /// there, in their order. Receives that were posted to the endpoint itself stay, without
    /// getting messages, until they are cancelled or end with the endpoint or its link. `waits` is
    /// set while a message may wait for a receive; what belongs to no endpoint is reported to
    /// `reports`.
    ///
    /// # Errors
    /// `-FI_EOPBADSTATE` for an endpoint that is closed, or whose receives belong to a context in
    /// its own lane or to another provider.
    pub fn share_cross_lane(
        &mut self,
        ep: EpKey,
        receives: Arc<dyn Receives>,
        waits: Arc<AtomicBool>,
        reports: Reports,
    ) -> Result {
        let state = self.eps.get(ep).ok_or(Errno::EOPBADSTATE)?;
        let (from, size) = (state.inbox, state.most_receives);
        let before = self.inboxes.get_mut(from).ok_or(Errno::EOPBADSTATE)?;
        if before.shared || before.imported().is_some() {
            return Err(Errno::EOPBADSTATE);
        }
        let ended = before.ended;
        let to = self.add_inbox(size, false);
        if let Some(inbox) = self.inboxes.get_mut(to) {
            inbox.reports = reports;
            if ended.is_some() {
                inbox.ends(ended);
            }
            let receives = CrossLaneReceives::new(receives, waits);
            inbox.other_srx = Some(OtherSrx::CrossLane(Box::new(receives)));
        }
        if let Some(state) = self.eps.get_mut(ep) {
            state.behind.push(from);
            bounded!(state.behind, OBJECTS);
        }
        self.change_inbox(ep, to);
        self.seek(to);
        Ok(())
    }

    /// Lends a shared context the reports of an endpoint in another lane, or takes them back.
    pub fn lend_reports(&mut self, shared: InboxKey, reports: Option<Reports>) {
        if let Some(inbox) = self.inboxes.get_mut(shared) {
            inbox.lent = reports;
        }
    }

    /// Matches a message of another lane with the receives of a shared context.
    pub fn match_in(&mut self, shared: InboxKey, message: &Sought) -> Option<Matched<AppIov>> {
        let queue = self.inboxes.get_mut(shared)?.queue(message.tagged);
        queue.arrive(message.src, message.tag, message.len)
    }

    /// Sets where what belongs to no endpoint is reported, for one that uses a context in
    /// another lane.
    pub fn report_cross_lane_to(&mut self, ep: EpKey, reports: &Reports) {
        let inbox = self.eps.get(ep).map(|ep| ep.inbox);
        let inbox = inbox.and_then(|inbox| self.inboxes.get_mut(inbox));
        if let Some(inbox) = inbox.filter(|inbox| inbox.other_srx.is_some()) {
            inbox.reports = reports.clone();
        }
    }

    /// Returns whether an endpoint uses this shared context, of another lane.
    pub fn takes_cross_lane(&mut self, ep: EpKey, receives: &Arc<dyn Receives>) -> bool {
        let inbox = self.eps.get(ep).map(|ep| ep.inbox);
        let inbox = inbox.and_then(|inbox| self.inboxes.get_mut(inbox));
        let cross_lane = inbox.and_then(Inbox::cross_lane);
        cross_lane.is_some_and(|cross_lane| cross_lane.is_of(receives))
    }

    /// Asks the context in another lane, if an endpoint uses one, for receives for the messages that wait.
    pub fn seek_for(&mut self, ep: EpKey) {
        if let Some(inbox) = self.eps.get(ep).map(|ep| ep.inbox) {
            self.seek(inbox);
        }
    }

    /// The same for those that wait in an inbox.
    pub(crate) fn seek(&mut self, key: InboxKey) {
        let cross_lane = self.inboxes.get_mut(key).and_then(Inbox::cross_lane);
        let Some(cross_lane) = cross_lane else {
            return;
        };
        cross_lane.all_ask();
        for tagged in [false, true] {
            let taken = self.inboxes.get_mut(key).map(|inbox| inbox.offer(tagged));
            for (matched, message) in taken.into_iter().flatten() {
                self.deliver(key, matched, message);
            }
        }
        self.admit_held_back();
        self.admit_awaited(key);
    }

    /// Asks the context in another lane for a receive for a message that arrives, after older
    /// messages that wait.
    #[cold]
    #[inline(never)]
    pub(crate) fn arrive_cross_lane(
        &mut self,
        key: InboxKey,
        message: &Sought,
    ) -> Option<Matched<AppIov>> {
        loop {
            let inbox = self.inboxes.get_mut(key)?;
            let any_older = inbox.queue(message.tagged).has_waiting();
            let cross_lane = inbox.cross_lane()?;
            match cross_lane.arrive(message, any_older) {
                Answer::Receive(matched) => return Some(matched),
                Answer::None => return None,
                Answer::Later(posted) => cross_lane.all_have_asked(posted),
            }
            self.seek(key);
        }
    }
}
