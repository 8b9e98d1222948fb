//! What other threads ask of a lane, whose lock may be none for them: whoever reads
//! the application's queue next does it.

use super::Name;
use crate::notes::Notes;

/// Whose requests are to be reported as flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// A sender's.
    Sender(Name),
    /// A receiver's, and those that it shares with others.
    Receiver(Name),
    /// Those that a receiver shares with others.
    Shared(Name),
}

/// Orders that nobody has followed yet.
pub type Orders = Notes<Order>;
