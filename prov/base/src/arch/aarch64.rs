//! aarch64 (AAPCS64).

use std::arch::global_asm;

use crate::system_calls::set_errno;

/// Bytes of a stack frame besides its structure, whose size is a multiple of 16: the frame pointer
/// and the return address.
pub const FRAME_REST: usize = 16;

/// Defines `__wrap_` and the name: sets registers, makes the system call, and returns its result,
/// or -1 with `errno`. Arguments are in the registers in which the kernel expects them.
macro_rules! system_call {
    ($name:literal, $number:ident $(, $set:literal)*) => {
        global_asm!(
            concat!(".globl __wrap_", $name),
            concat!(".type __wrap_", $name, ", @function"),
            concat!("__wrap_", $name, ":"),
            ".cfi_startproc",
            $($set,)*
            "mov x8, #{number}",
            "svc #0",
            "cmn x0, #4095",
            "b.hs 2f",
            "ret",
            "2:",
            "b {failed}",
            ".cfi_endproc",
            concat!(".size __wrap_", $name, ", . - __wrap_", $name),
            number = const libc::$number,
            failed = sym set_errno,
        );
    };
}

system_call!("accept4", SYS_accept4);
system_call!("close", SYS_close);
system_call!("connect", SYS_connect);
system_call!("getrandom", SYS_getrandom);
system_call!("pread64", SYS_pread64);
system_call!("pwrite64", SYS_pwrite64);
system_call!("read", SYS_read);
system_call!("recvmsg", SYS_recvmsg);
system_call!("sendmsg", SYS_sendmsg);
system_call!("write", SYS_write);
system_call!("writev", SYS_writev);
system_call!("recv", SYS_recvfrom, "mov x4, xzr", "mov x5, xzr");
system_call!("send", SYS_sendto, "mov x4, xzr", "mov x5, xzr");

// The kernel has none of the calls that have a later form: open(2) is openat(2) with `AT_FDCWD`, and
// pause(2) is ppoll(2) without descriptors, time and signals.
system_call!(
    "open",
    SYS_openat,
    "mov x3, x2",
    "mov x2, x1",
    "mov x1, x0",
    "mov x0, #-100"
);
system_call!(
    "open64",
    SYS_openat,
    "mov x3, x2",
    "mov x2, x1",
    "mov x1, x0",
    "mov x0, #-100"
);
system_call!(
    "pause",
    SYS_ppoll,
    "mov x0, xzr",
    "mov x1, xzr",
    "mov x2, xzr",
    "mov x3, xzr"
);

// poll(2) is ppoll(2), whose timeout is a structure: milliseconds become seconds and nanoseconds. A
// negative one is none.
global_asm!(
    ".globl __wrap_poll",
    ".type __wrap_poll, @function",
    "__wrap_poll:",
    ".cfi_startproc",
    "sub sp, sp, #16",
    ".cfi_def_cfa_offset 16",
    "mov w9, #1000",
    "udiv w10, w2, w9",
    "msub w11, w10, w9, w2",
    "movz w12, #0x4240",
    "movk w12, #0xf, lsl #16",
    "mul w11, w11, w12",
    "stp x10, x11, [sp]",
    "cmp w2, #0",
    "mov x2, sp",
    "csel x2, x2, xzr, ge",
    "mov x3, xzr",
    "mov x4, #8",
    "mov x8, #{number}",
    "svc #0",
    "add sp, sp, #16",
    ".cfi_def_cfa_offset 0",
    "cmn x0, #4095",
    "b.hs 2f",
    "ret",
    "2:",
    "b {failed}",
    ".cfi_endproc",
    ".size __wrap_poll, . - __wrap_poll",
    number = const libc::SYS_ppoll,
    failed = sym set_errno,
);

// This function returns the error number itself.
global_asm!(
    ".globl __wrap_clock_nanosleep",
    ".type __wrap_clock_nanosleep, @function",
    "__wrap_clock_nanosleep:",
    ".cfi_startproc",
    "mov x8, #{number}",
    "svc #0",
    "neg w0, w0",
    "ret",
    ".cfi_endproc",
    ".size __wrap_clock_nanosleep, . - __wrap_clock_nanosleep",
    number = const libc::SYS_clock_nanosleep,
);

/// The body of a blocking call that passes itself on to the object below: see
/// `prov_hook::wrap::blocking`.
#[macro_export]
macro_rules! pass_on_blocking {
    (
        frame: $frame:path, below: $below:path, result: $result:path,
        enter: $enter:path, leave: $leave:path $(,)?
    ) => {
        ::std::arch::naked_asm!(
            ".cfi_startproc",
            "sub sp, sp, #{frame}",
            ".cfi_def_cfa_offset {frame}",
            "stp x29, x30, [sp, #{frame} - 16]",
            ".cfi_offset x29, -16",
            ".cfi_offset x30, -8",
            "add x29, sp, #{frame} - 16",
            "stp x0, x1, [sp]",
            "stp x2, x3, [sp, #16]",
            "stp x4, x5, [sp, #32]",
            "mov x0, sp",
            "bl {enter}",
            "cbz x0, 2f",
            "mov x9, x0",
            "ldr x0, [sp, #{below}]",
            "ldr x1, [sp, #8]",
            "ldp x2, x3, [sp, #16]",
            "ldp x4, x5, [sp, #32]",
            "blr x9",
            "str x0, [sp, #{result}]",
            "mov x0, sp",
            "bl {leave}",
            "2:",
            "ldr x0, [sp, #{result}]",
            "ldp x29, x30, [sp, #{frame} - 16]",
            ".cfi_restore x29",
            ".cfi_restore x30",
            "add sp, sp, #{frame}",
            ".cfi_def_cfa_offset 0",
            "ret",
            ".cfi_endproc",
            frame = const $frame,
            below = const $below,
            result = const $result,
            enter = sym $enter,
            leave = sym $leave,
        )
    };
}

/// The loop of a blocking call that is a cancellation point: see `prov_util::ffi::cancel`.
#[macro_export]
macro_rules! sleep_in_rounds {
    (
        frame: $frame:path, fd: $fd:path, limit: $limit:path, found: $found:path,
        stage: $stage:path, result: $result:path,
        personality: $personality:path, round: $round:path, ppoll: $ppoll:path,
        testcancel: $testcancel:path $(,)?
    ) => {
        ::std::arch::naked_asm!(
            ".cfi_startproc",
            ".cfi_personality 0x1b, {personality}",
            "sub sp, sp, #{frame}",
            ".cfi_def_cfa_offset {frame}",
            "stp x29, x30, [sp, #{frame} - 16]",
            ".cfi_offset x29, -16",
            ".cfi_offset x30, -8",
            "add x29, sp, #{frame} - 16",
            "stp x0, x1, [sp]",
            "stp x2, x3, [sp, #16]",
            "stp x4, x5, [sp, #32]",
            "str wzr, [sp, #{stage}]",
            "2:",
            "mov x0, sp",
            "bl {round}",
            "cmp w0, #1",
            "b.lo 4f",
            "b.hi 3f",
            "add x0, sp, #{fd}",
            "mov x1, #1",
            "ldr x2, [sp, #{limit}]",
            "mov x3, xzr",
            "bl {ppoll}",
            "str w0, [sp, #{found}]",
            "b 2b",
            "3:",
            "bl {testcancel}",
            "b 2b",
            "4:",
            "ldr x0, [sp, #{result}]",
            "ldp x29, x30, [sp, #{frame} - 16]",
            ".cfi_restore x29",
            ".cfi_restore x30",
            "add sp, sp, #{frame}",
            ".cfi_def_cfa_offset 0",
            "ret",
            ".cfi_endproc",
            personality = sym $personality,
            round = sym $round,
            ppoll = sym $ppoll,
            testcancel = sym $testcancel,
            frame = const $frame,
            fd = const $fd,
            limit = const $limit,
            found = const $found,
            stage = const $stage,
            result = const $result,
        )
    };
}

/// The body of a variadic function with `$fixed` fixed arguments, all of them integers or pointers:
/// it calls `$entry`, with the address of the fixed arguments and that of a `va_list` of the others,
/// and returns the result.
///
/// The arguments that the ABI passes in registers, eight general and eight vector registers, are
/// stored in memory as `va_list` describes them. As a parameter, a `va_list` is passed by its
/// address, since it is longer than 16 bytes.
#[macro_export]
macro_rules! collect_arguments {
    ($fixed:literal, $entry:path) => {
        ::std::arch::naked_asm!(
            "stp x29, x30, [sp, #-16]!",
            "mov x29, sp",
            "sub sp, sp, #224",
            "stp x0, x1, [x29, #-64]",
            "stp x2, x3, [x29, #-48]",
            "stp x4, x5, [x29, #-32]",
            "stp x6, x7, [x29, #-16]",
            "stp q0, q1, [x29, #-192]",
            "stp q2, q3, [x29, #-160]",
            "stp q4, q5, [x29, #-128]",
            "stp q6, q7, [x29, #-96]",
            // va_list: the arguments on the caller's stack, the ends of the registers of both
            // kinds, the offsets of the next one from there.
            "add x9, x29, #16",
            "str x9, [sp]",
            "str x29, [sp, #8]",
            "sub x9, x29, #64",
            "str x9, [sp, #16]",
            "mov w9, #{general}",
            "str w9, [sp, #24]",
            "mov w9, #-128",
            "str w9, [sp, #28]",
            "sub x0, x29, #64",
            "mov x1, sp",
            "bl {entry}",
            "mov sp, x29",
            "ldp x29, x30, [sp], #16",
            "ret",
            general = const 8 * $fixed - 64,
            entry = sym $entry,
        )
    };
}
