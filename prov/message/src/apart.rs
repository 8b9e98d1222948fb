//! Messages that a provider keeps itself, apart from the inboxes, within the same
//! budgets.

use crate::arriving::Arrival;
use crate::endpoints::Endpoints;
use crate::inbox::Transport;
use crate::keeping::{Cost, KEEPING_COST, Room};

/// What is charged for a message that the provider keeps. It goes back with
/// [`Endpoints::discharge`].
#[derive(Debug)]
#[must_use = "it is charged until it is given back"]
pub struct Charge<L> {
    link: L,
    /// Bytes, with what keeping them takes.
    bytes: usize,
    room: Room,
    is_announced: bool,
}

impl<T: Transport> Endpoints<T> {
    /// Charges a link for a message that begins, all of which the provider keeps;
    /// `None` where there is no room for it.
    pub fn charge_whole(&mut self, arrival: &Arrival<T>) -> Option<Charge<T::Link>> {
        let room = self.room_for(&arrival.wish())?;
        let bytes = arrival.len.saturating_add(KEEPING_COST);
        self.charge(arrival.link, Cost::Bytes(bytes, room));
        Some(Charge {
            link: arrival.link,
            bytes,
            room,
            is_announced: false,
        })
    }

    /// Charges a link for an announcement, with which the provider keeps `front`
    /// bytes; `None` where there is no room for either.
    pub fn charge_announced(
        &mut self,
        arrival: &Arrival<T>,
        front: usize,
    ) -> Option<Charge<T::Link>> {
        let account = self.kept.of(arrival.link).announcements;
        if !self.kept.announcements.has_room(account, 1, 0) {
            return None;
        }
        let beginning = Arrival {
            len: front,
            ..*arrival
        };
        let charge = self.charge_whole(&beginning)?;
        self.charge(arrival.link, Cost::Announcement);
        Some(Charge {
            is_announced: true,
            ..charge
        })
    }

    /// The provider keeps a message no longer.
    pub fn discharge(&mut self, charge: Charge<T::Link>) {
        let Charge {
            link,
            bytes,
            room,
            is_announced,
        } = charge;
        self.refund_link(link, Cost::Bytes(bytes, room));
        if is_announced {
            self.refund_link(link, Cost::Announcement);
        }
        self.admit_held_back();
    }
}
