//! Lists of a side's memory, as the other one is to access it: four places of 24
//! bytes, of which the first few are used.

use prov_util::request::{RemoteIov, RemotePiece};

use super::{Malformed, Reader, Result};

/// Parts that a list has at most.
pub const PARTS: usize = 4;
/// Bytes of a list without its length.
pub const LIST: usize = PARTS * 24;
/// Bytes of a list with its length, which is behind it.
pub const COUNTED_LIST: usize = LIST + 8;

/// Writes a list.
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

/// Writes a list with its length; the rest of it is zero already.
pub fn write_list(parts: &[RemotePiece], bytes: &mut [u8]) {
    write_parts(parts, bytes);
    if let Some(count) = bytes.get_mut(LIST) {
        *count = parts.len() as u8;
    }
}

/// Reads a list of this length; returns what is behind it, too.
///
/// # Errors
/// Where there are not so many bytes.
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

/// Reads a list with its length; returns what is behind it, too.
///
/// # Errors
/// Where it is too short, or has no or too many parts.
pub fn read_list(bytes: &[u8]) -> Result<(RemoteIov, &[u8])> {
    let count = bytes.get(LIST).copied().map_or(0, usize::from);
    if count == 0 || count > PARTS {
        return Err(Malformed("length of a list"));
    }
    let (list, _) = read_parts(bytes, count)?;
    Ok((list, bytes.get(COUNTED_LIST..).unwrap_or_default()))
}
