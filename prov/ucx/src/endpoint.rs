//! fi_endpoint(3): an endpoint is a worker of UCP.
//!
//! Messages of fi_msg(3) have the tag [`PLAIN`], as those of the C library's provider, so that both
//! understand each other.

mod receives;

use std::ffi::{c_int, c_void};
use std::os::fd::RawFd;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use fabric_abi::*;
use prov_base::errno::{Errno, Result};
use prov_base::sync::Lock;
use prov_message::{EpKey, Op, Reports, receive_limit};
use prov_util::attr::Info;
use prov_util::av::format::Address;
use prov_util::av::{Av, Observer};
use prov_util::endpoint::{self, Bindings, NoSharedReceive, OptionValue};
use prov_util::ffi::ep::EndpointObject;
use prov_util::ffi::{Handle, Use};
use prov_util::progress::Progress;
use prov_util::request::{Access, Receive, RemoteAccess, Transmit};

use self::receives::{Posted, Receives};
use crate::offer::ADDRESS_LEN;
use crate::resources::Resources;
use crate::ucp::{self, Done, Mode, Worker};

/// The tag of messages without a tag. A receive with all bits in its `ignore` takes these, too.
const PLAIN: u64 = u64::MAX;

/// How long an endpoint that is closed waits for what it has accepted to be sent: UCX does not notice
/// a peer that has ended.
const FLUSH_LIMIT: Duration = Duration::from_secs(5);

/// Completion levels that UCX reaches only with a flush.
const REACHES_PEER: u64 = FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE;

/// An endpoint.
pub struct UcxEndpoint {
    shared: Arc<Shared>,
    most_receives: usize,
}

/// The part that queues drive.
struct Shared {
    inner: Lock<Inner>,
    domain: Arc<Resources>,
    av: OnceLock<Use<Av>>,
}

/// The state of an endpoint.
pub struct Inner {
    /// `None` once the endpoint is closed.
    pub worker: Option<Worker<Operation>>,
    pub reports: Reports,
    pub receives: Receives,
    /// [`Keys::unmapped`](crate::keys::Keys::unmapped) when the worker's keys were compared last.
    unmapped: u64,
}

/// An operation that UCP has.
pub enum Operation {
    /// A message, a read or a write.
    Sent {
        op: Op,
        /// The peer up to which it has to be flushed.
        flush: Option<usize>,
    },
    /// A receive.
    Received(Posted),
    /// A message that nobody wants, or a flush whose end nobody waits for.
    Nobodys,
}

impl UcxEndpoint {
    /// Opens an endpoint.
    ///
    /// # Errors
    /// Those of UCX.
    pub fn open(domain: &Arc<Resources>, info: &Info) -> Result<Self> {
        info.ep.authorization()?;
        let worker = Worker::open(&domain.context, domain.params.check_req_leak)?;
        let inner = Inner {
            worker: Some(worker),
            reports: Reports::default(),
            receives: Receives::default(),
            unmapped: 0,
        };
        Ok(UcxEndpoint {
            shared: Arc::new(Shared {
                inner: Lock::new(domain.lock, inner),
                domain: domain.clone(),
                av: OnceLock::new(),
            }),
            most_receives: receive_limit(info.rx.size),
        })
    }

    fn is_enabled(&self) -> Result<&Av> {
        self.shared
            .av
            .get()
            .map(|av| &**av)
            .ok_or(Errno::EOPBADSTATE)
    }

    /// Calls `post` for a peer that has an endpoint.
    #[inline]
    fn post(
        &self,
        peer: fi_addr_t,
        flags: u64,
        post: impl FnOnce(&mut Inner, usize) -> Result,
    ) -> Result {
        let av = self.is_enabled()?;
        let peer = usize::try_from(peer).map_err(|_| Errno::EINVAL)?;
        let mut inner = self.shared.inner.lock();
        if !inner.worker()?.is_connected(peer) {
            drop(inner);
            let address = av.with_address(peer as fi_addr_t, |address| match address {
                Address::Bytes(bytes) => bytes.to_vec(),
                Address::Internet(_) => Vec::new(),
            });
            let address = address.filter(|address| address.len() == ADDRESS_LEN);
            let address = address.ok_or(Errno::EINVAL)?;
            inner = self.shared.inner.lock();
            inner.worker()?.connect(peer, &address)?;
        }
        if flags & FI_FENCE != 0 {
            inner.worker()?.fence()?;
        }
        post(&mut inner, peer)
    }
}

impl Inner {
    /// Returns the worker; `-FI_EOPBADSTATE` once the endpoint is closed.
    pub fn worker(&mut self) -> Result<&mut Worker<Operation>> {
        self.worker.as_mut().ok_or(Errno::EOPBADSTATE)
    }

    /// Reports what is complete at once.
    #[inline]
    pub fn posted(&mut self, posted: ucp::Posted<Operation>) {
        if let ucp::Posted::Done(operation, done) = posted {
            self.ended(operation, done);
        }
    }

    /// Reports an operation that has ended, or continues it.
    #[inline]
    fn ended(&mut self, operation: Operation, done: Done) {
        match operation {
            Operation::Sent { op, flush: None } => self.sent(&op, &done),
            Operation::Sent { op, flush } => self.flush(op, flush, done),
            Operation::Received(posted) => self.received(posted, done),
            Operation::Nobodys => {}
        }
    }

    #[inline]
    fn sent(&self, op: &Op, done: &Done) {
        match done.outcome {
            Ok(()) => self.reports.operation(op, Ok(())),
            Err(failure) => {
                let number = i32::from(failure.0);
                let error = Errno::from(failure);
                self.reports
                    .failed_on_device(op, error, number, Box::default());
            }
        }
    }

    /// Flushes an operation that has left this side.
    #[cold]
    fn flush(&mut self, op: Op, peer: Option<usize>, done: Done) {
        let operation = Operation::Sent { op, flush: None };
        let flushed = match (done.outcome, &mut self.worker) {
            (Ok(()), Some(worker)) => worker.flush(peer, operation),
            _ => return self.sent(&op, &done),
        };
        match flushed {
            Ok(posted) => self.posted(posted),
            Err(error) => self.reports.operation(&op, Err(error)),
        }
    }

    /// Makes progress, and reports what has ended.
    #[inline]
    pub fn progress(&mut self) {
        let Some(worker) = &mut self.worker else {
            return;
        };
        worker.progress();
        self.report();
    }

    /// Reports what has ended.
    #[inline]
    pub fn report(&mut self) {
        while let Some(worker) = &mut self.worker
            && let Some((operation, done)) = worker.next_done()
        {
            self.ended(operation, done);
        }
    }

    /// Closes the worker. What is in progress then ends without being reported.
    fn close(&mut self, flushes: bool) {
        self.receives.clear();
        self.reports = Reports::default();
        let Some(mut worker) = self.worker.take() else {
            return;
        };
        let posted = match flushes {
            true => worker.flush(None, Operation::Nobodys),
            false => Err(Errno::ENOSYS),
        };
        if !matches!(posted, Ok(ucp::Posted::Pending)) {
            return;
        }
        let end = Instant::now() + FLUSH_LIMIT;
        loop {
            let is_idle = !worker.progress();
            while let Some((operation, _)) = worker.next_done() {
                if matches!(operation, Operation::Nobodys) {
                    return;
                }
            }
            if is_idle {
                if Instant::now() > end {
                    log::info!(
                        target: crate::LOG.ep_ctrl,
                        "an endpoint is closed before all that it has accepted was sent"
                    );
                    return;
                }
                std::thread::yield_now();
            }
        }
    }
}

impl Progress for Shared {
    #[inline]
    fn progress(&self) {
        // Another thread that is inside does the work.
        if let Some(mut inner) = self.inner.try_lock() {
            inner.progress();
        }
    }

    /// UCX has a descriptor only for workers whose peers wake them, which costs each message.
    fn wait_fd(&self) -> Option<RawFd> {
        None
    }

    fn prepare_wait(&self) -> bool {
        true
    }
}

impl Observer for Shared {
    fn removed(&self, number: fi_addr_t) {
        if let (Ok(peer), Some(worker)) = (usize::try_from(number), &mut self.inner.lock().worker) {
            worker.disconnect(peer);
        }
    }
}

impl endpoint::Endpoint for UcxEndpoint {
    type SharedReceive = NoSharedReceive;

    fn enable(
        this: &Handle<EndpointObject<Self>>,
        bindings: &Bindings<NoSharedReceive>,
    ) -> Result<Arc<dyn Progress>> {
        let shared = &this.shared;
        let av = bindings.av.clone().ok_or(Errno::ENOAV)?;
        shared.inner.lock().reports = Reports::to(bindings);
        let observer: Arc<dyn Observer> = shared.clone();
        av.observe(Arc::downgrade(&observer));
        let _ = shared.av.set(av);
        Ok(shared.clone())
    }

    fn rebind(this: &Handle<EndpointObject<Self>>, bindings: &Bindings<NoSharedReceive>) -> Result {
        this.shared.inner.lock().reports = Reports::to(bindings);
        Ok(())
    }

    fn receive_limit(&self) -> usize {
        self.most_receives
    }

    fn close(this: &Handle<EndpointObject<Self>>) -> Result {
        let flushes = this.shared.domain.params.ep_flush;
        this.shared.inner.lock().close(flushes);
        Ok(())
    }

    #[inline]
    fn transmit(&self, message: &mut Transmit) -> Result {
        if message.immediate().is_some() {
            return Err(Errno::ENOSYS);
        }
        self.post(message.peer, message.flags, |inner, peer| {
            let operation = Operation::Sent {
                op: Op::of_plain(EpKey::default(), message),
                flush: (message.flags & REACHES_PEER != 0).then_some(peer),
            };
            let mode = Mode {
                is_inject: message.is_inject(),
                is_matched: message.flags & (FI_MATCH_COMPLETE | FI_DELIVERY_COMPLETE) != 0,
            };
            let tag = message.tag.value().unwrap_or(PLAIN);
            let worker = inner.worker()?;
            let posted = worker.send(peer, &mut message.buffers, tag, mode, operation)?;
            inner.posted(posted);
            Ok(())
        })
    }

    fn receive(&self, receive: &mut Receive) -> Result {
        self.is_enabled()?;
        self.shared.inner.lock().receive(receive)
    }

    fn access(&self, access: &mut RemoteAccess) -> Result {
        if access.immediate().is_some() {
            return Err(Errno::ENOSYS);
        }
        let &[remote] = access.remote.pieces() else {
            return Err(Errno::EINVAL);
        };
        let keys = &self.shared.domain.keys;
        self.post(access.peer, access.flags, |inner, peer| {
            let unmapped = keys.unmapped();
            if inner.unmapped != unmapped {
                inner.unmapped = unmapped;
                inner.worker()?.forget_keys(|key| keys.get(key).is_none());
            }
            let worker = inner.worker()?;
            if !worker.has_key(peer, remote.key) {
                let packed = keys.get(remote.key).ok_or(Errno::EINVAL)?;
                worker.add_key(peer, remote.key, &packed)?;
            }
            let operation = Operation::Sent {
                op: Op::of_access(EpKey::default(), access),
                flush: (access.flags & REACHES_PEER != 0).then_some(peer),
            };
            let mode = Mode {
                is_inject: access.is_inject(),
                is_matched: false,
            };
            let target = (peer, remote.key, remote.addr);
            let reads = access.access == Access::Read;
            let posted = worker.access(target, reads, &mut access.local, mode, operation)?;
            inner.posted(posted);
            Ok(())
        })
    }

    fn cancel(&self, context: *mut c_void) -> Result {
        self.is_enabled()?;
        self.shared.inner.lock().cancel(context)
    }

    fn name(&self) -> Result<Vec<u8>> {
        let mut address = self.shared.inner.lock().worker()?.address()?;
        if address.len() > ADDRESS_LEN {
            return Err(Errno::EINVAL);
        }
        address.resize(ADDRESS_LEN, 0);
        Ok(address)
    }

    fn option(&self, name: c_int) -> Result<OptionValue> {
        match name {
            FI_OPT_MIN_MULTI_RECV => {
                let bytes = self.shared.inner.lock().receives.min_multi_recv;
                Ok(OptionValue::Size(bytes))
            }
            _ => Err(Errno::ENOPROTOOPT),
        }
    }

    fn set_option(&self, name: c_int, value: OptionValue) -> Result {
        match (name, value) {
            (FI_OPT_MIN_MULTI_RECV, OptionValue::Size(bytes)) => {
                self.shared.inner.lock().receives.min_multi_recv = bytes;
                Ok(())
            }
            // UCX finds the owner of memory itself.
            (FI_OPT_CUDA_API_PERMITTED, OptionValue::Bool(_))
                if self.shared.domain.memory.hmem().is_some() =>
            {
                Ok(())
            }
            _ => Err(Errno::ENOPROTOOPT),
        }
    }
}
