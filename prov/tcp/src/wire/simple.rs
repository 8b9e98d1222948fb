//! The short way for messages with nothing special about them: no immediate
//! data, no flags, native byte order. It writes and reads what
//! [`Header`](super::header::Header) does, and leaves everything else to it.

use super::header::{BASE, Op, VERSION};

/// The first bytes of a header, with the number of the message 0.
const fn start(op: Op, len: usize) -> u64 {
    u64::from_le_bytes([VERSION, op as u8, 0, 0, 0, 0, len as u8, 0])
}

/// Writes the header of a message without immediate data or flags, in native
/// order, and returns its length.
#[inline(always)]
pub fn encode_simple(tag: Option<u64>, payload: usize, sequence: u8, out: &mut [u8]) -> usize {
    let (op, len) = match tag {
        Some(_) => (Op::Tagged, BASE + 8),
        None => (Op::Msg, BASE),
    };
    let Some((head, rest)) = out.split_first_chunk_mut::<BASE>() else {
        return 0;
    };
    // One number, and so one store.
    let start = start(op, len) | u64::from(sequence) << 56;
    head[..8].copy_from_slice(&start.to_le_bytes());
    head[8..].copy_from_slice(&((len + payload) as u64).to_ne_bytes());
    if let (Some(tag), Some(place)) = (tag, rest.first_chunk_mut::<8>()) {
        *place = tag.to_ne_bytes();
    }
    len
}

/// A message without immediate data or flags that is here as a whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Simple<'a> {
    /// The tag of a tagged message.
    pub tag: Option<u64>,
    /// The message.
    pub payload: &'a [u8],
    /// What follows.
    pub rest: &'a [u8],
}

/// The message at the start of `bytes` if it is a [`Simple`] one in native
/// order; everything else is for [`Header::decode`] to judge.
#[inline(always)]
pub fn decode_simple(bytes: &[u8]) -> Option<Simple<'_>> {
    const TAGGED: u64 = start(Op::Tagged, BASE + 8);
    const PLAIN: u64 = start(Op::Msg, BASE);
    // The last byte of these is the message's number, which may be any.
    const COMPARED: u64 = u64::MAX >> 8;
    let (head, rest) = bytes.split_first_chunk::<BASE>()?;
    let (head, size) = (head.first_chunk::<8>()?, head.last_chunk::<8>()?);
    let head = u64::from_le_bytes(*head) & COMPARED;
    let size = usize::try_from(u64::from_ne_bytes(*size)).ok()?;
    let (tag, body) = if head == TAGGED {
        let (tag, _) = rest.split_first_chunk::<8>()?;
        (Some(u64::from_ne_bytes(*tag)), BASE + 8)
    } else if head == PLAIN {
        (None, BASE)
    } else {
        return None;
    };
    if size > bytes.len() {
        return None;
    }
    let (message, rest) = bytes.split_at(size);
    let payload = message.get(body..)?;
    Some(Simple { tag, payload, rest })
}

#[cfg(test)]
mod tests {
    use super::super::ByteOrder;
    use super::super::header::tests::{bytes, every_header};
    use super::super::header::{Header, MAX_HEADER};
    use super::*;

    #[test]
    fn the_short_way_writes_and_reads_what_the_long_one_does() {
        for tag in [None, Some(0x1234_5678_9abc_def0)] {
            let mut header = Header::new(if tag.is_some() { Op::Tagged } else { Op::Msg });
            header.tag = tag.unwrap_or(0);
            header.payload = 5;
            let mut long = bytes(&header, &[], ByteOrder::Native);
            let mut short = [0xaa; MAX_HEADER];
            let len = encode_simple(tag, 5, 0, &mut short);
            assert_eq!(short[..len], long);
            long.extend(b"helloand more");
            let simple = decode_simple(&long).unwrap();
            assert_eq!((simple.tag, simple.payload), (tag, &b"hello"[..]));
            assert_eq!(simple.rest, b"and more");
            for cut in 0..len + 5 {
                assert_eq!(decode_simple(&long[..cut]), None);
            }
        }
        for (header, parts) in every_header() {
            let mut all = bytes(&header, &parts, ByteOrder::Native);
            all.resize(all.len() + header.payload, 7);
            if let Some(simple) = decode_simple(&all) {
                assert!(!header.is_ack() && header.flags == 0 && header.op_data == 0);
                assert_eq!(simple.tag.unwrap_or(0), header.tag);
                assert_eq!(simple.payload.len(), header.payload);
            }
        }
    }
}
