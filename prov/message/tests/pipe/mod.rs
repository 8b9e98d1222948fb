//! A transport whose links have no properties, for tests that only count or account messages.

use prov_message::Transport;
use slotmap::DefaultKey;

pub enum Pipe {}

impl Transport for Pipe {
    type Link = DefaultKey;
    type Ack = ();
    type Name = u64;
    type Endpoint = ();
}
