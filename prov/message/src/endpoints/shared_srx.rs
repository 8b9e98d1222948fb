//! Endpoints that receive from an inbox of their own or from a shared one (fi_srx_context(3)).
//! Contexts of scalable endpoints change between the two while their links exist; other endpoints
//! may be bound to a shared context of [another lane](crate::endpoints::cross_lane_srx).

use prov_base::bounded;
use prov_base::bounds::OBJECTS;
use prov_base::errno::{Errno, Result};
use prov_util::matching::{Message, MultiId};

use crate::endpoints::Endpoints;
use crate::endpoints::actions::Course;
use crate::endpoints::inbox::Inbox;
use crate::endpoints::left::heir;
use crate::endpoints::transport::{Transport, origin};
use crate::endpoints::unexpected::{Body, Unexpected, UnexpectedHandle};
use crate::operation::EpKey;
use crate::receipt::InboxKey;

impl<T: Transport> Endpoints<T> {
    /// Makes an endpoint use a shared inbox: the messages that wait in its own one are received
    /// there, in their order. Receives that were posted to its own one are cancelled.
    ///
    /// # Errors
    /// `-FI_EOPBADSTATE` for an endpoint that is closed.
    pub fn share(&mut self, ep: EpKey, inbox: InboxKey) -> Result {
        let own = self.eps.get(ep).ok_or(Errno::EOPBADSTATE)?.inbox;
        if own != inbox {
            self.cancel_receives(ep, Errno::ECANCELED);
            self.change_inbox(ep, inbox);
            self.leave_inbox(own);
        }
        Ok(())
    }

    /// The same for an endpoint that is in use: receives that were posted to its own inbox stay,
    /// without getting messages.
    ///
    /// # Errors
    /// `-FI_EOPBADSTATE` for an endpoint that is closed, or that uses another shared inbox.
    pub fn share_late(&mut self, ep: EpKey, inbox: InboxKey) -> Result {
        let state = self.eps.get_mut(ep).ok_or(Errno::EOPBADSTATE)?;
        if state.inbox == inbox {
            return Ok(());
        }
        let own = self.inboxes.get(state.inbox);
        if own.is_none_or(|own| own.shared || own.other_srx.is_some()) {
            return Err(Errno::EOPBADSTATE);
        }
        state.behind.push(state.inbox);
        bounded!(state.behind, OBJECTS);
        self.change_inbox(ep, inbox);
        Ok(())
    }

    /// Removes an inbox without posted receives, once no message arrives any more in a multi-receive
    /// buffer that was posted to it.
    fn leave_inbox(&mut self, key: InboxKey) {
        match self.inboxes.get_mut(key) {
            Some(inbox) if inbox.finishes_multi() => inbox.is_left = true,
            _ => drop(self.inboxes.remove(key)),
        }
    }

    /// Handles that a message in a multi-receive buffer has ended. Returns whether the buffer is
    /// released to the application.
    pub fn finish_multi(&mut self, key: InboxKey, tagged: bool, multi: MultiId) -> bool {
        let Some(inbox) = self.inboxes.get_mut(key) else {
            return false;
        };
        if let Some(cross_lane) = inbox.cross_lane() {
            return cross_lane.finish_multi(tagged, multi);
        }
        let released = inbox.queue(tagged).finish_multi(multi);
        if released && inbox.is_left && !inbox.finishes_multi() {
            self.inboxes.remove(key);
        }
        released
    }

    /// Returns the endpoints that use an inbox.
    pub fn sharing(&self, inbox: InboxKey) -> Vec<EpKey> {
        let sharing = self.eps.iter().filter(|(_, ep)| ep.inbox == inbox);
        sharing.map(|(key, _)| key).collect()
    }

    /// Makes an endpoint that uses a shared inbox use one of its own again, with those of its
    /// messages that wait in the shared one.
    pub fn unshare(&mut self, ep: EpKey) {
        let Some(state) = self.eps.get_mut(ep) else {
            return;
        };
        let behind = std::mem::take(&mut state.behind);
        let (before, size) = (state.inbox, state.most_receives);
        for key in behind {
            self.leave_inbox_of(ep, key);
        }
        let Some(inbox) = self.inboxes.get_mut(before) else {
            return;
        };
        if inbox.cross_lane().is_some() {
            let own = self.add_inbox(size, false);
            self.change_inbox(ep, own);
            self.leave_inbox_of(ep, before);
        } else if inbox.shared {
            let own = self.add_inbox(size, false);
            self.change_inbox(ep, own);
        }
    }

    /// Removes an inbox that only this endpoint has used. That of a context in another lane stays with the
    /// endpoint: messages may be arriving in multi-receive buffers of the context.
    fn leave_inbox_of(&mut self, ep: EpKey, key: InboxKey) {
        let inbox = self.inboxes.get_mut(key);
        let is_cross_lane = inbox.and_then(Inbox::cross_lane).is_some();
        match self.eps.get_mut(ep) {
            Some(state) if is_cross_lane => state.behind.push(key),
            _ => self.leave_inbox(key),
        }
    }

    pub(super) fn change_inbox(&mut self, ep: EpKey, to: InboxKey) {
        let is_shared = self.inboxes.get(to).is_some_and(|inbox| inbox.shared);
        let Some(state) = self.eps.get_mut(ep) else {
            return;
        };
        let from = std::mem::replace(&mut state.inbox, to);
        let mut left = std::mem::take(&mut state.left);
        if self.inboxes.get(from).is_some_and(|inbox| !inbox.shared) {
            // All that is left in an inbox of its own is the endpoint's.
            left.extend(self.left.left_in(from));
        }
        for key in &left {
            self.left.moves(*key, to);
        }
        if is_shared && let Some(state) = self.eps.get_mut(ep) {
            state.left = left;
        }
        for tagged in [false, true] {
            let queue = self.inboxes.get_mut(from).map(|inbox| inbox.queue(tagged));
            let waiting = queue.map(|queue| queue.withdraw_if(|message| message.payload.ep == ep));
            for message in waiting.into_iter().flatten() {
                self.moves_to(to, message);
            }
        }
        self.admit_held_back();
        self.admit_awaited(to);
    }

    /// Matches a message that waits in another inbox, or has it wait here.
    fn moves_to(&mut self, key: InboxKey, message: Message<Unexpected<T>>) {
        let Unexpected { link, tagged, .. } = message.payload;
        let of_link = self.left_of(link).map_or_else(|| origin(link), heir);
        let Some(inbox) = self.inboxes.get_mut(key) else {
            return self.drop_message(message);
        };
        let queue = inbox.queue(tagged);
        if let Some(matched) = queue.arrive(message.src, message.tag, message.len) {
            return self.deliver(key, matched, message);
        }
        let (is_arriving, is_held_back) = match message.payload.body {
            Body::Arriving(_) => (true, false),
            Body::HeldBack(_) => (false, true),
            Body::Complete(_) | Body::Announced(_) | Body::Lost(_) => (false, false),
        };
        let kept = UnexpectedHandle {
            inbox: key,
            tagged,
            id: queue.keep_of(of_link, message),
        };
        if is_arriving {
            self.redirect(link, Course::Keep(kept));
        }
        if is_held_back {
            self.holds_back_in(link, kept);
        }
    }
}
