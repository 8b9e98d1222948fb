//! What an endpoint gets when it is enabled: its queue pair, and its members in lanes.

use std::sync::Arc;

use prov_base::errno::{Errno, Result};
use prov_device::lanes::{Membership, Sides};
use prov_device::{Link, Sizes};
use prov_message::Reports;
use prov_util::endpoint::Bindings;

use super::datagrams::Datagrams;
use super::{Endpoint, Kind};
use crate::device::{PairConfig, Pairing, QueuePair, Rdma, SharedQueue};
use crate::lane::{Seats, Shared, SharedReceive};
use crate::manager::XrcEnd;
use crate::resources::Xrc;

impl Endpoint {
    /// Creates the queue pair and the lane members of an endpoint with these bindings.
    pub(super) fn make(
        &self,
        bindings: &Bindings<SharedReceive>,
        link: Option<Arc<Link>>,
    ) -> Result<(Arc<QueuePair>, Seats)> {
        let sides = Sides::of(bindings, |cq| self.domain.lane(cq))?;
        let shared = bindings.shared.as_ref().map(|shared| shared.shared());
        let shared = shared.filter(|_| self.is_sharing);
        let sizes = &self.sizes;
        if let Some(xrc) = &self.domain.xrc {
            let pair = Arc::new(self.make_way(xrc, &sides, shared)?);
            let place = self.seat(&pair, bindings, sides, shared, link)?;
            return Ok((pair, place));
        }
        let pair = QueuePair::new(
            &self.domain.pd,
            &PairConfig {
                pairing: match self.kind {
                    Kind::Connected(_) => Pairing::Connected,
                    Kind::Datagrams(_) => Pairing::Datagrams,
                },
                send_queue: sides.send_queue(),
                receive_queue: sides.receive_queue(),
                shared: shared.map(|shared| shared.queue()).transpose()?,
                sends: sizes.sends,
                receives: if shared.is_some() { 0 } else { sizes.receives },
                send_pieces: sizes.send_pieces,
                receive_pieces: match (shared, self.datagrams_of()) {
                    (Some(_), _) => 0,
                    (None, None) => sizes.receive_pieces,
                    // The header may be a segment of its own.
                    (None, Some(_)) => (sizes.receive_pieces + 1).min(self.domain.limits.pieces),
                },
                inline: sizes.inline,
            },
        )?;
        let pair = Arc::new(pair);
        match &self.kind {
            Kind::Connected(_) => pair.prepare(self.domain.port_number)?,
            Kind::Datagrams(datagrams) => datagrams.open_pair(&self.domain, &pair)?,
        }
        let place = self.seat(&pair, bindings, sides, shared, link)?;
        Ok((pair, place))
    }

    /// Creates the representation of the queue pair of an XRC endpoint until it is connected, and
    /// the queue that it receives from. `-FI_EINVAL` if the receives are not shared, or complete at
    /// another completion queue already.
    fn make_way(
        &self,
        xrc: &Xrc,
        sides: &Sides<Rdma>,
        shared: Option<&Arc<Shared>>,
    ) -> Result<QueuePair> {
        let Some(shared) = shared else {
            log::warn!(
                target: crate::LOG.ep_ctrl,
                "an endpoint of XRC needs a shared receive context"
            );
            return Err(Errno::EINVAL);
        };
        let (domain, sizes) = (&self.domain, &self.sizes);
        let pieces = domain.shared_pieces();
        let lane = sides.receive.as_ref().unwrap_or(&sides.any);
        let receives = shared.complete_in(lane, |queue, size| {
            SharedQueue::of_xrc(&domain.pd, &xrc.domain, queue, size, pieces)
        })?;
        let end = XrcEnd {
            domain: xrc.domain.clone(),
            pd: domain.pd.clone(),
            queue: sides.any.queue().clone(),
            receives,
            sends: sizes.sends,
            send_pieces: domain.params.tx_iov_limit.min(domain.limits.pieces),
            inline: xrc.inline,
        };
        // It is enabled only once.
        let _ = self.xrc.set(end);
        Ok(QueuePair::path(&domain.pd, sizes.inline.min(xrc.inline)))
    }

    fn seat(
        &self,
        pair: &Arc<QueuePair>,
        bindings: &Bindings<SharedReceive>,
        sides: Sides<Rdma>,
        shared: Option<&Arc<Shared>>,
        link: Option<Arc<Link>>,
    ) -> Result<Seats> {
        let is_xrc = self.domain.xrc.is_some();
        let member = Membership {
            pair,
            sizes: &Sizes {
                inline: pair.inline(),
                ..self.sizes
            },
            shared,
            receive_link: link.clone().filter(|_| !is_xrc),
            link,
            skipped: self.datagrams_of().map_or(0, Datagrams::skipped),
            is_shared_pair: is_xrc,
        };
        sides.join(&Reports::to(bindings), member)
    }
}
