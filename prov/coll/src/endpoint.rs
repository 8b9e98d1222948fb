//! The endpoint of collective operations: the engine, and the queues to which it reports.

use std::ffi::c_void;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};

use fabric_abi::{FI_JOIN_COMPLETE, fi_addr_t};
use prov_base::errno::{Errno, Result};
use prov_util::cntr::Cntr;
use prov_util::collective::{Collective, Join};
use prov_util::cq::{Completion, Cq, ErrorCompletion};
use prov_util::endpoint::{self, Bindings, NoSharedReceive, Standing};
use prov_util::eq::{Eq, Event, EventBody, EventError};
use prov_util::ffi::ep::{EndpointObject, TransferOwner};
use prov_util::ffi::{Handle, Use};
use prov_util::progress::Progress;
use prov_util::request::{Receive, Transmit};

use crate::engine::{Engine, Report};

/// See the [module](self) description.
pub struct CollEndpoint(Arc<Shared>);

/// What the endpoint and the queues that drive it share.
struct Shared {
    owner: TransferOwner,
    engine: Mutex<Engine>,
    /// `None` before the endpoint is enabled, and after it is closed.
    reports: Mutex<Option<Reports>>,
}

/// The application's objects to which results are reported. The queues pass reports on to the
/// owner's.
struct Reports {
    cq: Option<Use<Cq>>,
    cntr: Option<Use<Cntr>>,
    eq: Option<Use<Eq>>,
}

impl CollEndpoint {
    /// Creates an endpoint that transfers over the owner's.
    pub fn new(owner: TransferOwner) -> Self {
        let info = owner.info();
        let inject = info.map_or(0, |info| info.tx.inject_size);
        let has_data = info.is_some_and(|info| info.domain.cq_data_size >= size_of::<u64>());
        CollEndpoint(Arc::new(Shared {
            owner,
            engine: Mutex::new(Engine::new(inject, has_data)),
            reports: Mutex::new(None),
        }))
    }
}

impl Shared {
    fn engine(&self) -> MutexGuard<'_, Engine> {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Executes `act`, and reports the results.
    fn with<R>(&self, act: impl FnOnce(&mut Engine, &TransferOwner) -> R) -> R {
        let mut engine = self.engine();
        let result = act(&mut engine, &self.owner);
        self.tell(&mut engine);
        result
    }

    /// Reports in the order in which operations have ended, which the engine's lock ensures.
    fn tell(&self, engine: &mut Engine) {
        let told = engine.take_reports();
        if told.is_empty() {
            return;
        }
        if let Some(reports) = &*self.reports() {
            told.into_iter().for_each(|report| reports.tell(report));
        }
    }

    fn reports(&self) -> MutexGuard<'_, Option<Reports>> {
        self.reports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn progress(&self) {
        let mut engine = match self.engine.try_lock() {
            Ok(engine) => engine,
            Err(TryLockError::Poisoned(engine)) => engine.into_inner(),
            // The thread that holds the lock posts what can be posted.
            Err(TryLockError::WouldBlock) => return,
        };
        if engine.is_stalled() {
            engine.progress(&self.owner);
            self.tell(&mut engine);
        }
    }
}

impl Reports {
    fn tell(&self, report: Report) {
        match report {
            Report::Done(completion, is_written) => {
                if let Some(cntr) = &self.cntr {
                    cntr.count(0);
                }
                if let (Some(cq), true) = (&self.cq, is_written) {
                    cq.write(&completion);
                }
            }
            Report::Failed(error) => {
                if let Some(cntr) = &self.cntr {
                    cntr.count_error();
                }
                if let Some(cq) = &self.cq {
                    cq.write_error(error);
                }
            }
            Report::Joined(group, context, outcome) => {
                let Some(eq) = &self.eq else { return };
                let fid = group.as_ptr();
                let context = std::ptr::with_exposed_provenance_mut(context);
                let written = match outcome {
                    Ok(()) => eq.write(Event {
                        kind: FI_JOIN_COMPLETE,
                        body: EventBody::Control {
                            fid,
                            context,
                            data: 0,
                        },
                    }),
                    Err(error) => eq.write_error(EventError::new(fid, context, error)),
                };
                if let Err(error) = written {
                    log::warn!(target: crate::LOG.eq, "event of a join lost: {error}");
                }
            }
        }
    }
}

impl endpoint::Endpoint for CollEndpoint {
    type SharedReceive = NoSharedReceive;

    fn enable(
        this: &Handle<EndpointObject<Self>>,
        bindings: &Bindings<NoSharedReceive>,
    ) -> Result<Arc<dyn Progress>> {
        Self::rebind(this, bindings)?;
        Ok(Arc::new(Stalled(Arc::downgrade(&this.0))))
    }

    fn rebind(this: &Handle<EndpointObject<Self>>, bindings: &Bindings<NoSharedReceive>) -> Result {
        *this.0.reports() = Some(Reports {
            cq: bindings.tx_cq.clone(),
            cntr: bindings.counters.write.clone(),
            eq: bindings.eq.clone(),
        });
        Ok(())
    }

    fn receive_limit(&self) -> usize {
        0
    }

    /// The owner's endpoint has ended all messages, so that the operations' memory is not accessed.
    /// Groups that are still open are empty afterwards.
    fn close(this: &Handle<EndpointObject<Self>>) -> Result {
        *this.0.engine() = Engine::new(0, false);
        *this.0.reports() = None;
        Ok(())
    }

    fn transmit(&self, _: &mut Transmit) -> Result {
        Err(Errno::ENOSYS)
    }

    fn receive(&self, _: &mut Receive) -> Result {
        Err(Errno::ENOSYS)
    }

    fn cancel(&self, _: *mut c_void) -> Result {
        Err(Errno::ENOENT)
    }

    fn name(&self) -> Result<Vec<u8>> {
        self.0.owner.name()
    }

    fn short_name(&self, room: usize) -> Option<Vec<u8>> {
        self.0.owner.name_within(room).ok()
    }

    fn group(&self, group: fi_addr_t, root: Option<fi_addr_t>) -> Result<Standing> {
        self.0.engine().standing(group, root)
    }

    fn collective(&self, collective: &mut Collective) -> Result {
        self.0
            .with(|engine, owner| engine.collective(owner, collective))
    }

    fn new_group(&self) -> fi_addr_t {
        self.0.engine().new_group()
    }

    fn join(&self, group: fi_addr_t, join: Join) -> Result {
        // Without an event queue the completion of the join could not be reported.
        let reports = self.0.reports();
        let has_queue = reports.as_ref().is_some_and(|reports| reports.eq.is_some());
        drop(reports);
        if !has_queue {
            return Err(Errno::ENOEQ);
        }
        self.0.with(|engine, owner| engine.join(owner, group, join))
    }

    fn leave(&self, group: fi_addr_t) -> Result {
        self.0.with(|engine, owner| engine.leave(owner, group))
    }

    fn transfer_done(&self, completion: &Completion) -> Result {
        self.0.with(|engine, owner| {
            engine.message_ended(owner, completion.context, Ok(completion));
        });
        Ok(())
    }

    fn transfer_failed(&self, error: ErrorCompletion) -> Result {
        self.0.with(|engine, owner| {
            engine.message_ended(owner, error.completion.context, Err(error.err));
        });
        Ok(())
    }
}

/// The source that the owner's queue drives: posts the messages that could not be posted before.
struct Stalled(Weak<Shared>);

impl Progress for Stalled {
    fn progress(&self) {
        if let Some(shared) = self.0.upgrade() {
            shared.progress();
        }
    }

    fn wait_fd(&self) -> Option<RawFd> {
        None
    }

    fn prepare_wait(&self) -> bool {
        let shared = self.0.upgrade();
        shared.is_none_or(|shared| shared.engine().may_sleep())
    }
}
