//! Where something is in the memory of a process, for another one of its host.

use prov_util::process_memory::{OtherIov, WRITTEN};

use super::WireError;

/// Most bytes of such a list.
pub const MAX_LIST: usize = WRITTEN;

/// Reads a list of pieces that have `len` bytes together.
pub fn decode(bytes: &[u8], len: u64) -> Result<OtherIov, WireError> {
    let list = OtherIov::read(bytes).filter(|list| list.len() == len);
    list.ok_or(WireError::Field("list of memory"))
}
