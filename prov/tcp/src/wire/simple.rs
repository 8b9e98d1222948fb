//! The fast path for messages without special properties: no immediate data, native byte order, and
//! no flags except those of a message that is to be acknowledged by name; and for these
//! acknowledgements. It encodes and decodes a subset of [`Header`](super::header::Header), and
//! leaves everything else to it.

use super::header::{BASE, DELIVERY_COMPLETE, NAMED, Op, VERSION};

/// Largest number of bytes of a header.
pub const MAX_SIMPLE: usize = BASE + 2 * 8;

/// Returns the first bytes of a header, with sequence number 0.
const fn start(op: Op, flags: u16, len: usize) -> u64 {
    let flags = flags.to_ne_bytes();
    u64::from_le_bytes([VERSION, op as u8, flags[0], flags[1], 0, 0, len as u8, 0])
}

const TAGGED: u64 = start(Op::Tagged, 0, BASE + 8);
const PLAIN: u64 = start(Op::Msg, 0, BASE);
/// Flags of a message that is to be acknowledged by name.
const ACKNOWLEDGED: u16 = DELIVERY_COMPLETE | NAMED;
const TAGGED_NAMED: u64 = start(Op::Tagged, ACKNOWLEDGED, BASE + 16);
const PLAIN_NAMED: u64 = start(Op::Msg, ACKNOWLEDGED, BASE + 8);
const ACK: u64 = start(Op::NamedAck, 0, ACK_LEN);
/// Number of bytes of an acknowledgement.
const ACK_LEN: usize = BASE + 8;
/// Mask of the bytes to compare: the last one is the sequence number, which may be any.
const COMPARED: u64 = u64::MAX >> 8;

/// Returns the number of bytes of the header of such a message.
#[inline(always)]
pub const fn header_len(is_tagged: bool, is_named: bool) -> usize {
    let words = (is_tagged as usize).wrapping_add(is_named as usize);
    words.wrapping_mul(8).wrapping_add(BASE)
}

/// Writes the header of a message without immediate data, in native order, which is to be
/// acknowledged by `name`, if given. Returns its length.
#[inline(always)]
pub fn encode_simple(
    tag: Option<u64>,
    name: Option<u64>,
    payload: usize,
    sequence: u8,
    out: &mut [u8; MAX_SIMPLE],
) -> usize {
    let start = match (tag, name) {
        (Some(_), None) => TAGGED,
        (None, None) => PLAIN,
        (Some(_), Some(_)) => TAGGED_NAMED,
        (None, Some(_)) => PLAIN_NAMED,
    };
    let len = header_len(tag.is_some(), name.is_some());
    // One number, and therefore one store.
    let start = start | u64::from(sequence) << 56;
    out[..8].copy_from_slice(&start.to_le_bytes());
    out[8..16].copy_from_slice(&(len.wrapping_add(payload) as u64).to_ne_bytes());
    match (tag, name) {
        (Some(first), second) => {
            out[16..24].copy_from_slice(&first.to_ne_bytes());
            if let Some(second) = second {
                out[24..32].copy_from_slice(&second.to_ne_bytes());
            }
        }
        (None, Some(first)) => out[16..24].copy_from_slice(&first.to_ne_bytes()),
        (None, None) => {}
    }
    len
}

/// Writes a message without immediate data, in native order, which is not to be acknowledged: its
/// header, followed by the `len` bytes that `fill` stores. Returns the length of both; `None` if
/// they do not fit.
#[inline(always)]
pub fn put_message(
    tag: Option<u64>,
    sequence: u8,
    len: usize,
    out: &mut [u8],
    fill: impl FnOnce(&mut [u8]),
) -> Option<usize> {
    // Each kind has code of its own, with a header of constant length.
    match tag {
        Some(tag) => {
            let (head, body) = out.split_first_chunk_mut::<{ BASE + 8 }>()?;
            head[BASE..].copy_from_slice(&tag.to_ne_bytes());
            fill(body.get_mut(..len)?);
            Some(put_base(TAGGED, sequence, len, head))
        }
        None => {
            let (head, body) = out.split_first_chunk_mut::<BASE>()?;
            fill(body.get_mut(..len)?);
            Some(put_base(PLAIN, sequence, len, head))
        }
    }
}

/// Returns the header of a tagged message without special properties, of `total` bytes with the
/// header, as words to be written in native order.
#[inline(always)]
pub fn tagged_words(tag: u64, sequence: u8, total: usize) -> [u64; 3] {
    [numbered(TAGGED, sequence), total as u64, tag]
}

/// Returns the header of such a message without a tag.
#[inline(always)]
pub fn plain_words(sequence: u8, total: usize) -> [u64; 2] {
    [numbered(PLAIN, sequence), total as u64]
}

#[inline(always)]
fn numbered(start: u64, sequence: u8) -> u64 {
    (start | u64::from(sequence) << 56).to_le()
}

/// Writes the first words of a header; returns the total length of the header and the message.
#[inline(always)]
fn put_base<const HEADER: usize>(
    start: u64,
    sequence: u8,
    len: usize,
    head: &mut [u8; HEADER],
) -> usize {
    // One number, and therefore one store.
    let start = start | u64::from(sequence) << 56;
    head[..8].copy_from_slice(&start.to_le_bytes());
    let total = HEADER.wrapping_add(len);
    head[8..16].copy_from_slice(&(total as u64).to_ne_bytes());
    total
}

/// Returns the header that acknowledges the message with this name.
#[inline(always)]
pub fn encode_ack(name: u64, sequence: u8) -> [u8; ACK_LEN] {
    let mut out = [0; ACK_LEN];
    out[..8].copy_from_slice(&(ACK | u64::from(sequence) << 56).to_le_bytes());
    out[8..16].copy_from_slice(&(ACK_LEN as u64).to_ne_bytes());
    out[16..].copy_from_slice(&name.to_ne_bytes());
    out
}

/// A message without immediate data that has been received as a whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Simple<'a> {
    /// The tag of a tagged message.
    pub tag: Option<u64>,
    /// The name for its acknowledgement, if it requests one.
    pub name: Option<u64>,
    /// The message.
    pub payload: &'a [u8],
    /// The bytes after it.
    pub rest: &'a [u8],
}

/// Decodes the message at the start of `bytes` if it is a [`Simple`] one in native order;
/// everything else is left to [`Header::decode`](super::header::Header::decode).
#[inline(always)]
pub fn decode_simple(bytes: &[u8]) -> Option<Simple<'_>> {
    let (head, size, rest) = split_base(bytes)?;
    let SimpleHead { tag, name, len } = decode_head(
        head,
        #[inline(always)]
        |number| {
            let word = rest.get(number.wrapping_mul(8)..)?.first_chunk();
            word.copied().map(u64::from_ne_bytes)
        },
    )?;
    if size > bytes.len() {
        return None;
    }
    let (message, rest) = bytes.split_at(size);
    let payload = message.get(len..)?;
    Some(Simple {
        tag,
        name,
        payload,
        rest,
    })
}

/// The contents of the header of a [`Simple`] message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SimpleHead {
    /// As in [`Simple`].
    pub tag: Option<u64>,
    /// As in [`Simple`].
    pub name: Option<u64>,
    /// Number of bytes of the header.
    pub len: usize,
}

/// Decodes the header of a [`Simple`] message in native order, which has nothing after it and `len`
/// bytes in all. `word` reads eight of these, by their index.
#[inline(always)]
pub fn decode_single(len: usize, word: impl Fn(usize) -> Option<u64>) -> Option<SimpleHead> {
    let start = u64::from_le(word(0)?) & COMPARED;
    let head = decode_head(
        start,
        #[inline(always)]
        |number| word(number.wrapping_add(BASE / 8)),
    )?;
    (word(1)? == len as u64 && head.len <= len).then_some(head)
}

/// Decodes a header with this start; `word` reads the words after the base.
#[inline(always)]
fn decode_head(start: u64, word: impl Fn(usize) -> Option<u64>) -> Option<SimpleHead> {
    // Most frequent first.
    let (tag, name, len) = if start == TAGGED {
        (Some(word(0)?), None, BASE + 8)
    } else if start == TAGGED_NAMED {
        (Some(word(0)?), Some(word(1)?), BASE + 16)
    } else if start == PLAIN {
        (None, None, BASE)
    } else if start == PLAIN_NAMED {
        (None, Some(word(0)?), BASE + 8)
    } else {
        return None;
    };
    Some(SimpleHead { tag, name, len })
}

/// Returns the name in the acknowledgement at the start of `bytes`, in native order, if there is
/// one, and the bytes after it.
#[inline(always)]
pub fn decode_ack(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (head, size, rest) = split_base(bytes)?;
    if head != ACK || size != ACK_LEN {
        return None;
    }
    let (name, rest) = rest.split_first_chunk()?;
    Some((u64::from_ne_bytes(*name), rest))
}

/// Returns the start of a header without its sequence number, the size of its message, and the
/// bytes after the base.
#[inline(always)]
fn split_base(bytes: &[u8]) -> Option<(u64, usize, &[u8])> {
    let (base, rest) = bytes.split_first_chunk::<BASE>()?;
    let (head, size) = (base.first_chunk::<8>()?, base.last_chunk::<8>()?);
    let head = u64::from_le_bytes(*head) & COMPARED;
    let size = usize::try_from(u64::from_ne_bytes(*size)).ok()?;
    Some((head, size, rest))
}

#[cfg(test)]
mod tests {
    use super::super::ByteOrder;
    use super::super::header::Header;
    use super::super::header::tests::{bytes, every_header};
    use super::*;

    #[test]
    fn the_fast_path_encodes_and_decodes_as_the_slow_one_does() {
        let tag = 0x1234_5678_9abc_def0;
        for (tag, name) in [
            (None, None),
            (Some(tag), None),
            (None, Some(77)),
            (Some(tag), Some(77)),
        ] {
            let mut header = Header::new(if tag.is_some() { Op::Tagged } else { Op::Msg });
            header.tag = tag.unwrap_or(0);
            header.payload = 5;
            if let Some(name) = name {
                header.flags = ACKNOWLEDGED;
                header.id = name;
            }
            let mut long = bytes(&header, &[], ByteOrder::Native);
            let mut short = [0xaa; MAX_SIMPLE];
            let len = encode_simple(tag, name, 5, 0, &mut short);
            assert_eq!(short[..len], long);
            if name.is_none() {
                let mut whole = [0; MAX_SIMPLE + 5];
                let put = |body: &mut [u8]| body.copy_from_slice(b"hello");
                assert_eq!(put_message(tag, 0, 5, &mut whole, put), Some(len + 5));
                assert_eq!(whole[..len + 5], [&long[..], b"hello"].concat());
                let room = &mut whole[..len + 4];
                assert_eq!(put_message(tag, 0, 5, room, |_| panic!()), None);
            }
            let single = |all: &[u8], len| {
                decode_single(len, |number| {
                    let word = all.get(number * 8..)?.first_chunk();
                    word.copied().map(u64::from_ne_bytes)
                })
            };
            if name.is_none() {
                let words = match tag {
                    Some(tag) => tagged_words(tag, 0, len + 5).to_vec(),
                    None => plain_words(0, len + 5).to_vec(),
                };
                let bytes: Vec<u8> = words.into_iter().flat_map(u64::to_ne_bytes).collect();
                assert_eq!(bytes, long);
            }
            long.extend(b"hello");
            let head = SimpleHead { tag, name, len };
            assert_eq!(single(&long, len + 5), Some(head));
            assert_eq!(single(&long, len + 4), None);
            assert_eq!(single(&long, len + 6), None);
            for cut in 0..len {
                assert_eq!(single(&long[..cut / 8 * 8], len + 5), None);
            }
            long.extend(b"and more");
            let simple = decode_simple(&long).unwrap();
            assert_eq!((simple.tag, simple.name), (tag, name));
            assert_eq!(simple.payload, b"hello");
            assert_eq!(simple.rest, b"and more");
            for cut in 0..len + 5 {
                assert_eq!(decode_simple(&long[..cut]), None);
            }
        }
    }

    #[test]
    fn so_do_acknowledgements() {
        let mut header = Header::new(Op::NamedAck);
        header.id = 77;
        let mut all = bytes(&header, &[], ByteOrder::Native);
        assert_eq!(encode_ack(77, 0)[..], all);
        for cut in 0..all.len() {
            assert_eq!(decode_ack(&all[..cut]), None);
        }
        all.extend(b"more");
        assert_eq!(decode_ack(&all), Some((77, &b"more"[..])));
        assert_eq!(decode_simple(&all), None);
        // A wrong size is left to the slow path.
        all[8..16].copy_from_slice(&25u64.to_ne_bytes());
        assert_eq!(decode_ack(&all), None);
    }

    #[test]
    fn the_short_way_reads_nothing_else() {
        for (header, parts) in every_header() {
            let mut all = bytes(&header, &parts, ByteOrder::Native);
            all.resize(all.len() + header.payload, 7);
            if let Some(simple) = decode_simple(&all) {
                assert!(!header.is_ack() && header.op_data == 0);
                assert_eq!(simple.name.is_some(), header.flags != 0);
                assert_eq!(simple.name.unwrap_or(0), header.id);
                assert_eq!(simple.tag.unwrap_or(0), header.tag);
                assert_eq!(simple.payload.len(), header.payload);
            }
            if let Some((name, _)) = decode_ack(&all) {
                assert_eq!((header.op, header.id), (Op::NamedAck, name));
                assert_eq!((header.flags, header.op_data), (0, 0));
            }
        }
    }
}
