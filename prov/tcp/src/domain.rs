//! fi_domain(3): an engine, its memory registrations and its endpoints.

use std::sync::Arc;

use fabric_abi::{FI_EP_MSG, FI_EP_RDM, FI_PROGRESS_AUTO};
use prov_util::attr::Info;
use prov_util::domain;
use prov_util::errno::{Errno, Result};
use prov_util::ffi::Handle;
use prov_util::ffi::domain::DomainObject;
use prov_util::mr::{Config, Job, MrTable};
use prov_util::progress::Progress;

use crate::LOG;
use crate::auto_progress::AutoProgress;
use crate::connreq::Requests;
use crate::endpoint::Endpoint;
use crate::engine::{Engine, Running};
use crate::fabric::Fabric;
use crate::params::Params;
use crate::shared_receive::SharedReceive;
use crate::wire::authentication::Key;

/// A domain.
pub struct Domain {
    /// Drives the engine where the application asked for that. It ends first.
    _auto_progress: Option<AutoProgress>,
    pub(crate) params: Arc<Params>,
    pub(crate) engine: Running,
    pub(crate) requests: Arc<Requests>,
    memory: Arc<MrTable>,
    /// What peers of its endpoints must prove to know, unless these have keys
    /// of their own.
    auth_key: Option<Key>,
}

impl Domain {
    /// A domain with the attributes in `info`.
    pub fn new(params: Arc<Params>, requests: Arc<Requests>, info: &Info) -> Result<Self> {
        let auth_key = match info.domain.authorization()? {
            Some(key) => Key::new(key),
            None => params.auth_key()?,
        };
        let memory = Arc::new(MrTable::new(&Config {
            mr_mode: info.domain.mr_mode,
            key_size: info.domain.mr_key_size.clamp(1, 8),
            job: auth_key.as_ref().map(|key| key.bytes().to_vec()),
            target: LOG.mr,
        }));
        let engine = Engine::start(params.clone(), Some(memory.clone()))?;
        let auto = info.domain.data_progress == FI_PROGRESS_AUTO
            || info.domain.control_progress == FI_PROGRESS_AUTO;
        let auto_progress = if auto && !params.disable_auto_progress {
            Some(AutoProgress::start(&engine)?)
        } else {
            None
        };
        Ok(Domain {
            params,
            engine,
            requests,
            memory,
            auth_key,
            _auto_progress: auto_progress,
        })
    }

    /// What peers of an endpoint with these attributes must prove to know.
    pub(crate) fn auth_key(&self, info: &Info) -> Result<Option<Key>> {
        let own = info.ep.authorization()?.and_then(Key::new);
        Ok(own.or_else(|| self.auth_key.clone()))
    }

    /// To whom peers belong that have proved this key.
    pub(crate) fn job(&self, auth_key: Option<&Key>) -> Job {
        auth_key.map_or(Job::NONE, |key| self.memory.job(key.bytes()))
    }
}

impl domain::Domain for Domain {
    type Fabric = Fabric;
    type Endpoint = Endpoint;
    type SharedReceive = SharedReceive;

    const LOG_TARGET: &'static str = LOG.domain;

    fn endpoint(this: &Handle<DomainObject<Self>>, info: &Info) -> Result<Endpoint> {
        match info.ep.ep_type {
            FI_EP_RDM => Endpoint::rdm(this, info),
            FI_EP_MSG => Endpoint::msg(this, info),
            _ => Err(Errno::EINVAL),
        }
    }

    fn shared_receive(
        this: &Handle<DomainObject<Self>>,
        op_flags: u64,
        size: usize,
    ) -> Result<SharedReceive> {
        Ok(SharedReceive::new(
            this.engine.clone(),
            op_flags,
            if size == 0 { 65536 } else { size },
        ))
    }

    fn memory(&self) -> &Arc<MrTable> {
        &self.memory
    }

    fn progress(&self) -> Option<Arc<dyn Progress>> {
        Some(self.engine.clone())
    }

    fn atomic_limit(&self) -> usize {
        crate::engine::ATOMIC_LIMIT
    }
}
