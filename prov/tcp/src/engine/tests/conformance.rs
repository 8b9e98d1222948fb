//! The conformance kit on RDM endpoints of this provider, with and without its local path.

use prov_kit::{Bench, Objects, Opened, Setting};
use prov_util::av::{self, format::Format};

use super::*;
use crate::engine::link::post::COPY_LIMIT;
use crate::engine::transfer::ways::ALWAYS_ANNOUNCED;
use crate::params::Local;

struct Tcp<const LOCAL: bool> {
    setting: Setting,
}

impl<const LOCAL: bool> Bench for Tcp<LOCAL> {
    type Core = Core;
    const STEPS: &'static [usize] = &[COPY_LIMIT, ALWAYS_ANNOUNCED];

    fn new(setting: Setting) -> Self {
        Tcp { setting }
    }

    fn vector(&self) -> av::Config<'static> {
        av::Config {
            format: Format::IN,
            ..av::Config::default()
        }
    }

    fn insertion(name: &[u8]) -> Insertion<'_> {
        Insertion::from(prov_base::sockaddr::decode(name).unwrap())
    }

    fn open(&mut self, objects: &Objects) -> Opened<Core> {
        let params = Params {
            local: match LOCAL {
                true => Local::Auto,
                false => Local::Off,
            },
            tx_size: self.setting.tx_size,
            ..Params::default()
        };
        let av = objects.av.clone();
        let kind = |addr, params: &Params| Kind::Rdm(Box::new(Rdm::new(av, addr, params)));
        let begun = begin(params, None, objects.attributes, kind, ListenerKind::Rdm);
        Opened {
            lane: begun.engine,
            ep: begun.ep,
            name: prov_base::sockaddr::encode(&begun.addr).as_bytes().to_vec(),
            table: begun.memory,
        }
    }
}

mod within_the_host {
    prov_kit::conformance!(super::Tcp<true>);
}

mod through_sockets {
    prov_kit::conformance!(super::Tcp<false>);
}
