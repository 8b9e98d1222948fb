//! What an endpoint has of the provider below: queues, a passive endpoint, and
//! slots for packets.

use std::net::SocketAddr;
use std::sync::Arc;

use fabric_abi::{FI_DELIVERY_COMPLETE, FI_MR_VIRT_ADDR, FI_SHARED_CONTEXT};
use prov_message::peers::Bytes as Payload;
use prov_message::{Signals, Sizes, Ticket};
use prov_util::attr::{Info, MR_BASIC};
use prov_util::below::{
    Asking, Batch, Cq, Domain, Endpoint, Eq, Local, PassiveEndpoint, Refused, Region,
    SharedReceive, Size, Slot, Slots, Wiring,
};
use prov_util::buffer::AppIov;
use prov_util::desc::Descs;
use prov_util::errno::{Errno, Result};
use prov_util::request::{RemoteIov, RemotePiece};

use super::keys::{EpKey, FetchKey, LinkKey, PendingKey};
use super::link::{Link, copy};
use crate::LOG;
use crate::address;
use crate::memory;
use crate::params::{Params, universe_size};
use crate::wire::packet::{HEAD, Head};

/// What an operation below is about.
pub enum What {
    /// Packets: of any link, or of this one.
    Packet(Option<LinkKey>),
    /// An operation of the application that ends with it, and the memory that
    /// was registered for it.
    Op(LinkKey, Ticket, Registered),
    /// Nothing depends on it.
    Sent(LinkKey),
    /// A part of a message that is read.
    Fetch(LinkKey, FetchKey),
    /// A part of a message that is written.
    Push(LinkKey, PendingKey),
}

/// The two ways, of which each has a queue of completions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// What peers send, and what they write with immediate data.
    In,
    /// What this side sends, reads and writes.
    Out,
}

/// Memory that was registered for an operation; mostly none.
pub type Registered = Option<Box<Vec<Region>>>;

/// Where the receives of a link are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Receives {
    /// In a shared context.
    Shared,
    /// Its own, as all links have there.
    All,
    /// Its own, where most links share a context.
    Few,
}

/// What an endpoint is opened with.
pub struct Setting {
    pub domain: Arc<Domain>,
    pub memory: Arc<memory::Below>,
    /// The endpoints below.
    pub core: Info,
    /// Bytes that operations take.
    pub sizes: Sizes,
    /// Whether the provider below wants memory registered.
    pub is_local: bool,
    /// Whether the application registers it.
    pub has_descs: bool,
    /// Whether somebody sleeps until something comes.
    pub has_sleepers: bool,
}

/// See the [module](self) description.
pub struct Below {
    /// The endpoint that it is of.
    pub ep: EpKey,
    pub setting: Setting,
    pub slots: Slots<What>,
    pub wiring: Wiring,
    pub passive: Arc<PassiveEndpoint>,
    /// Where peers find the endpoint.
    pub addr: SocketAddr,
    /// Packets are put together here that are injected: no longer ones.
    scratch: Box<[u8]>,
    /// Whether one was since the queue was read last.
    has_injected: bool,
    /// Whether what peers do wakes who sleeps.
    pub hears_peers: bool,
    signals: Arc<Signals>,
    /// The flag by which a send completes when it is delivered; none where the
    /// provider below cannot tell.
    pub until_delivered: u64,
    /// Whether peers name memory by addresses.
    has_addresses: bool,
    /// Whether packets leave from the application's memory.
    sends_directly: bool,
    /// Whether a short message has ended for the application when it is copied.
    /// A provider without a device completes a send when it has copied it, too: so
    /// there is nothing to wait for.
    ends_when_copied: bool,
    /// Receives that are posted, of a shared context.
    posted: usize,
    /// How many links more may have receives of their own beside a shared context: the
    /// queue of completions has room for those.
    own_left: usize,
    /// How many may be.
    most_posted: usize,
    /// Slots that are to be posted, for which there was no room.
    spare: Vec<Slot>,
}

/// Bytes of the slots for packets with short messages, or without one.
pub const SMALL: usize = HEAD + 256;
/// Receives of a shared context for the first peers, and for each.
const FIRST_POSTED: usize = 128;
const POSTED_PER_PEER: usize = 32;
/// Receives of a link that has its own beside a shared context.
const POSTED_OF_OWN: usize = 64;
/// Links that may have receives of their own beside a shared context.
const LINKS_WITH_OWN: usize = 256;
/// Packets that are copied, rather than left where they are, in bytes.
const COPIED: usize = 1024;

/// How often a larger queue is tried than one that a device has.
const TRIES: u32 = 4;

/// What `open` makes of the largest size, about, that it takes, from `size` down to
/// `least`, and that: a device may have no queues so long, and nobody says which it has.
///
/// # Errors
/// That for `least`.
fn largest<T>(
    size: usize,
    least: usize,
    mut open: impl FnMut(usize) -> Result<T>,
) -> Result<(T, usize)> {
    let mut too_large = None;
    let mut fits = size;
    let mut opened = loop {
        match open(fits) {
            Err(Errno::EINVAL | Errno::ENOMEM | Errno::ENOSPC) if fits > least => {
                too_large = Some(fits);
                fits = (fits / 2).max(least);
            }
            outcome => break outcome?,
        }
    };
    if let Some(mut too_large) = too_large {
        for _ in 0..TRIES {
            let between = fits.midpoint(too_large);
            match open(between) {
                Ok(larger) => (opened, fits) = (larger, between),
                Err(_) => too_large = between,
            }
        }
    }
    Ok((opened, fits))
}

impl Below {
    /// Opens queues and receives.
    ///
    /// # Errors
    /// What the provider below returns.
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
        // Those who have receives: links that have their own, beside a shared context, have
        // as many together as are posted there, or several times as many.
        let receivers = match is_shared {
            true => 1 + (LINKS_WITH_OWN * POSTED_OF_OWN).div_ceil(most_posted),
            false => peers,
        };
        // A queue for so many times the least entries, or for as many as there can be: how
        // many these are, if fewer.
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
        Ok(Below {
            ep: EpKey::default(),
            wiring: Wiring {
                tx_cq,
                rx_cq,
                eq,
                shared,
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

    /// The application registers the memory of its operations, as in a
    /// [`Setting`] that says so.
    #[cfg(test)]
    pub fn has_descs(&mut self) {
        (self.setting.has_descs, self.sends_directly) = (true, true);
    }

    /// Lets peers connect to this endpoint.
    ///
    /// # Errors
    /// What the provider below returns.
    pub fn listen(&mut self, ep: EpKey, signals: &Arc<Signals>) -> Result {
        self.ep = ep;
        self.signals = signals.clone();
        self.passive.listen()?;
        self.addr = address::read(&self.passive.address()?)?;
        // Connections have ports of their own.
        let own = address::at_port(self.addr, 0);
        self.setting.core.src_addr = address::bytes(&own);
        self.post_more(FIRST_POSTED)
    }

    /// Where the receives are of links that this side has asked for.
    pub fn receives(&self) -> Receives {
        match self.wiring.shared {
            Some(_) => Receives::Shared,
            None => Receives::All,
        }
    }

    /// An endpoint that is to connect to a peer.
    ///
    /// # Errors
    /// What the provider below returns.
    pub fn endpoint_to(&mut self, peer: &SocketAddr) -> Result<Endpoint> {
        let core = &mut self.setting.core;
        core.dest_addr = address::bytes(peer);
        let core = &self.setting.core;
        Endpoint::open(&self.setting.domain, core, &self.wiring, &self.slots)
    }

    /// An endpoint that is to accept a peer's connection; with receives of its own if it
    /// `may_have_own`, so that it can be held back, and there is room for those.
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

    /// A link has ended.
    pub fn has_ended(&mut self, receives: Receives) {
        if receives == Receives::Few {
            self.own_left += 1;
        }
    }

    /// There is another peer: receives for its packets.
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

    /// Posts a slot of the shared context again, which has brought a packet.
    #[inline(always)]
    pub fn expect_again(&mut self, slot: Slot) {
        let Some(shared) = &self.wiring.shared else {
            return self.slots.give_back(slot);
        };
        // That is what the slot is for still.
        if let Err(refused) = shared.receive(&mut self.slots, slot) {
            self.post_later(refused.slot);
        }
    }

    #[cold]
    #[inline(never)]
    fn post_later(&mut self, slot: Slot) {
        self.spare.push(slot);
    }

    /// Posts what there was no room for.
    #[inline]
    pub fn post_spare(&mut self) {
        if let Some(slot) = self.spare.pop() {
            self.expect_again(slot);
        }
    }

    /// The descriptors of the application's memory, and what was registered for
    /// it.
    ///
    /// # Errors
    /// What the provider below says to the registration.
    pub fn local(
        &self,
        memory: &AppIov,
        descs: &Descs,
        access: u64,
    ) -> Result<(Local, Registered)> {
        if !self.setting.is_local {
            return Ok((Local::NONE, None));
        }
        if self.setting.has_descs {
            return Ok((Local::given(descs), None));
        }
        let regions = self.register(memory, access)?;
        Ok((Local::of(&regions), Some(Box::new(regions))))
    }

    /// Registers memory, each piece as a region.
    ///
    /// # Errors
    /// What the provider below returns.
    pub fn register(&self, memory: &AppIov, access: u64) -> Result<Vec<Region>> {
        let pieces = memory.pieces().iter();
        let pieces = pieces.map(|piece| (piece.iov_base.expose_provenance(), piece.iov_len));
        pieces
            .map(|piece| self.setting.memory.register(std::iter::once(piece), access))
            .collect()
    }

    /// How peers name memory that was registered for them.
    pub fn remote(&self, memory: &AppIov, regions: &[Region]) -> RemoteIov {
        let mut list = RemoteIov::default();
        for (piece, region) in memory.pieces().iter().zip(regions) {
            list.push(RemotePiece {
                addr: match self.has_addresses {
                    true => piece.iov_base.expose_provenance() as u64,
                    false => 0,
                },
                len: piece.iov_len as u64,
                key: region.key(),
            });
        }
        list
    }

    /// Whether a packet can leave from the application's memory, behind its
    /// head.
    #[inline]
    pub fn sends_directly(&self, memory: &AppIov) -> bool {
        self.sends_directly && memory.pieces().len() < self.setting.core.tx.iov_limit
    }
}

/// What is behind the head of a packet.
pub enum Load<'a> {
    /// The application's memory, from where it leaves.
    App(&'a AppIov, &'a Local),
    /// Bytes that are copied.
    Copy(Payload<'a>),
}

/// What could not be posted, and why.
pub type Unposted = (Errno, What);

impl Below {
    /// Sends a packet, of which more is heard.
    ///
    /// # Errors
    /// `-FI_EAGAIN` where there is no room, and what else the provider below
    /// returns.
    pub fn send(
        &mut self,
        link: &mut Link,
        head: &Head,
        load: &Load<'_>,
        flags: u64,
        what: What,
    ) -> std::result::Result<(), Unposted> {
        let (behind, local, copied) = match load {
            Load::App(memory, local) => (*memory, *local, None),
            Load::Copy(bytes) => (&AppIov::EMPTY, &Local::NONE, Some(bytes)),
        };
        let len = HEAD + copied.map_or(0, Payload::len);
        let fill = |packet: &mut [u8]| {
            if let Some((front, behind)) = packet.split_first_chunk_mut::<HEAD>() {
                head.write(front);
                if let Some(bytes) = copied {
                    copy(bytes, behind);
                }
            }
        };
        self.post(link, size_for(len), what, fill, |below, slots, slot| {
            below.send(slots, slot, len, behind, local, flags)
        })
    }

    /// [`Below::send`] for a message that fits into a small slot, and is reported.
    ///
    /// # Errors
    /// Those of [`Below::send`].
    #[inline]
    pub fn send_quickly(
        &mut self,
        link: &mut Link,
        key: LinkKey,
        head: &Head,
        message: &AppIov,
        ticket: Ticket,
    ) -> std::result::Result<(), Unposted> {
        let what = What::Op(key, ticket, None);
        let len = HEAD + message.len();
        let fill = |packet: &mut [u8]| put_together(head, message, packet);
        self.post(link, Size::Small, what, fill, |below, slots, slot| {
            below.send_slot(slots, slot, len)
        })
    }

    /// Whether a packet with so many bytes behind its head may be injected, and its
    /// message has ended then for the application, where it wants to hear of that.
    #[inline(always)]
    pub fn may_inject(&self, link: &Link, len: usize, is_reported: bool) -> bool {
        // Short messages to a peer complete in order.
        HEAD + len <= self.scratch.len()
            && (!is_reported || self.ends_when_copied && link.lent == 0)
    }

    /// Sends a packet that is copied at once, and of which nothing more is heard.
    ///
    /// # Errors
    /// `-FI_EAGAIN` where there is no room, and what else the provider below
    /// returns.
    #[inline(always)]
    pub fn inject(&mut self, link: &Link, head: &Head, message: &AppIov) -> Result {
        let len = HEAD + message.len();
        let packet = self.scratch.get_mut(..len).ok_or(Errno::EMSGSIZE)?;
        put_together(head, message, packet);
        link.below.inject(packet)?;
        self.injected();
        Ok(())
    }

    /// [`Below::inject`] for bytes of whatever kind.
    ///
    /// # Errors
    /// Those of [`Below::inject`].
    pub fn inject_copy(&mut self, link: &Link, head: &Head, bytes: &Payload<'_>) -> Result {
        let len = HEAD + bytes.len();
        let packet = self.scratch.get_mut(..len).ok_or(Errno::EMSGSIZE)?;
        if let Some((front, behind)) = packet.split_first_chunk_mut::<HEAD>() {
            head.write(front);
            copy(bytes, behind);
        }
        link.below.inject(packet)?;
        self.injected();
        Ok(())
    }

    /// A packet has been injected. The provider below may hold packets back for
    /// others to go with them, or for want of room, until its queue is read: all but
    /// the first. They leave with the application's next read, which may find
    /// completions and would leave the lane alone.
    #[inline(always)]
    fn injected(&mut self) {
        if std::mem::replace(&mut self.has_injected, true) {
            self.signals.drive_next();
        }
    }

    /// The queue of what has completed this way.
    #[inline(always)]
    pub fn queue(&self, way: Way) -> &Arc<Cq> {
        match way {
            Way::In => &self.wiring.rx_cq,
            Way::Out => &self.wiring.tx_cq,
        }
    }

    /// Reads the queue of what has completed this way.
    ///
    /// # Errors
    /// Those of [`Cq::read`].
    #[inline(always)]
    pub fn read(&mut self, way: Way, batch: &mut Batch) -> Result {
        self.has_injected = false;
        self.queue(way).read(batch)
    }

    /// Posts an operation with a slot: `fill` writes to that, `call` posts it.
    ///
    /// # Errors
    /// `-FI_EAGAIN` where there is no room, and what else the provider below
    /// returns; with what the operation was about.
    #[inline(always)]
    pub fn post(
        &mut self,
        link: &mut Link,
        size: Size,
        what: What,
        fill: impl FnOnce(&mut [u8]),
        call: impl FnOnce(&Endpoint, &mut Slots<What>, Slot) -> std::result::Result<(), Refused>,
    ) -> std::result::Result<(), Unposted> {
        let slot = match self.slots.take(size) {
            Ok(slot) => slot,
            Err(error) => return Err((error, what)),
        };
        fill(self.slots.bytes_mut(&slot));
        self.slots.set(&slot, what);
        match call(&link.below, &mut self.slots, slot) {
            Ok(()) => {
                link.lent += 1;
                Ok(())
            }
            Err(Refused { error, slot }) => {
                let what = self.slots.what(&slot);
                self.slots.give_back(slot);
                Err((error, what.unwrap_or(What::Packet(None))))
            }
        }
    }
}

/// The slot for a packet of so many bytes.
fn size_for(len: usize) -> Size {
    match len <= SMALL {
        true => Size::Small,
        false => Size::Large,
    }
}

/// Writes a packet with an application's message to a place that is long enough.
#[inline(always)]
#[allow(clippy::indexing_slicing, reason = "limited to the shorter one")]
fn put_together(head: &Head, message: &AppIov, place: &mut [u8]) {
    if let Some((front, behind)) = place.split_first_chunk_mut::<HEAD>() {
        head.write(front);
        let len = message.len().min(behind.len());
        message.read_at(0, &mut behind[..len]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_as_long_as_the_device_has_them() {
        let device = |size| match size <= 32767 {
            true => Ok(size),
            false => Err(Errno::EINVAL),
        };
        let size = |size, least| largest(size, least, device).map(|(_, size)| size);
        assert_eq!(size(1000, 500), Ok(1000));
        let found = size(100_000, 500).unwrap();
        assert!((31_000..32_768).contains(&found), "{found}");
        assert!((30_000..32_768).contains(&size(100_000, 30_000).unwrap()));
        assert_eq!(size(100_000, 40_000), Err(Errno::EINVAL));
        let none = largest(2, 1, |_| Err::<(), _>(Errno::ENODEV));
        assert_eq!(none, Err(Errno::ENODEV));
    }
}
