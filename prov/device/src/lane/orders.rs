//! Orders of other threads to a lane, whose lock may not exclude them: the thread that reads the
//! application's queue next executes them.

use super::Name;
use crate::notes::Notes;

/// The requests to report as flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Those of a sender.
    Sender(Name),
    /// Those of a receiver, and those that it shares with others.
    Receiver(Name),
    /// Those that a receiver shares with others.
    Shared(Name),
}

/// Orders that have not been executed.
pub type Orders = Notes<Order>;
