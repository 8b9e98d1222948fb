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
use std::sync::atomic::{AtomicBool, Ordering};

use prov_base::buffer::AppIov;
use prov_base::errno::{Errno, Result};
use prov_util::matching::{Matched, MultiId};

use crate::endpoints::Endpoints;
use crate::endpoints::inbox::{Elsewhere, Inbox, Transport};
use crate::operation::EpKey;
use crate::receipt::InboxKey;
use crate::reports::Reports;

/// The receives of a shared context, for endpoints in other lanes.
pub trait Receives: Send + Sync {
    /// Asks for a receive for a message. `before` is the number of receives that had been posted
    /// when older messages of the same endpoint that still wait have asked.
    fn arrive(&self, message: &Sought, waits: &AtomicBool, before: Option<u64>) -> Answer;

    /// Returns whether receives are posted that no message has taken.
    fn any_posted(&self) -> bool;

    /// Handles that a message in a multi-receive buffer has ended. Returns whether the buffer is
    /// released to the application.
    fn finish_multi(&self, tagged: bool, multi: MultiId) -> bool;
}

/// A message for which a receive is sought.
#[derive(Clone, Copy, Debug)]
pub struct Sought {
    /// Whether it has a tag.
    pub tagged: bool,
    /// The sender, or [`ANY_SOURCE`](prov_util::matching::ANY_SOURCE).
    pub src: u64,
    /// The tag; 0 for untagged messages.
    pub tag: u64,
    /// Length in bytes.
    pub len: usize,
}

/// The answer to a message.
pub enum Answer {
    /// This receive accepts it.
    Receive(Matched<AppIov>),
    /// No receive accepts it. The message waits, which the context was told by `waits` before
    /// another receive can be posted.
    None,
    /// Receives were posted that older messages have not asked for: so many have been by now.
    Later(u64),
}

/// See the [module](self) description.
pub(crate) struct Distant {
    receives: Arc<dyn Receives>,
    /// Whether a message may wait for a receive. Cleared by [`Endpoints::seek`].
    waits: Arc<AtomicBool>,
    /// The number of receives that had been posted when all messages that wait have asked.
    asked: u64,
}

impl Distant {
    /// Asks for a receive. `any_older`: whether older messages wait.
    fn arrive(&self, message: &Sought, any_older: bool) -> Answer {
        let before = any_older.then_some(self.asked);
        self.receives.arrive(message, &self.waits, before)
    }

    pub fn any_posted(&self) -> bool {
        self.receives.any_posted()
    }

    pub fn finish_multi(&self, tagged: bool, multi: MultiId) -> bool {
        self.receives.finish_multi(tagged, multi)
    }

    fn is_of(&self, receives: &Arc<dyn Receives>) -> bool {
        std::ptr::addr_eq(Arc::as_ptr(&self.receives), Arc::as_ptr(receives))
    }
}

impl<T: Transport> Inbox<T> {
    /// The distant context whose receives the messages take.
    pub(crate) fn distant(&mut self) -> Option<&mut Distant> {
        match &mut self.elsewhere {
            Some(Elsewhere::Lane(distant)) => Some(distant),
            Some(Elsewhere::Provider(_)) | None => None,
        }
    }

    /// Offers the messages that wait to the distant context. Returns the receives that it has for
    /// them, with the messages, in their order.
    fn offer(&mut self, tagged: bool) -> Vec<Taken<T>> {
        let Some(Elsewhere::Lane(distant)) = &self.elsewhere else {
            return Vec::new();
        };
        let (receives, waits) = (distant.receives.clone(), distant.waits.clone());
        self.queue(tagged).offer(|message| {
            let sought = Sought {
                tagged,
                src: message.src,
                tag: message.tag,
                len: message.len,
            };
            match receives.arrive(&sought, &waits, None) {
                Answer::Receive(matched) => Some(matched),
                Answer::None | Answer::Later(_) => None,
            }
        })
    }
}

/// A receive, and the message that has taken it.
type Taken<T> = (
    Matched<AppIov>,
    prov_util::matching::Message<crate::endpoints::inbox::Unexpected<T>>,
);

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
    pub fn share_distant(
        &mut self,
        ep: EpKey,
        receives: Arc<dyn Receives>,
        waits: Arc<AtomicBool>,
        reports: Reports,
    ) -> Result {
        let state = self.eps.get(ep).ok_or(Errno::EOPBADSTATE)?;
        let (from, size) = (state.inbox, state.most_receives);
        let before = self.inboxes.get_mut(from).ok_or(Errno::EOPBADSTATE)?;
        if before.shared || before.foreign().is_some() {
            return Err(Errno::EOPBADSTATE);
        }
        let ended = before.ended;
        let to = self.add_inbox(size, false);
        if let Some(inbox) = self.inboxes.get_mut(to) {
            inbox.reports = reports;
            if ended.is_some() {
                inbox.ends(ended);
            }
            inbox.elsewhere = Some(Elsewhere::Lane(Box::new(Distant {
                receives,
                waits,
                asked: 0,
            })));
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

    /// Sets where what belongs to no endpoint is reported, for one that uses a distant context.
    pub fn report_distant_to(&mut self, ep: EpKey, reports: &Reports) {
        let inbox = self.eps.get(ep).map(|ep| ep.inbox);
        let inbox = inbox.and_then(|inbox| self.inboxes.get_mut(inbox));
        if let Some(inbox) = inbox.filter(|inbox| inbox.elsewhere.is_some()) {
            inbox.reports = reports.clone();
        }
    }

    /// Returns whether an endpoint uses this shared context, of another lane.
    pub fn is_distant_from(&mut self, ep: EpKey, receives: &Arc<dyn Receives>) -> bool {
        let inbox = self.eps.get(ep).map(|ep| ep.inbox);
        let inbox = inbox.and_then(|inbox| self.inboxes.get_mut(inbox));
        let distant = inbox.and_then(Inbox::distant);
        distant.is_some_and(|distant| distant.is_of(receives))
    }

    /// Asks the distant context of an endpoint for receives for the messages that wait.
    pub fn seek_for(&mut self, ep: EpKey) {
        if let Some(inbox) = self.eps.get(ep).map(|ep| ep.inbox) {
            self.seek(inbox);
        }
    }

    /// The same for those that wait in an inbox.
    pub(crate) fn seek(&mut self, key: InboxKey) {
        let distant = self.inboxes.get_mut(key).and_then(Inbox::distant);
        let Some(distant) = distant else {
            return;
        };
        // Each message that finds no receive sets it again.
        distant.waits.store(false, Ordering::SeqCst);
        for tagged in [false, true] {
            let taken = self.inboxes.get_mut(key).map(|inbox| inbox.offer(tagged));
            for (matched, message) in taken.into_iter().flatten() {
                self.deliver(key, matched, message);
            }
        }
        self.admit_held_back();
        self.admit_awaited(key);
    }

    /// Asks the distant context of an inbox for a receive for a message that arrives, after older
    /// messages that wait.
    #[cold]
    #[inline(never)]
    pub(crate) fn arrive_at_distant(
        &mut self,
        key: InboxKey,
        message: &Sought,
    ) -> Option<Matched<AppIov>> {
        loop {
            let inbox = self.inboxes.get_mut(key)?;
            let any_older = inbox.queue(message.tagged).has_waiting();
            let distant = inbox.distant()?;
            match distant.arrive(message, any_older) {
                Answer::Receive(matched) => return Some(matched),
                Answer::None => return None,
                Answer::Later(posted) => distant.asked = posted,
            }
            self.seek(key);
        }
    }
}
