//! An endpoint, its objects, and what it has completed.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ptr::{null_mut, without_provenance_mut};
use std::sync::Arc;

use fabric_abi::{FI_ADDR_UNSPEC, FI_COMPLETION, FI_REMOTE_READ, FI_REMOTE_WRITE, FI_VERSION};
use prov_base::buffer::AppIov;
use prov_base::errno::{Errno, Result};
use prov_message::operation::Context;
use prov_message::{Attributes, Core, EpKey, Lane};
use prov_util::av::Av;
use prov_util::cq::{Completion, Cq, CqConfig, ErrorCompletion};
use prov_util::desc::Descs;
use prov_util::eq::Eq;
use prov_util::ffi::{Class, Handle, Use};
use prov_util::mr::{self, Job, Memory, MrTable, Region};
use prov_util::progress::Progress;
use prov_util::request::{
    Access, Receive, RemoteAccess, RemoteIov, RemotePiece, Select, Tag, Transmit,
};
use prov_util::wait::Attachment;

use crate::connecting::next_event;
use crate::{Bench, ConnectionEvent, Place, Setting};

/// What an endpoint is bound to.
pub struct Objects {
    /// Its address vector.
    pub av: Use<Av>,
    /// The queue of both sides.
    pub cq: Use<Cq>,
    /// The queue of connection events.
    pub eq: Use<Eq>,
    /// What it is opened with.
    pub attributes: Attributes,
}

/// What a provider returns for an open endpoint.
pub struct Opened<C: Core> {
    /// Its lane.
    pub lane: Arc<Lane<C>>,
    /// The endpoint in the lane.
    pub ep: EpKey,
    /// Its address, as others insert it.
    pub name: Vec<u8>,
    /// The regions of its domain.
    pub table: Arc<MrTable>,
}

/// An endpoint.
pub struct Side<B: Bench> {
    opened: Opened<B::Core>,
    objects: Objects,
    done: RefCell<Vec<Completion>>,
    failed: RefCell<Vec<ErrorCompletion>>,
    /// The regions of its memory, which a device has registered as long as there are.
    regions: RefCell<Vec<Arc<Region>>>,
    events: RefCell<VecDeque<ConnectionEvent>>,
    /// Whether completions stay in the queue.
    leaves_unread: Cell<bool>,
    is_closed: Cell<bool>,
}

/// The most pieces of memory of a message.
const PIECES: usize = 4;

/// A message, a receive, or the local side of an access.
#[derive(Clone, Copy, Debug)]
pub struct Message {
    /// Its tag, if it has one.
    pub tag: Option<u64>,
    /// Bits of the tag that a receive does not compare.
    pub ignore: u64,
    /// Its memory.
    pub places: [Option<Place>; PIECES],
    /// The endpoint at the other end: its number; of a receive, `FI_ADDR_UNSPEC` for any.
    pub peer: u64,
    /// Immediate data.
    pub data: u64,
    /// Flags besides `FI_COMPLETION`.
    pub flags: u64,
    /// The context, which is not zero.
    pub context: usize,
}

/// The context of what is sent, if nothing else is said.
pub const SENT: usize = 9;
/// The context of a receive, if nothing else is said.
pub const RECEIVED: usize = 7;

impl Message {
    /// A message, or an access, to this peer.
    pub fn to(peer: u64) -> Self {
        Message {
            context: SENT,
            ..Message::from(peer)
        }
    }

    /// A receive from this peer.
    pub fn from(peer: u64) -> Self {
        Message {
            tag: None,
            ignore: 0,
            places: [None; PIECES],
            peer,
            data: 0,
            flags: 0,
            context: RECEIVED,
        }
    }

    /// A receive from anybody.
    pub fn any() -> Self {
        Message::from(FI_ADDR_UNSPEC)
    }

    /// With this tag.
    pub fn tag(self, tag: u64) -> Self {
        self.maybe_tagged(Some(tag))
    }

    /// With this tag or none.
    pub fn maybe_tagged(self, tag: Option<u64>) -> Self {
        Message { tag, ..self }
    }

    /// Without comparing these bits of the tag.
    pub fn ignoring(self, ignore: u64) -> Self {
        Message { ignore, ..self }
    }

    /// With this memory.
    pub fn with(self, place: Place) -> Self {
        self.in_pieces(&[place])
    }

    /// With these pieces of memory.
    pub fn in_pieces(self, pieces: &[Place]) -> Self {
        assert!(pieces.len() <= PIECES);
        let places = std::array::from_fn(|at| pieces.get(at).copied());
        Message { places, ..self }
    }

    /// With this immediate data, if the flags say that there is some.
    pub fn data(self, data: u64) -> Self {
        Message { data, ..self }
    }

    /// With these flags.
    pub fn flags(self, flags: u64) -> Self {
        Message { flags, ..self }
    }

    /// With this context.
    pub fn context(self, context: usize) -> Self {
        Message { context, ..self }
    }
}

fn memory(places: &[Option<Place>]) -> AppIov {
    let mut memory = AppIov::default();
    for place in places.iter().flatten() {
        memory = memory.followed_by(place.lend()).unwrap();
    }
    memory
}

fn object<T: Class>(object: T) -> Use<T> {
    Use::of(&Handle::new(object, null_mut(), Vec::new()))
}

impl<B: Bench> Side<B> {
    /// Opens an endpoint.
    pub(crate) fn open(bench: &mut B, setting: Setting) -> Side<B> {
        let objects = Objects {
            av: object(Av::open(&bench.vector()).unwrap()),
            cq: object(
                Cq::new(CqConfig {
                    unasked: setting.unasked,
                    ..CqConfig::default()
                })
                .unwrap(),
            ),
            eq: object(Eq::new(Attachment::None, FI_VERSION(2, 0))),
            attributes: Attributes {
                tx_size: setting.tx_size,
                most_receives: 1 << 16,
                directed: setting.directed,
                job: Job::NONE,
            },
        };
        let opened = bench.open(&objects);
        let mut core = opened.lane.core();
        let endpoint = core.endpoints().get_mut(opened.ep).unwrap();
        endpoint.meets_strangers = true;
        endpoint.reports.tx_cq = Some(objects.cq.clone());
        endpoint.reports.rx_cq = Some(objects.cq.clone());
        if let Some(limits) = &setting.strangers {
            core.endpoints().limit_strangers(limits);
        }
        drop(core);
        Side {
            opened,
            objects,
            done: RefCell::default(),
            failed: RefCell::default(),
            regions: RefCell::default(),
            events: RefCell::default(),
            leaves_unread: Cell::new(false),
            is_closed: Cell::new(false),
        }
    }

    /// Inserts the address of another endpoint; returns its number.
    pub fn insert(&self, other: &Side<B>) -> u64 {
        let mut number = Err(Errno::EINVAL);
        let insertion = B::insertion(&other.opened.name);
        let inserted = self
            .objects
            .av
            .insert([insertion], |_, outcome| number = outcome);
        assert_eq!(inserted, Ok(1));
        number.unwrap()
    }

    /// Removes an address.
    pub fn remove(&self, number: u64) {
        self.objects.av.remove(&[number]).unwrap();
    }

    /// Bytes of messages that it keeps until they are received.
    pub fn kept(&self) -> usize {
        self.opened.lane.core().endpoints().kept_bytes()
    }

    /// Whether a stranger is held back.
    pub fn holds_strangers_back(&self) -> bool {
        self.opened.lane.core().endpoints().holds_back_strangers()
    }

    /// The number of its links, if that is known ([`Bench::links`]).
    pub fn links(&self) -> Option<usize> {
        B::links(&self.opened.lane.core(), self.opened.ep)
    }

    /// Makes progress, as the application's reads of queues do.
    pub fn drive(&self) {
        self.opened.lane.progress();
        if self.leaves_unread.get() {
            return;
        }
        let read = self
            .objects
            .cq
            .read(1000, |one| self.done.borrow_mut().push(*one));
        if read == Err(Errno::EAVAIL) {
            self.failed
                .borrow_mut()
                .push(self.objects.cq.read_error().unwrap());
        }
        self.events
            .borrow_mut()
            .extend(next_event(&self.objects.eq));
    }

    /// Leaves completions in the queue from now on; the endpoint makes progress nevertheless.
    pub fn leave_unread(&self) {
        self.leaves_unread.set(true);
    }

    /// Reads the completions that are in the queue, without progress.
    pub fn read_queue(&self) -> Vec<Completion> {
        let mut all = Vec::new();
        let _ = self.objects.cq.take(usize::MAX, |one| all.push(*one));
        all
    }

    /// Closes the endpoint; nothing happens if it is closed.
    pub(crate) fn close(&self) {
        if !self.is_closed.replace(true) {
            self.opened.lane.close(self.opened.ep);
        }
    }

    /// Takes the oldest event of its connection.
    pub fn take_event(&self) -> Option<ConnectionEvent> {
        self.events.borrow_mut().pop_front()
    }

    /// What the provider has returned for it.
    pub fn opened(&self) -> &Opened<B::Core> {
        &self.opened
    }

    /// Takes the oldest completion with this context.
    pub fn take(&self, context: usize) -> Option<Completion> {
        let mut done = self.done.borrow_mut();
        let at = done.iter().position(|one| one.context.addr() == context)?;
        Some(done.remove(at))
    }

    /// Takes the oldest completion, whose operation has no context.
    pub fn take_without_context(&self) -> Option<Completion> {
        self.take(0)
    }

    /// Takes the oldest error with this context.
    pub fn take_error(&self, context: usize) -> Option<ErrorCompletion> {
        let mut failed = self.failed.borrow_mut();
        let at = failed
            .iter()
            .position(|one| one.completion.context.addr() == context)?;
        Some(failed.remove(at))
    }

    /// Completions, errors and events that nobody has taken.
    pub fn left(&self) -> usize {
        self.done.borrow().len() + self.failed.borrow().len() + self.events.borrow().len()
    }

    /// The errors that nobody has taken.
    pub fn errors(&self) -> Vec<Errno> {
        self.failed.borrow().iter().map(|one| one.err).collect()
    }

    /// Posts a message.
    pub fn send(&self, message: Message) -> Result {
        let mut transmit = Transmit {
            tag: message.tag.map_or(Tag::None, Tag::Value),
            buffers: memory(&message.places),
            desc: Descs::NONE,
            peer: message.peer,
            data: message.data,
            flags: FI_COMPLETION | message.flags,
            context: without_provenance_mut(message.context),
        };
        self.opened
            .lane
            .core()
            .transmit(self.opened.ep, &mut transmit)
    }

    /// Posts a receive, or looks for a message.
    pub fn receive(&self, message: Message) {
        let select = match message.tag {
            Some(tag) => Select::Tagged {
                tag,
                ignore: message.ignore,
            },
            None => Select::Untagged,
        };
        let mut receive = Receive {
            select,
            buffers: memory(&message.places),
            desc: Descs::NONE,
            peer: message.peer,
            flags: FI_COMPLETION | message.flags,
            context: without_provenance_mut(message.context),
        };
        self.opened
            .lane
            .core()
            .receive(self.opened.ep, &mut receive)
            .unwrap();
    }

    /// Cancels a receive.
    pub fn cancel(&self, context: usize) -> Result {
        let mut core = self.opened.lane.core();
        let poster = core.endpoints().poster(self.opened.ep)?;
        let context = Context::of(without_provenance_mut(context));
        core.endpoints().cancel(poster, context)
    }

    /// Registers memory for peers.
    pub fn register(&self, place: &Place, key: u64) -> Arc<Region> {
        self.register_for(place, FI_REMOTE_READ | FI_REMOTE_WRITE, key)
    }

    /// As [`Side::register`], for these kinds of access (`FI_REMOTE_*`).
    pub fn register_for(&self, place: &Place, access: u64, key: u64) -> Arc<Region> {
        // SAFETY: the memory of places is never freed.
        let memory = unsafe { Memory::new(place.lend().pieces()) }.unwrap();
        let request = mr::Request::new(memory, access, key);
        let region = self.opened.table.register(request).unwrap();
        self.regions.borrow_mut().push(region.clone());
        region
    }

    /// Closes a region.
    pub fn close_region(&self, region: &Region) {
        self.opened.table.close(region).unwrap();
    }

    /// Sets the room in bytes that a buffer for several messages has at least (`FI_OPT_MIN_MULTI_RECV`).
    pub fn needs_room(&self, bytes: usize) {
        let mut core = self.opened.lane.core();
        core.endpoints().set_min_multi_recv(self.opened.ep, bytes);
    }

    /// Posts a read or a write of a peer's region, whose addresses are offsets.
    pub fn access(&self, access: Access, message: Message, key: u64, offset: u64) -> Result {
        let local = memory(&message.places);
        let mut remote = RemoteIov::default();
        remote.push(RemotePiece {
            addr: offset,
            len: local.len() as u64,
            key,
        });
        let mut access = RemoteAccess {
            access,
            local,
            remote,
            desc: Descs::NONE,
            peer: message.peer,
            data: message.data,
            flags: FI_COMPLETION | message.flags,
            context: without_provenance_mut(message.context),
        };
        self.opened.lane.core().access(self.opened.ep, &mut access)
    }

    /// Posts an atomic operation.
    pub fn atomic(&self, mut atomic: prov_util::request::Atomic) -> Result {
        self.opened.lane.core().atomic(self.opened.ep, &mut atomic)
    }
}

impl<B: Bench> Drop for Side<B> {
    fn drop(&mut self) {
        self.close();
    }
}
