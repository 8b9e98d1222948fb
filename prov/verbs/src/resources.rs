//! What an open device gives a domain, and what its endpoints share: memory, lanes, connections.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use prov_base::errno::{Errno, Result};
use prov_base::sync::LockKind;
use prov_message::objects::Requests;
use prov_util::attr::Info;
use prov_util::cq::Cq;
use prov_util::mr::{self, MrTable};
use prov_util::wait::Waitable as _;

use crate::LOG;
use crate::bases::place_of;
use crate::device::{Context, Limits, Port, ProtectionDomain, Scratch, Terms, XrcDomain};
use crate::lane::Lane;
use crate::manager::{Incomer, Manager};
use crate::mr::Registrar;
use crate::params::Params;

/// What a domain has, for itself and for its endpoints.
pub struct Resources {
    pub params: Arc<Params>,
    pub context: Context,
    pub limits: Limits,
    /// The port that is used where a connection does not choose.
    pub port: Port,
    /// Its number.
    pub port_number: u8,
    pub pd: Arc<ProtectionDomain>,
    /// Where endpoints use XRC.
    pub xrc: Option<Xrc>,
    pub manager: Arc<Manager>,
    pub requests: Arc<Requests<Incomer>>,
    /// The memory that is registered.
    pub memory: Arc<MrTable>,
    /// Of completion queues and lanes.
    pub lane_lock: LockKind,
    /// Of what several queues have in common.
    pub domain_lock: LockKind,
    /// Lanes by the address of the queue that their endpoints are bound to.
    lanes: Mutex<HashMap<usize, Weak<Lane>>>,
    /// Where results go that nobody asks for.
    scratch: OnceLock<Scratch>,
}

/// What endpoints of XRC need of their domain.
pub struct Xrc {
    pub domain: Arc<XrcDomain>,
    /// Bytes that initiators take along with a request.
    pub inline: usize,
}

impl Xrc {
    fn open(params: &Params, context: Context, inline: usize) -> Result<Self> {
        let path = params.xrcd_filename.as_deref();
        let path = path.filter(|path| !path.is_empty()).map(Path::new);
        let domain = XrcDomain::open(context, path).inspect_err(|error| {
            log::warn!(target: LOG.domain, "no domain of XRC with {path:?}: {error}");
        })?;
        Ok(Xrc { domain, inline })
    }
}

impl Resources {
    /// The domain that `info` names.
    pub fn open(
        params: Arc<Params>,
        manager: Arc<Manager>,
        requests: Arc<Requests<Incomer>>,
        info: &Info,
    ) -> Result<Self> {
        let name = info.domain.name.as_deref().unwrap_or_default();
        let place = place_of(&params, name).ok_or(Errno::ENODEV)?;
        let context = place.context;
        let limits = context.limits()?;
        let pd = ProtectionDomain::new(context)?;
        let xrc = place
            .inline_xrc
            .map(|inline| Xrc::open(&params, context, inline));
        let xrc = xrc.transpose()?;
        let registrar = Registrar::new(pd.clone(), limits.has_atomics, params.use_dmabuf);
        let memory = MrTable::new(&mr::Config {
            mr_mode: info.domain.mr_mode,
            key_size: size_of::<u32>(),
            registrar: mr::Registrar::Device(Arc::new(registrar)),
            target: LOG.mr,
            ..mr::Config::default()
        });
        let threading = info.domain.threading;
        Ok(Resources {
            params,
            context,
            limits,
            port: place.port,
            port_number: place.number,
            pd,
            xrc,
            manager,
            requests,
            memory: Arc::new(memory),
            lane_lock: LockKind::for_completion(threading),
            domain_lock: LockKind::for_domain(threading),
            lanes: Mutex::default(),
            scratch: OnceLock::new(),
        })
    }

    /// The lane of the endpoints that report to a queue. Any thread may wait at a wait
    /// set, if the queue is in one.
    pub fn lane(&self, cq: &Cq) -> Result<Arc<Lane>> {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        lanes.retain(|_, lane| lane.strong_count() != 0);
        let address = std::ptr::from_ref(cq).addr();
        if let Some(lane) = lanes.get(&address).and_then(Weak::upgrade) {
            return Ok(lane);
        }
        let bunch = self.params.cqread_bunch_size;
        let ear = self.manager.clone();
        let lock = match cq.attachment().is_in_set() {
            true => LockKind::Real,
            false => self.lane_lock,
        };
        let lane = Lane::new(self.context, lock, bunch, ear)?;
        lanes.insert(address, Arc::downgrade(&lane));
        Ok(lane)
    }

    /// Where results go that nobody asks for.
    pub fn scratch(&self) -> Result<&Scratch> {
        if let Some(scratch) = self.scratch.get() {
            return Ok(scratch);
        }
        let scratch = Scratch::new(&self.pd)?;
        Ok(self.scratch.get_or_init(|| scratch))
    }

    /// Pieces of memory of a shared receive.
    pub fn shared_pieces(&self) -> usize {
        let most = self.limits.pieces_per_shared_receive;
        self.params.rx_iov_limit.min(most)
    }

    /// What an end of a connection brings.
    pub fn terms(&self) -> Terms {
        Terms {
            reads_as_target: self.limits.reads_as_target,
            reads_as_initiator: self.limits.reads_as_initiator,
            receiver_timer: self.params.min_rnr_timer.clamp(0, 31) as u8,
        }
    }
}
