//! `fi_srx_context`: receives that several connected endpoints share.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use fabric_abi::{FI_OPT_MIN_MULTI_RECV, FI_RECV};
use prov_util::endpoint::{self, Bound, OptionValue};
use prov_util::errno::{Errno, Result};
use prov_util::ffi::Handle;
use prov_util::ffi::ep::SharedReceiveObject;
use prov_util::request::Receive;

use crate::endpoint::MIN_MULTI_RECV;
use crate::engine::Engine;
use crate::engine::endpoint::Receiver;
use crate::engine::keys::ReceiverKey;
use crate::engine::op::Context;

/// A shared receive context.
pub struct SharedReceive {
    pub(crate) engine: Arc<Engine>,
    pub(crate) key: ReceiverKey,
    op_flags: u64,
}

impl SharedReceive {
    /// For up to `size` receives at once.
    pub fn new(engine: Arc<Engine>, op_flags: u64, size: usize) -> Self {
        let receiver = Receiver::new(size, MIN_MULTI_RECV, true);
        let key = engine.core().receivers.insert(receiver);
        SharedReceive {
            engine,
            key,
            op_flags,
        }
    }
}

impl endpoint::SharedReceive for SharedReceive {
    #[inline]
    fn receive(&self, receive: &Receive) -> Result {
        self.engine
            .core()
            .post_receive(self.key, None, false, receive)
    }

    fn cancel(&self, context: *mut c_void) -> Result {
        self.engine
            .core()
            .cancel(self.key, None, Context::of(context))
    }

    fn bind(this: &Handle<SharedReceiveObject<Self>>, bound: Bound<Self>, flags: u64) -> Result {
        let mut core = this.engine.core();
        let receiver = core.receivers.get_mut(this.key).ok_or(Errno::EOPBADSTATE)?;
        match bound {
            Bound::Cq(cq) if flags & FI_RECV != 0 => receiver.queues.rx_cq = Some(cq),
            Bound::Cntr(cntr) if flags & FI_RECV != 0 => receiver.queues.recv = Some(cntr),
            _ => return Err(Errno::EINVAL),
        }
        Ok(())
    }

    fn close(this: &Handle<SharedReceiveObject<Self>>) -> Result {
        this.engine.core().close_receiver(this.key);
        Ok(())
    }

    fn option(&self, name: c_int) -> Result<OptionValue> {
        let core = self.engine.core();
        let receiver = core.receivers.get(self.key).ok_or(Errno::EOPBADSTATE)?;
        match name {
            FI_OPT_MIN_MULTI_RECV => Ok(OptionValue::Size(receiver.min_multi_recv)),
            _ => Err(Errno::ENOPROTOOPT),
        }
    }

    fn set_option(&self, name: c_int, value: OptionValue) -> Result {
        let mut core = self.engine.core();
        let receiver = core.receivers.get_mut(self.key).ok_or(Errno::EOPBADSTATE)?;
        match (name, value) {
            (FI_OPT_MIN_MULTI_RECV, OptionValue::Size(bytes)) => {
                receiver.set_min_multi_recv(bytes);
                Ok(())
            }
            _ => Err(Errno::ENOPROTOOPT),
        }
    }

    fn default_flags(&self) -> u64 {
        self.op_flags
    }
}
