//! Messages whose whole payload is available when they arrive: they are received or buffered in one
//! step.

use prov_base::buffer::{Iov, Piece};
use prov_util::request::{Tag, Transmit};

use crate::endpoints::Endpoints;
use crate::endpoints::arrival::{Arrival, Expected};
use crate::endpoints::room::Purse;
use crate::endpoints::transport::Transport;
use crate::endpoints::unexpected::Body;
use crate::operation::EpKey;

/// A complete payload.
pub trait Whole {
    /// Its length in bytes.
    fn len(&self) -> usize;

    /// Returns whether it is empty.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies as many bytes as fit.
    fn copy_to(&self, memory: &Iov<'_>);

    /// Appends all bytes.
    fn append_to(&self, bytes: &mut Vec<u8>);
}

impl Whole for [u8] {
    #[inline(always)]
    fn len(&self) -> usize {
        <[u8]>::len(self)
    }

    #[inline(always)]
    fn copy_to(&self, memory: &Iov<'_>) {
        memory.write_at(0, self);
    }

    fn append_to(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(self);
    }
}

impl Whole for Iov<'_> {
    #[inline(always)]
    fn len(&self) -> usize {
        Iov::len(self)
    }

    #[inline(always)]
    fn copy_to(&self, memory: &Iov<'_>) {
        Iov::copy_to(self, memory);
    }

    fn append_to(&self, bytes: &mut Vec<u8>) {
        Iov::append_to(self, bytes);
    }
}

impl Whole for Piece<'_> {
    #[inline(always)]
    fn len(&self) -> usize {
        Piece::len(self)
    }

    #[inline(always)]
    fn copy_to(&self, memory: &Iov<'_>) {
        Piece::copy_to(self, memory);
    }

    fn append_to(&self, bytes: &mut Vec<u8>) {
        Iov::from(*self).append_to(bytes);
    }
}

/// What happened to a complete message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Taken<A> {
    /// A receive has completed with it; this is the acknowledgement that the sender is due.
    Received(A),
    /// It was buffered in the inbox.
    Kept,
    /// Nothing: there is no room for it, or the endpoint is closed.
    Refused,
}

impl<T: Transport> Arrival<T> {
    /// The header of a message that an endpoint of this process has posted; it arrives on `link` at
    /// the endpoint `ep`.
    #[inline]
    pub fn of(message: &Transmit, link: T::Link, ep: EpKey, src: u64) -> Self {
        let (tagged, tag) = match message.tag {
            Tag::None => (false, 0),
            Tag::Value(tag) => (true, tag),
        };
        Arrival {
            link,
            ep,
            src,
            tagged,
            tag,
            len: message.buffers.len(),
            data: message.immediate(),
            ack: T::Ack::default(),
            announces: false,
        }
    }
}

impl<T: Transport> Endpoints<T> {
    /// Delivers a complete message to a posted receive, or buffers it.
    #[inline]
    pub fn take_in(
        &mut self,
        arrival: &Arrival<T>,
        message: &(impl Whole + ?Sized),
    ) -> Taken<T::Ack> {
        match self.arrive(arrival) {
            Some(Expected { memory, receipt }) => {
                message.copy_to(&memory);
                Taken::Received(self.received(&receipt, memory, Ok(())))
            }
            None => self.keep_whole(arrival, message),
        }
    }

    /// Buffers a complete message that matched no receive.
    #[inline(never)]
    pub fn keep_whole(
        &mut self,
        arrival: &Arrival<T>,
        message: &(impl Whole + ?Sized),
    ) -> Taken<T::Ack> {
        let room = self.room_for(&self.demand(arrival));
        let room = room.filter(|room| room.budget != Purse::Unannounced);
        let (Some(room), Some(_)) = (room, self.get(arrival.ep)) else {
            return Taken::Refused;
        };
        let mut bytes = Vec::new();
        if bytes.try_reserve_exact(arrival.len).is_err() {
            return Taken::Refused;
        }
        let mut ack = arrival.ack;
        self.acknowledge_kept(arrival.link, &mut ack);
        message.append_to(&mut bytes);
        self.keep(arrival, ack, Body::Complete(bytes), room);
        self.throttle(arrival.link, arrival.announces);
        Taken::Kept
    }
}
