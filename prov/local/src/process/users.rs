//! The users of a process, from its descriptor.

use std::os::fd::BorrowedFd;

use prov_base::errno::Result;
use rustix::ioctl::{Updater, ioctl, opcode};

/// `struct pidfd_info` as Linux 6.13 has it; later ones fill it as far as it goes.
#[repr(C)]
#[derive(Default)]
struct PidfdInfo {
    /// Which fields are asked for, and which are filled.
    mask: u64,
    cgroup: u64,
    /// Of the thread, its process, and its parent.
    pids: [u32; 3],
    /// User and group: real, effective, saved, and of the file system.
    ids: [[u32; 2]; 4],
    exit_code: i32,
}

/// `PIDFD_INFO_CREDS`
const CREDENTIALS: u64 = 1 << 1;
/// `PIDFD_GET_INFO`
const GET_INFO: rustix::ioctl::Opcode = opcode::read_write::<PidfdInfo>(0xff, 11);

const _: () = assert!(size_of::<PidfdInfo>() == 64);

/// Returns the users of a process: real, effective, saved, and of the file system; `None` if the kernel
/// does not say.
///
/// # Errors
/// Those of ioctl(2): `-FI_ENOTTY` or `-FI_EINVAL` before Linux 6.13.
pub(super) fn of(process: BorrowedFd<'_>) -> Result<Option<[u32; 4]>> {
    let mut info = PidfdInfo {
        mask: CREDENTIALS,
        ..PidfdInfo::default()
    };
    // SAFETY: the request's number contains the size of the structure, of which the kernel reads and
    // writes no more; every bit pattern is valid for its fields.
    unsafe { ioctl(process, Updater::<GET_INFO, PidfdInfo>::new(&mut info)) }?;
    let is_filled = info.mask & CREDENTIALS != 0;
    Ok(is_filled.then_some(info.ids.map(|[user, _]| user)))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use rustix::process::{PidfdFlags, geteuid, getpid, pidfd_open};

    use super::*;

    #[test]
    fn the_users_of_a_process_are_those_of_its_status() {
        let Ok(own) = pidfd_open(getpid(), PidfdFlags::empty()) else {
            return;
        };
        // Earlier kernels do not say.
        if let Ok(Some(users)) = of(own.as_fd()) {
            assert_eq!(users, [geteuid().as_raw(); 4]);
        }
    }
}
