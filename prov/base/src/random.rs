//! Random numbers for names that strangers should not guess or meet again.

use rustix::rand::GetRandomFlags;

use crate::errno::{Errno, Result};

/// Bytes that nobody can guess.
///
/// # Errors
/// `-FI_EIO` where the system has none to give.
pub fn bytes<const N: usize>() -> Result<[u8; N]> {
    const { assert!(N <= 256, "the system gives as many at once") };
    let mut bytes = [0; N];
    match rustix::rand::getrandom(&mut bytes, GetRandomFlags::empty()) {
        Ok(given) if given == N => Ok(bytes),
        _ => Err(Errno::EIO),
    }
}

/// A number that nobody can guess.
///
/// # Errors
/// As above.
pub fn secret() -> Result<u64> {
    bytes().map(u64::from_ne_bytes)
}

/// A number that is hardly ever met twice: from the system, or from the clock
/// where that has none to give.
pub fn number() -> u64 {
    secret().unwrap_or_else(|_| {
        std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(1, |time| time.as_nanos() as u64)
    })
}
