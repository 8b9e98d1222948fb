//! The texts of error numbers (fi_errno(3)).

use std::ffi::{CStr, CString};
use std::sync::OnceLock;

/// Numbers from this one on are the fabric's own; those below are the system's.
const FABRIC_ERRNO_BASE: i32 = 256;

/// Returns the text of an error number, positive or negated.
pub fn text(errnum: i32) -> &'static CStr {
    let number = errnum.checked_abs().unwrap_or(i32::MAX);
    if number < FABRIC_ERRNO_BASE {
        return system_text(number);
    }
    let index = (number - FABRIC_ERRNO_BASE) as usize;
    FABRIC_TEXTS.get(index).copied().unwrap_or(FABRIC_TEXTS[0])
}

/// Indexed by the number less [`FABRIC_ERRNO_BASE`]; the first one is also used for undefined
/// numbers.
const FABRIC_TEXTS: [&CStr; 16] = [
    c"Unspecified error",
    c"Provided buffer is too small",
    c"Operation not permitted in current state",
    c"Error available",
    c"Flags not supported",
    c"Missing or unavailable event queue",
    c"Invalid resource domain",
    c"Missing or unavailable completion queue",
    c"CRC error",
    c"Truncation error",
    c"Required key not available",
    c"Missing or unavailable address vector",
    c"Queue has been overrun",
    c"Receiver not ready, no receive buffers available",
    c"Memory registration limit exceeded",
    c"Host unreachable due to firewall",
];

/// Returns the C library's text for one of the system's numbers (0 to 255).
#[allow(clippy::indexing_slicing, reason = "the caller has compared it")]
fn system_text(number: i32) -> &'static CStr {
    static TEXTS: [OnceLock<CString>; FABRIC_ERRNO_BASE as usize] =
        [const { OnceLock::new() }; FABRIC_ERRNO_BASE as usize];
    TEXTS[number as usize].get_or_init(|| {
        let error = std::io::Error::from_raw_os_error(number).to_string();
        // The standard library appends the number, which is removed.
        let text = error
            .strip_suffix(&format!(" (os error {number})"))
            .unwrap_or(&error);
        CString::new(text).unwrap_or_default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sign_does_not_matter() {
        assert_eq!(text(libc::ENOMEM), c"Cannot allocate memory");
        assert_eq!(text(-libc::ENOMEM), c"Cannot allocate memory");
        assert_eq!(text(0), c"Success");
    }

    #[test]
    fn fabric_numbers_have_texts_and_unknown_ones_share_one() {
        assert_eq!(text(265), c"Truncation error");
        assert_eq!(text(-271), c"Host unreachable due to firewall");
        for unknown in [272, 100_000, i32::MAX, i32::MIN] {
            assert_eq!(text(unknown), c"Unspecified error");
        }
    }

    #[test]
    fn every_system_number_has_the_text_of_the_c_library() {
        for number in 0..FABRIC_ERRNO_BASE {
            // SAFETY: strerror(3) returns a terminated string, which is static or in a buffer of
            // this thread, and which is copied before the next call.
            let expected = unsafe { CStr::from_ptr(libc::strerror(number)) }.to_owned();
            assert_eq!(text(number), expected.as_c_str());
        }
    }
}
