//! The conformance kit on endpoints of this provider, over tcp.

use prov_kit::{Bench, Objects, Opened, Setting};

use super::*;

struct OverTcp {
    setting: Setting,
}

impl Bench for OverTcp {
    type Core = Core;
    const STEPS: &'static [usize] = &[300, 10_000, 200_000];

    fn new(setting: Setting) -> Self {
        OverTcp { setting }
    }

    fn vector(&self) -> prov_util::av::Config<'static> {
        prov_util::av::Config {
            format: prov_util::av::format::Format::IN,
            ..prov_util::av::Config::default()
        }
    }

    fn insertion(name: &[u8]) -> Insertion<'_> {
        Insertion::from(prov_base::sockaddr::decode(name).unwrap())
    }

    fn open(&mut self, objects: &Objects) -> Opened<Core> {
        let params = Arc::new(Params {
            tx_size: self.setting.tx_size,
            ..Params::default()
        });
        let Prepared {
            below,
            table,
            engine,
        } = prepare(&params, false);
        let mut core = engine.core();
        let part = Box::new(Rdm::new(objects.av.clone(), 0, &params));
        let ep = core.endpoints().add(objects.attributes, part);
        core.start(ep, below, None).unwrap();
        let addr = core.below.as_ref().unwrap().addr;
        drop(core);
        Opened {
            lane: engine,
            ep,
            name: prov_base::sockaddr::encode(&addr).as_bytes().to_vec(),
            table,
        }
    }
}

prov_kit::conformance!(OverTcp);
