//! Files that grow within the limit of the process (`RLIMIT_FSIZE`, setrlimit(2)).
//!
//! The kernel sends `SIGXFSZ`, which ends a process, to one that writes beyond the limit, or makes a
//! file longer than that, memory files (memfd_create(2)) among them. The functions here return an
//! error instead. All of the library's files are written to through them.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt as _;

use rustix::process::{Resource, getrlimit};

/// Sets the length of a file.
///
/// # Errors
/// `EFBIG` beyond the limit, and those of ftruncate(2).
pub fn set_len(file: impl AsFd, len: u64) -> io::Result<()> {
    check(len)?;
    Ok(rustix::fs::ftruncate(file, len)?)
}

/// Writes all bytes to a file, from `offset` on.
///
/// # Errors
/// `EFBIG` beyond the limit, and those of pwrite(2).
pub fn write_all_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    check(offset.saturating_add(bytes.len() as u64))?;
    file.write_all_at(bytes, offset)
}

/// Whether a file may have this length.
fn check(len: u64) -> io::Result<()> {
    match getrlimit(Resource::Fsize).current {
        Some(limit) if limit < len => Err(rustix::io::Errno::FBIG.into()),
        _ => Ok(()),
    }
}
