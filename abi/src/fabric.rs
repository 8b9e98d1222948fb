//! Declarations of `<rdma/fabric.h>`.

mod flags;
mod info;
mod names;
mod object;

pub use flags::*;
pub use info::*;
pub use names::*;
pub use object::*;

/// Packs a version as the interface passes it: major in the upper, minor in the lower 16 bits.
#[allow(non_snake_case)]
pub const fn FI_VERSION(major: u32, minor: u32) -> u32 {
    (major << 16) | minor
}

/// The major part of a packed version.
#[allow(non_snake_case)]
pub const fn FI_MAJOR(version: u32) -> u32 {
    version >> 16
}

/// The minor part of a packed version.
#[allow(non_snake_case)]
pub const fn FI_MINOR(version: u32) -> u32 {
    version & 0xffff
}

/// Whether packed version `a` is `b` or later.
#[allow(non_snake_case)]
pub const fn FI_VERSION_GE(a: u32, b: u32) -> bool {
    a >= b
}

/// Whether packed version `a` is older than `b`.
#[allow(non_snake_case)]
pub const fn FI_VERSION_LT(a: u32, b: u32) -> bool {
    a < b
}
