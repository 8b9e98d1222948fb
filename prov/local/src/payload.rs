//! The bytes of a message that stay with its sender until the peer fetches or requests them.

pub mod aside;

use prov_base::buffer::{Ahead, AppIov, Fetched, Iov};
use prov_base::errno::Result;
use prov_base::process_memory::{OtherIov, OtherPiece};
use prov_message::peers::Lent;

use self::aside::Aside;

/// See the [module](self) description.
pub enum Payload {
    /// The application's.
    App(AppIov),
    /// A copy.
    Own(Box<[u8]>),
    /// A copy for a peer that does not request it.
    Aside(Aside),
}

impl Payload {
    /// Takes what is lent, or a copy of it if the application may reuse its buffer.
    pub fn of(bytes: Lent<'_>, is_copied: bool) -> Payload {
        match bytes {
            Lent::App(memory) if !is_copied => Payload::App(memory.take()),
            Lent::App(memory) => {
                let mut copy = Vec::new();
                memory.append_to(&mut copy);
                Payload::Own(copy.into_boxed_slice())
            }
            Lent::Own(bytes) => Payload::Own(Box::from(bytes)),
        }
    }

    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        match self {
            Payload::App(memory) => memory.len(),
            Payload::Own(_) | Payload::Aside(_) => self.copied().len(),
        }
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of bytes that are set aside.
    pub fn aside(&self) -> u64 {
        match self {
            Payload::Aside(copy) => copy.bytes().len() as u64,
            Payload::App(_) | Payload::Own(_) => 0,
        }
    }

    /// Returns the bytes of a copy; none for memory of the application.
    fn copied(&self) -> &[u8] {
        match self {
            Payload::App(_) => &[],
            Payload::Own(bytes) => bytes,
            Payload::Aside(copy) => copy.bytes(),
        }
    }

    /// Returns the bytes, to be sent.
    pub fn lend(&mut self) -> Lent<'_> {
        match self {
            Payload::App(memory) => Lent::App(memory),
            Payload::Own(_) | Payload::Aside(_) => Lent::Own(self.copied()),
        }
    }

    /// Returns the location, from which the peer may copy. It asks in parts for what it cannot copy.
    pub fn location(&self) -> OtherIov {
        let mut from = OtherIov::default();
        // A list has no empty pieces.
        if self.is_empty() {
            return from;
        }
        let Payload::App(memory) = self else {
            from.push(OtherPiece {
                addr: self.copied().as_ptr().expose_provenance() as u64,
                len: self.len() as u64,
                seal: None,
            });
            return from;
        };
        if !from.push_own(memory, None) {
            from = OtherIov::default();
            from.push_out_of_reach(memory.len());
        }
        from
    }

    /// Fills `to` with bytes from the offset `at` on. Returns `false` if there are fewer.
    pub fn copy_to(&self, at: usize, to: &Iov<'_>) -> bool {
        let end = at.checked_add(to.len());
        match (end.filter(|end| *end <= self.len()), self) {
            (None, _) => false,
            (Some(_), Payload::App(memory)) => memory.slice(at, to.len()).copy_to(to) == to.len(),
            (Some(end), _) => {
                let bytes = self.copied().get(at..end);
                bytes.is_some_and(|bytes| to.write_at(0, bytes) == bytes.len())
            }
        }
    }

    /// Returns `-FI_EIO` if a device has not read some of the bytes.
    ///
    /// # Errors
    /// As said.
    pub fn take_failure(&self) -> Result {
        match self {
            Payload::App(memory) => memory.take_failure(),
            Payload::Own(_) | Payload::Aside(_) => Ok(()),
        }
    }

    /// Fills `to`, a part for a peer that asks for it, with bytes from the offset `at` on; those of a
    /// device are read ahead.
    pub(crate) fn part(&self, at: u64, to: &Iov<'_>, ahead: &mut Ahead) -> PartOf {
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        let end = at.checked_add(to.len());
        match self {
            _ if end.is_none_or(|end| end > self.len()) => PartOf::Refused,
            Payload::App(memory) if memory.has_device() => {
                PartOf::of(memory.read_ahead(at, to, ahead))
            }
            _ if self.copy_to(at, to) => PartOf::Copied,
            _ => PartOf::Refused,
        }
    }
}

/// What became of a part of a payload that a peer asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PartOf {
    /// Its bytes were copied.
    Copied,
    /// A device has not copied them yet.
    Later,
    /// There is no such offer, it has fewer bytes, or they cannot be read.
    Refused,
}

impl PartOf {
    /// Returns what [`Iov::read_ahead`] has done.
    fn of(read: Result<Fetched>) -> PartOf {
        match read {
            Ok(Fetched::All) => PartOf::Copied,
            Ok(Fetched::Later) => PartOf::Later,
            Err(_) => PartOf::Refused,
        }
    }
}

#[cfg(test)]
mod tests {
    use prov_base::process_memory::WRITTEN;

    use super::*;

    #[test]
    fn the_location_of_no_bytes_is_read_as_it_was_written() {
        for payload in [Payload::App(AppIov::EMPTY), Payload::Own(Box::default())] {
            let from = payload.location();
            let read = OtherIov::read(from.write(&mut [0; WRITTEN]));
            assert_eq!(read.map(|read| read.len()), Some(0));
        }
    }
}
