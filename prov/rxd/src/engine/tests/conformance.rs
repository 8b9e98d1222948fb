//! The conformance kit on endpoints of this provider, over udp.

use prov_kit::{Bench, Objects, Opened, Property, Setting};

use super::*;

struct OverUdp;

impl Bench for OverUdp {
    type Core = Core;
    // Datagrams are taken in as they arrive.
    const LACKS: &'static [Property] = &[Property::Turns];
    const STEPS: &'static [usize] = &[1500, 60_000];

    fn new(_: Setting) -> Self {
        OverUdp
    }

    fn vector(&self) -> av::Config<'static> {
        av::Config {
            format: av::format::Format::IN,
            ..av::Config::default()
        }
    }

    fn insertion(name: &[u8]) -> Insertion<'_> {
        Insertion::from(prov_base::sockaddr::decode(name).unwrap())
    }

    fn open(&mut self, objects: &Objects) -> Opened<Core> {
        let (lane, ep, table, name) = begin(
            Ipv4Addr::LOCALHOST,
            Params::default(),
            &objects.av,
            objects.attributes,
        );
        Opened {
            lane,
            ep,
            name,
            table,
        }
    }
}

prov_kit::conformance!(OverUdp);
