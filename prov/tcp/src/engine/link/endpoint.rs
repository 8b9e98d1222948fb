//! The state of an endpoint besides its messages: how it finds its connection.

use prov_util::eq::ConnectionEvents;

use crate::engine::link::keys::ConnKey;
use crate::engine::link::rdm::Rdm;
use crate::wire::authentication::Key;

/// The part of an endpoint that is specific to tcp.
pub struct OwnPart {
    pub kind: Kind,
    /// The key that its peers must prove.
    pub auth_key: Option<Key>,
    /// The order of its operations (`msg_order` in `struct fi_tx_attr`), which decides whether
    /// remote accesses are ordered after messages. All other orders are kept in any case.
    pub msg_order: u64,
    /// Whether it is opened for accesses to memory (`FI_RMA` of `fi_info`).
    pub is_for_rma: bool,
    /// Whether they do so only for announced messages, whose owner makes progress until they end.
    pub only_rendezvous: bool,
    /// Whether operations with `FI_FENCE` wait for those before them (`FI_FENCE` of `fi_info`).
    pub has_fences: bool,
}

/// How an endpoint finds its connection.
pub enum Kind {
    /// A connected endpoint, with one connection.
    Msg(Msg),
    /// An RDM endpoint, with one connection for each peer.
    Rdm(Box<Rdm>),
}

/// A connected endpoint.
#[derive(Default)]
pub struct Msg {
    pub conn: Option<ConnKey>,
    /// The source of its connection events.
    pub events: Option<ConnectionEvents>,
    /// Whether it had a connection that has ended.
    pub ended: bool,
}
