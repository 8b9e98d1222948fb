//! A descriptor that polls readable once it was rung: an eventfd(2), or a pipe where the system
//! denies that.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Once;

use rustix::event::{EventfdFlags, eventfd};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::errno::{Errno, Result};
use crate::logging::UTIL;

/// Bytes that are read from a pipe at a time. It has few: rings of a bell that is rung already.
const BATCH: usize = 256;

/// See the module description. None of its calls blocks.
pub struct Bell {
    readable: OwnedFd,
    /// The writing end of a pipe.
    writable: Option<OwnedFd>,
}

impl Bell {
    /// Creates a bell that was not rung.
    ///
    /// # Errors
    /// Those of eventfd(2), such as `-FI_EMFILE`, or of pipe(2).
    pub fn new() -> Result<Self> {
        match eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(Errno::from) {
            Ok(readable) => Ok(Bell {
                readable,
                writable: None,
            }),
            Err(error) if error.is_denial() => {
                static SAID: Once = Once::new();
                SAID.call_once(|| {
                    log::info!(target: UTIL.core, "eventfd(2) is denied ({error}): pipes instead");
                });
                Self::pipe()
            }
            Err(error) => Err(error),
        }
    }

    fn pipe() -> Result<Self> {
        let (readable, writable) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        Ok(Bell {
            readable,
            writable: Some(writable),
        })
    }

    /// Makes the descriptor readable.
    pub fn ring(&self) {
        // Fails only if the counter would overflow or the pipe is full, and then the descriptor is
        // readable anyway.
        let _ = match &self.writable {
            None => rustix::io::write(&self.readable, &1u64.to_ne_bytes()),
            Some(writable) => rustix::io::write(writable, &[1]),
        };
    }

    /// Makes the descriptor unreadable.
    pub fn silence(&self) {
        match self.writable {
            None => drop(rustix::io::read(&self.readable, &mut [0; 8])),
            Some(_) => while rustix::io::read(&self.readable, &mut [0; BATCH]) == Ok(BATCH) {},
        }
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.readable.as_fd()
    }
}

impl AsRawFd for Bell {
    fn as_raw_fd(&self) -> RawFd {
        self.readable.as_raw_fd()
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    fn is_readable(bell: &Bell) -> bool {
        let mut fds = [PollFd::new(bell, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())) == Ok(1)
    }

    #[test]
    fn it_is_readable_from_the_first_ring_until_it_is_silenced() {
        for bell in [Bell::new().unwrap(), Bell::pipe().unwrap()] {
            assert!(!is_readable(&bell));
            bell.silence();
            for rings in [1, 2, BATCH, BATCH + 1] {
                (0..rings).for_each(|_| bell.ring());
                assert!(is_readable(&bell));
                bell.silence();
                assert!(!is_readable(&bell), "after {rings}");
            }
        }
    }

    #[test]
    fn a_bell_that_nobody_silences_can_be_rung_on() {
        let bell = Bell::pipe().unwrap();
        (0..1 << 17).for_each(|_| bell.ring());
        assert!(is_readable(&bell));
        bell.silence();
        assert!(!is_readable(&bell));
    }
}
