//! What the engine knows of an endpoint besides its messages: how it finds its
//! connection.

use prov_util::eq::ConnectionEvents;

use crate::engine::link::keys::ConnKey;
use crate::engine::link::rdm::Rdm;
use crate::wire::authentication::Key;

/// The part of an endpoint that is tcp's.
pub struct OwnPart {
    pub kind: Kind,
    /// What its peers must prove to know.
    pub auth_key: Option<Key>,
    /// The order of its operations (`msg_order` in `struct fi_tx_attr`): whether accesses to
    /// memory come behind messages. All other order is kept in any case.
    pub msg_order: u64,
}

/// How an endpoint finds its connection.
pub enum Kind {
    /// It has one.
    Msg(Msg),
    /// It has one per peer.
    Rdm(Box<Rdm>),
}

/// A connected endpoint.
#[derive(Default)]
pub struct Msg {
    pub conn: Option<ConnKey>,
    /// Where the fate of its connection is reported.
    pub events: Option<ConnectionEvents>,
    /// Whether it had a connection that has ended.
    pub ended: bool,
}
