//! Bounds of the collections inside the library.
//!
//! What bounds each collection is the code that fills it: operations that the application has
//! posted, links to peers, objects. [`bounded!`](crate::bounded) beside it notices, in builds with
//! debug assertions, that an entry is left behind each time. The constants are far beyond what
//! programs use, and are reached within minutes by a collection that grows with each message.

/// Entries for operations that the application has posted and that are not complete, or whose
/// completions it has not read. The application has memory for each.
pub const OPERATIONS: usize = 1 << 22;

/// Entries for peers, addresses and links. A job of a million processes.
pub const PEERS: usize = 1 << 20;

/// Entries for objects that the application has opened, and for what each has once.
pub const OBJECTS: usize = 1 << 18;

/// Checks that a collection has not outgrown its bound, in builds with debug assertions.
#[macro_export]
macro_rules! bounded {
    ($collection:expr, $bound:expr) => {
        debug_assert!(
            $collection.len() <= $bound,
            "{} has more than {} entries",
            stringify!($collection),
            stringify!($bound)
        )
    };
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_collection_within_its_bound_passes() {
        let entries = [0; 3];
        bounded!(entries, 3);
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "entries has more than LIMIT entries")]
    fn a_collection_beyond_its_bound_is_noticed() {
        const LIMIT: usize = 2;
        let entries = [0; 3];
        bounded!(entries, LIMIT);
    }
}
