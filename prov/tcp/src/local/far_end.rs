//! Finds the process with the other end of a connection within this host, from the kernel's data
//! (sock_diag(7), proc(5)).

use std::fs::File;
use std::io::Read as _;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;

use prov_base::errno::{Errno, Result};
use prov_base::kept_errno::KeptErrno;
use prov_local::process::OtherFiles;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};

/// Number of bytes of `struct nlmsghdr` and `struct inet_diag_req_v2`.
const REQUEST: usize = 16 + 56;
/// Number of bytes of `struct nlmsghdr` and `struct inet_diag_msg`.
const ANSWER: usize = 16 + 72;
/// `SOCK_DIAG_BY_FAMILY`
const BY_FAMILY: u16 = 20;
/// `NLM_F_REQUEST`
const IS_REQUEST: u16 = 1;
/// `TCP_ESTABLISHED`
const ESTABLISHED: u8 = 1;

/// The other end of a connection, and a process that has it open.
#[derive(Clone, Debug)]
pub struct Holder {
    /// The process.
    pub files: OtherFiles,
    /// The inode number of the socket.
    pub inode: u64,
}

impl Holder {
    /// Returns the id of the process.
    pub fn pid(&self) -> u32 {
        self.files.pid()
    }
}

/// Returns the process `pid`, if it has the other end of the connection as descriptor `number`, and
/// both it and the opener of that socket have this process's user. `-FI_EPERM` otherwise.
pub fn holder(socket: BorrowedFd<'_>, pid: u64, number: u64) -> Result<Holder> {
    let files = OtherFiles::of(pid)?;
    let held = files.socket_inode(number)?;
    let near = SocketAddr::try_from(rustix::net::getsockname(socket)?)?;
    let far = rustix::net::getpeername(socket)?.ok_or(Errno::ENOTCONN)?;
    let far = SocketAddr::try_from(far)?;
    let end = look_up(&far, &near)?;
    let user = rustix::process::geteuid().as_raw();
    let is_held = held == u64::from(end.inode);
    let runs_as_user = match files.users() {
        Some(users) => users == [user; 4],
        None => runs_as(&status_of(files.pid())?, user),
    };
    match is_held && end.user == user && runs_as_user {
        true => Ok(Holder { files, inode: held }),
        false => Err(Errno::EPERM),
    }
}

/// Returns the inode number of a socket.
pub fn inode(socket: BorrowedFd<'_>) -> Result<u64> {
    Ok(rustix::fs::fstat(socket)?.st_ino)
}

/// The kernel's data of a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct End {
    inode: u32,
    /// The user that opened the socket.
    user: u32,
}

/// Returns the connected socket of this network namespace between two addresses, its own one first.
fn look_up(own: &SocketAddr, other: &SocketAddr) -> Result<End> {
    let diag = rustix::net::socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        Some(netlink::SOCK_DIAG),
    )?;
    rustix::net::send(&diag, &request(own, other), SendFlags::empty())?;
    // The kernel has already answered.
    let mut answer = [0; 1024];
    let received = rustix::net::recvfrom(&diag, &mut answer[..], RecvFlags::empty());
    let (len, _, sender) = received?;
    let sender = sender.and_then(|sender| SocketAddrNetlink::try_from(sender).ok());
    // The kernel's number is 0.
    if sender.is_none_or(|sender| sender.pid() != 0) {
        return Err(Errno::EPERM);
    }
    let answer = answer.get(..len).unwrap_or_default();
    read_answer(answer, own, other).ok_or(Errno::ENOENT)
}

/// Encodes a request for the socket between these two addresses, its own one first.
#[allow(
    clippy::indexing_slicing,
    reason = "the offsets are constants within the arrays"
)]
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
    bytes[17] = rustix::net::ipproto::TCP.as_raw().get() as u8;
    // In any state.
    bytes[20..24].fill(0xff);
    for (addr, port_at, ip_at) in [(own, 24, 28), (other, 26, 44)] {
        bytes[port_at..port_at + 2].copy_from_slice(&addr.port().to_be_bytes());
        match addr.ip() {
            IpAddr::V4(ip) => bytes[ip_at..ip_at + 4].copy_from_slice(&ip.octets()),
            IpAddr::V6(ip) => bytes[ip_at..ip_at + 16].copy_from_slice(&ip.octets()),
        }
    }
    // A link-local socket is bound to an interface, and found only with that.
    let scope = |addr: &SocketAddr| match addr {
        SocketAddr::V4(_) => 0,
        SocketAddr::V6(v6) => v6.scope_id(),
    };
    let interface = scope(own).max(scope(other));
    bytes[60..64].copy_from_slice(&interface.to_ne_bytes());
    // With any cookie.
    bytes[64..].fill(0xff);
    bytes
}

/// Returns the requested data, if the answer is about that socket: if there is none, the kernel may
/// return a socket that listens at any address.
#[allow(
    clippy::indexing_slicing,
    reason = "the offsets are constants within the arrays"
)]
fn read_answer(bytes: &[u8], own: &SocketAddr, other: &SocketAddr) -> Option<End> {
    let answer = bytes.first_chunk::<ANSWER>()?;
    let u16_at = |at: usize| [answer[at], answer[at + 1]];
    let u32_at = |at: usize| {
        u32::from_ne_bytes([answer[at], answer[at + 1], answer[at + 2], answer[at + 3]])
    };
    let is_v4 = match AddressFamily::from_raw(answer[16].into()) {
        AddressFamily::INET => true,
        AddressFamily::INET6 => false,
        _ => return None,
    };
    let addr_at = |port_at: usize, ip_at: usize| {
        let mut ip = [0; 16];
        ip.copy_from_slice(&answer[ip_at..ip_at + 16]);
        let ip = match is_v4 {
            true => IpAddr::from([ip[0], ip[1], ip[2], ip[3]]),
            false => IpAddr::from(ip),
        };
        (ip.to_canonical(), u16::from_be_bytes(u16_at(port_at)))
    };
    let asked = |addr: &SocketAddr| (addr.ip().to_canonical(), addr.port());
    let is_it = u16::from_ne_bytes(u16_at(4)) == BY_FAMILY
        && answer[17] == ESTABLISHED
        && addr_at(20, 24) == asked(own)
        && addr_at(22, 40) == asked(other);
    is_it.then(|| End {
        user: u32_at(ANSWER - 8),
        inode: u32_at(ANSWER - 4),
    })
}

/// Returns the beginning of a process's status (proc_pid_status(5)), in which its user is.
fn status_of(pid: u32) -> Result<String> {
    let _errno = KeptErrno::begin();
    let mut text = Vec::with_capacity(STATUS as usize);
    let status = File::open(format!("/proc/{pid}/status"))?;
    status.take(STATUS).read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Bytes that are read of a status, with one system call: the user is in the eighth or ninth line, after
/// a name of up to 64 bytes (which may be escaped) and numbers.
const STATUS: u64 = 1024;

/// Whether a process with this status (proc_pid_status(5)) has this user, and cannot change it.
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
                let found = holder(near.as_fd(), pid, end.as_raw_fd().unsigned_abs().into());
                found.map(|holder| (holder.pid(), holder.inode))
            };
            let inode = inode(far.as_fd()).unwrap();
            assert_eq!(look(own.into(), &far), Ok((own, inode)));
            assert_eq!(look(own.into(), &near), Err(Errno::EPERM));
            assert!(look(1 << 40, &far).is_err());
            assert!(look(0, &far).is_err());
        }
    }

    #[test]
    fn a_socket_that_listens_is_not_taken_for_the_far_end() {
        let listener = TcpListener::bind("0.0.0.0:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let own = SocketAddr::from(([192, 0, 2, 77], port));
        let other = SocketAddr::from(([127, 0, 0, 1], 4711));
        assert_eq!(look_up(&own, &other), Err(Errno::ENOENT));
        let own = SocketAddr::from(([127, 0, 0, 1], port));
        assert_eq!(look_up(&own, &other), Err(Errno::ENOENT));
    }

    #[test]
    fn a_socket_that_another_user_opened_is_not_this_users() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let opened = std::thread::spawn(move || {
            let nobody: libc::uid_t = 65534;
            // SAFETY: the system call changes the user of this thread only, unlike setresuid(3),
            // and accesses no memory.
            let done = unsafe { libc::syscall(libc::SYS_setresuid, nobody, nobody, nobody) };
            assert_eq!(done, 0);
            TcpStream::connect(addr).unwrap()
        });
        let far = opened.join().unwrap();
        let (near, _) = listener.accept().unwrap();
        let number = far.as_raw_fd().unsigned_abs().into();
        let found = holder(near.as_fd(), std::process::id().into(), number);
        assert_eq!(found.err(), Some(Errno::EPERM));
    }

    #[test]
    fn only_the_answer_to_the_question_is_taken_for_one() {
        let own = SocketAddr::from(([10, 0, 0, 1], 1000));
        let other = SocketAddr::from(([10, 0, 0, 2], 2000));
        let mut answer = [7; ANSWER + 8];
        answer[4..6].copy_from_slice(&BY_FAMILY.to_ne_bytes());
        answer[17] = ESTABLISHED;
        // The addresses in the answer are those of the request, 4 bytes earlier.
        let asked = request(&own, &other);
        answer[16] = asked[16];
        answer[20..56].copy_from_slice(&asked[24..60]);
        let end = End {
            inode: 0x0707_0707,
            user: 0x0707_0707,
        };
        assert_eq!(read_answer(&answer, &own, &other), Some(end));
        assert_eq!(read_answer(&answer, &other, &own), None);
        assert_eq!(read_answer(&answer[..ANSWER - 1], &own, &other), None);
        assert_eq!(read_answer(&[], &own, &other), None);
        // The kind of the answer, family, state, ports, addresses.
        for at in [4, 16, 17, 20, 23, 24, 27, 40, 43] {
            let mut changed = answer;
            changed[at] ^= 8;
            assert_eq!(read_answer(&changed, &own, &other), None, "{at}");
        }
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
