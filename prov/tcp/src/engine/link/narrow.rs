//! The names that messages announced to a C peer have: one byte each.

use prov_message::Ticket;

use crate::engine::link::connection::Payload;

/// Messages of one connection that are announced in the C library's protocol
/// and were not asked for yet.
#[derive(Default)]
pub struct Narrow {
    /// By name, less [`FIRST`]; no longer than there ever were names at once.
    waiting: Vec<Option<Waiting>>,
}

/// A message that is sent when the peer asks for it.
pub struct Waiting {
    pub ticket: Ticket,
    pub payload: Payload,
    /// Whether it is done only when it has been acknowledged.
    pub wants_ack: bool,
}

const FIRST: u8 = 1;
/// Names that there are.
pub const NAMES: usize = 254;

impl Narrow {
    /// A name for another message, if there is one.
    pub fn free_name(&self) -> Option<u8> {
        let free = self.waiting.iter().position(Option::is_none);
        let at = free.unwrap_or(self.waiting.len());
        (at < NAMES).then_some(at as u8 + FIRST)
    }

    /// Whether a message waits to be asked for.
    pub fn is_waiting(&self) -> bool {
        self.waiting.iter().any(Option::is_some)
    }

    /// Gives a message a name that is free.
    #[allow(
        clippy::indexing_slicing,
        reason = "names are given in order, and those in between are free"
    )]
    pub fn insert(&mut self, name: u8, message: Waiting) {
        let at = usize::from(name - FIRST);
        if at == self.waiting.len() {
            self.waiting.push(Some(message));
        } else {
            self.waiting[at] = Some(message);
        }
    }

    /// The message of this name, which is free from now on.
    pub fn take(&mut self, name: u8) -> Option<Waiting> {
        let at = name.checked_sub(FIRST)?;
        self.waiting.get_mut(usize::from(at))?.take()
    }

    /// Gives up all messages.
    pub fn abandon(&mut self) -> impl Iterator<Item = Ticket> {
        let waiting = self.waiting.drain(..).flatten();
        waiting.map(|message| message.ticket)
    }
}

#[cfg(test)]
mod tests {
    use prov_message::{Context, EpKey, Ledger, Op, OpClass};

    use super::*;

    fn waiting(ledger: &mut Ledger) -> Waiting {
        let op = Op {
            ep: EpKey::default(),
            class: OpClass::TaggedSend,
            report: true,
            is_inject: false,
            len: 0,
            context: Context(0),
        };
        Waiting {
            ticket: ledger.count(op),
            payload: Payload::Own(Vec::new()),
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
        // A name is used again once it is free, and belongs to one message.
        for name in [200, 7] {
            narrow.take(name).unwrap().ticket.abandon();
            assert!(narrow.take(name).is_none());
        }
        assert_eq!(narrow.free_name(), Some(7));
        narrow.insert(7, waiting(&mut ledger));
        assert_eq!(narrow.abandon().map(Ticket::abandon).count(), 253);
        assert!(narrow.take(1).is_none());
        assert_eq!(narrow.free_name(), Some(1));
    }
}
