//! Any other architecture: says what is missing, once.

compile_error!(
    "this library is written for x86-64 and aarch64; what another architecture needs is in \
     prov/base/src/arch.rs"
);

/// Bytes of a stack frame besides its structure.
pub const FRAME_REST: usize = 0;

/// See the file of a supported architecture.
#[macro_export]
macro_rules! pass_on_blocking {
    ($($any:tt)*) => {
        ::std::arch::naked_asm!("")
    };
}

/// See the file of a supported architecture.
#[macro_export]
macro_rules! sleep_in_rounds {
    ($($any:tt)*) => {
        ::std::arch::naked_asm!("")
    };
}

/// See the file of a supported architecture.
#[macro_export]
macro_rules! collect_arguments {
    ($($any:tt)*) => {
        ::std::arch::naked_asm!("")
    };
}
