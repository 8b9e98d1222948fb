//! Random numbers for names that others should not be able to guess or to reuse.

use std::fs::File;
use std::io::Read as _;

use rustix::rand::GetRandomFlags;

use crate::errno::{Errno, Result};

/// Returns bytes that cannot be guessed.
///
/// # Errors
/// `-FI_EIO` if the system has no random numbers.
pub fn bytes<const N: usize>() -> Result<[u8; N]> {
    const { assert!(N <= 256, "the system gives as many at once") };
    let mut bytes = [0; N];
    match rustix::rand::getrandom(&mut bytes, GetRandomFlags::empty()) {
        Ok(given) if given == N => Ok(bytes),
        _ => from_device(),
    }
}

/// The same where getrandom(2) is denied.
#[cold]
fn from_device<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut device = File::open("/dev/urandom").map_err(|_| Errno::EIO)?;
    device.read_exact(&mut bytes).map_err(|_| Errno::EIO)?;
    Ok(bytes)
}

/// Returns a number that cannot be guessed.
///
/// # Errors
/// Those of [`bytes`].
pub fn secret() -> Result<u64> {
    bytes().map(u64::from_ne_bytes)
}

/// Returns a number that is unlikely to be repeated: from the system, or from the clock if the
/// system has no random numbers.
pub fn number() -> u64 {
    secret().unwrap_or_else(|_| {
        std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(1, |time| time.as_nanos() as u64)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_device_gives_random_numbers_too() {
        let numbers = [(); 4].map(|()| from_device::<8>().unwrap());
        assert!(numbers.iter().any(|number| *number != numbers[0]));
    }
}
