//! Version numbers: major in the upper half, minor in the lower one.

use std::fmt;

use fabric_abi::{FI_MAJOR_VERSION, FI_MINOR_VERSION};

/// The release, this library's own version.
pub const RELEASE: &str = env!("CARGO_PKG_VERSION");

/// The version of an interface, a provider or a protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(u32);

impl Version {
    /// The interface that this library offers (fi_version(3)).
    pub const LIBRARY: Version = Version::of(FI_MAJOR_VERSION as u16, FI_MINOR_VERSION as u16);

    /// Wraps a C value.
    pub const fn new(value: u32) -> Self {
        Version(value)
    }

    /// Returns the version `major.minor`.
    pub const fn of(major: u16, minor: u16) -> Self {
        Version((major as u32) << 16 | minor as u32)
    }

    /// Returns the C value.
    pub const fn to_c(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}.{}", self.0 >> 16, self.0 & 0xffff)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_order_by_major_then_minor() {
        assert!(Version::of(1, 22) < Version::of(2, 0));
        assert!(Version::of(2, 10) > Version::of(2, 9));
        assert_eq!(Version::of(1, 9).to_string(), "1.9");
    }
}
