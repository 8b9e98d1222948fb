//! Accounting for messages that a provider buffers itself, outside the inboxes, within the same
//! budgets.

use crate::endpoints::Endpoints;
use crate::endpoints::arrival::Arrival;
use crate::endpoints::room::{Cost, KEEPING_COST, Room};
use crate::endpoints::transport::Transport;

/// The charge for a message that the provider buffers. It is returned with
/// [`Endpoints::discharge`].
#[derive(Debug)]
#[must_use = "it is charged until it is given back"]
pub struct Charge<L> {
    link: L,
    /// Bytes, including the bookkeeping cost.
    bytes: usize,
    room: Room,
    /// Set for an announcement.
    announced: Option<Room>,
}

impl<T: Transport> Endpoints<T> {
    /// Charges a link for a message that begins and that the provider buffers completely. Returns
    /// `None` if the budget has no room for it.
    pub fn charge_whole(&mut self, arrival: &Arrival<T>) -> Option<Charge<T::Link>> {
        let room = self.room_for(&self.demand(arrival))?;
        let bytes = arrival.len.saturating_add(KEEPING_COST);
        self.charge(arrival.link, Cost::Bytes(bytes, room));
        Some(Charge {
            link: arrival.link,
            bytes,
            room,
            announced: None,
        })
    }

    /// Charges a link for an announcement of which the provider buffers the first `front` bytes.
    /// Returns `None` if the budget has no room for either.
    pub fn charge_announced(
        &mut self,
        arrival: &Arrival<T>,
        front: usize,
    ) -> Option<Charge<T::Link>> {
        let announced = self.room_for(&self.demand_of_announcement(arrival))?;
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

    /// Returns the charge of a message that the provider has released.
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
