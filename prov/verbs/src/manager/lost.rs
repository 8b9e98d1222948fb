//! Connections that requests have failed of: the lane that hears of it waits for no
//! manager, whose next turn ends them.

use super::EndKey;
use crate::notes::Notes;

/// Those of a manager that it has not ended yet.
pub type Lost = Notes<EndKey>;
