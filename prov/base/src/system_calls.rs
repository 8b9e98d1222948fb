//! System calls that are not cancellation points (pthreads(7)).
//!
//! The C library's functions for these system calls would end a cancelled thread under the Rust
//! frames of their callers, even in the standard library. The library and the providers as
//! libraries of their own are linked such that each reference to one of them refers to the function
//! here (`--wrap` of ld(1); `prov_external::system_calls` has the names). A cancelled thread ends
//! in one of the blocking calls (`ffi::cancel`), or in the application.
//!
//! Arguments are in the registers in which the kernel expects them, except for the fourth.

use std::arch::global_asm;
use std::ffi::c_int;

/// Defines `__wrap_` and the name: sets registers, makes the system call, and returns its result,
/// or -1 with `errno`.
macro_rules! system_call {
    ($name:literal, $number:ident $(, $set:literal)*) => {
        global_asm!(
            concat!(".globl __wrap_", $name),
            concat!(".type __wrap_", $name, ", @function"),
            concat!("__wrap_", $name, ":"),
            ".cfi_startproc",
            $($set,)*
            "mov eax, {number}",
            "syscall",
            "cmp rax, -4095",
            "jae {failed}",
            "ret",
            ".cfi_endproc",
            concat!(".size __wrap_", $name, ", . - __wrap_", $name),
            number = const libc::$number,
            failed = sym failed,
        );
    };
}

system_call!("accept4", SYS_accept4, "mov r10d, ecx");
system_call!("close", SYS_close);
system_call!("connect", SYS_connect);
system_call!("getrandom", SYS_getrandom);
system_call!("open", SYS_open);
system_call!("open64", SYS_open);
system_call!("pause", SYS_pause);
system_call!("poll", SYS_poll);
system_call!("pread64", SYS_pread64, "mov r10, rcx");
system_call!("pwrite64", SYS_pwrite64, "mov r10, rcx");
system_call!("read", SYS_read);
system_call!("recvmsg", SYS_recvmsg);
system_call!("sendmsg", SYS_sendmsg);
system_call!("write", SYS_write);
system_call!("writev", SYS_writev);
system_call!(
    "recv",
    SYS_recvfrom,
    "mov r10d, ecx",
    "xor r8d, r8d",
    "xor r9d, r9d"
);
system_call!(
    "send",
    SYS_sendto,
    "mov r10d, ecx",
    "xor r8d, r8d",
    "xor r9d, r9d"
);

// This function returns the error number itself.
global_asm!(
    ".globl __wrap_clock_nanosleep",
    ".type __wrap_clock_nanosleep, @function",
    "__wrap_clock_nanosleep:",
    ".cfi_startproc",
    "mov r10, rcx",
    "mov eax, {number}",
    "syscall",
    "neg eax",
    "ret",
    ".cfi_endproc",
    ".size __wrap_clock_nanosleep, . - __wrap_clock_nanosleep",
    number = const libc::SYS_clock_nanosleep,
);

/// Ends a call that the kernel refused. It is jumped to with the negative error number in `rax`.
#[unsafe(naked)]
unsafe extern "C" fn failed() -> isize {
    std::arch::naked_asm!(
        ".cfi_startproc",
        "mov edi, eax",
        "jmp {set}",
        ".cfi_endproc",
        set = sym set_errno,
    )
}

extern "C" fn set_errno(negative: c_int) -> isize {
    // SAFETY: the C library returns the address of this thread's `errno`.
    unsafe { *libc::__errno_location() = -negative };
    -1
}
