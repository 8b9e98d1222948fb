//! What waits on a link for a peer that takes nothing: it is set aside ([`aside`](super::aside)).

use prov_base::buffer::Iov;
use prov_message::Ticket;
use prov_message::keys::to_peer;

use super::aside::{Aside, SHARE};
use super::payload::Payload;
use super::pending::{Offer, Pending};
use super::{Link, LocalTransport};

/// How far the peer of a link is: where two of them are equal, it has taken nothing between the two.
#[derive(Clone, Copy, Default)]
pub struct Mark {
    /// Number of records that it has received.
    pub(super) taken: u64,
    /// Number of payloads that it was offered, and that it has answered.
    offers: u64,
    answers: u64,
}

impl<T: LocalTransport> Link<T> {
    /// Returns how far the peer is.
    pub fn mark(&mut self) -> Mark {
        // Reads the peer's position.
        let _ = self.has_untaken();
        Mark {
            taken: self
                .channel
                .as_ref()
                .map_or(0, |channel| channel.taken_there()),
            offers: self.offers,
            answers: self.answers_to_offers,
        }
    }

    /// Whether operations wait for the peer that could be set aside.
    pub fn has_to_set_aside(&mut self) -> bool {
        let can_relocate = self.relocating.is_some();
        can_relocate && self.pending.offers().any(|offer| offer.can_be_set_aside())
            || self.behind.iter().any(|waiting| {
                waiting.ticket.is_some() && waiting.request.message_to_copy().is_some()
            })
    }

    /// Returns the number of bytes that are set aside.
    pub fn aside(&self) -> u64 {
        let offers = self.pending.values().map(|pending| match pending {
            Pending::Offer { payload, .. } => payload.aside(),
            _ => 0,
        });
        let behind = self
            .behind
            .iter()
            .filter_map(|waiting| waiting.aside.as_ref());
        offers.sum::<u64>() + behind.map(|copy| copy.bytes().len() as u64).sum::<u64>()
    }

    /// Sets aside what waits for a peer that has taken nothing since it was at this `mark`, up to
    /// [`SHARE`]. Returns the operations, which are complete.
    pub fn set_aside(&mut self, mark: Mark) -> Vec<Ticket> {
        let now = self.mark();
        let mut room = SHARE.saturating_sub(self.aside());
        let mut done = Vec::new();
        let mut set_aside = |memory: &Iov<'_>| {
            let len = memory.len() as u64;
            let copy = (len <= room).then(|| Aside::copy_of(memory)).flatten();
            room -= if copy.is_some() { len } else { 0 };
            copy
        };
        if now.answers == mark.answers
            && let Some(relocating) = &mut self.relocating
        {
            let is_due =
                |offer: &Offer<'_>| offer.number <= mark.offers && offer.can_be_set_aside();
            let mut waiting: Vec<_> = self.pending.offers().filter(is_due).collect();
            waiting.sort_unstable_by_key(|offer| offer.number);
            for offer in waiting {
                let Payload::App(memory) = &*offer.payload else {
                    continue;
                };
                let Some(copy) = set_aside(memory) else {
                    break;
                };
                if !relocating.publish(to_peer(offer.key), copy.address()) {
                    break;
                }
                *offer.payload = Payload::Aside(copy);
                done.extend(offer.ticket.take());
            }
        }
        if now.taken == mark.taken {
            for waiting in &mut self.behind {
                let Some(memory) = waiting.request.message_to_copy() else {
                    break;
                };
                if waiting.ticket.is_none() {
                    continue;
                }
                let Some(copy) = set_aside(memory) else {
                    break;
                };
                waiting.aside = Some(copy);
                done.extend(waiting.ticket.take());
            }
        }
        done
    }

    /// Whether something is complete for the application that the peer has to be given yet.
    pub fn owes(&self) -> bool {
        let offers = self.pending.values();
        let mut offers = offers.filter(|one| matches!(one, Pending::Offer { ticket: None, .. }));
        let mut behind = self.behind.iter();
        offers.next().is_some()
            || behind.any(|waiting| waiting.ticket.is_none() || waiting.request.is_injected())
    }
}
