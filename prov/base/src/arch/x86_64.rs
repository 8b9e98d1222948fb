//! x86-64: the System V ABI.

use std::arch::global_asm;

use crate::system_calls::set_errno;

/// Bytes of a stack frame besides its structure, whose size is a multiple of 16: with the return
/// address they keep the stack pointer aligned.
pub const FRAME_REST: usize = 8;

/// Defines `__wrap_` and the name: sets registers, makes the system call, and returns its result,
/// or -1 with `errno`. Arguments are in the registers in which the kernel expects them, except for
/// the fourth.
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
            "sub rsp, {frame}",
            ".cfi_def_cfa_offset {frame} + 8",
            "mov [rsp], rdi",
            "mov [rsp + 8], rsi",
            "mov [rsp + 16], rdx",
            "mov [rsp + 24], rcx",
            "mov [rsp + 32], r8",
            "mov [rsp + 40], r9",
            "mov rdi, rsp",
            "call {enter}",
            "test rax, rax",
            "jz 2f",
            "mov rdi, [rsp + {below}]",
            "mov rsi, [rsp + 8]",
            "mov rdx, [rsp + 16]",
            "mov rcx, [rsp + 24]",
            "mov r8, [rsp + 32]",
            "mov r9, [rsp + 40]",
            "call rax",
            "mov [rsp + {result}], rax",
            "mov rdi, rsp",
            "call {leave}",
            "2:",
            "mov rax, [rsp + {result}]",
            "add rsp, {frame}",
            ".cfi_def_cfa_offset 8",
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
            "sub rsp, {frame}",
            ".cfi_def_cfa_offset {frame} + 8",
            "mov [rsp], rdi",
            "mov [rsp + 8], rsi",
            "mov [rsp + 16], rdx",
            "mov [rsp + 24], rcx",
            "mov [rsp + 32], r8",
            "mov [rsp + 40], r9",
            "mov dword ptr [rsp + {stage}], 0",
            "2:",
            "mov rdi, rsp",
            "call {round}",
            "cmp eax, 1",
            "jb 4f",
            "ja 3f",
            "lea rdi, [rsp + {fd}]",
            "mov esi, 1",
            "mov rdx, [rsp + {limit}]",
            "xor ecx, ecx",
            "call {ppoll}",
            "mov [rsp + {found}], eax",
            "jmp 2b",
            "3:",
            "call {testcancel}",
            "jmp 2b",
            "4:",
            "mov rax, [rsp + {result}]",
            "add rsp, {frame}",
            ".cfi_def_cfa_offset 8",
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
/// The arguments that the ABI passes in registers are stored in memory in the layout of `va_list`:
/// six general registers and, if the caller sets `al` to a nonzero value, eight vector registers.
#[macro_export]
macro_rules! collect_arguments {
    ($fixed:literal, $entry:path) => {
        ::std::arch::naked_asm!(
            "push rbp",
            "mov rbp, rsp",
            "sub rsp, 208",
            "mov [rbp - 176], rdi",
            "mov [rbp - 168], rsi",
            "mov [rbp - 160], rdx",
            "mov [rbp - 152], rcx",
            "mov [rbp - 144], r8",
            "mov [rbp - 136], r9",
            "test al, al",
            "je 2f",
            "movaps [rbp - 128], xmm0",
            "movaps [rbp - 112], xmm1",
            "movaps [rbp - 96], xmm2",
            "movaps [rbp - 80], xmm3",
            "movaps [rbp - 64], xmm4",
            "movaps [rbp - 48], xmm5",
            "movaps [rbp - 32], xmm6",
            "movaps [rbp - 16], xmm7",
            "2:",
            // va_list: the offsets of the next register of either kind, the
            // arguments on the caller's stack, the registers.
            "mov dword ptr [rsp], 8 * {fixed}",
            "mov dword ptr [rsp + 4], 48",
            "lea rax, [rbp + 16]",
            "mov [rsp + 8], rax",
            "lea rdi, [rbp - 176]",
            "mov [rsp + 16], rdi",
            "mov rsi, rsp",
            "call {entry}",
            "leave",
            "ret",
            fixed = const $fixed,
            entry = sym $entry,
        )
    };
}
