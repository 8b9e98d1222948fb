//! What is told of a receive that has its message.

use prov_util::matching::MultiId;
use slotmap::new_key_type;

use crate::operation::{Context, EpKey};

new_key_type! {
    /// A receive context, an endpoint's own or a shared one.
    pub struct InboxKey;

    /// A receive of the owner's that has its message.
    pub struct GivenKey;
}

/// A receive that has its message.
#[derive(Clone, Copy, Debug)]
pub struct Receipt<A> {
    /// Where it was posted.
    pub inbox: InboxKey,
    /// The endpoint that the message came to.
    pub ep: EpKey,
    pub tagged: bool,
    pub context: Context,
    /// Operation flags of the receive.
    pub flags: u64,
    pub buffer: Buffer,
    pub src: u64,
    pub tag: u64,
    /// Immediate data.
    pub data: Option<u64>,
    /// Bytes in the message.
    pub len: usize,
    pub ack: A,
}

/// Whose a receive's buffer is once the message is in it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Buffer {
    /// The application's.
    Single,
    /// The application's with the last of several messages.
    Multi(MultiId),
    /// Of the provider that has the receives.
    Foreign(GivenKey),
}

impl Buffer {
    /// Of a receive of our own.
    #[inline]
    pub(crate) fn of(multi: Option<MultiId>) -> Self {
        multi.map_or(Buffer::Single, Buffer::Multi)
    }
}
