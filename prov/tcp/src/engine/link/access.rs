//! What a connection knows of the access to registered memory that each of its two processes carries
//! out by itself ([`prov_local::onesided`]).

use prov_local::onesided::table::Watching;
use prov_local::onesided::window::Window;

/// See the [module](self) description.
#[derive(Default)]
pub struct OneSided {
    /// The peer's regions that this process may access.
    pub regions: Regions,
    /// The peer's right to access this process's memory.
    pub watching: Option<Watching>,
    /// Whether the peer may have an access request that it has not yet acted upon.
    pub(super) has_asked: bool,
    /// Position up to which the peer has acted upon all messages, except notifications of accesses;
    /// `None` until it is known to have acted upon all.
    pub(super) settled: Option<Position>,
}

/// A position in the stream of posted messages.
#[derive(Clone, Copy)]
pub(super) struct Position {
    /// Number of slots of the shared memory; valid while nothing is queued.
    pub(super) slots: u64,
    /// Total number of bytes that were queued.
    pub(super) queued: u64,
}

/// The regions of the peer.
#[derive(Default)]
pub enum Regions {
    /// The peer has not said where its table is.
    #[default]
    Unknown,
    /// In the file of the peer with this number.
    Offered(u64),
    /// The table is mapped.
    Open(Box<Window>),
    /// The table cannot be used.
    Closed,
}
