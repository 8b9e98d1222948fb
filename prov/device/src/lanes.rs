//! The lanes of a domain, and the lane members of its endpoints.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use prov_base::errno::{Errno, Result};
use prov_base::sync::LockKind;
use prov_message::Reports;
use prov_util::cq::Cq;
use prov_util::endpoint::{self, Bindings};
use prov_util::ffi::Use;
use prov_util::wait::Waitable as _;

use crate::device::Device;
use crate::lane::{Lane, Receiver, Seat, Seats, Sender, Shared};
use crate::link::Link;
use crate::posting::Sizes;

/// The lanes of a domain: one for each queue of the application that endpoints report to.
pub struct Lanes<D: Device> {
    /// By the address of the queue.
    known: Mutex<HashMap<usize, Weak<Lane<D>>>>,
}

impl<D: Device> Default for Lanes<D> {
    fn default() -> Self {
        Lanes {
            known: Mutex::default(),
        }
    }
}

impl<D: Device> Lanes<D> {
    /// Returns the lane of the endpoints that report to a queue, which `make` creates with the kind
    /// of lock that it gets: `kind`, unless any thread may wait for the queue in a set.
    pub fn of(
        &self,
        cq: &Cq,
        kind: LockKind,
        make: impl FnOnce(LockKind) -> Result<Arc<Lane<D>>>,
    ) -> Result<Arc<Lane<D>>> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, lane| lane.strong_count() != 0);
        let address = std::ptr::from_ref(cq).addr();
        if let Some(lane) = known.get(&address).and_then(Weak::upgrade) {
            return Ok(lane);
        }
        let lane = make(match cq.attachment().is_in_set() {
            true => LockKind::Real,
            false => kind,
        })?;
        known.insert(address, Arc::downgrade(&lane));
        Ok(lane)
    }
}

/// The lanes of an endpoint, as far as its operations are reported.
pub struct Sides<D: Device> {
    /// That of its sends.
    pub send: Option<Arc<Lane<D>>>,
    /// That of its receives.
    pub receive: Option<Arc<Lane<D>>>,
    /// One of them: a queue pair needs a completion queue for either side.
    pub any: Arc<Lane<D>>,
}

/// What a queue pair needs to become a member of lanes.
pub struct Membership<'a, D: Device> {
    /// The queue pair.
    pub pair: &'a Arc<D::Pair>,
    /// Its sizes; `inline` is the device's.
    pub sizes: &'a Sizes,
    /// The queue of its receives, if they are shared.
    pub shared: Option<&'a Arc<Shared<D>>>,
    /// The connection of the sends; `None` for datagrams.
    pub link: Option<Arc<Link>>,
    /// That of the receives; `None` if the receiver of a message is not known, too.
    pub receive_link: Option<Arc<Link>>,
    /// Number of bytes that the device stores before messages and that do not belong to them.
    pub skipped: usize,
    /// Whether others post to its queue pair, too.
    pub is_shared_pair: bool,
}

impl<D: Device> Sides<D> {
    /// Returns the lanes for these bindings; `lane` returns the lane of a queue. `-FI_ENOCQ` if
    /// there is no queue.
    pub fn of<S: endpoint::SharedReceive>(
        bindings: &Bindings<S>,
        lane: impl Fn(&Use<Cq>) -> Result<Arc<Lane<D>>>,
    ) -> Result<Self> {
        let of = |cq: &Option<Use<Cq>>| cq.as_ref().map(&lane).transpose();
        let (send, receive) = (of(&bindings.tx_cq)?, of(&bindings.rx_cq)?);
        let any = send.clone().or_else(|| receive.clone());
        let any = any.ok_or(Errno::ENOCQ)?;
        // Operations that are only counted complete at the other queue of the device.
        let counted = |is_counted: bool| is_counted.then(|| any.clone());
        Ok(Sides {
            send: send.or_else(|| counted(bindings.counters.count_transmits())),
            receive: receive.or_else(|| counted(bindings.counters.recv.is_some())),
            any,
        })
    }

    /// Returns the completion queue of the sends.
    pub fn send_queue(&self) -> &Arc<D::Queue> {
        self.send.as_ref().unwrap_or(&self.any).queue()
    }

    /// Returns the completion queue of the receives.
    pub fn receive_queue(&self) -> &Arc<D::Queue> {
        self.receive.as_ref().unwrap_or(&self.any).queue()
    }

    /// Makes a queue pair a member of these lanes.
    pub fn join(self, reports: &Reports, member: Membership<'_, D>) -> Result<Seats<D>> {
        let (pair, sizes) = (member.pair, member.sizes);
        let mut seats = Seats::default();
        if let Some(lane) = self.send {
            let (reports, pair, link) = (reports.clone(), pair.clone(), member.link);
            let sender = Sender::new(pair, reports, link, sizes.sends, sizes.inline)?;
            let name = lane.add_sender(match member.is_shared_pair {
                true => sender.without_silence(),
                false => sender,
            })?;
            seats.send = Some(Seat { lane, name });
        }
        if let Some(lane) = self.receive {
            let (reports, pair, link) = (reports.clone(), pair.clone(), member.receive_link);
            let size = member.shared.map_or(sizes.receives, |shared| shared.size());
            let added = Receiver::new(pair, reports, link, member.shared.cloned(), size)
                .map(|receiver| receiver.skipping(member.skipped))
                .and_then(|receiver| lane.add_receiver(receiver));
            match added {
                Ok(name) => seats.receive = Some(Seat { lane, name }),
                Err(error) => {
                    seats.leave(|| ());
                    return Err(error);
                }
            }
        }
        Ok(seats)
    }
}

impl<D: Device> Seats<D> {
    /// Reports later completions to these bindings; `lane` returns the lane of a queue.
    /// `-FI_EOPBADSTATE` for a queue of another lane: those of the device are fixed.
    pub fn rebind<S: endpoint::SharedReceive>(
        &self,
        bindings: &Bindings<S>,
        lane: impl Fn(&Use<Cq>) -> Result<Arc<Lane<D>>>,
    ) -> Result {
        let sides = [
            (&bindings.tx_cq, &self.send),
            (&bindings.rx_cq, &self.receive),
        ];
        for (cq, seat) in sides {
            let Some(cq) = cq else {
                continue;
            };
            let lane = lane(cq)?;
            let is_same = |seat: &Seat<D>| Arc::ptr_eq(&seat.lane, &lane);
            if !seat.as_ref().is_some_and(is_same) {
                return Err(Errno::EOPBADSTATE);
            }
        }
        if let Some(seat) = &self.send {
            seat.lane.report_sends(seat.name, Reports::to(bindings))?;
        }
        if let Some(seat) = &self.receive {
            (seat.lane).report_receives(seat.name, Reports::to(bindings))?;
        }
        Ok(())
    }
}
