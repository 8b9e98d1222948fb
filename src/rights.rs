//! What the environment may decide.

/// Whether the process has rights that whoever started it lacks (set-user-ID),
/// so that files it loads or writes must not be named by the environment.
pub fn has_raised_rights() -> bool {
    // SAFETY: getauxval takes any number.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}
