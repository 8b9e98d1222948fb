//! The objects of the provider below that an endpoint uses: a datagram endpoint, an address vector
//! and queues, and the buffers of datagrams.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use fabric_abi::{FI_ADDR_NOTAVAIL, FI_MR_LOCAL, FI_SOURCE};
use prov_base::buffer::{AppIov, IOV_LIMIT};
use prov_base::errno::{Errno, Result};
use prov_base::sockaddr;
use prov_util::attr::{Info, MODE_LOCAL_MR};
use prov_util::below::{
    Addresses, BATCH, Batch, Cq, DatagramEndpoint, Domain, Refused, Size, Slot, Slots,
};

use crate::address::{Address, OwnName};
use crate::protocol::MAX_MTU;
use crate::{LOG, offer};

/// The handle of an address of the provider below.
pub type Path = u64;

/// The arguments for opening an endpoint.
pub struct Setting {
    pub domain: Arc<Domain>,
    /// The attributes of the endpoint below.
    pub core: Info,
    /// Whether threads may sleep until something arrives.
    pub has_sleepers: bool,
}

/// Number of receive buffers that are posted below: those of a burst that is longer wait in the
/// socket or are lost.
const POSTED: usize = 512;
/// Limit of datagrams that the provider below has not sent, if it does not copy them; and number of
/// datagrams after which its queue is read: also of a datagram that it copies, it may report that the
/// datagram could not be sent.
const UNSENT: usize = 256;
/// Limit in bytes up to which a payload is copied behind its header, instead of being passed as a
/// further segment.
const COPIED: usize = 256;

/// See the [module](self) description: the sending half.
pub struct Below {
    pub setting: Setting,
    pub name: OwnName,
    pub addresses: Arc<Addresses>,
    // Declared before the queues, so that it is closed first.
    endpoint: Arc<DatagramEndpoint>,
    tx_cq: Arc<Cq>,
    rx_cq: Arc<Cq>,
    /// Buffers of datagrams that the provider below does not copy; unused if it does.
    slots: Slots<()>,
    batch: Batch,
    /// Number of datagrams that were sent since the queue was read: at most `UNSENT`.
    sent: usize,
    /// Whether the provider below copies datagrams when they are sent (`FI_INJECT`).
    injects: bool,
    prefix: usize,
    scratch: Box<[u8; 2 * MAX_MTU]>,
    /// The receiving half, until the endpoint takes it.
    arrivals: Option<Box<Arrivals>>,
}

/// The receiving half.
pub struct Arrivals {
    endpoint: Arc<DatagramEndpoint>,
    cq: Arc<Cq>,
    slots: Slots<()>,
    batch: Batch,
    prefix: usize,
    /// Whether completions have the sources of datagrams.
    has_sources: bool,
    /// Number of buffers that could not be posted for want of room.
    missing: usize,
    /// Datagrams that are handled when the application calls, and their limit.
    left_over: VecDeque<Arrived>,
    most_left_over: usize,
}

/// The payload of a datagram that leaves.
pub enum Load<'a> {
    App(&'a AppIov),
    Own(&'a [u8]),
}

impl Below {
    /// Enables the endpoint below, with its queues and buffers.
    ///
    /// # Errors
    /// Those of the provider below.
    pub fn open(setting: Setting, mut endpoint: DatagramEndpoint) -> Result<Self> {
        let Setting { domain, core, .. } = &setting;
        let is_local = core.domain.mr_mode & FI_MR_LOCAL != 0 || core.mode & MODE_LOCAL_MR != 0;
        let prefix = offer::prefix(core);
        let longest = offer::mtu(core) + prefix;
        let slots = || Slots::new(domain, longest, longest, is_local);
        let (mut tx_slots, rx_slots) = (slots(), slots());
        tx_slots.limit(UNSENT.min(core.tx.size.max(1)));
        let posted = POSTED.min(core.rx.size.max(1));
        let tx_cq = Cq::open(domain, &tx_slots, UNSENT, setting.has_sleepers)?;
        let rx_cq = Cq::open(domain, &rx_slots, posted, setting.has_sleepers)?;
        let addresses = Addresses::open(domain)?;
        endpoint.enable([&tx_cq, &rx_cq], &addresses, [&tx_slots, &rx_slots])?;
        let name = OwnName::of(endpoint.address()?, || offer::host_address(core));
        let injects = core.tx.inject_size >= longest;
        let has_sources = (core.caps | core.rx.caps) & FI_SOURCE != 0;
        let endpoint = Arc::new(endpoint);
        let mut arrivals = Box::new(Arrivals {
            endpoint: endpoint.clone(),
            cq: rx_cq.clone(),
            slots: rx_slots,
            batch: Batch::default(),
            prefix,
            has_sources,
            missing: posted,
            left_over: VecDeque::new(),
            most_left_over: posted / 2,
        });
        arrivals.post_missing();
        Ok(Below {
            setting,
            name,
            addresses,
            endpoint,
            tx_cq,
            rx_cq,
            slots: tx_slots,
            batch: Batch::default(),
            sent: 0,
            injects,
            prefix,
            scratch: Box::new([0; 2 * MAX_MTU]),
            arrivals: Some(arrivals),
        })
    }

    /// Takes the receiving half.
    pub fn take_arrivals(&mut self) -> Option<Box<Arrivals>> {
        self.arrivals.take()
    }

    /// Returns the handle of a peer's address.
    ///
    /// # Errors
    /// `-FI_EINVAL` for an address that nothing can be sent to, and those of the provider below.
    pub fn path(&self, addr: &Address) -> Result<Path> {
        let own = &self.name.bound;
        let addr = addr.seen_from(own);
        let bytes = addr.bytes(own.len());
        if sockaddr::decode(own).is_some() {
            let addr = sockaddr::decode(bytes).ok_or(Errno::EINVAL)?;
            if !sockaddr::is_destination(&addr) || addr.ip().is_multicast() {
                return Err(Errno::EINVAL);
            }
        }
        self.addresses.insert(bytes)
    }

    /// Sends a datagram. Returns whether there was room for it; a datagram that cannot be sent for
    /// another reason is lost.
    #[inline]
    pub fn send(&mut self, header: &[u8], load: &Load<'_>, to: Path) -> bool {
        self.sent += 1;
        if self.sent > UNSENT {
            self.take_back();
            self.sent = 1;
        }
        debug_assert!(self.sent <= UNSENT);
        let outcome = match self.injects {
            true => self.inject(header, load, to),
            false => self.send_slot(header, load, to),
        };
        match outcome {
            Ok(()) => true,
            Err(Errno::EAGAIN) => false,
            Err(error) => {
                log::debug!(target: LOG.ep_data, "a datagram cannot be sent: {error}");
                true
            }
        }
    }

    #[inline]
    fn inject(&mut self, header: &[u8], load: &Load<'_>, to: Path) -> Result {
        let start = self.prefix;
        let end = start + header.len();
        let place = self.scratch.get_mut(start..end).ok_or(Errno::EINVAL)?;
        place.copy_from_slice(header);
        if let Load::App(memory) = load
            && memory.len() > COPIED
            && memory.pieces().len() < IOV_LIMIT
            && !memory.has_device()
        {
            let head = self.scratch.get(..end).ok_or(Errno::EINVAL)?;
            return self.endpoint.inject_with(head, memory, to);
        }
        let len = copy(load, self.scratch.get_mut(end..).unwrap_or_default());
        let datagram = self.scratch.get(..end + len).ok_or(Errno::EINVAL)?;
        self.endpoint.inject(datagram, to)
    }

    #[inline(never)]
    fn send_slot(&mut self, header: &[u8], load: &Load<'_>, to: Path) -> Result {
        if self.slots.sent() != 0 {
            self.take_back();
        }
        let slot = self.slots.take(Size::Large)?;
        let start = self.prefix;
        let end = start + header.len();
        let bytes = self.slots.bytes_mut(&slot);
        let Some(place) = bytes.get_mut(start..end) else {
            self.slots.give_back(slot);
            return Err(Errno::EINVAL);
        };
        place.copy_from_slice(header);
        let len = copy(load, bytes.get_mut(end..).unwrap_or_default());
        match self.endpoint.send(&mut self.slots, slot, end + len, to) {
            Ok(()) => Ok(()),
            Err(Refused { error, slot }) => {
                self.slots.give_back(slot);
                Err(error)
            }
        }
    }

    /// Reads the queue of datagrams that were sent, until it is empty, and frees their buffers. Returns
    /// the number of its entries.
    #[inline(never)]
    pub fn take_back(&mut self) -> usize {
        self.sent = 0;
        let mut count = 0;
        loop {
            match self.tx_cq.read(&mut self.batch) {
                Ok(()) => {
                    let is_last = !self.batch.is_full();
                    while let Some(sent) = self.batch.next(&mut self.slots) {
                        count += 1;
                        if let Some(slot) = sent.slot {
                            self.slots.give_back(slot);
                        }
                    }
                    if is_last {
                        break;
                    }
                }
                Err(Errno::EAVAIL) => match self.tx_cq.read_error(&mut self.slots) {
                    Ok((failed, error)) => {
                        count += 1;
                        log::debug!(target: LOG.ep_data, "a datagram was not sent: {error}");
                        if let Some(slot) = failed.slot {
                            self.slots.give_back(slot);
                        }
                    }
                    Err(_) => break,
                },
                Err(_) => break,
            }
        }
        count
    }

    /// Returns the descriptor on which a thread sleeps until something arrives.
    ///
    /// # Errors
    /// Those of the provider below.
    pub fn wait_fd(&self) -> Result<BorrowedFd<'_>> {
        self.rx_cq.wait_fd()
    }

    /// Returns whether a thread may sleep on it.
    pub fn may_sleep(&self) -> bool {
        let fabric = self.setting.domain.fabric();
        fabric.may_sleep(&[&self.rx_cq], None)
    }
}

/// Copies a payload to the beginning of a buffer, as far as it fits. Returns its length.
#[inline]
fn copy(load: &Load<'_>, to: &mut [u8]) -> usize {
    match load {
        Load::App(memory) => {
            let len = memory.len().min(to.len());
            memory.read_at(0, to.get_mut(..len).unwrap_or_default());
            len
        }
        Load::Own(bytes) => {
            let len = bytes.len().min(to.len());
            if let (Some(to), Some(from)) = (to.get_mut(..len), bytes.get(..len)) {
                to.copy_from_slice(from);
            }
            len
        }
    }
}

/// A datagram that has arrived, to be given back with [`Arrivals::handled`].
pub struct Arrived {
    slot: Slot,
    len: usize,
    /// Where it came from, if the provider below tells.
    pub from: Option<Path>,
}

impl Arrivals {
    /// Returns whether the last read may have left something below.
    #[inline(always)]
    pub fn has_left_some(&self) -> bool {
        self.batch.is_full()
    }

    /// Reads what has arrived below, for [`Arrivals::next`]. Returns whether there may be anything.
    #[inline(always)]
    pub fn read(&mut self) -> bool {
        let read = match self.has_sources {
            true => self.cq.read_from(&mut self.batch),
            false => self.cq.read(&mut self.batch),
        };
        match read {
            Ok(()) => true,
            Err(Errno::EAGAIN) => {
                if self.missing != 0 {
                    self.post_missing();
                }
                false
            }
            Err(error) => self.read_error(error),
        }
    }

    #[cold]
    #[inline(never)]
    fn read_error(&mut self, error: Errno) -> bool {
        if error != Errno::EAVAIL {
            prov_base::warn_again!(target: LOG.cq, "nothing can be read below: {error}");
            return false;
        }
        match self.cq.read_error(&mut self.slots) {
            Ok((failed, error)) => {
                log::debug!(target: LOG.cq, "a datagram cannot be received: {error}");
                if let Some(slot) = failed.slot {
                    self.post(slot);
                }
                true
            }
            Err(_) => false,
        }
    }

    /// Takes the next datagram of the last read.
    #[inline(always)]
    pub fn next(&mut self) -> Option<Arrived> {
        let (completion, from) = match self.has_sources {
            true => {
                let (completion, from) = self.batch.next_from(&mut self.slots)?;
                (completion, Some(from))
            }
            false => (self.batch.next(&mut self.slots)?, None),
        };
        Some(Arrived {
            slot: completion.slot?,
            len: completion.len,
            from,
        })
    }

    /// Returns the bytes of a datagram.
    #[inline(always)]
    pub fn bytes(&self, arrived: &Arrived) -> &[u8] {
        let bytes = self.slots.bytes(&arrived.slot);
        bytes.get(self.prefix..arrived.len).unwrap_or_default()
    }

    /// Posts the buffer of a datagram again.
    #[inline(always)]
    pub fn handled(&mut self, arrived: Arrived) {
        self.post(arrived.slot);
    }

    /// Keeps a datagram until the application calls.
    pub fn leave(&mut self, arrived: Arrived) {
        self.left_over.push_back(arrived);
        debug_assert!(self.left_over.len() <= self.most_left_over + BATCH);
    }

    /// Returns whether more datagrams may be kept: the buffers of about half of those that can arrive.
    pub fn may_leave_more(&self) -> bool {
        self.left_over.len() < self.most_left_over
    }

    /// Returns whether datagrams are kept.
    pub fn has_left_over(&self) -> bool {
        !self.left_over.is_empty()
    }

    /// Takes the first datagram that was kept.
    pub fn take_left_over(&mut self) -> Option<Arrived> {
        self.left_over.pop_front()
    }

    #[inline(always)]
    fn post(&mut self, slot: Slot) {
        if let Err(Refused { slot, .. }) = self.endpoint.receive(&mut self.slots, slot) {
            self.slots.give_back(slot);
            self.missing += 1;
        }
    }

    /// Posts the buffers that are missing, as far as there is room.
    #[inline(never)]
    fn post_missing(&mut self) {
        for _ in 0..std::mem::take(&mut self.missing) {
            match self.slots.take(Size::Large) {
                Ok(slot) => self.post(slot),
                Err(_) => self.missing += 1,
            }
        }
    }
}

/// What the protocol is told of a source that the address vector below does not have: no path.
pub const NOWHERE: Path = FI_ADDR_NOTAVAIL as Path;
