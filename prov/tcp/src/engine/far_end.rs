//! Which process has the far end of a connection within this host, as the
//! system knows it (sock_diag(7), proc(5)).

use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;

use prov_util::errno::{Errno, Result};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};

use super::socket::{self, system};

/// Bytes of `struct nlmsghdr` and `struct inet_diag_req_v2`.
const REQUEST: usize = 16 + 56;
/// Where `idiag_inode` ends in the answer, behind its `struct nlmsghdr`.
const INODE_END: usize = 16 + 72;
/// `SOCK_DIAG_BY_FAMILY`
const BY_FAMILY: u16 = 20;
/// `NLM_F_REQUEST`
const IS_REQUEST: u16 = 1;

/// The process `pid`, if it is one of this user's and has the far end of the
/// connection as descriptor `number`. `-FI_EPERM` otherwise.
pub fn process(socket: BorrowedFd<'_>, pid: u64, number: u64) -> Result<u32> {
    let pid = i32::try_from(pid)
        .map_err(|_| Errno::EINVAL)?
        .unsigned_abs();
    let held = std::fs::read_link(format!("/proc/{pid}/fd/{number}"))?;
    let inode = inode(socket)?;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let is_held = held.as_os_str() == format!("socket:[{inode}]").as_str();
    match is_held && runs_as(&status, rustix::process::geteuid().as_raw()) {
        true => Ok(pid),
        false => Err(Errno::EPERM),
    }
}

/// The number of the socket at the far end.
fn inode(socket: BorrowedFd<'_>) -> Result<u32> {
    let (near, far) = socket::ends(socket)?;
    let diag = rustix::net::socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        Some(netlink::SOCK_DIAG),
    )
    .map_err(system)?;
    let request = request(&far, &near);
    rustix::net::send(&diag, &request, SendFlags::empty()).map_err(system)?;
    // The system has answered by now.
    let mut answer = [0; 1024];
    let (len, _) = rustix::net::recv(&diag, &mut answer[..], RecvFlags::empty()).map_err(system)?;
    inode_in(&answer[..len]).ok_or(Errno::ENOENT)
}

/// Asks for the socket between these two addresses, its own one first.
fn request(own: &SocketAddr, other: &SocketAddr) -> [u8; REQUEST] {
    let mut bytes = [0; REQUEST];
    bytes[..4].copy_from_slice(&(REQUEST as u32).to_ne_bytes());
    bytes[4..6].copy_from_slice(&BY_FAMILY.to_ne_bytes());
    bytes[6..8].copy_from_slice(&IS_REQUEST.to_ne_bytes());
    let family = match own {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    bytes[16] = family.as_raw() as u8;
    bytes[17] = libc::IPPROTO_TCP as u8;
    // In any state.
    bytes[20..24].fill(0xff);
    for (addr, port_at, ip_at) in [(own, 24, 28), (other, 26, 44)] {
        bytes[port_at..port_at + 2].copy_from_slice(&addr.port().to_be_bytes());
        match addr.ip() {
            IpAddr::V4(ip) => bytes[ip_at..ip_at + 4].copy_from_slice(&ip.octets()),
            IpAddr::V6(ip) => bytes[ip_at..ip_at + 16].copy_from_slice(&ip.octets()),
        }
    }
    // Of any interface, with any cookie.
    bytes[64..].fill(0xff);
    bytes
}

fn inode_in(answer: &[u8]) -> Option<u32> {
    let (_, inode) = answer.get(..INODE_END)?.split_last_chunk()?;
    let is_answer = answer[4..6] == BY_FAMILY.to_ne_bytes();
    is_answer.then(|| u32::from_ne_bytes(*inode))
}

/// Whether a process with this status (proc_pid_status(5)) is this user's, and
/// cannot become another one's.
fn runs_as(status: &str, user: u32) -> bool {
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    let ids = line.unwrap_or_default().split_ascii_whitespace();
    let ids: Vec<Option<u32>> = ids.map(|id| id.parse().ok()).collect();
    ids == [Some(user); 4]
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::{AsFd, AsRawFd};

    use super::*;

    #[test]
    fn the_far_end_is_found_where_it_is() {
        for any in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(any) else {
                // Not every machine has IPv6.
                assert!(any.starts_with('['));
                continue;
            };
            let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (far, _) = listener.accept().unwrap();
            let own = std::process::id();
            let look = |pid: u64, end: &TcpStream| {
                process(near.as_fd(), pid, end.as_raw_fd().unsigned_abs().into())
            };
            assert_eq!(look(own.into(), &far), Ok(own));
            assert_eq!(look(own.into(), &near), Err(Errno::EPERM));
            assert!(look(1 << 40, &far).is_err());
            assert!(look(0, &far).is_err());
            drop(far);
        }
    }

    #[test]
    fn only_the_answer_to_the_question_is_taken_for_one() {
        let mut answer = [7; INODE_END + 8];
        answer[4..6].copy_from_slice(&BY_FAMILY.to_ne_bytes());
        assert_eq!(inode_in(&answer), Some(0x0707_0707));
        assert_eq!(inode_in(&answer[..INODE_END - 1]), None);
        assert_eq!(inode_in(&[]), None);
        // NLMSG_ERROR
        answer[4..6].copy_from_slice(&2u16.to_ne_bytes());
        assert_eq!(inode_in(&answer), None);
    }

    #[test]
    fn a_process_runs_as_a_user_if_all_its_identities_are_his() {
        let status = |ids: &str| format!("Name:\tx\nUid:\t{ids}\nGid:\t7\t7\t7\t7\n");
        assert!(runs_as(&status("7\t7\t7\t7"), 7));
        for ids in [
            "7\t0\t0\t0",
            "7\t7\t0\t7",
            "0\t0\t0\t0",
            "7",
            "",
            "x\tx\tx\tx",
        ] {
            assert!(!runs_as(&status(ids), 7), "{ids}");
        }
        assert!(!runs_as("", 7));
        let own = std::fs::read_to_string("/proc/self/status").unwrap();
        assert!(runs_as(&own, rustix::process::geteuid().as_raw()));
    }
}
