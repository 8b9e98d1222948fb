//! The payloads of messages that wait to be requested.

use prov_base::buffer::{AppIov, Iov};

use crate::local::outbox::Aside;

/// The bytes of a message that waits to be sent.
pub enum Payload {
    /// The application's.
    App(AppIov),
    /// A copy.
    Own(Vec<u8>),
    /// A copy for a peer that does not request it.
    Aside(Aside),
}

impl Payload {
    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        match self {
            Payload::App(memory) => memory.len(),
            Payload::Own(bytes) => bytes.len(),
            Payload::Aside(copy) => copy.len(),
        }
    }

    /// Returns the number of bytes that are set aside.
    pub fn aside(&self) -> u64 {
        match self {
            Payload::Aside(copy) => copy.len() as u64,
            Payload::App(_) | Payload::Own(_) => 0,
        }
    }

    /// Fills `to` with bytes from the offset `at` on. Returns `false` if there are fewer.
    #[must_use]
    pub fn copy_to(&self, at: u64, to: &Iov<'_>) -> bool {
        let end = at.checked_add(to.len() as u64);
        if end.is_none_or(|end| end > self.len() as u64) {
            return false;
        }
        let at = at as usize;
        let bytes = match self {
            Payload::App(memory) => {
                memory.slice(at, to.len()).copy_to(to);
                return true;
            }
            Payload::Own(bytes) => bytes,
            Payload::Aside(copy) => copy.bytes(),
        };
        bytes
            .get(at..at + to.len())
            .is_some_and(|bytes| to.write_at(0, bytes) == bytes.len())
    }
}
