//! Whether the environment may be trusted.

/// Whether the process has privileges that the user who started it lacks (set-user-ID), so that the
/// environment must not name files that it loads or writes.
pub fn has_raised_rights() -> bool {
    // SAFETY: getauxval(3) accepts all numbers, and accesses no memory of the caller.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}
