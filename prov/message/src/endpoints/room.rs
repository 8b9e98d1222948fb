//! The accounts to which an unexpected message is charged, and what it costs.

/// Bytes that an unexpected message is charged in addition to its payload: about the size of its
/// entry, so that many short messages are limited, too.
pub(crate) const KEEPING_COST: usize = 128;

/// The accounts that a kept message is charged to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    pub budget: Purse,
    /// Whether it also counts as a stranger's.
    pub is_stranger: bool,
}

impl Room {
    /// The room of a message that is not buffered, and is charged to no budget.
    pub const NONE: Room = Room {
        budget: Purse::Shared,
        is_stranger: false,
    };
}

/// The budget to which a message with its payload is charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purse {
    /// The one that all senders share.
    Shared,
    /// The additional one of senders that cannot announce.
    Unannounced,
    /// That of links of endpoints to themselves.
    Own,
    /// None: the application waits for a message behind it.
    Awaited,
}

/// The cost of keeping a message.
#[derive(Clone, Copy)]
pub(crate) enum Cost {
    Bytes(usize, Room),
    Announcement(Room),
    Nothing,
}
