//! Identifies hosts independently of their addresses: two containers of one host are on the same
//! host.

use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::sync::OnceLock;

use prov_base::socket;
use sha2::{Digest, Sha256};

/// Returns a number that is the same for all processes of this boot of this kernel, and unlikely on
/// other hosts; 0 if there is none. A peer may send a wrong one.
pub fn mark() -> u32 {
    static MARK: OnceLock<u32> = OnceLock::new();
    *MARK.get_or_init(|| match std::fs::read("/proc/sys/kernel/random/boot_id") {
        Ok(boot) => digest(&boot),
        Err(_) => 0,
    })
}

/// The boot identifier itself is not disclosed.
#[allow(clippy::indexing_slicing, reason = "a digest has 32 bytes")]
fn digest(boot: &[u8]) -> u32 {
    let digest = Sha256::new()
        .chain_update(b"fi_tcp host")
        .chain_update(boot)
        .finalize();
    u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]).max(1)
}

/// Whether both ends of a connection are on this host, according to the addresses or the peer (its
/// [`mark`], 0 for none).
pub fn is_within(socket: BorrowedFd<'_>, peer: u32) -> bool {
    socket::ends(socket).is_ok_and(|(near, far)| is_this(near.ip(), far.ip(), peer))
}

/// Whether both ends of a connection are in one network namespace, as far as their addresses show.
pub fn is_within_namespace(socket: BorrowedFd<'_>) -> bool {
    is_within(socket, 0)
}

fn is_this(near: IpAddr, far: IpAddr, peer: u32) -> bool {
    near == far || far.is_loopback() || peer != 0 && peer == mark()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_on_this_host_by_its_address_or_its_mark() {
        let ip = |last| IpAddr::from([10, 77, 0, last]);
        let ours = mark();
        assert!(is_this(ip(1), ip(1), 0));
        assert!(is_this(ip(1), IpAddr::from([127, 0, 0, 2]), 0));
        assert!(!is_this(ip(1), ip(2), 0));
        assert!(!is_this(ip(1), ip(2), ours.wrapping_add(1)));
        assert_eq!(is_this(ip(1), ip(2), ours), ours != 0);
    }

    #[test]
    fn each_boot_has_its_own_mark() {
        assert_eq!(mark(), mark());
        assert_eq!(digest(b"one boot"), digest(b"one boot"));
        assert_ne!(digest(b"one boot"), digest(b"another"));
    }
}
