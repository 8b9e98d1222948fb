//! The conformance kit on endpoints of this provider.

use std::sync::Arc;

use prov_base::sync::LockKind;
use prov_kit::{Bench, Objects, Opened, Property, Setting};
use prov_message::Lane;
use prov_util::mr::MrTable;

use super::*;

/// All endpoints are in one lane.
struct Loopback {
    lane: Arc<Lane<Network>>,
}

impl Bench for Loopback {
    type Core = Network;
    // It keeps what it sends: its transmit queue is never full. Operations on memory end within their
    // calls, and messages without room are refused.
    const LACKS: &'static [Property] = &[
        Property::FullQueue,
        Property::Waiting,
        Property::HoldingBack,
    ];
    const STEPS: &'static [usize] = &[];

    fn new(_: Setting) -> Self {
        let lane = Lane::start(LockKind::Real, |_| Ok(Network::default())).unwrap();
        Loopback { lane }
    }

    fn vector(&self) -> av::Config<'static> {
        av::Config {
            format: Joined::address_format(FI_ADDR_STR).unwrap(),
            ..av::Config::default()
        }
    }

    fn open(&mut self, objects: &Objects) -> Opened<Network> {
        let table = Arc::new(MrTable::new(&mr::Config::default()));
        let member = Member {
            names: Names::new(objects.av.clone()),
            target: RmaTarget::new(&table),
        };
        let mut network = self.lane.core();
        let ep = network.endpoints().add(objects.attributes, member);
        drop(network);
        Opened {
            lane: self.lane.clone(),
            ep,
            name: network::address(ep).into_bytes(),
            table,
        }
    }
}

prov_kit::conformance!(Loopback);
