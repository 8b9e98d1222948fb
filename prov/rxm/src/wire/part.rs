//! Lists of memory segments that the other side accesses: four entries of 24 bytes, of which the
//! first few are used.

use prov_util::request::{RemoteIov, RemotePiece};

use super::{Malformed, Reader, Result};

/// Limit of the segments in a list.
pub const PARTS: usize = 4;
/// Length in bytes of a list without its count.
pub const LIST: usize = PARTS * 24;
/// Length in bytes of a list followed by its count.
pub const COUNTED_LIST: usize = LIST + 8;

/// Encodes a list.
pub fn write_parts(parts: &[RemotePiece], bytes: &mut [u8]) {
    let words = parts
        .iter()
        .flat_map(|part| [part.addr, part.len, part.key]);
    let places = bytes.as_chunks_mut().0.iter_mut();
    let mut places = places.take(PARTS * 3);
    for (place, word) in places.by_ref().zip(words) {
        *place = word.to_ne_bytes();
    }
}

/// Encodes a list with its count; the rest of the buffer is already zero.
pub fn write_list(parts: &[RemotePiece], bytes: &mut [u8]) {
    write_parts(parts, bytes);
    if let Some(count) = bytes.get_mut(LIST) {
        *count = parts.len() as u8;
    }
}

/// Decodes a list with this count; also returns what follows it.
///
/// # Errors
/// If there are too few bytes.
pub fn read_parts(bytes: &[u8], count: usize) -> Result<(RemoteIov, &[u8])> {
    const SHORT: Malformed = Malformed("length of a list");
    let (mut reader, behind) = match bytes.split_at_checked(LIST) {
        Some((list, behind)) => (Reader(list), behind),
        None => return Err(SHORT),
    };
    let mut list = RemoteIov::default();
    for _ in 0..count {
        let mut read = || {
            Some(RemotePiece {
                addr: reader.u64()?,
                len: reader.u64()?,
                key: reader.u64()?,
            })
        };
        let part = read().ok_or(SHORT)?;
        if !list.push(part) {
            return Err(SHORT);
        }
    }
    Ok((list, behind))
}

/// Decodes a list with its count; also returns what follows it.
///
/// # Errors
/// If it is too short, empty, or has too many segments.
pub fn read_list(bytes: &[u8]) -> Result<(RemoteIov, &[u8])> {
    let count = bytes.get(LIST).copied().map_or(0, usize::from);
    if count == 0 || count > PARTS {
        return Err(Malformed("length of a list"));
    }
    let (list, _) = read_parts(bytes, count)?;
    Ok((list, bytes.get(COUNTED_LIST..).unwrap_or_default()))
}
