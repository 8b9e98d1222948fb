//! Locations in the memory of a process, for another process of its host.

use prov_base::process_memory::{OtherIov, WRITTEN};

use super::WireError;

/// Largest number of bytes of such a list.
pub const MAX_LIST: usize = WRITTEN;

/// Decodes a list of segments that have `len` bytes in total.
pub fn decode(bytes: &[u8], len: u64) -> Result<OtherIov, WireError> {
    let list = OtherIov::read(bytes).filter(|list| list.len() == len);
    list.ok_or(WireError::Field("list of memory"))
}
