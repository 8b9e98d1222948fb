//! How long to wait for a message if the other side may be gone.

use std::time::Instant;

use super::Problem;
use super::control::{Control, PATIENCE};

/// Watches the control connection during one wait. After the other side has left, messages that it
/// has sent may still arrive for a while.
#[derive(Default)]
pub struct Patience {
    left_at: Option<Instant>,
    /// Number of calls without a check.
    skipped: u32,
}

/// Number of calls of [`Patience::wear`] for one check, which is a system call.
const CALLS_PER_LOOK: u32 = 1 << 14;

impl Patience {
    /// As [`Patience::check`], for callers in a tight loop.
    pub fn wear(&mut self, control: &Control) -> Result<(), Problem> {
        self.skipped += 1;
        if self.skipped < CALLS_PER_LOOK {
            return Ok(());
        }
        self.skipped = 0;
        self.check(control)
    }

    /// Returns an error if the other side left a while ago.
    pub fn check(&mut self, control: &Control) -> Result<(), Problem> {
        if self.left_at.is_none() && control.peer_left() {
            self.left_at = Some(Instant::now());
        }
        match self.left_at {
            Some(left_at) if left_at.elapsed() > PATIENCE => {
                Err(Problem::Protocol(String::from("the other side left")))
            }
            _ => Ok(()),
        }
    }
}
