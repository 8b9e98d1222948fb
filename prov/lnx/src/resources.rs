//! What the objects of a domain share: the domains of a link, registered memory, and what drives all
//! endpoints.

use std::os::fd::RawFd;
use std::sync::{Arc, Weak};

use fabric_abi::{FI_BFLOAT16, FI_HMEM, FI_MR_PROV_KEY, FI_TRIGGER, FI_UINT8};
use parking_lot::Mutex;
use prov_base::atomic_ops::Offered;
use prov_base::bounded;
use prov_base::bounds::OBJECTS;
use prov_base::sync::LockKind;
use prov_util::attr::{Info, MR_BASIC};
use prov_util::below;
use prov_util::drive::Helper;
use prov_util::mr::{Config, MrTable, Registrar};
use prov_util::progress::Progress;

use crate::LOG;
use crate::memory::Linked;
use crate::offer::{ATOMIC_LIMIT, is_automatic};
use crate::settings::Settings;

/// A domain of a linked provider.
pub struct LinkedDomain {
    pub domain: Arc<below::Domain>,
    pub info: Info,
    /// Whether peers of the same host are reached through it.
    pub is_shm: bool,
}

/// See the [module](self) description.
pub struct Resources {
    pub settings: Arc<Settings>,
    pub linked: Arc<[LinkedDomain]>,
    pub lock: LockKind,
    pub memory: Arc<MrTable>,
    pub all: Arc<All>,
    pub atomics: Offered,
    /// The thread that drives the endpoints.
    pub helper: Arc<Helper>,
    /// Whether it drives them while the application does not.
    pub is_auto: bool,
}

impl Resources {
    /// Creates a domain over these, with the attributes in `info`.
    pub fn new(
        settings: Arc<Settings>,
        linked: Vec<LinkedDomain>,
        info: &Info,
        lock: LockKind,
    ) -> Self {
        let domains: Vec<_> = linked.iter().map(|linked| linked.domain.clone()).collect();
        let least = |datatype| {
            let limits = domains.iter().map(|domain| domain.atomic_limit(datatype));
            limits.min().unwrap_or(0)
        };
        let limit = least(FI_UINT8).min(ATOMIC_LIMIT);
        // Who has one of the rare types has all.
        let atomics = match least(FI_BFLOAT16) {
            0 => Offered::common(limit),
            _ => Offered::up_to(limit),
        };
        let has_devices = info.caps & FI_HMEM != 0;
        if has_devices {
            prov_message::find_devices();
        }
        let chooses_keys = info.domain.mr_mode & (MR_BASIC | FI_MR_PROV_KEY) != 0;
        let key_size = info.domain.mr_key_size.clamp(1, 8);
        let device = Linked::new(domains, chooses_keys, key_size);
        let memory = Arc::new(MrTable::new(&Config {
            mr_mode: info.domain.mr_mode,
            key_size,
            registrar: Registrar::Device(device),
            has_devices,
            target: LOG.mr,
            ..Config::default()
        }));
        let is_auto = is_automatic(&info.domain);
        Resources {
            settings,
            linked: linked.into(),
            // What waits for a counter is posted by whichever thread finds it due.
            lock: match info.caps & FI_TRIGGER {
                0 if !is_auto => lock,
                _ => LockKind::Real,
            },
            memory,
            all: Arc::default(),
            atomics,
            helper: Helper::new("fi_lnx helper"),
            is_auto,
        }
    }

    /// Adds an endpoint to those that are driven together.
    pub fn add(&self, progress: &Arc<dyn Progress>) {
        self.all.add(progress);
    }
}

/// All endpoints of a domain.
#[derive(Default)]
pub struct All {
    endpoints: Mutex<Vec<Weak<dyn Progress>>>,
}

impl All {
    fn add(&self, progress: &Arc<dyn Progress>) {
        let mut endpoints = self.endpoints.lock();
        endpoints.retain(|endpoint| endpoint.strong_count() != 0);
        endpoints.push(Arc::downgrade(progress));
        bounded!(endpoints, OBJECTS);
    }

    fn endpoints(&self) -> Vec<Arc<dyn Progress>> {
        let endpoints = self.endpoints.lock();
        endpoints.iter().filter_map(Weak::upgrade).collect()
    }
}

impl Progress for All {
    fn progress(&self) {
        for endpoint in self.endpoints() {
            endpoint.progress();
        }
    }

    /// Endpoints come and go, so that who waits polls.
    fn wait_fd(&self) -> Option<RawFd> {
        None
    }

    fn prepare_wait(&self) -> bool {
        self.endpoints()
            .iter()
            .all(|endpoint| endpoint.prepare_wait())
    }
}
