//! C functions with a variable number of arguments, which stable Rust can call but not define: their
//! body is [`prov_base::collect_arguments`].

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

#[cfg(test)]
mod tests {
    use super::*;
    use prov_base::collect_arguments;

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
