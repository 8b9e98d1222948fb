//! The messages of a channel: their kinds, and the lists in them. The contents that a peer has
//! written are checked here.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use prov_base::buffer::{IOV_LIMIT, Iov, Piece};
use prov_base::process_memory::{OtherIov, WRITTEN};
use prov_util::request::{RemoteIov, RemotePiece};

/// An eager message. Words: tag, immediate data, name to acknowledge.
pub const MESSAGE: u8 = 1;
/// A message whose payload stays with the sender. Words: tag, immediate data, name of the offer.
/// Bytes: the location of the payload.
pub const OFFERED: u8 = 2;
/// An operation, or an offer, is complete. Words: its name, an error number or 0.
pub const DONE: u8 = 3;
/// A write. Words: immediate data, name, number of pieces of the remote list. Bytes: the data,
/// which thus begins at a cache line, and the list, which is that of the whole write and is sent
/// with the first part only.
pub const WRITE: u8 = 6;
/// The sender has written to memory directly. Words: immediate data, 0, number of pieces of the
/// remote list. Bytes: the list.
pub const WAS_WRITTEN: u8 = 7;
/// A read. Words: number of bytes, name, number of pieces of the remote list. Bytes: the list.
pub const READ: u8 = 8;
/// Data of a read or a part of it, or the result of an atomic operation. Words: name.
pub const RESULT: u8 = 9;
/// The sender has read memory directly. Words and bytes as for [`WAS_WRITTEN`].
pub const WAS_READ: u8 = 10;
/// An atomic operation. Words: immediate data, name, [`AtomicWord`]. Bytes: the remote list, the
/// operands, the compare values.
pub const ATOMIC: u8 = 11;
/// Whether messages have to be offered. Words: 1 or 0.
pub const THROTTLE: u8 = 12;

/// Flag: the message has a tag.
pub const TAGGED: u8 = 1;
/// Flag: the message has immediate data.
pub const HAS_DATA: u8 = 2;
/// Flag: another part of the same write or read follows.
pub const MORE: u8 = 4;
/// Flag: the acknowledgement of the message is due when a receive has it, not when it is kept.
pub const UNTIL_PLACED: u8 = 8;
/// Flag: the write needs no answer, and either side may apply it
/// ([`turns`](crate::onesided::turns)).
pub const IN_RING: u8 = 16;

/// Size in bytes of a piece of a remote list.
const REMOTE_PART: usize = 24;

/// Largest number of bytes of a remote list.
pub const REMOTE_LIST: usize = IOV_LIMIT * REMOTE_PART;

/// An encoded list.
pub struct List<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> List<N> {
    fn new(words: impl IntoIterator<Item = u64>) -> Self {
        let mut list = List {
            bytes: [0; N],
            len: 0,
        };
        let (places, _) = list.bytes.as_chunks_mut::<8>();
        for (place, word) in places.iter_mut().zip(words) {
            *place = word.to_ne_bytes();
            list.len = list.len.saturating_add(8);
        }
        list
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Encodes a remote list.
pub fn remote_list(list: &RemoteIov) -> List<REMOTE_LIST> {
    let parts = list.pieces().iter();
    List::new(parts.flat_map(|part| [part.addr, part.len, part.key]))
}

/// Copies the `count` elements of `size` bytes at the start of a message. Returns the copy and the
/// number of bytes.
fn words<const N: usize>(bytes: &Iov<'_>, count: usize, size: usize) -> Option<([u8; N], usize)> {
    let len = count.checked_mul(size).filter(|len| *len <= N)?;
    let mut copy = [0; N];
    // The bytes are read once, so that they cannot change between check and use.
    (bytes.read_once(copy.get_mut(..len)?) == len).then_some((copy, len))
}

/// Decodes a remote list of `count` pieces at the start of a message. Returns it and the bytes
/// after it. The total length of the pieces is less than the size of the address space.
pub fn read_remote_list<'m>(bytes: Iov<'m>, count: u64) -> Option<(RemoteIov, Iov<'m>)> {
    let count = usize::try_from(count).ok()?;
    let (copy, len) = words::<REMOTE_LIST>(&bytes, count, REMOTE_PART)?;
    let mut list = RemoteIov::default();
    let (words, _) = copy.get(..len)?.as_chunks::<8>();
    let (parts, _) = words.as_chunks::<3>();
    for part in parts {
        let [addr, len, key] = part.map(u64::from_ne_bytes);
        list.push(RemotePiece { addr, len, key });
    }
    let rest = bytes.into_slice(len, usize::MAX);
    (list.len() <= isize::MAX as u64).then_some((list, rest))
}

/// Decodes a remote list of `count` pieces at the end of a message. Returns it and the number of
/// bytes before it.
pub fn read_list_behind(bytes: &Piece<'_>, count: u64) -> Option<(RemoteIov, usize)> {
    let len = usize::try_from(count).ok()?.checked_mul(REMOTE_PART)?;
    let at = bytes.len().checked_sub(len)?;
    let (list, _) = read_remote_list(bytes.skip(at).into(), count)?;
    Some((list, at))
}

/// Decodes the location of a payload, which takes all bytes of a message.
pub fn read_offered_list(bytes: &Iov<'_>) -> Option<OtherIov> {
    let mut copy = [0; WRITTEN];
    let copy = copy.get_mut(..bytes.len())?;
    // The bytes are read once, so that they cannot change between check and use.
    bytes.read_once(copy);
    OtherIov::read(copy)
}

/// The description of an atomic operation, in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicWord {
    pub op: u8,
    pub datatype: u8,
    /// [`Form::code`](prov_base::atomic_ops::Form::code)
    pub form: u8,
    /// Number of pieces of the remote list.
    pub count: u8,
}

impl AtomicWord {
    pub fn pack(self) -> u64 {
        u32::from_ne_bytes([self.op, self.datatype, self.form, self.count]).into()
    }

    pub fn unpack(word: u64) -> Option<Self> {
        let [op, datatype, form, count] = u32::try_from(word).ok()?.to_ne_bytes();
        Some(AtomicWord {
            op,
            datatype,
            form,
            count,
        })
    }
}

#[cfg(test)]
#[path = "../../../../fuzz/src/records_check.rs"]
mod records_check;

#[cfg(test)]
mod tests {
    use super::records_check::check;

    #[test]
    fn any_record_is_read_as_it_would_be_written_or_refused() {
        let mut numbers = 1u64;
        let mut number = |bits: u32| {
            numbers = numbers.wrapping_mul(6364136223846793005).wrapping_add(1);
            numbers >> (64 - bits)
        };
        for round in 0..5000 {
            let mut record = vec![if round % 100 == 0 {
                255
            } else {
                number(3) as u8
            }];
            for _ in 0..number(4) {
                // Lengths of a list that fit into memory, or any.
                let value = number(if round % 2 == 0 { 40 } else { 64 });
                record.extend(value.to_ne_bytes());
            }
            record.extend((0..number(3)).map(|byte| byte as u8));
            check(&record);
        }
    }
}
