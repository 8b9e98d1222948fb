//! The state of an endpoint besides its messages: its name, and its peers.

use std::collections::VecDeque;
use std::sync::Weak;

use crate::listener::Listener;
use prov_local::link::Rules;
use prov_message::Names;
use prov_message::peers::{AddressVector, Patience, Peers};
use prov_message::reaching::DeferredOp;
use prov_util::av::{Av, Observer};
use prov_util::ffi::Use;

use super::keys::LinkKey;
use crate::address;
use crate::params::Params;

/// See the [module](self) description.
pub struct Rdm {
    pub name: String,
    pub rules: Rules,
    /// The socket at which peers find the endpoint, once it is open.
    pub listener: Option<Listener>,
    /// Peers that have connected there and not requested a link, oldest first.
    pub entered: VecDeque<LinkKey>,
    pub peers: Peers<LinkKey, Vector, DeferredOp>,
}

impl Rdm {
    /// Creates the state without peers, and without an order of accesses and messages.
    pub fn new(av: Use<Av>, name: String, params: &Params) -> Self {
        let mut peers = Peers::new(Patience {
            // An attempt to connect is cheap, and disturbs no other process.
            longest_pause: std::time::Duration::from_millis(50),
            ..Patience::within(params.connect_timeout())
        });
        peers.bind_av(Vector(Names::new(av)));
        Rdm {
            name,
            rules: Rules {
                msg_order: 0,
                uses_virtual_addresses: true,
            },
            listener: None,
            entered: VecDeque::new(),
            peers,
        }
    }
}

/// An address vector of names without prefixes. Its addresses can also name contexts
/// (`fi_rx_addr(3)`).
pub struct Vector(Names);

impl AddressVector for Vector {
    type Address = String;

    fn lookup(&self, fi_addr: u64) -> Option<String> {
        let context = self.0.context_of(fi_addr);
        let name = |bytes: &[u8]| address::context_name(address::name(bytes)?, context);
        self.0.with(fi_addr, name).flatten()
    }

    fn find(&self, name: &String) -> Option<u64> {
        let mut addresses = address::all_of_name(address::base_name(name)).into_iter();
        addresses.find_map(|address| self.0.find(&address))
    }

    fn len(&self) -> usize {
        AddressVector::len(&self.0)
    }

    fn observe(&self, observer: Weak<dyn Observer>) {
        AddressVector::observe(&self.0, observer);
    }
}
