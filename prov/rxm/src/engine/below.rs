//! The objects of the provider below that an endpoint uses: queues, a passive endpoint, and slots
//! for packets.

pub mod packets;
mod queue_size;
mod registration;

use prov_base::bounded;
use prov_base::bounds::OPERATIONS;
use std::net::SocketAddr;
use std::sync::Arc;

use fabric_abi::{FI_DELIVERY_COMPLETE, FI_MR_VIRT_ADDR, FI_SHARED_CONTEXT};
use prov_base::errno::{Errno, Result};
use prov_message::{Signals, Sizes, Ticket};
use prov_util::attr::{Info, MR_BASIC};
use prov_util::below::{
    Asking, Batch, Cq, Domain, Endpoint, Eq, PassiveEndpoint, SharedReceive, Size, Slot, Slots,
    Wiring,
};

use super::accesses::Accesses;
use super::keys::{EpKey, FetchKey, LinkKey, PendingKey};
use super::link::{Receives, Registered};
use crate::LOG;
use crate::address;
use crate::memory;
use crate::params::{Params, universe_size};
use crate::wire::packet::HEAD;
use packets::{COPIED, SMALL};
use queue_size::largest;

/// The data of an operation below.
pub enum What {
    /// A receive of packets: from any link, or from this one.
    Packet(Option<LinkKey>),
    /// An operation of the application that completes with it, and the memory that was registered
    /// for it.
    Op(LinkKey, Ticket, Registered),
    /// A packet of this provider; no operation depends on it.
    Sent(LinkKey),
    /// A part of a message that is read.
    Fetch(LinkKey, FetchKey),
    /// A part of a message that is written.
    Push(LinkKey, PendingKey),
}

/// The two directions, each of which has its completion queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QueueSide {
    /// Packets and writes with immediate data from peers.
    In,
    /// Sends, reads and writes of this side.
    Out,
}

/// The arguments for opening an endpoint.
pub struct Setting {
    pub domain: Arc<Domain>,
    pub memory: Arc<memory::Below>,
    /// The attributes of endpoints below.
    pub core: Info,
    /// The size limits of operations.
    pub sizes: Sizes,
    /// Whether the provider below requires memory to be registered.
    pub is_local: bool,
    /// Whether the application registers it.
    pub has_descs: bool,
    /// Whether threads may sleep until something arrives.
    pub has_sleepers: bool,
    /// Whether a peer loses its connection when its address is removed
    /// ([`removal`](super::removal)).
    pub closes_removed: bool,
    /// Whether peers access memory that the application registers.
    pub is_target: bool,
    /// Counts what peers do to memory, if the application does.
    pub accesses: Option<Accesses>,
}

/// See the [module](self) description.
pub struct Below {
    /// The endpoint that it belongs to.
    pub ep: EpKey,
    pub setting: Setting,
    pub slots: Slots<What>,
    pub wiring: Wiring,
    pub passive: Arc<PassiveEndpoint>,
    /// The address at which peers find the endpoint.
    pub addr: SocketAddr,
    /// The buffer in which injected packets are assembled; its size limits their length.
    scratch: Box<[u8]>,
    /// Whether a packet was injected since the queue was last read.
    has_injected: bool,
    /// Whether operations of peers wake sleeping threads.
    pub hears_peers: bool,
    signals: Arc<Signals>,
    /// The flag that makes a send complete on delivery; 0 if the provider below does not support
    /// it.
    pub until_delivered: u64,
    /// Whether peers address memory by virtual addresses.
    has_addresses: bool,
    /// Whether packets are sent from the application's memory.
    sends_directly: bool,
    /// Whether a short message is complete for the application when it is copied. A provider
    /// without a device completes a send when it has copied it, too, so there is nothing to wait
    /// for.
    ends_when_copied: bool,
    /// Number of packet buffers that are posted to a shared context.
    posted: usize,
    /// Number of further links that may have their own packet buffers beside a shared context: the
    /// completion queue has room for those.
    own_left: usize,
    /// Limit of `posted`.
    most_posted: usize,
    /// Slots that could not be posted for want of room.
    spare: Vec<Slot>,
}

/// Number of packet buffers in a shared context from the start: what one peer sends in a burst, which is
/// taken in with one read of its connection.
const FIRST_POSTED: usize = 128;
/// Number of packet buffers that each further peer adds. They are used in turn, so that each of them takes
/// memory in time: 4 KiB with short messages. More messages than there are buffers are kept below,
/// at the price of a copy.
const POSTED_PER_PEER: usize = 4;
/// Number of packet buffers of a link that has its own beside a shared context.
const POSTED_OF_OWN: usize = 64;
/// Limit of links with their own packet buffers beside a shared context.
const LINKS_WITH_OWN: usize = 256;
impl Below {
    /// Opens queues and receives.
    ///
    /// # Errors
    /// Those of the provider below.
    pub fn open(
        setting: Setting,
        eq: Arc<Eq>,
        passive: Arc<PassiveEndpoint>,
        params: &Params,
    ) -> Result<Self> {
        let Setting {
            domain,
            core,
            is_local,
            ..
        } = &setting;
        let is_shared = core.ep.rx_ctx_cnt == FI_SHARED_CONTEXT;
        let mut slots = Slots::new(domain, SMALL, HEAD + params.buffer_size, *is_local);
        let mut most_posted = core.rx.size.clamp(1, params.below_rx_size(is_shared));
        let peers = universe_size();
        // Number of groups of packet buffers: links with their own beside a shared context have,
        // all together, as many as are posted there, or a multiple of that.
        let receivers = match is_shared {
            true => 1 + (LINKS_WITH_OWN * POSTED_OF_OWN).div_ceil(most_posted),
            false => peers,
        };
        // Opens a queue for `times` times the least number of entries, or for as many as possible.
        // Returns that number, if it is smaller.
        let open = |least: usize, times: usize| -> Result<(Arc<Cq>, Option<usize>)> {
            let wanted = least.saturating_mul(times);
            let (cq, size) = largest(wanted, least, |size| {
                Cq::open(domain, &slots, size, setting.has_sleepers)
            })?;
            if size == wanted {
                return Ok((cq, None));
            }
            log::info!(
                target: LOG.cq,
                "a completion queue below has {size} entries at most, of {wanted} wanted"
            );
            Ok((cq, Some(size)))
        };
        let (tx_cq, tx_limit) = open(core.tx.size.max(1), peers)?;
        let (rx_cq, rx_limit) = open(most_posted, receivers)?;
        if let Some(limit) = tx_limit {
            slots.limit(limit);
        }
        let mut own_left = LINKS_WITH_OWN;
        match rx_limit {
            Some(limit) if is_shared => {
                own_left = limit.saturating_sub(most_posted) / POSTED_OF_OWN;
            }
            Some(limit) => most_posted = (limit / receivers).clamp(1, most_posted),
            None => {}
        }
        let shared = match is_shared {
            true => Some(SharedReceive::open(domain, core, &slots)?),
            false => None,
        };
        let mode = core.domain.mr_mode;
        let accesses = setting.accesses.iter();
        let counters = accesses.flat_map(|accesses| accesses.of_links.clone());
        let counters = counters.collect();
        Ok(Below {
            ep: EpKey::default(),
            wiring: Wiring {
                tx_cq,
                rx_cq,
                eq,
                shared,
                only_rendezvous: !setting.is_target,
                counters,
            },
            passive,
            addr: SocketAddr::from(([0, 0, 0, 0], 0)),
            scratch: vec![0; core.tx.inject_size.min(COPIED)].into_boxed_slice(),
            has_injected: false,
            hears_peers: true,
            signals: Arc::default(),
            until_delivered: FI_DELIVERY_COMPLETE,
            has_addresses: mode == MR_BASIC || mode & FI_MR_VIRT_ADDR != 0,
            sends_directly: params.enable_direct_send && !is_local || setting.has_descs,
            ends_when_copied: !is_local,
            posted: 0,
            own_left: own_left.min(LINKS_WITH_OWN),
            most_posted,
            spare: Vec::new(),
            slots,
            setting,
        })
    }

    /// Makes the application register the memory of its operations, like a [`Setting`] with that
    /// option.
    #[cfg(test)]
    pub fn has_descs(&mut self) {
        (self.setting.has_descs, self.sends_directly) = (true, true);
    }

    /// Listens for peers.
    ///
    /// # Errors
    /// What the provider below returns.
    pub fn listen(&mut self, ep: EpKey, signals: &Arc<Signals>) -> Result {
        self.ep = ep;
        self.signals = signals.clone();
        self.passive.listen()?;
        self.addr = address::read(&self.passive.address()?)?;
        // Connections use other ports.
        let own = address::at_port(self.addr, 0);
        self.setting.core.src_addr = address::bytes(&own);
        self.post_more(FIRST_POSTED)
    }

    /// Returns where the packet buffers are posted for links that this side has requested.
    pub fn receives(&self) -> Receives {
        match self.wiring.shared {
            Some(_) => Receives::Shared,
            None => Receives::All,
        }
    }

    /// Opens an endpoint for connecting to a peer.
    ///
    /// # Errors
    /// What the provider below returns.
    pub fn endpoint_to(&mut self, peer: &SocketAddr) -> Result<Endpoint> {
        let core = &mut self.setting.core;
        core.dest_addr = address::bytes(peer);
        let core = &self.setting.core;
        Endpoint::open(&self.setting.domain, core, &self.wiring, &self.slots)
    }

    /// Opens an endpoint for accepting a peer's connection. If it `may_have_own` and there is room
    /// for them, it has its own packet buffers, so that it can be held back.
    ///
    /// # Errors
    /// What the provider below returns.
    pub fn endpoint_for(
        &mut self,
        asking: &Asking,
        may_have_own: bool,
    ) -> Result<(Endpoint, Receives)> {
        let domain = &self.setting.domain;
        let receives = match self.wiring.shared.is_some() {
            false => Receives::All,
            true if may_have_own && self.own_left > 0 => Receives::Few,
            true => Receives::Shared,
        };
        if receives != Receives::Few {
            let endpoint = Endpoint::open_for(domain, asking, &self.wiring, &self.slots)?;
            return Ok((endpoint, receives));
        }
        let wiring = Wiring {
            shared: None,
            ..self.wiring.clone()
        };
        let endpoint = Endpoint::open_for(domain, asking, &wiring, &self.slots)?;
        self.own_left -= 1;
        Ok((endpoint, receives))
    }

    /// Handles the end of a link.
    pub fn has_ended(&mut self, receives: Receives) {
        if receives == Receives::Few {
            self.own_left += 1;
        }
    }

    /// Posts packet buffers for another peer.
    ///
    /// # Errors
    /// What the provider below returns.
    pub fn expect_packets(
        &mut self,
        key: LinkKey,
        endpoint: &Endpoint,
        receives: Receives,
    ) -> Result {
        let count = match receives {
            Receives::Shared => return self.post_more(POSTED_PER_PEER),
            Receives::All => self.most_posted,
            Receives::Few => POSTED_OF_OWN,
        };
        for _ in 0..count {
            let slot = self.slots.take(Size::Large)?;
            self.slots.set(&slot, What::Packet(Some(key)));
            if let Err(refused) = endpoint.receive(&mut self.slots, slot) {
                self.slots.give_back(refused.slot);
                return match refused.error {
                    Errno::EAGAIN => Ok(()),
                    error => Err(error),
                };
            }
        }
        Ok(())
    }

    fn post_more(&mut self, count: usize) -> Result {
        for _ in 0..count.min(self.most_posted - self.posted) {
            let slot = self.slots.take(Size::Large)?;
            self.slots.set(&slot, What::Packet(None));
            self.posted += 1;
            self.expect_again(slot);
        }
        Ok(())
    }

    /// Posts a slot to the shared context again, after its packet was handled.
    #[inline(always)]
    pub fn expect_again(&mut self, slot: Slot) {
        let Some(shared) = &self.wiring.shared else {
            return self.slots.give_back(slot);
        };
        // The slot's data still describes a packet buffer.
        if let Err(refused) = shared.receive(&mut self.slots, slot) {
            self.post_later(refused.slot);
        }
    }

    #[cold]
    #[inline(never)]
    fn post_later(&mut self, slot: Slot) {
        self.spare.push(slot);
        bounded!(self.spare, OPERATIONS);
    }

    /// Posts a slot that could not be posted for want of room, if there is one.
    #[inline(always)]
    pub fn post_spare(&mut self) {
        if !self.spare.is_empty() {
            self.post_one_spare();
        }
    }

    #[cold]
    #[inline(never)]
    fn post_one_spare(&mut self) {
        if let Some(slot) = self.spare.pop() {
            self.expect_again(slot);
        }
    }

    /// Returns the completion queue of this direction.
    #[inline(always)]
    pub fn queue(&self, side: QueueSide) -> &Arc<Cq> {
        match side {
            QueueSide::In => &self.wiring.rx_cq,
            QueueSide::Out => &self.wiring.tx_cq,
        }
    }

    /// Reads the completion queue of this direction.
    ///
    /// # Errors
    /// Those of [`Cq::read`].
    #[inline(always)]
    pub fn read(&mut self, side: QueueSide, batch: &mut Batch) -> Result {
        self.has_injected = false;
        self.queue(side).read(batch)
    }
}
