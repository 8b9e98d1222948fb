//! The pairs of a scalable endpoint: what it, its aliases and its contexts share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fabric_abi::FI_SHARED_CONTEXT;

use super::super::object::{AnyFid, Handle, Use};
use super::EndpointObject;
use super::operations::Limits;
use crate::endpoint::{Endpoint, Side};
use prov_base::errno::{Errno, Result};
use prov_objects::attr::{Info, Offers, RxAttr, TxAttr};
use prov_objects::av::Av;
use prov_objects::eq::Eq;

/// What a scalable endpoint, its aliases and its contexts share.
pub(super) struct Pairs<E: Endpoint> {
    pub(super) all: Vec<Handle<EndpointObject<E>>>,
    pub(super) info: Info,
    pub(super) limits: Limits,
    pub(super) offers: Arc<Offers>,
    state: Mutex<State<E>>,
}

pub(super) struct State<E: Endpoint> {
    pub(super) av: Option<Use<Av>>,
    pub(super) eq: Option<Use<Eq>>,
    /// The contexts that are open, by their index.
    transmit: Vec<Option<Handle<EndpointObject<E>>>>,
    receive: Vec<Option<Handle<EndpointObject<E>>>>,
}

impl<E: Endpoint> State<E> {
    pub(super) fn side(&mut self, side: Side) -> &mut Vec<Option<Handle<EndpointObject<E>>>> {
        match side {
            Side::Transmit => &mut self.transmit,
            Side::Receive => &mut self.receive,
        }
    }

    fn open(&self) -> impl Iterator<Item = &Handle<EndpointObject<E>>> {
        self.transmit.iter().chain(&self.receive).flatten()
    }
}

/// The attributes of the pair of this index. The contexts of the first one are those that may be
/// shared.
pub(super) fn of_pair(info: &Info, index: usize) -> Info {
    let mut of_pair = info.clone();
    for count in [&mut of_pair.ep.tx_ctx_cnt, &mut of_pair.ep.rx_ctx_cnt] {
        if *count == FI_SHARED_CONTEXT && index != 0 {
            *count = 1;
        }
    }
    of_pair
}

impl<E: Endpoint> Pairs<E> {
    /// The pairs of a scalable endpoint with these attributes.
    pub(super) fn new(
        all: Vec<Handle<EndpointObject<E>>>,
        info: Info,
        limits: Limits,
        offers: Arc<Offers>,
    ) -> Self {
        let none = |count: usize| (0..count).map(|_| None).collect();
        Pairs {
            all,
            state: Mutex::new(State {
                av: None,
                eq: None,
                transmit: none(info.ep.transmit_contexts()),
                receive: none(info.ep.receive_contexts()),
            }),
            info,
            limits,
            offers,
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State<E>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The endpoint whose sides the contexts of an index are.
    pub(super) fn pair(&self, index: usize) -> Result<&Handle<EndpointObject<E>>> {
        self.all.get(index).ok_or(Errno::EINVAL)
    }

    /// The address, which is that of the first pair.
    pub(super) fn name(&self) -> Result<Vec<u8>> {
        self.pair(0)?.name()
    }

    /// The address vector of all contexts.
    pub(super) fn av(&self) -> Option<Use<Av>> {
        self.state().av.clone()
    }

    /// Whether its receives are those of a shared context, and the context for them is not open.
    pub(super) fn has_unopened_shared(&self) -> bool {
        let is_shared = self.info.ep.rx_ctx_cnt == FI_SHARED_CONTEXT;
        is_shared && !matches!(self.state().receive.first(), Some(Some(_)))
    }

    /// Has all contexts of a direction use a shared one.
    pub(super) fn share(&self, side: Side, shared: AnyFid<'_>) -> Result {
        let count = self.state().side(side).len();
        let pairs = self.all.get(..count).unwrap_or(&self.all);
        let mut pairs = pairs.iter();
        pairs.try_for_each(|pair| EndpointObject::bind_to(pair, shared, 0))
    }

    /// A context is closed.
    pub(super) fn forget(&self, side: Side, index: usize) {
        let closed = self
            .state()
            .side(side)
            .get_mut(index)
            .and_then(Option::take);
        // Not under the lock.
        drop(closed);
    }

    /// The contexts that are open.
    pub(super) fn open(&self) -> Vec<Handle<EndpointObject<E>>> {
        self.state().open().cloned().collect()
    }

    /// The attributes of a transmit context: `-FI_ENODATA` where they are beyond those of
    /// the scalable endpoint.
    pub(super) fn transmits_as(&self, asked: &TxAttr) -> Result<TxAttr> {
        let given = &self.info.tx;
        self.offers.admit_transmit("fi_tx_context", asked, given)?;
        let of = |asked, given| if asked == 0 { given } else { asked };
        Ok(TxAttr {
            caps: match asked.caps {
                0 => given.caps,
                caps => caps,
            },
            mode: given.mode,
            op_flags: asked.op_flags,
            inject_size: of(asked.inject_size, given.inject_size),
            size: given.size,
            iov_limit: of(asked.iov_limit, given.iov_limit),
            rma_iov_limit: of(asked.rma_iov_limit, given.rma_iov_limit),
            ..given.clone()
        })
    }

    /// The attributes of a receive context, likewise.
    pub(super) fn receives_as(&self, asked: &RxAttr) -> Result<RxAttr> {
        let given = &self.info.rx;
        self.offers.admit_context("fi_rx_context", asked, given)?;
        Ok(RxAttr {
            caps: match asked.caps {
                0 => given.caps,
                caps => caps,
            },
            op_flags: asked.op_flags,
            iov_limit: match asked.iov_limit {
                0 => given.iov_limit,
                limit => limit,
            },
            ..given.clone()
        })
    }
}
