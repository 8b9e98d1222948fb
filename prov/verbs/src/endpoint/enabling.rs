//! What an endpoint gets when it is enabled: its queue pair, and its members in lanes.

use std::sync::Arc;

use prov_base::errno::{Errno, Result};
use prov_device::link::Link;
use prov_message::Reports;
use prov_util::cq::Cq;
use prov_util::endpoint::Bindings;
use prov_util::ffi::Use;

use super::datagrams::Datagrams;
use super::{Endpoint, Kind};
use crate::device::{PairConfig, Pairing, QueuePair, SharedQueue};
use crate::lane::{Lane, Receiver, Seat, Seats, Sender, Shared};
use crate::manager::XrcEnd;
use crate::resources::Xrc;
use crate::shared_receive::SharedReceive;

impl Endpoint {
    /// Creates the queue pair and the lane members of an endpoint with these bindings.
    pub(super) fn make(
        &self,
        bindings: &Bindings<SharedReceive>,
        link: Option<Arc<Link>>,
    ) -> Result<(Arc<QueuePair>, Seats)> {
        let lane = |cq: &Option<Use<Cq>>| cq.as_ref().map(|cq| self.domain.lane(cq)).transpose();
        let (send, receive) = (lane(&bindings.tx_cq)?, lane(&bindings.rx_cq)?);
        let any = send.clone().or_else(|| receive.clone());
        let any = &any.ok_or(Errno::ENOCQ)?;
        // Operations that are only counted complete at the other queue of the device.
        let counted = |is_counted: bool| is_counted.then(|| any.clone());
        let send = send.or_else(|| counted(bindings.counters.count_transmits()));
        let receive = receive.or_else(|| counted(bindings.counters.recv.is_some()));
        let shared = bindings.shared.as_ref().map(|shared| shared.shared());
        let shared = shared.filter(|_| self.sizes.is_sharing);
        let sizes = &self.sizes;
        if let Some(xrc) = &self.domain.xrc {
            let pair = Arc::new(self.make_way(xrc, any, receive.as_ref(), shared)?);
            let place = self.seat(&pair, bindings, send, receive, shared, link)?;
            return Ok((pair, place));
        }
        let pair = QueuePair::new(
            &self.domain.pd,
            &PairConfig {
                pairing: match self.kind {
                    Kind::Connected(_) => Pairing::Connected,
                    Kind::Datagrams(_) => Pairing::Datagrams,
                },
                send_queue: send.as_ref().unwrap_or(any).queue(),
                receive_queue: receive.as_ref().unwrap_or(any).queue(),
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
        let place = self.seat(&pair, bindings, send, receive, shared, link)?;
        Ok((pair, place))
    }

    /// Creates the representation of the queue pair of an XRC endpoint until it is connected, and
    /// the queue that it receives from. `-FI_EINVAL` if the receives are not shared, or complete at
    /// another completion queue already.
    fn make_way(
        &self,
        xrc: &Xrc,
        any: &Arc<Lane>,
        receive: Option<&Arc<Lane>>,
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
        let lane = receive.unwrap_or(any);
        let receives = shared.complete_in(lane, |queue, size| {
            SharedQueue::of_xrc(&domain.pd, &xrc.domain, queue, size, pieces)
        })?;
        let end = XrcEnd {
            domain: xrc.domain.clone(),
            pd: domain.pd.clone(),
            queue: any.queue().clone(),
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
        send: Option<Arc<Lane>>,
        receive: Option<Arc<Lane>>,
        shared: Option<&Arc<Shared>>,
        link: Option<Arc<Link>>,
    ) -> Result<Seats> {
        let sizes = &self.sizes;
        let send = match send {
            None => None,
            Some(lane) => {
                let reports = Reports::to(bindings);
                let (link, pair) = (link.clone(), pair.clone());
                let inline = pair.inline();
                let sender = Sender::new(pair, reports, link, sizes.sends, inline)?;
                let name = lane.add_sender(match self.domain.xrc {
                    Some(_) => sender.without_silence(),
                    None => sender,
                })?;
                Some(Seat { lane, name })
            }
        };
        let mut place = Seats {
            send,
            receive: None,
        };
        if let Some(lane) = receive {
            let reports = Reports::to(bindings);
            let skipped = self.datagrams_of().map_or(0, Datagrams::skipped);
            let size = shared.map_or(sizes.receives, |shared| shared.size());
            let link = link.filter(|_| self.domain.xrc.is_none());
            let added = Receiver::new(pair.clone(), reports, link, shared.cloned(), size)
                .map(|receiver| receiver.skipping(skipped))
                .and_then(|receiver| lane.add_receiver(receiver));
            match added {
                Ok(name) => place.receive = Some(Seat { lane, name }),
                Err(error) => {
                    place.leave(|| ());
                    return Err(error);
                }
            }
        }
        Ok(place)
    }
}
