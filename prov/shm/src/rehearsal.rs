//! Whether the system permits what links need. A sandbox may deny system calls (seccomp(2)); an
//! endpoint there cannot be opened, instead of being one whose operations wait for ever.

use std::os::fd::AsFd as _;
use std::sync::OnceLock;

use prov_base::errno::{Errno, Result};
use prov_base::process_memory::Seal;
use prov_base::random;
use prov_local::segment::Segment;

use crate::LOG;
use crate::listener::{Listener, Wire};

/// The service under which the rehearsal is found.
const SERVICE: &str = "fi_shm/rehearsal";
/// Bytes of the segment that is created for it.
const LEN: usize = 4096;

/// Rehearses a link of this process to itself, once.
///
/// # Errors
/// Those with which the system denies something. Others, such as a lack of descriptors, may be over
/// when there are links.
pub fn rehearse() -> Result {
    static DONE: OnceLock<Result> = OnceLock::new();
    if let Some(done) = DONE.get() {
        return *done;
    }
    let rehearsed = match link() {
        Err((what, error @ (Errno::EPERM | Errno::EACCES | Errno::ENOSYS | Errno::EIO))) => {
            log::warn!(
                target: LOG.ep_ctrl,
                "the system denies what links between processes need: {what}: {error}"
            );
            Err(error)
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
