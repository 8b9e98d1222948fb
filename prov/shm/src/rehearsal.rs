//! Whether the system permits what links need. A sandbox may deny system calls (seccomp(2)); the
//! provider is not offered there, instead of endpoints whose operations wait for ever.

use std::fmt;
use std::os::fd::AsFd as _;
use std::sync::OnceLock;

use prov_base::errno::Errno;
use prov_base::process_memory::Seal;
use prov_base::random;
use prov_local::segment::Segment;

use crate::listener::{Listener, Wire};

/// The service under which the rehearsal is found.
const SERVICE: &str = "fi_shm/rehearsal";
/// Bytes of the segment that is created for it.
const LEN: usize = 4096;

/// What the system denies, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Denial {
    what: &'static str,
    pub error: Errno,
}

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Denial { what, error } = self;
        write!(
            f,
            "the system denies what links between processes need: {what}: {error}"
        )
    }
}

/// Rehearses a link of this process to itself, once.
///
/// # Errors
/// What the system denies. Other errors, such as a lack of descriptors, may be over when there are
/// links.
pub fn rehearse() -> std::result::Result<(), Denial> {
    static DONE: OnceLock<std::result::Result<(), Denial>> = OnceLock::new();
    if let Some(done) = DONE.get() {
        return *done;
    }
    let rehearsed = match link() {
        Err((what, error @ (Errno::EPERM | Errno::EACCES | Errno::ENOSYS | Errno::EIO))) => {
            Err(Denial { what, error })
        }
        Err(_) => return Ok(()),
        Ok(()) => Ok(()),
    };
    *DONE.get_or_init(|| rehearsed)
}

/// Makes a link and ends it. Returns what is impossible, and why.
fn link() -> std::result::Result<(), (&'static str, Errno)> {
    let at = |what| move |error| (what, error);
    Seal::new().map_err(at("random numbers"))?;
    let (_, fd) =
        Segment::create(LEN, std::slice::from_ref(&(0..LEN))).map_err(at("shared memory"))?;
    let name = format!("{}:{}", std::process::id(), random::number());
    let mut listener = Listener::new(SERVICE, &name).map_err(at("a listening socket"))?;
    listener.listen().map_err(at("a listening socket"))?;
    let near = Wire::reach(SERVICE, &name).map_err(at("a connection"))?;
    let far = listener.accept().map_err(at("accepting a connection"))?;
    let far = far.ok_or(("accepting a connection", Errno::EAGAIN))?;
    near.send(&[0], [fd.as_fd()])
        .map_err(at("sending a descriptor"))?;
    let (_, with) = far
        .receive(&mut [0])
        .map_err(at("receiving a descriptor"))?;
    let received = with.first();
    let received = received.ok_or(("receiving a descriptor", Errno::EAGAIN))?;
    Segment::attach(received.as_fd(), LEN).map_err(at("attaching shared memory"))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_permits_links() {
        assert_eq!(link(), Ok(()));
        assert_eq!(rehearse(), Ok(()));
    }
}
