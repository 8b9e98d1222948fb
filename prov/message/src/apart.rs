//! Messages that a provider keeps itself, apart from the inboxes, within the same
//! budgets.

use crate::endpoints::Endpoints;
use crate::endpoints::arriving::Arrival;
use crate::endpoints::inbox::Transport;
use crate::endpoints::keeping::{Cost, KEEPING_COST, Room};

/// What is charged for a message that the provider keeps. It goes back with
/// [`Endpoints::discharge`].
#[derive(Debug)]
#[must_use = "it is charged until it is given back"]
pub struct Charge<L> {
    link: L,
    /// Bytes, with what keeping them takes.
    bytes: usize,
    room: Room,
    /// Of an announcement.
    announced: Option<Room>,
}

impl<T: Transport> Endpoints<T> {
    /// Charges a link for a message that begins, all of which the provider keeps;
    /// `None` where there is no room for it.
    pub fn charge_whole(&mut self, arrival: &Arrival<T>) -> Option<Charge<T::Link>> {
        let room = self.room_for(&self.wish(arrival))?;
        let bytes = arrival.len.saturating_add(KEEPING_COST);
        self.charge(arrival.link, Cost::Bytes(bytes, room));
        Some(Charge {
            link: arrival.link,
            bytes,
            room,
            announced: None,
        })
    }

    /// Charges a link for an announcement, with which the provider keeps `front`
    /// bytes; `None` where there is no room for either.
    pub fn charge_announced(
        &mut self,
        arrival: &Arrival<T>,
        front: usize,
    ) -> Option<Charge<T::Link>> {
        let announced = self.room_for(&self.wish_to_announce(arrival))?;
        let beginning = Arrival {
            len: front,
            ..*arrival
        };
        let charge = self.charge_whole(&beginning)?;
        self.charge(arrival.link, Cost::Announcement(announced));
        Some(Charge {
            announced: Some(announced),
            ..charge
        })
    }

    /// The provider keeps a message no longer.
    pub fn discharge(&mut self, charge: Charge<T::Link>) {
        let Charge {
            link,
            bytes,
            room,
            announced,
        } = charge;
        self.refund_link(link, Cost::Bytes(bytes, room));
        if let Some(room) = announced {
            self.refund_link(link, Cost::Announcement(room));
        }
        self.admit_held_back();
    }
}
