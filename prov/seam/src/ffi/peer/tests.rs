//! Tests a provider that imports all kinds of objects, through its C functions.

use std::os::fd::RawFd;
use std::ptr::{null_mut, without_provenance_mut};
use std::sync::{Arc, Mutex, Weak};

use super::super::Use;
use super::super::domain::{DomainObject, PeerDomain};
use super::super::ep::{EndpointObject, SharedReceiveObject, TransferOwner, TransferPeer};
use super::super::fabric::FabricObject;
use super::super::object::Handle;
use super::super::srx::{
    Arrival, Discarded, ImportedSrx, OwnedQueue, QueueOwner, StartReceives, Started, WholeReceive,
};
use super::super::test_domain::{TestDomain, close};
use super::*;
use crate::domain::{Domain, Fabric};
use crate::endpoint::{Bindings, Endpoint, NoPassiveEndpoint, SharedReceive};
use crate::ffi::srx::ForeignQueue;
use prov_base::buffer::AppIov;
use prov_base::sync::LockKind;
use prov_objects::attr::{Info, Offers, version};
use prov_objects::cntr::Cntr;
use prov_objects::cq::{Completion, Cq, ErrorCompletion};
use prov_objects::desc::Descs;
use prov_objects::matching::Receive as Posted;
use prov_objects::mr::MrTable;
use prov_objects::progress::Progress;
use prov_objects::request::{Receive, Select, Tag, Transmit};

struct Offload;

impl Fabric for Offload {
    type Domain = OffloadDomain;
    type PassiveEndpoint = NoPassiveEndpoint;

    fn offers(&self) -> Offers {
        Offers::default()
    }

    fn domain(_: &Handle<FabricObject<Self>>, _: &Info) -> Result<OffloadDomain> {
        Ok(OffloadDomain::new(None))
    }

    fn peer_domain(
        _: &Handle<FabricObject<Self>>,
        _: &Info,
        owner: PeerDomain,
    ) -> Result<OffloadDomain> {
        Ok(OffloadDomain::new(Some(owner)))
    }

    fn passive_endpoint(_: &Handle<FabricObject<Self>>, _: &Info) -> Result<NoPassiveEndpoint> {
        Err(Errno::ENOSYS)
    }
}

struct OffloadDomain {
    owner: Option<PeerDomain>,
    memory: Arc<MrTable>,
}

impl OffloadDomain {
    fn new(owner: Option<PeerDomain>) -> Self {
        let memory = TestDomain::open(FI_SOCKADDR_IN, 0).table.clone();
        OffloadDomain { owner, memory }
    }
}

impl Domain for OffloadDomain {
    type Endpoint = OffloadEndpoint;
    type SharedReceive = Importer;

    const LOG_TARGET: &'static str = "offload::domain";

    fn endpoint(_: &Handle<DomainObject<Self>>, _: &Info) -> Result<OffloadEndpoint> {
        Ok(OffloadEndpoint::default())
    }

    fn transfer_endpoint(
        _: &Handle<DomainObject<Self>>,
        _: &Info,
        owner: TransferOwner,
    ) -> Result<OffloadEndpoint> {
        Ok(OffloadEndpoint {
            owner: Some(owner),
            ..OffloadEndpoint::default()
        })
    }

    fn peer_receive(_: &Handle<DomainObject<Self>>, owner: ImportedSrx) -> Result<Importer> {
        Ok(Importer::new(owner))
    }

    fn memory(&self) -> &Arc<MrTable> {
        &self.memory
    }
}

#[derive(Default)]
struct OffloadEndpoint {
    owner: Option<TransferOwner>,
    /// The calls to it.
    calls: Mutex<Vec<Call>>,
}

/// Name, flags, and tag or error.
type Call = (&'static str, u64, u64);

impl OffloadEndpoint {
    fn note(&self, call: Call) -> Result {
        self.calls.lock().unwrap().push(call);
        Ok(())
    }

    fn calls(&self) -> Vec<Call> {
        std::mem::take(&mut self.calls.lock().unwrap())
    }
}

impl Endpoint for OffloadEndpoint {
    type SharedReceive = Importer;

    fn enable(
        _: &Handle<EndpointObject<Self>>,
        _: &Bindings<Importer>,
    ) -> Result<Arc<dyn Progress>> {
        Ok(Arc::new(Nothing))
    }

    fn rebind(_: &Handle<EndpointObject<Self>>, _: &Bindings<Importer>) -> Result {
        Ok(())
    }

    fn receive_limit(&self) -> usize {
        0
    }

    fn close(_: &Handle<EndpointObject<Self>>) -> Result {
        Ok(())
    }

    fn transmit(&self, transmit: &mut Transmit) -> Result {
        match transmit.tag {
            Tag::None => self.note(("send", transmit.flags, 0)),
            Tag::Value(tag) => self.note(("tsend", transmit.flags, tag)),
        }
    }

    fn receive(&self, receive: &mut Receive) -> Result {
        match receive.select {
            Select::Untagged => self.note(("recv", receive.flags, 0)),
            Select::Tagged { tag, .. } => self.note(("trecv", receive.flags, tag)),
        }
    }

    fn cancel(&self, _: *mut c_void) -> Result {
        Err(Errno::ENOENT)
    }

    fn transfer_done(&self, completion: &Completion) -> Result {
        self.note(("done", completion.flags, completion.tag))
    }

    fn transfer_failed(&self, error: ErrorCompletion) -> Result {
        let flags = error.completion.flags;
        self.note(("failed", flags, error.err.number() as u64))
    }
}

/// Its messages are contexts of the receives that take them.
struct Importer {
    state: Arc<ImporterState>,
}

struct ImporterState {
    queue: parking_lot::Mutex<ForeignQueue<()>>,
    received: Mutex<Vec<usize>>,
}

impl Importer {
    fn new(owner: ImportedSrx) -> Self {
        let state = Arc::new_cyclic(|this: &Weak<ImporterState>| ImporterState {
            queue: parking_lot::Mutex::new(ForeignQueue::new(owner, this.clone())),
            received: Mutex::default(),
        });
        Importer { state }
    }
}

impl StartReceives for ImporterState {
    fn start(&self, started: Started) -> Result {
        let (_, receive) = self.queue.lock().start(started)?;
        self.received.lock().unwrap().push(receive.context().addr());
        Ok(())
    }

    fn discard(&self, discarded: Discarded) -> Result {
        self.queue.lock().discard(discarded).map(drop)
    }
}

impl SharedReceive for Importer {
    fn receive(&self, _: &mut Receive) -> Result {
        panic!("no receive can be posted")
    }

    fn cancel(&self, _: *mut c_void) -> Result {
        Err(Errno::ENOSYS)
    }

    fn bind(&self, _: Option<Use<Cq>>, _: Option<Use<Cntr>>) -> Result {
        Err(Errno::EINVAL)
    }

    fn progress(&self) -> Arc<dyn Progress> {
        Arc::new(Nothing)
    }
}

/// A progress engine without a transport.
struct Nothing;

impl Progress for Nothing {
    fn progress(&self) {}

    fn wait_fd(&self) -> Option<RawFd> {
        None
    }

    fn prepare_wait(&self) -> bool {
        true
    }
}

/// A fabric and a domain of the provider.
struct Bench {
    fabric: *mut fid_fabric,
    domain: *mut fid_domain,
}

impl Bench {
    fn open(flags: u64, context: *mut c_void) -> Result<Bench> {
        let mut fabric = null_mut();
        let mut domain = null_mut();
        // SAFETY: the locations are variables of the test, and zero is a valid value of the info.
        unsafe {
            let api = version(2, 7);
            FabricObject::open(Ok(Offload), api, &raw mut fabric, null_mut());
            let open = (*(*fabric).ops).domain2.unwrap();
            let status = open(fabric, &mut info(), &raw mut domain, flags, context);
            if status != 0 {
                close(fabric.cast());
                return Err(Errno::new(status));
            }
        }
        Ok(Bench { fabric, domain })
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        assert_eq!(close(self.domain.cast()), 0);
        assert_eq!(close(self.fabric.cast()), 0);
    }
}

/// Attributes of an endpoint for messages of both kinds.
fn info() -> fi_info {
    // SAFETY: the structure consists of integers and pointers, for which zero is a valid value.
    let mut info: fi_info = unsafe { std::mem::zeroed() };
    info.caps = FI_MSG | FI_TAGGED | FI_SEND | FI_RECV;
    info
}

#[test]
fn a_domain_registers_memory_with_the_owners() {
    let main = TestDomain::open(FI_SOCKADDR_IN, 0);
    let mut context = fi_peer_domain_context {
        size: size_of::<fi_peer_domain_context>(),
        domain: main.as_c(),
    };
    let bench = Bench::open(FI_PEER, (&raw mut context).cast()).unwrap();
    // SAFETY: the domain is open as long as the test uses it.
    let domain = unsafe { Handle::<DomainObject<OffloadDomain>>::borrow(bench.domain) };
    let mut memory = [0u8; 16];
    // SAFETY: the memory outlives its registration.
    let memory = unsafe { AppIov::from_raw(memory.as_mut_ptr(), 16) };
    let owner = domain.owner.unwrap();
    let region = owner.register(&memory, FI_REMOTE_READ, 33).unwrap();
    assert_eq!(region.key(), 33);
    assert_eq!(
        owner.register(&memory, FI_REMOTE_READ, 33).err(),
        Some(Errno::ENOKEY)
    );
    assert_eq!(close(main.fid()), Errno::EBUSY.to_c());
    drop(region);
    assert!(owner.register(&memory, FI_REMOTE_READ, 33).is_ok());
}

#[test]
fn a_domain_needs_its_owner_to_be_one() {
    let refused = |size, domain: *mut fid_domain| {
        let mut context = fi_peer_domain_context { size, domain };
        Bench::open(FI_PEER, (&raw mut context).cast()).err() == Some(Errno::EINVAL)
    };
    let size = size_of::<fi_peer_domain_context>();
    assert!(refused(size, null_mut()));
    let main = TestDomain::open(FI_SOCKADDR_IN, 0);
    assert!(refused(size - 1, main.as_c()));
    let bench = Bench::open(0, null_mut()).unwrap();
    assert!(refused(size, bench.fabric.cast()));
    assert!(Bench::open(FI_PEER, null_mut()).is_err());
}

struct NoReleases;

impl QueueOwner for NoReleases {
    fn buffer_released(&self, _: *mut c_void) {
        panic!("there is no buffer for many")
    }

    fn received(&self, _: &WholeReceive) {
        panic!("no message has come")
    }
}

#[test]
fn a_context_takes_receives_from_the_owner_alone() {
    let bench = Bench::open(0, null_mut()).unwrap();
    let queue = OwnedQueue::new(LockKind::Real, 0, Box::new(NoReleases));
    let shared = queue.share();
    let mut context = fi_peer_srx_context {
        size: size_of::<fi_peer_srx_context>(),
        srx: shared.as_c(),
    };
    let mut srx = null_mut();
    // SAFETY: the domain and the shared queue are open, and zero is a valid value of the
    // attributes.
    unsafe {
        let mut attr: fi_rx_attr = std::mem::zeroed();
        attr.op_flags = FI_PEER;
        attr.caps = FI_MSG | FI_TAGGED;
        let open = (*(*bench.domain).ops).srx_ctx.unwrap();
        let mut open = |context| open(bench.domain, &raw mut attr, &raw mut srx, context);
        assert_eq!(open(null_mut()), Errno::EINVAL.to_c());
        assert_eq!(open((&raw mut context).cast()), 0);

        let enosys = Errno::ENOSYS.to_c() as isize;
        let recv = (*(*srx).msg).recv.unwrap();
        let any = FI_ADDR_UNSPEC;
        assert_eq!(
            recv(srx, null_mut(), 0, null_mut(), any, null_mut()),
            enosys
        );
        let recv = (*(*srx).tagged).recv.unwrap();
        let none = null_mut();
        assert_eq!(recv(srx, none, 0, none, any, 0, 0, none), enosys);

        let importer = Handle::<SharedReceiveObject<Importer>>::borrow(srx);
        let owner = queue.enter();
        for tag in [1, 2] {
            let mut foreign = importer.state.queue.lock();
            let Ok(Arrival::Unexpected(entry)) = foreign.arrive(true, 5, tag, 0) else {
                panic!("there is no receive");
            };
            let message = prov_objects::matching::Message {
                src: 5,
                tag,
                len: 0,
                data: 0,
                flags: 0,
                payload: (),
            };
            foreign.keep(0, entry, message).unwrap();
        }
        let receive = Posted {
            context: 77,
            buf: AppIov::EMPTY,
            src: FI_ADDR_UNSPEC,
            tag: 2,
            ignore: 0,
            flags: 0,
        };
        owner.post(true, receive).unwrap();
        assert_eq!(*importer.state.received.lock().unwrap(), [77]);
        // The importer's waiting messages are withdrawn.
        assert_eq!(close(srx.cast()), 0);
        assert_eq!(owner.peek(true, prov_objects::matching::Filter::ANY), None);
    }
}

#[test]
fn transfers_use_the_owners_endpoint_and_are_reported_back() {
    let bench = Bench::open(0, null_mut()).unwrap();
    let domain = bench.domain;
    let mut main = null_mut();
    // SAFETY: the domain is open, and each endpoint is open as long as it is used.
    unsafe {
        let open = (*(*domain).ops).endpoint.unwrap();
        assert_eq!(open(domain, &mut info(), &raw mut main, null_mut()), 0);
        let main_side = Handle::<EndpointObject<OffloadEndpoint>>::borrow(main);
        let link = TransferPeer::open(domain, &mut info(), main, &mut info()).unwrap();
        let peer_side = Handle::<EndpointObject<OffloadEndpoint>>::borrow(link.as_c());
        let owner = peer_side.owner.as_ref().unwrap();
        assert_eq!(owner.info().map(|info| info.caps), Some(info().caps));

        let context = without_provenance_mut(9);
        for tag in [Tag::None, Tag::Value(3)] {
            let transmit = Transmit {
                tag,
                buffers: AppIov::EMPTY,
                desc: Descs::NONE,
                peer: 1,
                data: 0,
                flags: FI_INJECT,
                context,
            };
            owner.transmit(&transmit).unwrap();
        }
        for select in [Select::Untagged, Select::Tagged { tag: 4, ignore: 0 }] {
            let receive = Receive {
                select,
                buffers: AppIov::EMPTY,
                desc: Descs::NONE,
                peer: 1,
                flags: 0,
                context,
            };
            owner.receive(&receive).unwrap();
        }
        let sent = FI_PEER_TRANSFER | FI_INJECT | FI_COMPLETION;
        let received = FI_PEER_TRANSFER | FI_COMPLETION;
        let asked = [
            ("send", sent, 0),
            ("tsend", sent, 3),
            ("recv", received, 0),
            ("trecv", received, 4),
        ];
        assert_eq!(main_side.calls(), asked);

        let mut completion = Completion::new(context, FI_PEER_TRANSFER | FI_SEND);
        completion.tag = 3;
        link.complete(&completion).unwrap();
        let error = ErrorCompletion::new(completion, Errno::EIO);
        link.fail(&error).unwrap();
        let told = [
            ("done", completion.flags, 3),
            ("failed", completion.flags, Errno::EIO.number() as u64),
        ];
        assert_eq!(peer_side.calls(), told);
        drop(link);
    }
    assert_eq!(close(main.cast()), 0);
}

#[test]
fn a_transfer_endpoint_needs_its_context() {
    let bench = Bench::open(0, null_mut()).unwrap();
    let mut info = info();
    info.mode = FI_PEER_TRANSFER;
    let mut open = |context| {
        let mut ep = null_mut();
        // SAFETY: the domain is open as long as the test uses it.
        unsafe {
            let open = (*(*bench.domain).ops).endpoint.unwrap();
            open(bench.domain, &raw mut info, &raw mut ep, context)
        }
    };
    let einval = Errno::EINVAL.to_c();
    assert_eq!(open(null_mut()), einval);
    let mut context = fi_peer_transfer_context {
        size: size_of::<fi_peer_transfer_context>(),
        info: null_mut(),
        ep: null_mut(),
        peer_ops: null_mut(),
    };
    assert_eq!(open((&raw mut context).cast()), einval);
    assert!(context.peer_ops.is_null());
}
