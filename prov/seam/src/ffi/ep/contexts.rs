//! Contexts of a scalable endpoint (`fi_tx_context`, `fi_rx_context`): each is one side of
//! an endpoint that it shares with the context of the other direction that has its index.

use std::sync::Arc;

use fabric_abi::*;

use super::super::object::{AnyFid, Downcast, Handle};
use super::super::stx::SharedTransmitObject;
use super::pairs::Pairs;
use super::{EndpointObject, Haste, SharedReceiveObject, Stage};
use crate::endpoint::{Endpoint, Side};
use prov_base::errno::{Errno, Result};
use prov_objects::attr::{Info, has_receives, has_transmits};
use prov_objects::cntr::Cntr;
use prov_objects::cq::Cq;

/// What makes an object of an endpoint a context.
pub(super) struct Context<E: Endpoint> {
    pub(super) side: Side,
    pub(super) index: usize,
    pub(super) of: Arc<Pairs<E>>,
}

impl<E: Endpoint> Clone for Context<E> {
    fn clone(&self) -> Self {
        Context {
            side: self.side,
            index: self.index,
            of: self.of.clone(),
        }
    }
}

impl<E: Endpoint> Context<E> {
    /// `FI_CLASS_*`
    pub(super) fn class(&self) -> usize {
        match self.side {
            Side::Transmit => FI_CLASS_TX_CTX,
            Side::Receive => FI_CLASS_RX_CTX,
        }
    }

    /// The receive context whose receives are those of a shared one, unless it is open: nothing
    /// is posted to it.
    pub(super) fn unopened_shared(of: &Arc<Pairs<E>>) -> Option<Self> {
        of.has_unopened_shared().then(|| Context {
            side: Side::Receive,
            index: 0,
            of: of.clone(),
        })
    }

    /// Whether it is the context of this side.
    pub(super) fn is_on(&self, side: Side) -> bool {
        self.side == side
    }

    /// The address of the scalable endpoint, which is that of all its contexts.
    pub(super) fn name(&self) -> Result<Vec<u8>> {
        self.of.name()
    }

    fn pair(&self) -> Result<&Handle<EndpointObject<E>>> {
        self.of.pair(self.index)
    }

    /// `fi_ep_bind`: a queue or a counter, or a shared context of its direction. The address
    /// vector is the scalable endpoint's. Nothing comes of the flags of the other direction.
    pub(super) fn bind(&self, other: AnyFid<'_>, flags: u64) -> Result {
        if shared_side::<E>(other) == Some(self.side) {
            return EndpointObject::bind_to(self.pair()?, other, 0);
        }
        if other.downcast::<Cq>().is_none() && other.downcast::<Cntr>().is_none() {
            return Err(Errno::EINVAL);
        }
        let others = self.side.other().directions();
        EndpointObject::bind_to(self.pair()?, other, flags & !others)
    }

    /// `fi_enable` of a context with these capabilities. One that has no operations of its
    /// direction needs nothing to tell of them: Open MPI's btl/ofi has such receive contexts.
    pub(super) fn enable(&self, caps: u64) -> Result {
        let pair = self.pair()?;
        let av = self.of.av();
        let mut stage = pair.stage();
        let bindings = match &mut *stage {
            Stage::New(new) => {
                if new.bindings.av.is_none() {
                    new.bindings.av = av;
                }
                &new.bindings
            }
            Stage::Enabled(bindings, _) => bindings,
            Stage::Closed => return Err(Errno::EOPBADSTATE),
        };
        let has_operations = match self.side {
            Side::Transmit => has_transmits(caps),
            Side::Receive => has_receives(caps),
        };
        if has_operations && pair.limits.needs_queues && !bindings.report(self.side) {
            return Err(Errno::ENOCQ);
        }
        EndpointObject::enable_in(pair, &mut stage, Haste::Prompt)
    }

    /// `fi_close`: the operations of this direction end without a word. The other context
    /// of the index goes on, and another one may be opened in this one's place.
    pub(super) fn close(&self) -> Result {
        let pair = self.pair()?;
        let mut stage = pair.stage();
        match &mut *stage {
            Stage::New(new) => {
                new.bindings.take(self.side);
                if self.side == Side::Receive {
                    new.receives = Default::default();
                }
            }
            Stage::Enabled(bindings, progress) => {
                let mut left = bindings.clone();
                let taken = left.take(self.side);
                E::close_side(pair, self.side, &left)?;
                if let Some(transfers) = &left.transfers {
                    transfers.forget(self.side == Side::Receive);
                }
                taken.remove_source(progress, false);
                *bindings = left;
            }
            Stage::Closed => {}
        }
        drop(stage);
        self.of.forget(self.side, self.index);
        Ok(())
    }
}

/// The direction that a shared context is for; `None` for another object.
pub(super) fn shared_side<E: Endpoint>(object: AnyFid<'_>) -> Option<Side> {
    let receives = object.downcast::<SharedReceiveObject<E::SharedReceive>>();
    let transmits = object.downcast::<SharedTransmitObject>();
    receives
        .map(|_| Side::Receive)
        .or(transmits.map(|_| Side::Transmit))
}

/// What a context is opened with: the attributes of its scalable endpoint, with those that
/// it has of its own.
pub(super) struct Opening {
    pub(super) caps: u64,
    pub(super) inject_size: usize,
    pub(super) op_flags: u64,
}

impl Opening {
    /// Without attributes of its own, and with these default flags.
    pub(super) fn of(info: &Info, op_flags: u64) -> Self {
        Opening {
            caps: info.caps,
            inject_size: info.tx.inject_size,
            op_flags,
        }
    }
}
