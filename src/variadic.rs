//! C functions with a variable number of arguments, which stable Rust can call but not define.

use std::ffi::{CStr, c_char, c_int, c_void};

/// The arguments after the fixed ones, as a `va_list` parameter in C.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct VaList(#[allow(dead_code)] *mut c_void);

unsafe extern "C" {
    fn vasprintf(text: *mut *mut c_char, format: *const c_char, arguments: VaList) -> c_int;
}

/// Returns the text that `printf` would print; `None` if that fails.
///
/// # Safety
/// The arguments are those that the format asks for, and have not been used.
pub unsafe fn format<T>(
    format: *const c_char,
    arguments: VaList,
    then: impl FnOnce(&CStr) -> T,
) -> Option<T> {
    let mut text = std::ptr::null_mut();
    // SAFETY: the caller guarantees that the arguments match the format and were not used; on
    // success vasprintf(3) returns a terminated text that the caller has to free.
    unsafe {
        if vasprintf(&mut text, format, arguments) < 0 {
            return None;
        }
        let result = then(CStr::from_ptr(text));
        libc::free(text.cast());
        Some(result)
    }
}

/// The fixed arguments of a variadic function, one machine word each.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Fixed(*const u64);

impl Fixed {
    /// Returns the argument with an index below the number of fixed arguments, which is an integer
    /// or a pointer. Its upper half is undefined if it is an `int`.
    ///
    /// # Safety
    /// The function has that many fixed arguments.
    pub unsafe fn word(self, index: usize) -> u64 {
        // SAFETY: the caller guarantees that the function has that many fixed arguments.
        unsafe { self.0.add(index).read() }
    }
}

/// The body of a variadic function with `$fixed` fixed arguments, all of them integers or pointers:
/// it calls `$entry(Fixed, VaList)` and returns the result.
///
/// The arguments that the System V ABI for x86-64 passes in registers are stored in memory in the
/// layout of `va_list`: six general registers and, if the caller sets `al` to a nonzero value,
/// eight vector registers.
#[cfg(target_arch = "x86_64")]
macro_rules! collect_arguments {
    ($fixed:literal, $entry:path) => {
        std::arch::naked_asm!(
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

#[cfg(not(target_arch = "x86_64"))]
compile_error!("the arguments of variadic functions are collected for x86-64 only");

pub(crate) use collect_arguments;

#[cfg(test)]
mod tests {
    use super::*;

    #[unsafe(naked)]
    unsafe extern "C" fn print(_: *mut String, _: *const c_char) {
        collect_arguments!(2, print_entry)
    }

    unsafe extern "C" fn print_entry(fixed: Fixed, arguments: VaList) {
        // SAFETY: the test passes a `String` and a format with matching arguments.
        unsafe {
            let out = fixed.word(0) as *mut String;
            let text = format(fixed.word(1) as *const c_char, arguments, |text| {
                text.to_str().unwrap().to_owned()
            });
            *out = text.unwrap();
        }
    }

    #[test]
    fn arguments_arrive_from_registers_and_from_the_stack() {
        type Variadic = unsafe extern "C" fn(*mut String, *const c_char, ...);
        let mut out = String::new();
        // SAFETY: the naked function reads its arguments as a variadic function does, and the
        // arguments match the format.
        unsafe {
            let print: Variadic = std::mem::transmute(print as *const ());
            print(
                &raw mut out,
                c"%d %s %ld|%d %d %d %d|%.1f %.1f".as_ptr(),
                1i32,
                c"two".as_ptr(),
                -3i64,
                4i32,
                5i32,
                6i32,
                7i32,
                8.5f64,
                9.25f64,
            );
            assert_eq!(out, "1 two -3|4 5 6 7|8.5 9.2");
            print(&raw mut out, c"%s".as_ptr(), c"no vectors".as_ptr());
            assert_eq!(out, "no vectors");
        }
    }
}
