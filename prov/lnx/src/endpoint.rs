//! fi_endpoint(3): an endpoint, which has one of each linked domain.
//!
//! Receives are in one queue, with which the linked endpoints match their messages; the application
//! drives all of them together. Each operation goes to the linked endpoint of the path to its peer.

mod alone;
mod peers;
mod reporting;
mod tracked;
mod ways;

use std::ffi::{c_int, c_void};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use fabric_abi::*;
use parking_lot::Mutex;
use prov_base::errno::{Errno, Result};
use prov_base::lately::nanoseconds;
use prov_message::reports::Seen;
use prov_message::{EpKey, Op, Reports, receive_limit};
use prov_util::attr::Info;
use prov_util::av::{Av, InsertObserver, Observer};
use prov_util::drive::{Seat, busy_elsewhere};
use prov_util::endpoint::{self, Bindings, NoSharedReceive, OptionValue};
use prov_util::ffi::ep::EndpointObject;
use prov_util::ffi::linked::{Link, LinkOwner};
use prov_util::ffi::srx::{OwnedQueue, Section};
use prov_util::ffi::{Handle, Use};
use prov_util::matching::{self, ANY_SOURCE, Filter};
use prov_util::progress::Progress;
use prov_util::request::{Atomic, Receive, RemoteAccess, Select, Transmit};
use prov_util::wait::snapshot::Snapshot;

use self::peers::Peers;
use self::reporting::{Releases, Reporting};
use self::tracked::{PostedReceive, Tracked};
use crate::LOG;
use crate::address::Composite;
use crate::resources::{LinkedDomain, Resources};
use crate::watched::Watched;

/// Default for `FI_OPT_MIN_MULTI_RECV` in bytes: that of the other software providers.
const MIN_MULTI_RECV: usize = 16384;

/// An endpoint.
pub struct LnxEndpoint {
    domain: Arc<Resources>,
    shared: Arc<Shared>,
    /// Whether receives may be for one sender alone.
    is_directed: bool,
    most_receives: usize,
    min_multi_recv: Mutex<usize>,
}

/// The part that outlives the endpoint's object while others drive it.
struct Shared {
    /// The linked endpoints, in the order of the domains; none once the endpoint is closed.
    links: Snapshot<Arc<[Link]>>,
    domains: Arc<[LinkedDomain]>,
    queue: Arc<OwnedQueue>,
    reporting: Arc<Reporting>,
    peers: Peers,
    host: String,
    av: OnceLock<Use<Av>>,
    watched: OnceLock<Watched>,
    /// The number of progress calls of the application.
    turns: AtomicU32,
    /// When linked endpoints that are not in use were driven last, in nanoseconds.
    idle_driven: AtomicU64,
    /// At the domain's thread, with automatic progress.
    seat: OnceLock<Seat>,
}

/// The flags of receives that do more than wait for one message.
const UNUSUAL: u64 = FI_PEEK | FI_CLAIM | FI_MULTI_RECV | FI_PEER_TRANSFER;

/// While some linked endpoints are in use, the others may be driven in one of this many progress
/// calls, which look at the time.
const IDLE_TURN: u32 = 32;
/// And at most once in this time: about the latency of a network, and long beside a system call.
const IDLE_PAUSE: Duration = Duration::from_micros(20);

impl LnxEndpoint {
    /// Opens an endpoint, and one of each linked domain.
    ///
    /// # Errors
    /// Those of the linked providers.
    pub fn open(domain: &Arc<Resources>, info: &Info) -> Result<Self> {
        info.ep.authorization()?;
        let open = |linked: &LinkedDomain| {
            Link::open(&linked.domain, &linked.info).inspect_err(|error| {
                let name = linked.info.domain.name.as_deref().unwrap_or_default();
                log::warn!(target: LOG.ep_ctrl, "no endpoint of {name} for a link: {error}");
            })
        };
        let links: Vec<Link> = domain.linked.iter().map(open).collect::<Result<_>>()?;
        let reporting = Reporting::new(domain.lock);
        let releases = Box::new(Releases(reporting.clone()));
        let settings = &domain.settings;
        Ok(LnxEndpoint {
            domain: domain.clone(),
            shared: Arc::new(Shared {
                links: Snapshot::new(domain.lock, links.into()),
                domains: domain.linked.clone(),
                queue: OwnedQueue::new(domain.lock, MIN_MULTI_RECV, releases),
                reporting,
                peers: Peers::new(settings.selection, settings.uses_shm),
                host: host_name(),
                av: OnceLock::new(),
                watched: OnceLock::new(),
                turns: AtomicU32::new(0),
                idle_driven: AtomicU64::new(0),
                seat: OnceLock::new(),
            }),
            is_directed: (info.caps | info.rx.caps) & FI_DIRECTED_RECV != 0,
            most_receives: receive_limit(info.rx.size),
            min_multi_recv: Mutex::new(MIN_MULTI_RECV),
        })
    }

    fn address(&self) -> Result<Composite> {
        let shared = &self.shared;
        let mut address = Composite {
            host: shared.host.clone().into(),
            parts: Vec::new(),
        };
        let mut last = None;
        for (link, linked) in shared.links().iter().zip(&*shared.domains) {
            let fabric = linked.info.fabric.name.clone().unwrap_or_default();
            let part = (fabric.into(), link.address()?);
            match linked.is_shm {
                true => last = Some(part),
                false => address.parts.push(part),
            }
        }
        // See `Composite::shm`.
        address.parts.extend(last);
        Ok(address)
    }

    fn is_enabled(&self) -> Result {
        self.shared.av.get().map(drop).ok_or(Errno::EOPBADSTATE)
    }

    fn filter(&self, receive: &Receive) -> (bool, Filter) {
        // Those of a peer provider always are for one sender.
        let src = match self.is_directed || receive.flags & FI_PEER_TRANSFER != 0 {
            true => receive.directed().unwrap_or(ANY_SOURCE),
            false => ANY_SOURCE,
        };
        match receive.select {
            Select::Untagged => (
                false,
                Filter {
                    src,
                    tag: 0,
                    ignore: u64::MAX,
                },
            ),
            Select::Tagged { tag, ignore } => (true, Filter { src, tag, ignore }),
        }
    }

    /// `FI_PEEK`, and what is done with the message.
    fn peek(&self, section: &Section<'_>, receive: &Receive) {
        let shared = &self.shared;
        // What has come may not have been looked at, and who peeks in a loop may read no queue.
        shared.drive_all();
        shared.follow_ends(section);
        let (tagged, filter) = self.filter(receive);
        let seen = if receive.flags & FI_CLAIM != 0 {
            section.peek_claim(tagged, filter, self.claimed_as(receive))
        } else if receive.flags & FI_DISCARD != 0 {
            section.peek_discard(tagged, filter)
        } else {
            section.peek(tagged, filter)
        };
        self.look(receive, seen);
    }

    fn look(&self, receive: &Receive, seen: Option<prov_util::ffi::srx::Seen>) {
        let seen = seen.as_ref().map(Seen::of_queue);
        let report = |reports: &Reports| reports.look(receive, seen.as_ref());
        self.shared.reporting.with(report);
    }

    /// The name of a message that is set aside: the application's context.
    fn claimed_as(&self, receive: &Receive) -> usize {
        let name = |reports: &Reports| {
            let transfers = reports.transfers.as_ref();
            transfers.and_then(|transfers| transfers.name_of(receive.context))
        };
        let deferred = match receive.flags & FI_PEER_TRANSFER {
            0 => None,
            _ => self.shared.reporting.with(name),
        };
        deferred.unwrap_or(receive.context).expose_provenance()
    }

    /// The receive as the queue has it.
    fn posted(&self, receive: &mut Receive) -> matching::Receive<prov_base::buffer::AppIov> {
        let (_, filter) = self.filter(receive);
        let reporting = &self.shared.reporting;
        let is_tracked = receive.flags & FI_PEER_TRANSFER != 0 || reporting.counts(FI_RECV);
        let kept = FI_COMPLETION | FI_MULTI_RECV | FI_CLAIM | FI_PEER_TRANSFER;
        let mut flags = receive.flags & kept;
        let context = match is_tracked {
            false => receive.context,
            true => {
                flags |= FI_COMPLETION;
                reporting.operations.add(Tracked::Posted(PostedReceive {
                    context: receive.context.expose_provenance(),
                    flags: receive.flags,
                    is_multi: receive.flags & FI_MULTI_RECV != 0,
                }))
            }
        };
        matching::Receive {
            context: context.expose_provenance(),
            buf: receive.buffers.take(),
            src: filter.src,
            tag: filter.tag,
            ignore: filter.ignore,
            flags,
        }
    }

    /// Forgets a receive that was not posted.
    fn unposted(&self, posted: usize) {
        let name = std::ptr::without_provenance_mut(posted);
        let _ = self.shared.reporting.operations.end(name, true);
    }

    /// Posts an operation, which `describe` describes, to the path for its peer.
    #[inline(always)]
    fn post(
        &self,
        describe: impl FnOnce() -> Op,
        (peer, flags, context): (fi_addr_t, u64, *mut c_void),
        post: impl Fn(&Link, fi_addr_t, *mut c_void, u64) -> Result,
    ) -> Result {
        let shared = &self.shared;
        let way = shared.peers.way(peer)?;
        shared.links.read(|links| {
            let link = links.get(way.link).ok_or(Errno::EOPBADSTATE)?;
            let post = |context, flags| post(link, way.number, context, flags);
            match flags & FI_PEER_TRANSFER == 0 && !shared.reporting.counts(u64::MAX) {
                true => post(context, flags),
                false => self.post_tracked(&describe(), (flags, context), post),
            }
        })
    }

    /// Posts an operation that may be counted, or of a peer provider.
    #[inline(never)]
    fn post_tracked(
        &self,
        op: &Op,
        (flags, context): (u64, *mut c_void),
        post: impl Fn(*mut c_void, u64) -> Result,
    ) -> Result {
        let reporting = &self.shared.reporting;
        let flags = flags & !FI_PEER_TRANSFER;
        if !reporting.tracks(op.class) {
            return post(context, flags);
        }
        if op.is_inject {
            // Without a completion: it counts when it is copied.
            return post(context, flags).inspect(|()| reporting.injected(op));
        }
        let name = reporting.operations.add(Tracked::Sent(*op));
        let posted = post(name, flags | FI_COMPLETION);
        posted.inspect_err(|_| {
            let _ = reporting.operations.end(name, true);
        })
    }
}

fn host_name() -> String {
    let system = rustix::system::uname();
    let name = system.nodename().to_string_lossy();
    // As it is in addresses.
    name.chars().take(63).collect()
}

impl Shared {
    /// Drives all linked endpoints.
    fn drive_all(&self) {
        self.links.read(|links| links.iter().for_each(Link::drive));
    }

    /// Drives the linked endpoints that are in use, and the others now and then: each of them may
    /// make system calls. Those do not yield the processor to other processes meanwhile.
    #[inline]
    fn drive(&self) {
        let turn = self.turns.load(Ordering::Relaxed);
        self.turns.store(turn.wrapping_add(1), Ordering::Relaxed);
        self.links.read(|links| {
            let mut any = false;
            for link in links.iter().filter(|link| link.is_busy()) {
                link.drive();
                any = true;
            }
            if !any {
                links.iter().for_each(Link::drive);
            } else if turn.is_multiple_of(IDLE_TURN) && self.is_time() {
                let idle = links.iter().filter(|link| !link.is_busy());
                busy_elsewhere(|| idle.for_each(Link::drive));
            }
        });
    }

    /// Returns the linked endpoints, for what is not done often.
    fn links(&self) -> Arc<[Link]> {
        self.links.read(Arc::clone)
    }

    /// Whether a thread, which has entered the queue, may sleep until the links have work.
    fn may_sleep(&self) -> bool {
        let may_sleep = !self.reporting.ended.any() && self.links().iter().all(Link::may_sleep);
        if let (true, Some(watched)) = (may_sleep, self.watched.get()) {
            watched.sleeps();
        }
        may_sleep
    }

    /// Whether [`IDLE_PAUSE`] is over.
    fn is_time(&self) -> bool {
        let now = nanoseconds();
        let waited = now.saturating_sub(self.idle_driven.load(Ordering::Relaxed));
        let is_time = u128::from(waited) >= IDLE_PAUSE.as_nanos();
        if is_time {
            self.idle_driven.store(now, Ordering::Relaxed);
        }
        is_time
    }

    /// Tells the linked endpoint of the path to a peer that a receive depends on it.
    fn await_peer(&self, peer: fi_addr_t, transfers: bool) {
        if let Some(way) = self.peers.usual_way(peer)
            && let Some(link) = self.links().get(way.link)
        {
            link.awaits(way.number, transfers);
        }
    }

    /// Ends the receives that depend on peers that are gone.
    #[inline(always)]
    fn follow_ends(&self, section: &Section<'_>) {
        if self.reporting.ended.any() {
            self.end_receives(section);
        }
    }

    #[cold]
    #[inline(never)]
    fn end_receives(&self, section: &Section<'_>) {
        for peer in self.reporting.ended.take() {
            let flags = if peer.transfers { FI_PEER_TRANSFER } else { 0 };
            for (tagged, cancelled) in section.cancel_from(peer.number, flags) {
                self.reporting.cancelled(tagged, cancelled, peer.error);
            }
        }
    }

    fn close(&self) {
        // Without the queue's lock, for which the thread may wait.
        if let Some(seat) = self.seat.get() {
            seat.leave();
        }
        // Closed without the queue's lock, which links enter. Threads that drive them hold it.
        let links = self.links();
        let section = self.queue.enter();
        section.shut();
        self.links.replace(|_| Arc::new([]));
        drop(section);
        drop(links);
    }
}

impl InsertObserver for Shared {
    fn inserted(&self) {
        if let Some(av) = self.av.get() {
            self.peers
                .follow(av, &self.host, &self.links(), &self.domains);
        }
    }
}

impl Observer for Shared {
    fn removed(&self, number: fi_addr_t) {
        self.queue.enter().forget_source(number);
        self.peers.forget(number, &self.links());
    }
}

impl Progress for Shared {
    fn progress(&self) {
        // Another thread that is inside does the work.
        if let Some(section) = self.queue.try_enter() {
            self.drive();
            self.follow_ends(&section);
        }
    }

    fn wait_fd(&self) -> Option<RawFd> {
        self.watched.get().map(Watched::fd)
    }

    fn prepare_wait(&self) -> bool {
        let Some(_section) = self.queue.try_enter() else {
            return false;
        };
        self.may_sleep()
    }
}

impl endpoint::Endpoint for LnxEndpoint {
    type SharedReceive = NoSharedReceive;

    fn enable(
        this: &Handle<EndpointObject<Self>>,
        bindings: &Bindings<NoSharedReceive>,
    ) -> Result<Arc<dyn Progress>> {
        let shared = &this.shared;
        let av = bindings.av.clone().ok_or(Errno::ENOAV)?;
        shared.reporting.to(Reports::to(bindings));
        let queues = bindings.tx_cq.iter().chain(&bindings.rx_cq);
        let sleeps = this.domain.is_auto
            || queues.into_iter().any(|cq| cq.can_sleep())
            || bindings.counters.can_sleep();
        let owner: Arc<dyn LinkOwner> = shared.reporting.clone();
        let links = shared.links();
        for (link, linked) in links.iter().zip(&*shared.domains) {
            let counted = bindings.counters.remote();
            link.enable(&linked.domain, &shared.queue, &owner, counted, sleeps)?;
        }
        let fds: Option<Vec<_>> = links.iter().map(Link::wait_fd).collect();
        if let (true, Some(fds)) = (sleeps, fds) {
            let _ = shared.watched.set(Watched::new(fds)?);
        }
        drop(links);
        let observer: Arc<dyn Observer> = shared.clone();
        av.observe(Arc::downgrade(&observer));
        let observer: Arc<dyn InsertObserver> = shared.clone();
        let observer: Weak<dyn InsertObserver> = Arc::downgrade(&observer);
        av.observe_insertions(observer);
        let _ = shared.av.set(av);
        shared.inserted();
        let progress: Arc<dyn Progress> = shared.clone();
        this.domain.add(&progress);
        shared.drive_automatically(&this.domain, Arc::downgrade(shared))?;
        Ok(progress)
    }

    fn rebind(this: &Handle<EndpointObject<Self>>, bindings: &Bindings<NoSharedReceive>) -> Result {
        this.shared.reporting.to(Reports::to(bindings));
        Ok(())
    }

    fn receive_limit(&self) -> usize {
        self.most_receives
    }

    fn close(this: &Handle<EndpointObject<Self>>) -> Result {
        this.shared.close();
        Ok(())
    }

    #[inline]
    fn transmit(&self, message: &mut Transmit) -> Result {
        let describe = || Op::of_transmit(EpKey::default(), message);
        let call = (message.peer, message.flags, message.context);
        self.post(describe, call, |link, to, context, flags| {
            link.transmit(message, to, context, flags)
        })
    }

    #[inline(always)]
    fn receive_fast(&self, receive: &mut Receive) -> bool {
        let shared = &self.shared;
        if receive.flags & UNUSUAL != 0
            || self.is_directed
            || shared.reporting.counts(FI_RECV)
            || shared.av.get().is_none()
        {
            return false;
        }
        let (tagged, filter) = self.filter(receive);
        let posted = (
            receive.context.expose_provenance(),
            receive.flags & FI_COMPLETION,
        );
        let section = shared.queue.enter();
        section.post_fast(
            tagged,
            posted,
            filter,
            &mut receive.buffers,
            self.most_receives,
        )
    }

    fn receive(&self, receive: &mut Receive) -> Result {
        self.is_enabled()?;
        let (tagged, _) = self.filter(receive);
        let section = self.shared.queue.enter();
        if receive.flags & FI_PEEK != 0 {
            self.peek(&section, receive);
            return Ok(());
        }
        if receive.flags & FI_CLAIM != 0 {
            let name = self.claimed_as(receive);
            if receive.flags & FI_DISCARD != 0 {
                let seen = section.claim_discard(tagged, name).ok_or(Errno::ENOMSG)?;
                self.look(receive, Some(seen));
                return Ok(());
            }
            let posted = self.posted(receive);
            let context = posted.context;
            let claimed = section.claim(tagged, name, posted);
            return claimed.inspect_err(|_| self.unposted(context));
        }
        if section.posted_len() >= self.most_receives {
            return Err(Errno::EAGAIN);
        }
        section.post(tagged, self.posted(receive))?;
        let transfers = receive.flags & FI_PEER_TRANSFER != 0;
        if let (true, Some(peer)) = (self.is_directed || transfers, receive.directed()) {
            self.shared.await_peer(peer, transfers);
        }
        Ok(())
    }

    fn access(&self, access: &mut RemoteAccess) -> Result {
        let describe = || Op::of_access(EpKey::default(), access);
        let call = (access.peer, access.flags, access.context);
        self.post(describe, call, |link, to, context, flags| {
            link.access(access, to, context, flags)
        })
    }

    fn atomic(&self, atomic: &mut Atomic) -> Result {
        let describe = || Op::of_atomic(EpKey::default(), atomic);
        let call = (atomic.peer, atomic.flags, atomic.context);
        self.post(describe, call, |link, to, context, flags| {
            link.atomic(atomic, to, context, flags)
        })
    }

    fn cancel(&self, context: *mut c_void) -> Result {
        self.is_enabled()?;
        let reporting = &self.shared.reporting;
        let section = self.shared.queue.enter();
        let name = reporting.operations.oldest_receive(context);
        let name = name.unwrap_or(context).expose_provenance();
        let (tagged, cancelled) = section.cancel(name).ok_or(Errno::ENOENT)?;
        reporting.cancelled(tagged, cancelled, Errno::ECANCELED);
        Ok(())
    }

    fn take_back(&self, context: *mut c_void) -> Result {
        let reporting = &self.shared.reporting;
        let name = reporting.operations.oldest_sent(context).unwrap_or(context);
        let name = name.expose_provenance();
        // The link with the operation reports its end.
        let before = reporting.failures();
        for link in &*self.shared.links() {
            link.cancel(name);
            if reporting.failures() != before {
                return Ok(());
            }
        }
        Err(Errno::ENOENT)
    }

    fn name(&self) -> Result<Vec<u8>> {
        self.address()?.write()
    }

    fn short_name(&self, room: usize) -> Option<Vec<u8>> {
        self.address().ok()?.write_short(room)
    }

    fn option(&self, name: c_int) -> Result<OptionValue> {
        match name {
            FI_OPT_MIN_MULTI_RECV => Ok(OptionValue::Size(*self.min_multi_recv.lock())),
            _ => Err(Errno::ENOPROTOOPT),
        }
    }

    fn set_option(&self, name: c_int, value: OptionValue) -> Result {
        if let (FI_OPT_MIN_MULTI_RECV, OptionValue::Size(bytes)) = (name, value) {
            *self.min_multi_recv.lock() = bytes;
            self.shared.queue.enter().set_min_multi_recv(bytes);
            return Ok(());
        }
        let links = self.shared.links();
        links
            .iter()
            .try_for_each(|link| link.set_option(name, value))
    }
}
