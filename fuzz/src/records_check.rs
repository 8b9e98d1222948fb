//! The properties of reading the records of a channel of shm for arbitrary contents. Shared by the
//! fuzz target and the provider's tests, which have the reading functions in scope.

use prov_base::buffer::{IOV_LIMIT, Iov, Piece};

use super::{AtomicWord, read_list_behind, read_offered_list, read_remote_list, remote_list};

/// Number of bytes of a piece of a remote list.
const PART: usize = 24;

/// The first byte is the number of pieces that the record claims, the rest what it contains.
pub fn check(input: &[u8]) {
    let Some((&count, bytes)) = input.split_first() else {
        return;
    };
    // A number that is larger than any length, too.
    let count = if count == 255 {
        u64::MAX / 3
    } else {
        count.into()
    };
    let mut memory = bytes.to_vec();
    // SAFETY: the vector outlives the piece, and is not accessed otherwise while that is used.
    let record = unsafe { Piece::from_raw(memory.as_mut_ptr(), memory.len()) };
    let needed = usize::try_from(count)
        .ok()
        .and_then(|count| count.checked_mul(PART))
        .filter(|needed| *needed <= bytes.len());

    let front = read_remote_list(record.into(), count);
    assert!(front.is_none() || needed.is_some_and(|needed| needed <= IOV_LIMIT * PART));
    if let (Some((list, rest)), Some(needed)) = (front, needed) {
        assert_eq!(rest.len(), bytes.len() - needed);
        assert!(list.len() <= isize::MAX as u64);
        assert_eq!(remote_list(&list).bytes(), &bytes[..needed]);
    }
    let behind = read_list_behind(&record, count);
    if let (Some((list, at)), Some(needed)) = (behind, needed) {
        assert_eq!(at, bytes.len() - needed);
        assert_eq!(remote_list(&list).bytes(), &bytes[at..]);
    }
    if let Some(list) = read_offered_list(&Iov::from(record)) {
        assert!(list.pieces().len() <= IOV_LIMIT);
    }
    if let Some(word) = bytes.first_chunk().copied().map(u64::from_ne_bytes)
        && let Some(atomic) = AtomicWord::unpack(word)
    {
        assert_eq!(atomic.pack(), word);
    }
}
