//! What has to be written for each architecture.
//!
//! A port to another one is a file beside `arch/x86_64.rs` that defines
//!
//! - [`FRAME_REST`], and the macros `sleep_in_rounds`, `pass_on_blocking` and `collect_arguments`: the
//!   bodies of functions that no compiler may write, because a thread is cancelled in them, or because
//!   their arguments are variable;
//! - the functions that the linker puts in the place of system calls ([`crate::system_calls`]).
//!
//! Everything else that differs has a general form, which other architectures use: the clock of
//! [`lately`](crate::lately), [`checksum`](crate::checksum), copies past the caches
//! ([`buffer`](crate::buffer)), the identity of a thread and single attempts ([`sync`](crate::sync)).
//! `long double` of atomic operations is offered on x86-64 only ([`atomic_ops`](crate::atomic_ops)).

#[cfg_attr(target_arch = "x86_64", path = "arch/x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "arch/aarch64.rs")]
#[cfg_attr(
    not(any(target_arch = "x86_64", target_arch = "aarch64")),
    path = "arch/missing.rs"
)]
mod this;

pub use this::FRAME_REST;

/// The alignment of memory that one thread or process writes while others use what is beside it (the
/// destructive interference size): 64 bytes on x86-64; up to 128 elsewhere, as in some processors of
/// aarch64. As a field of no elements, `[Line; 0]`, it aligns a structure. Structures of which there
/// are few, and which no other process maps, are aligned to 128 bytes everywhere, since x86-64
/// processors may fetch two lines at a time.
#[cfg_attr(target_arch = "x86_64", repr(align(64)))]
#[cfg_attr(not(target_arch = "x86_64"), repr(align(128)))]
#[derive(Clone, Copy, Debug, Default)]
pub struct Line;
