//! Payloads on their way to their destinations.

use fabric_abi::FI_RMA;
use prov_base::buffer::AppIov;
use prov_base::device_memory::has_failures;
use prov_base::errno::Result;
use prov_util::mr::Grants;

use crate::endpoints::Endpoints;
use crate::endpoints::target::{PayloadBuffer, RmaTarget};
use crate::endpoints::transport::Transport;
use crate::operation::{EpKey, Ticket};
use crate::receipt::Receipt;

/// A message that is being written to its destination.
pub struct Placing<T: Transport> {
    /// The destination.
    pub place: PayloadBuffer,
    /// Bytes of the message that have arrived, including those that did not fit.
    pub done: usize,
    /// What follows when it is complete.
    pub then: Then<T>,
    /// Whether the bytes are flushed to the persistence domain before anybody is informed
    /// (`FI_COMMIT_COMPLETE`).
    pub persists: bool,
}

impl<T: Transport> Placing<T> {
    /// The message of a posted receive.
    pub fn receive(memory: AppIov, receipt: Receipt<T::Ack>) -> Self {
        Placing {
            place: PayloadBuffer::App(memory),
            done: 0,
            then: Then::Receive(receipt),
            persists: false,
        }
    }

    /// The result of a read or of an atomic operation.
    pub fn read(memory: AppIov, ticket: Ticket) -> Self {
        Placing {
            place: PayloadBuffer::App(memory),
            done: 0,
            then: Then::Read(ticket),
            persists: false,
        }
    }

    /// A peer's write to registered memory.
    pub fn remote_write(grants: Grants, data: Option<u64>, ack: T::Ack) -> Self {
        Placing {
            place: PayloadBuffer::Registered(grants),
            done: 0,
            then: Then::RemoteWrite { data, ack },
            persists: false,
        }
    }

    /// The same, with or without flushing the bytes to the persistence domain.
    #[must_use]
    pub fn persistent(mut self, persists: bool) -> Self {
        self.persists = persists;
        self
    }

    /// Returns `-FI_EIO` for a write to registered memory that a device has not copied.
    #[inline(always)]
    pub fn take_failure(&self, registered: &mut Option<RmaTarget>) -> Result {
        match has_failures() {
            true => self.failure(registered),
            false => Ok(()),
        }
    }

    #[cold]
    fn failure(&self, registered: &mut Option<RmaTarget>) -> Result {
        match (&self.then, &self.place, registered) {
            (Then::RemoteWrite { .. }, PayloadBuffer::Registered(grants), Some(target)) => {
                grants.take_failure(&mut target.memory)
            }
            _ => Ok(()),
        }
    }

    /// Returns whether immediate data comes with it, for which the peer's source must be known.
    pub fn has_data(&self) -> bool {
        matches!(self.then, Then::RemoteWrite { data: Some(_), .. })
    }
}

/// What follows when a message has reached its destination.
pub enum Then<T: Transport> {
    /// A receive completes.
    Receive(Receipt<T::Ack>),
    /// A read, or an atomic operation with a result, completes.
    Read(Ticket),
    /// A peer has written to registered memory.
    RemoteWrite { data: Option<u64>, ack: T::Ack },
}

impl<T: Transport> Endpoints<T> {
    /// Handles the end of a transfer to its destination with `outcome`, and reports it: a receive,
    /// a read, or what the peer `src` has written. Returns the acknowledgement that the peer is
    /// due.
    pub fn placed(
        &mut self,
        registered: &mut Option<RmaTarget>,
        ep: EpKey,
        src: u64,
        placing: Placing<T>,
        outcome: Result,
    ) -> T::Ack {
        if placing.persists
            && outcome.is_ok()
            && let (PayloadBuffer::Registered(grants), Some(target)) =
                (&placing.place, &mut *registered)
        {
            grants.write_back(&mut target.memory);
        }
        match placing.then {
            Then::Receive(receipt) => self.received(&receipt, placing.place.into_memory(), outcome),
            Then::Read(ticket) => {
                self.finish_read(ticket, placing.place.into_memory(), outcome);
                T::Ack::default()
            }
            Then::RemoteWrite { data, ack } => {
                if outcome.is_ok()
                    && let PayloadBuffer::Registered(grants) = &placing.place
                    && let (Some(target), Some(endpoint)) = (registered, self.get_mut(ep))
                {
                    target.was_written(&endpoint.visited(src).1, grants, FI_RMA, data);
                }
                ack
            }
        }
    }
}
