//! The stream or the file that log lines are written to (`FI_LOG_LOCATION`, fabric(7)).
//!
//! Each line is one system call, and there is no lock: a child of fork(2) can write while a thread
//! of its parent was writing. The streams of the standard library have locks, which such a child
//! would inherit.

use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::io::{Errno, write};

/// Where log lines are written.
#[derive(Debug)]
pub enum Output {
    Stderr,
    Stdout,
    File(File),
}

impl Output {
    /// Opens the place that `FI_LOG_LOCATION` names; a file is created with `mode`.
    ///
    /// # Errors
    /// The reason why a file cannot be created, for the log.
    pub fn open(location: Option<&str>, mode: Option<i32>) -> Result<Self, String> {
        match location {
            None | Some("" | "stderr") => Ok(Output::Stderr),
            Some("stdout") => Ok(Output::Stdout),
            Some(location) => {
                let path = log_file(Path::new(location));
                let mode = mode
                    .and_then(|mode| u32::try_from(mode).ok())
                    .unwrap_or(0o600);
                OpenOptions::new()
                    .write(true)
                    .create_new(true)
                    .mode(mode)
                    .open(&path)
                    .map(Output::File)
                    .map_err(|error| format!("cannot create log file {}: {error}", path.display()))
            }
        }
    }

    /// Writes a line. A line that cannot be written is lost.
    pub fn write(&self, line: &str) {
        let mut rest = line.as_bytes();
        while !rest.is_empty() {
            match write(self.descriptor(), rest) {
                Ok(written) => rest = rest.get(written..).unwrap_or_default(),
                Err(Errno::INTR) => {}
                Err(_) => return,
            }
        }
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        match self {
            Output::Stderr => rustix::stdio::stderr(),
            Output::Stdout => rustix::stdio::stdout(),
            Output::File(file) => file.as_fd(),
        }
    }
}

fn log_file(location: &Path) -> PathBuf {
    if location.is_dir() {
        location.join(format!("ofi_{}.log", std::process::id()))
    } else {
        location.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_gets_a_file_named_after_the_process() {
        let name = log_file(Path::new("/"));
        assert_eq!(
            name,
            PathBuf::from(format!("/ofi_{}.log", std::process::id()))
        );
        assert_eq!(
            log_file(Path::new("/no/such/file")),
            PathBuf::from("/no/such/file")
        );
    }
}
