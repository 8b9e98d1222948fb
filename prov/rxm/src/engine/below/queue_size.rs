//! The size of completion queues below: no attribute tells how long a device's may be.

use prov_base::errno::{Errno, Result};

/// Number of attempts to open a queue with a larger size than the device may support.
const TRIES: u32 = 4;

/// Returns the result of `open` for approximately the largest size that it accepts, from `size`
/// down to `least`, and that size: a device may not support such long queues, and no attribute
/// tells the limit.
///
/// # Errors
/// That of `open` for `least`.
pub(super) fn largest<T>(
    size: usize,
    least: usize,
    mut open: impl FnMut(usize) -> Result<T>,
) -> Result<(T, usize)> {
    let mut too_large = None;
    let mut fits = size;
    let mut opened = loop {
        match open(fits) {
            Err(Errno::EINVAL | Errno::ENOMEM | Errno::ENOSPC) if fits > least => {
                too_large = Some(fits);
                fits = (fits / 2).max(least);
            }
            outcome => break outcome?,
        }
    };
    if let Some(mut too_large) = too_large {
        for _ in 0..TRIES {
            let between = fits.midpoint(too_large);
            match open(between) {
                Ok(larger) => (opened, fits) = (larger, between),
                Err(_) => too_large = between,
            }
        }
    }
    Ok((opened, fits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_queue_size_is_the_largest_that_the_device_supports() {
        let device = |size| match size <= 32767 {
            true => Ok(size),
            false => Err(Errno::EINVAL),
        };
        let size = |size, least| largest(size, least, device).map(|(_, size)| size);
        assert_eq!(size(1000, 500), Ok(1000));
        let found = size(100_000, 500).unwrap();
        assert!((31_000..32_768).contains(&found), "{found}");
        assert!((30_000..32_768).contains(&size(100_000, 30_000).unwrap()));
        assert_eq!(size(100_000, 40_000), Err(Errno::EINVAL));
        let none = largest(2, 1, |_| Err::<(), _>(Errno::ENODEV));
        assert_eq!(none, Err(Errno::ENODEV));
    }
}
