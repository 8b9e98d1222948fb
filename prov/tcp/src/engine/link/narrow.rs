//! The names of messages announced to a C peer: one byte each.

use prov_base::bounded;
use prov_base::bounds::OPERATIONS;
use prov_message::Ticket;

use prov_local::link::payload::Payload;

/// Messages of one connection that are announced in the C library's protocol and not yet requested.
#[derive(Default)]
pub struct Narrow {
    /// Indexed by name less [`FIRST`]; as long as the largest number of names in use at the same
    /// time.
    waiting: Vec<Option<OfferedMessage>>,
}

/// A message that is sent when the peer requests it.
pub struct OfferedMessage {
    /// `None` once the payload is set aside: the operation is complete.
    pub ticket: Option<Ticket>,
    pub payload: Payload,
    /// Whether the operation completes only when it has been acknowledged.
    pub wants_ack: bool,
}

const FIRST: u8 = 1;
/// Number of names for announced messages of one connection in the C library's protocol, in which a
/// name is one byte, 1 to 254.
pub const NAMES: usize = 254;

impl Narrow {
    /// Returns a free name, if there is one.
    pub fn free_name(&self) -> Option<u8> {
        let free = self.waiting.iter().position(Option::is_none);
        let at = free.unwrap_or(self.waiting.len());
        (at < NAMES).then_some(at as u8 + FIRST)
    }

    /// Whether any message waits to be requested.
    pub fn is_waiting(&self) -> bool {
        self.waiting.iter().any(Option::is_some)
    }

    /// Assigns a free name to a message.
    #[allow(
        clippy::indexing_slicing,
        reason = "names are given in order, and those in between are free"
    )]
    pub fn insert(&mut self, name: u8, message: OfferedMessage) {
        let at = usize::from(name - FIRST);
        if at == self.waiting.len() {
            self.waiting.push(Some(message));
            bounded!(self.waiting, OPERATIONS);
        } else {
            self.waiting[at] = Some(message);
        }
    }

    /// Removes the message with this name, which is free from then on.
    pub fn take(&mut self, name: u8) -> Option<OfferedMessage> {
        let at = name.checked_sub(FIRST)?;
        self.waiting.get_mut(usize::from(at))?.take()
    }

    /// Removes all messages.
    pub fn abandon(&mut self) -> impl Iterator<Item = Ticket> {
        let waiting = self.waiting.drain(..).flatten();
        waiting.filter_map(|message| message.ticket)
    }

    /// Returns the messages that wait.
    pub fn iter(&self) -> impl Iterator<Item = &OfferedMessage> {
        self.waiting.iter().flatten()
    }

    /// As [`Narrow::iter`], to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut OfferedMessage> {
        self.waiting.iter_mut().flatten()
    }
}

#[cfg(test)]
mod tests {
    use prov_message::{Context, EpKey, Ledger, Op, OpClass};

    use super::*;

    fn waiting(ledger: &mut Ledger) -> OfferedMessage {
        let op = Op {
            ep: EpKey::default(),
            class: OpClass::TaggedSend,
            report: true,
            is_inject: false,
            len: 0,
            context: Context(0),
        };
        OfferedMessage {
            ticket: Some(ledger.count(op)),
            payload: Payload::Own(Box::default()),
            wants_ack: false,
        }
    }

    #[test]
    fn there_are_as_many_names_as_the_c_library_knows() {
        let (mut narrow, mut ledger) = (Narrow::default(), Ledger::new(1000));
        for name in 1..=254 {
            assert_eq!(narrow.free_name(), Some(name));
            narrow.insert(name, waiting(&mut ledger));
        }
        assert_eq!(narrow.free_name(), None);
        for name in [0, 255] {
            assert!(narrow.take(name).is_none());
        }
        // A name is reused once it is free, and belongs to one message.
        for name in [200, 7] {
            narrow.take(name).unwrap().ticket.unwrap().abandon();
            assert!(narrow.take(name).is_none());
        }
        assert_eq!(narrow.free_name(), Some(7));
        narrow.insert(7, waiting(&mut ledger));
        assert_eq!(narrow.abandon().map(Ticket::abandon).count(), 253);
        assert!(narrow.take(1).is_none());
        assert_eq!(narrow.free_name(), Some(1));
    }
}
