//! The descriptor of a memory region, which requests contain (fi_mr_desc(3)).

use prov_util::attr::Opaque;

/// The contents of a region's descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalKey {
    /// The device's key.
    pub key: u32,
    /// Whether this process can read the memory, and not only the device.
    pub is_readable: bool,
}

impl LocalKey {
    /// Set in every descriptor, which must not be 0.
    const MARK: usize = 1 << 32;
    /// Set if the process cannot read the memory.
    const UNREADABLE: usize = 1 << 33;

    /// Decodes the descriptor of a request. An application may make one up; the device then finds
    /// no such region.
    #[inline(always)]
    pub fn of_desc(desc: Opaque) -> Self {
        let desc = desc.0.addr();
        LocalKey {
            key: desc as u32,
            is_readable: desc & Self::UNREADABLE == 0,
        }
    }

    /// Encodes the descriptor.
    pub fn to_desc(self) -> usize {
        let place = if self.is_readable {
            0
        } else {
            Self::UNREADABLE
        };
        self.key as usize | Self::MARK | place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_never_null_and_contain_the_given_values() {
        for key in [0, 1, u32::MAX] {
            for is_readable in [false, true] {
                let local = LocalKey { key, is_readable };
                let desc = local.to_desc();
                assert_ne!(desc, 0);
                let opaque = Opaque(std::ptr::without_provenance_mut(desc));
                assert_eq!(LocalKey::of_desc(opaque), local);
            }
        }
    }
}
