//! What tells hosts apart, whatever addresses they have: two containers of one
//! host are on one host.

use std::sync::OnceLock;

use sha2::{Digest, Sha256};

/// A number that every process has under this boot of this kernel, and others
/// hardly ever; 0 if there is none. A peer may lie about it.
pub fn mark() -> u32 {
    static MARK: OnceLock<u32> = OnceLock::new();
    *MARK.get_or_init(|| match std::fs::read("/proc/sys/kernel/random/boot_id") {
        Ok(boot) => digest(&boot),
        Err(_) => 0,
    })
}

/// The identifier itself is nobody else's business.
fn digest(boot: &[u8]) -> u32 {
    let digest = Sha256::new()
        .chain_update(b"fi_tcp host")
        .chain_update(boot)
        .finalize();
    u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_boot_has_its_own_mark() {
        assert_eq!(mark(), mark());
        assert_eq!(digest(b"one boot"), digest(b"one boot"));
        assert_ne!(digest(b"one boot"), digest(b"another"));
    }
}
