//! The reasons why a test ended early.

use std::path::PathBuf;
use std::{fmt, io};

use crate::fabric::Failure;

/// The reason why a test ended early.
#[derive(Debug)]
pub enum Problem {
    /// A call to the library failed.
    Fabric(Failure),
    /// The control connection failed during this action.
    Control(&'static str, io::Error),
    /// The other side violated the protocol.
    Protocol(String),
    /// A message had the wrong contents.
    Corrupt {
        message: u64,
        size: usize,
        byte: usize,
    },
    /// The drawing cannot be written.
    Plot(PathBuf, io::Error),
}

impl Problem {
    /// Returns the exit status of the process.
    pub fn exit_status(&self) -> i32 {
        match self {
            Problem::Fabric(failure) => failure.exit_status(),
            Problem::Control(_, error) => error.raw_os_error().unwrap_or(1),
            Problem::Protocol(_) => libc::EBADMSG,
            Problem::Corrupt { .. } => 1,
            Problem::Plot(_, error) => error.raw_os_error().unwrap_or(1),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::Fabric(failure) => write!(f, "{failure}"),
            Problem::Control(doing, error) => write!(f, "control connection: {doing}: {error}"),
            Problem::Plot(file, error) => write!(f, "{}: {error}", file.display()),
            Problem::Protocol(what) => write!(f, "control connection: {what}"),
            Problem::Corrupt {
                message,
                size,
                byte,
            } => {
                write!(f, "Error at iteration={message} size={size} byte={byte}")
            }
        }
    }
}

impl std::error::Error for Problem {}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Problem {
        Problem::Fabric(failure)
    }
}
