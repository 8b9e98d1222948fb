//! Files without a name, in memory (memfd_create(2)).

use std::os::fd::OwnedFd;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno as Os;

use crate::errno::Result;

/// Creates a file that cannot be made executable: where `vm.memfd_noexec` is 2, the kernel allows
/// no others.
///
/// # Errors
/// Those of memfd_create(2).
pub fn create(name: &str, flags: MemfdFlags) -> Result<OwnedFd> {
    let file = match memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
        // Linux before 6.3 does not know the flag.
        Err(Os::INVAL) => memfd_create(name, flags),
        made => made,
    };
    Ok(file?)
}

#[cfg(test)]
mod tests {
    use rustix::fs::fstat;

    use super::*;

    #[test]
    fn it_cannot_be_executed() {
        let file = create("test", MemfdFlags::CLOEXEC).unwrap();
        let plain = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::NOEXEC_SEAL);
        let expected = match plain {
            Ok(_) => 0,
            Err(_) => 0o111,
        };
        assert_eq!(fstat(&file).unwrap().st_mode & 0o111, expected);
    }
}
