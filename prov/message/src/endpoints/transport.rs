//! What the messages of one provider differ in from those of another.

use std::fmt::Debug;
use std::hash::Hash;

/// The types in which the messages of one provider differ from those of another.
pub trait Transport: Sized + 'static {
    /// The key of a link: what messages arrive on, such as a connection. It is never reused.
    type Link: slotmap::Key + Hash + Send;
    /// The acknowledgement that the sender of a message asks for; the default means none.
    type Ack: Copy + Default + PartialEq + Debug + Send;
    /// The sender's identifier of a message that it has announced and keeps.
    type Name: Copy + PartialEq + Debug + Send;
    /// The provider's data of an endpoint.
    type Endpoint: Send;

    /// Whether an inbox that is shared may hold messages of a closed endpoint whose links still
    /// exist.
    const LINKS_OUTLIVE_ENDPOINTS: bool = false;

    /// Default for `FI_OPT_MIN_MULTI_RECV`: a multi-receive buffer with fewer free bytes is
    /// released. The value is that of the C library's network providers.
    const MIN_MULTI_RECV: usize = 16384;

    /// Whether the sender is acknowledged when its message is buffered, instead of when a receive
    /// has taken it.
    fn acknowledges_what_is_kept(_ack: Self::Ack) -> bool {
        false
    }
}

slotmap::new_key_type! {
    /// The link of a transport whose messages come on none ([`Transport::Link`]): datagrams.
    pub struct NoLink;
}

/// The number under which the queues file the messages of a link: the link's index, which another
/// link may reuse after this one has ended.
pub(crate) fn origin(link: impl slotmap::Key) -> u32 {
    link.data().as_ffi() as u32
}
