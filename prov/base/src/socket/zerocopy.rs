//! Sending without a copy in the kernel (`MSG_ZEROCOPY`): the kernel reports on the socket's error
//! queue when it has released the memory.

use std::os::fd::{AsRawFd, BorrowedFd};

/// `SO_EE_ORIGIN_ZEROCOPY`
const ORIGIN_ZEROCOPY: u8 = 5;

/// Enables a socket for `MSG_ZEROCOPY`, for its whole life; `false` if that fails.
pub fn enable(socket: BorrowedFd<'_>) -> bool {
    super::switch_on(socket, libc::SOL_SOCKET, libc::SO_ZEROCOPY)
}

/// Returns the number of the last call in the next message of the socket's error queue; the kernel
/// counts the calls with `MSG_ZEROCOPY` from 0 on, modulo 2^32. `None` if there is no message.
pub fn next_release(socket: BorrowedFd<'_>) -> Option<u32> {
    #[repr(align(8))]
    struct Control([u8; 128]);
    let mut control = Control([0; 128]);
    // SAFETY: the structure consists of integers and pointers, for which zero is a valid value.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = control.0.len() as _;
    // SAFETY: the header describes `control` only, which outlives the call.
    let received = unsafe {
        libc::recvmsg(
            socket.as_raw_fd(),
            &mut header,
            libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT,
        )
    };
    if received < 0 {
        return None;
    }
    // SAFETY: the header describes the control buffer that the kernel has filled; the macros stay
    // inside it, and an entry of this type contains a `sock_extended_err`.
    unsafe {
        let mut message = libc::CMSG_FIRSTHDR(&header);
        while let Some(entry) = message.as_ref() {
            let is_note = matches!(
                (entry.cmsg_level, entry.cmsg_type),
                (libc::SOL_IP, libc::IP_RECVERR) | (libc::SOL_IPV6, libc::IPV6_RECVERR)
            );
            let needed = libc::CMSG_LEN(size_of::<libc::sock_extended_err>() as u32);
            if is_note && entry.cmsg_len >= needed as usize {
                let note = libc::CMSG_DATA(message)
                    .cast::<libc::sock_extended_err>()
                    .read_unaligned();
                if note.ee_origin == ORIGIN_ZEROCOPY {
                    return Some(note.ee_data);
                }
            }
            message = libc::CMSG_NXTHDR(&header, message);
        }
    }
    None
}
