//! The resources of a domain and its endpoints on an open device: memory, lanes, connections.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use prov_base::errno::{Errno, Result};
use prov_device::DomainParts;
use prov_message::objects::Requests;
use prov_util::attr::Info;
use prov_util::cq::Cq;

use crate::LOG;
use crate::bases::place_of;
use crate::device::{
    CompletionQueue, Context, Limits, Port, ProtectionDomain, Rdma, Scratch, Terms, XrcDomain,
};
use crate::lane::Lane;
use crate::manager::{Incomer, Manager};
use crate::mr::Registering;
use crate::params::Params;

/// The resources of a domain and its endpoints.
pub struct Resources {
    pub params: Arc<Params>,
    pub context: Context,
    pub limits: Limits,
    /// The port that is used if a connection does not choose one.
    pub port: Port,
    /// Its number.
    pub port_number: u8,
    pub pd: Arc<ProtectionDomain>,
    /// The XRC objects, if endpoints use XRC.
    pub xrc: Option<Xrc>,
    pub manager: Arc<Manager>,
    pub requests: Arc<Requests<Incomer>>,
    pub parts: DomainParts<Rdma>,
    /// Memory for results that are not needed.
    scratch: OnceLock<Scratch>,
}

/// The XRC objects of a domain.
pub struct Xrc {
    pub domain: Arc<XrcDomain>,
    /// Largest number of inline bytes of a request of an initiator.
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
    /// Opens the domain that `info` names.
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
        let registering = Registering {
            pd: pd.clone(),
            has_atomics: limits.has_atomics,
            uses_dmabuf: params.use_dmabuf,
        };
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
            parts: DomainParts::new(registering, info),
            scratch: OnceLock::new(),
        })
    }

    /// Returns the lane of the endpoints that report to a queue. If the queue is in a wait set, any
    /// thread may wait there.
    pub fn lane(&self, cq: &Cq) -> Result<Arc<Lane>> {
        self.parts.lane(cq, |lock| {
            let bunch = self.params.cqread_bunch_size;
            let ear = self.manager.clone();
            let (context, most) = (self.context, self.limits.completions_per_queue);
            Lane::new(lock, bunch, most, ear, |size, wake| {
                CompletionQueue::new(context, size, wake)
            })
        })
    }

    /// Returns memory for results that are not needed.
    pub fn scratch(&self) -> Result<&Scratch> {
        if let Some(scratch) = self.scratch.get() {
            return Ok(scratch);
        }
        let scratch = Scratch::new(&self.pd)?;
        Ok(self.scratch.get_or_init(|| scratch))
    }

    /// Returns the largest number of segments of a shared receive.
    pub fn shared_pieces(&self) -> usize {
        let most = self.limits.pieces_per_shared_receive;
        self.params.rx_iov_limit.min(most)
    }

    /// Returns the limits of an end of a connection.
    pub fn terms(&self) -> Terms {
        Terms {
            reads_as_target: self.limits.reads_as_target,
            reads_as_initiator: self.limits.reads_as_initiator,
            receiver_timer: self.params.min_rnr_timer.clamp(0, 31) as u8,
        }
    }
}
