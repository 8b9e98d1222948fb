//! The conformance kit on endpoints of this provider, with and without reading other processes' memory.

use prov_kit::{Bench, Objects, Opened, Setting};

use super::*;
use prov_message::Lane;

struct Shm<const CMA: bool> {
    setting: Setting,
}

impl<const CMA: bool> Bench for Shm<CMA> {
    type Core = Core;
    const STEPS: &'static [usize] = &[EAGER, WIDE, PART];

    fn new(setting: Setting) -> Self {
        Shm { setting }
    }

    fn vector(&self) -> av::Config<'static> {
        av::Config {
            format: Local::address_format(FI_ADDR_STR).unwrap(),
            ..av::Config::default()
        }
    }

    fn links(core: &Core, ep: EpKey) -> Option<usize> {
        Some(core.links_of(ep).len())
    }

    fn open(&mut self, objects: &Objects) -> Opened<Core> {
        let params = Params {
            disable_cma: !CMA,
            tx_size: self.setting.tx_size,
            ..Params::default()
        };
        let params = Arc::new(params);
        let regions = CMA.then(|| RegionTable::new("test").unwrap());
        let publisher = regions.clone().map(|regions| regions as Arc<dyn Publisher>);
        let table = Arc::new(MrTable::new(&mr::Config {
            publisher,
            ..mr::Config::default()
        }));
        let lane = Lane::start(LockKind::Real, |signals| {
            Core::new(params.clone(), &table, regions.clone(), signals.clone())
        })
        .unwrap();
        let name = fresh_name();
        let mut core = lane.core();
        let rdm = Rdm::new(objects.av.clone(), name.clone(), &params);
        let ep = core.endpoints.add(objects.attributes, Box::new(rdm));
        core.open_listener(ep, Listener::new(SERVICE, &name).unwrap())
            .unwrap();
        drop(core);
        Opened {
            lane,
            ep,
            name: address::of_name(&name),
            table,
        }
    }
}

mod by_reading {
    prov_kit::conformance!(super::Shm<true>);
}

mod by_parts {
    prov_kit::conformance!(super::Shm<false>);
}
