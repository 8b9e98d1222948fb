//! The conformance kit on endpoints of this provider, over tcp, with each way to receive and to send long
//! messages.

use prov_kit::{Bench, Objects, Opened, Property, Setting};
use prov_message::Linked as _;

use super::*;

/// With rendezvous by write or by read, with a shared receive context below or without, and over a
/// provider with `FI_MR_LOCAL` or without.
struct OverTcp<const BY_WRITE: bool, const SHARES: bool, const REGISTERS: bool> {
    setting: Setting,
}

impl<const BY_WRITE: bool, const SHARES: bool, const REGISTERS: bool> Drop
    for OverTcp<BY_WRITE, SHARES, REGISTERS>
{
    fn drop(&mut self) {
        IS_LOCAL.set(false);
    }
}

impl<const BY_WRITE: bool, const SHARES: bool, const REGISTERS: bool> Bench
    for OverTcp<BY_WRITE, SHARES, REGISTERS>
{
    type Core = Core;
    // Peers' writes are in one queue below.
    const LACKS: &'static [Property] = &[Property::Turns];
    const STEPS: &'static [usize] = &[300, 10_000, 200_000];

    fn new(setting: Setting) -> Self {
        IS_LOCAL.set(REGISTERS);
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

    fn links(core: &Core, ep: EpKey) -> Option<usize> {
        Some(core.links_of(ep).len())
    }

    fn open(&mut self, objects: &Objects) -> Opened<Core> {
        let params = Arc::new(Params {
            tx_size: self.setting.tx_size,
            use_rndv_write: BY_WRITE,
            use_srx: (!SHARES).then_some(false),
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

mod by_default {
    prov_kit::conformance!(super::OverTcp<false, true, false>);
}

mod with_rendezvous_by_write {
    prov_kit::conformance!(messages super::OverTcp<true, true, false>);
}

mod without_a_shared_receive_context {
    prov_kit::conformance!(messages super::OverTcp<false, false, false>);
    prov_kit::conformance!(strangers super::OverTcp<false, false, false>);
}

mod with_registration {
    prov_kit::conformance!(messages super::OverTcp<false, true, true>);
}

mod with_registration_by_write {
    prov_kit::conformance!(messages super::OverTcp<true, true, true>);
}

mod with_registration_without_a_shared_receive_context {
    prov_kit::conformance!(messages super::OverTcp<false, false, true>);
}

mod with_registration_and_neither {
    prov_kit::conformance!(messages super::OverTcp<true, false, true>);
}
