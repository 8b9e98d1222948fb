//! Receives that belong to another provider (fi_peer(3)): the owner's queue takes the place of an
//! endpoint's own inbox.
//!
//! The owner may be called only while it drives the lane or starts a message (see
//! [`prov_util::ffi::srx`]). At other times the lane is *deaf*: it receives nothing, carries out no
//! actions, and postpones the report of receives whose link ends.

use std::sync::Weak;

use prov_base::bounded;
use prov_base::bounds::OPERATIONS;
use prov_base::buffer::AppIov;
use prov_base::errno::{Errno, Result};
use prov_util::ffi::ends::PeerEnds;
use prov_util::ffi::srx::{Discarded, ImportedSrx, NewSources, StartReceives, Started};

use crate::endpoints::Endpoints;
use crate::endpoints::inbox::imported_srx::ImportedReceives;
use crate::endpoints::inbox::{Inbox, OtherSrx};
use crate::endpoints::transport::Transport;
use crate::operation::EpKey;
use crate::receipt::{GivenKey, InboxKey, Receipt};

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
        let receives = ImportedReceives::new(owner, home, av);
        inbox.other_srx = Some(OtherSrx::Imported(Box::new(receives)));
        self.is_deaf = true;
        Ok(())
    }

    /// Tells the owner of an endpoint's receives of peers that are gone.
    ///
    /// # Errors
    /// `-FI_EOPBADSTATE` if the receives are the endpoint's own.
    pub fn tell_ends(&mut self, ep: EpKey, ends: PeerEnds) -> Result {
        let (_, receives) = self.imported(ep).ok_or(Errno::EOPBADSTATE)?;
        receives.tell_ends(ends);
        Ok(())
    }

    /// Returns whether nothing may be received at present.
    #[inline]
    pub fn is_deaf(&self) -> bool {
        self.is_deaf
    }

    /// Marks that the owner of the receives drives the lane, or starts a message, until
    /// [`Endpoints::owner_leaves`]. Reports what was postponed.
    #[inline]
    pub fn owner_enters(&mut self) {
        self.is_deaf = false;
        if !self.late.is_empty() {
            self.report_late();
        }
    }

    #[cold]
    #[inline(never)]
    fn report_late(&mut self) {
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
        let (inbox, receives) = self.imported(ep).ok_or(Errno::EOPBADSTATE)?;
        let (message, matched, buffer) = receives.start(started)?;
        self.deliver_to(inbox, matched, buffer, message);
        self.admit_held_back();
        Ok(())
    }

    /// The owner discards a message that is waiting.
    pub(crate) fn discard(&mut self, ep: EpKey, discarded: Discarded) -> Result {
        let (_, receives) = self.imported(ep).ok_or(Errno::EOPBADSTATE)?;
        let message = receives.discard(discarded)?;
        self.drop_message(message);
        self.admit_held_back();
        Ok(())
    }

    /// Returns the sources of waiting messages that the owner has to be told; `None` if it knows
    /// all. To be called again after the owner was told.
    pub(crate) fn new_sources(&mut self, ep: EpKey) -> Option<NewSources> {
        self.imported(ep)?.1.new_sources()
    }

    fn imported(&mut self, ep: EpKey) -> Option<(InboxKey, &mut ImportedReceives<T>)> {
        let key = self.eps.get(ep)?.inbox;
        let receives = self.inboxes.get_mut(key)?.imported()?;
        Some((key, receives))
    }

    /// [`Endpoints::received`] for a receive that belongs to another provider.
    #[inline(never)]
    pub(crate) fn received_imported(
        &mut self,
        given: GivenKey,
        receipt: &Receipt<T::Ack>,
        memory: AppIov,
        outcome: Result,
    ) -> T::Ack {
        let inbox = self.inboxes.get_mut(receipt.inbox);
        let Some(receives) = inbox.and_then(Inbox::imported) else {
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
            receives.give_back(given);
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
        let Some(receives) = inbox.and_then(Inbox::imported) else {
            return;
        };
        for cost in receives.lose(link, error) {
            self.refund_link(link, cost);
        }
    }

    /// Withdraws the messages that wait in an inbox that is being closed.
    pub(crate) fn withdraw(&mut self, key: InboxKey) {
        let inbox = self.inboxes.get_mut(key);
        let Some(receives) = inbox.and_then(Inbox::imported) else {
            return;
        };
        for message in receives.withdraw_all() {
            self.refund(&message);
        }
    }
}
