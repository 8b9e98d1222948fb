//! What goes through a channel: kinds of messages, and lists in them. What a
//! peer has written is checked here.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use prov_base::buffer::{IOV_LIMIT, Iov, Piece};
use prov_base::process_memory::{OtherIov, WRITTEN};
use prov_util::request::{RemoteIov, RemotePiece};

/// A whole message. Words: tag, immediate data, name to acknowledge.
pub const MESSAGE: u8 = 1;
/// A message that stays with the sender. Words: tag, immediate data, name of
/// the offer. Bytes: where it is.
pub const OFFERED: u8 = 2;
/// An operation, or an offer, is done. Words: its name, an error or 0.
pub const DONE: u8 = 3;
/// A write. Words: immediate data, name, parts of the remote list. Bytes: what is
/// written, so that it begins where a cache line does, and the list, which is that of
/// all parts and comes with the first one alone.
pub const WRITE: u8 = 6;
/// The sender has written to memory by itself. Words: immediate data, 0, parts of the
/// remote list. Bytes: the list.
pub const WAS_WRITTEN: u8 = 7;
/// A read. Words: bytes, name, parts of the remote list. Bytes: the list.
pub const READ: u8 = 8;
/// What was read, or a part of it, or the result of an atomic operation. Words: name.
pub const RESULT: u8 = 9;
/// The sender has read memory by itself. Words and bytes as of [`WAS_WRITTEN`].
pub const WAS_READ: u8 = 10;
/// An atomic operation. Words: immediate data, name, [`AtomicWord`]. Bytes: the
/// remote list, operands, what is compared with.
pub const ATOMIC: u8 = 11;
/// Whether messages are to be offered. Words: 1 or 0.
pub const THROTTLE: u8 = 12;

/// There is a tag.
pub const TAGGED: u8 = 1;
/// There is immediate data.
pub const HAS_DATA: u8 = 2;
/// Another part of the same write, or of what is read, follows.
pub const MORE: u8 = 4;

/// Bytes of a part of a remote list.
const REMOTE_PART: usize = 24;

/// Most bytes of a remote list.
pub const REMOTE_LIST: usize = IOV_LIMIT * REMOTE_PART;

/// A list in bytes.
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

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// A remote list in bytes.
pub fn remote_list(list: &RemoteIov) -> List<REMOTE_LIST> {
    let parts = list.pieces().iter();
    List::new(parts.flat_map(|part| [part.addr, part.len, part.key]))
}

/// The words at the start of a message's bytes, and how many bytes they are.
fn words<const N: usize>(bytes: &Iov<'_>, count: usize, size: usize) -> Option<([u8; N], usize)> {
    let len = count.checked_mul(size).filter(|len| *len <= N)?;
    let mut copy = [0; N];
    // Read once, so that it cannot change between a check and a use.
    (bytes.read_once(copy.get_mut(..len)?) == len).then_some((copy, len))
}

/// A remote list of `count` parts at the start of a message's bytes, and the
/// bytes behind it. The parts have fewer bytes than there are addresses.
pub fn read_remote_list<'m>(bytes: &Iov<'m>, count: u64) -> Option<(RemoteIov, Iov<'m>)> {
    let count = usize::try_from(count).ok()?;
    let (copy, len) = words::<REMOTE_LIST>(bytes, count, REMOTE_PART)?;
    let mut list = RemoteIov::default();
    let (words, _) = copy.get(..len)?.as_chunks::<8>();
    let (parts, _) = words.as_chunks::<3>();
    for part in parts {
        let [addr, len, key] = part.map(u64::from_ne_bytes);
        list.push(RemotePiece { addr, len, key });
    }
    let rest = bytes.slice(len, usize::MAX);
    (list.len() <= isize::MAX as u64).then_some((list, rest))
}

/// The same where the list is behind the bytes, and how many these are.
pub fn read_list_behind(bytes: &Piece<'_>, count: u64) -> Option<(RemoteIov, usize)> {
    let len = usize::try_from(count).ok()?.checked_mul(REMOTE_PART)?;
    let at = bytes.len().checked_sub(len)?;
    let (list, _) = read_remote_list(&bytes.skip(at).into(), count)?;
    Some((list, at))
}

/// Where something is: all bytes of a message.
pub fn read_offered_list(bytes: &Iov<'_>) -> Option<OtherIov> {
    let mut copy = [0; WRITTEN];
    let copy = copy.get_mut(..bytes.len())?;
    // Read once, so that it cannot change between a check and a use.
    bytes.read_once(copy);
    OtherIov::read(copy)
}

/// What an atomic operation is, in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicWord {
    pub op: u8,
    pub datatype: u8,
    /// [`Form::code`](prov_base::atomic_ops::Form::code)
    pub form: u8,
    /// Parts of the remote list.
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
