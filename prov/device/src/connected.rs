//! Endpoints that are connected to a peer (`FI_EP_MSG`): the stages of their connection, as calls of
//! fi_cm(3) change them. The provider's connections are its [`Connections`].

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prov_base::errno::{Errno, Result};
use prov_message::objects::{Claimed, Requests};
use prov_util::attr::Info;
use prov_util::endpoint::{Bindings, SharedReceive};
use prov_util::eq::ConnectionEvents;
use prov_util::ffi::FidRef;

use crate::link::{EndKey, Link};

/// The connections of a provider.
pub trait Connections {
    /// A bound address that is not in use yet.
    type Bound: Send;
    /// A peer that asks for a connection.
    type Incomer: Send + 'static;
    /// What an enabled endpoint provides for a connection.
    type End;

    /// Returns the requests of peers that are not answered yet.
    fn requests(&self) -> &Requests<Self::Incomer>;

    /// Binds an address, for an endpoint with these attributes.
    fn bind(&self, info: &Info, address: &[u8]) -> Result<Self::Bound>;

    /// Returns the address of a bound one.
    fn bound_address(&self, bound: &Self::Bound) -> Option<Vec<u8>>;

    /// Returns the own address and that of the peer that asks for a connection.
    fn incoming_addresses(&self, incomer: &Self::Incomer) -> [Option<Vec<u8>>; 2];

    /// Asks a peer for a connection, with connection data, from the bound address, if there is one,
    /// or the source address in `info`. Whether there is one is reported later.
    fn connect(
        &self,
        parts: Parts<Self::End>,
        info: &Info,
        bound: &mut Option<Self::Bound>,
        peer: &[u8],
        data: &[u8],
    ) -> Result<EndKey>;

    /// Accepts a request, with connection data; returns the request if that fails and it can still
    /// be answered.
    fn accept(
        &self,
        parts: Parts<Self::End>,
        incomer: Self::Incomer,
        data: &[u8],
    ) -> std::result::Result<EndKey, (Errno, Option<Self::Incomer>)>;

    /// Ends a connection, with an event for the application.
    fn shut_down(&self, key: EndKey) -> Result;

    /// Ends a connection without further events.
    fn remove(&self, key: EndKey);

    /// Returns the own address of a connection and that of the peer.
    fn addresses(&self, key: EndKey) -> [Option<Vec<u8>>; 2];
}

/// What an endpoint provides for a connection.
pub struct Parts<E> {
    /// Its queue pair and its lane members.
    pub end: E,
    /// The state of the connection, for threads that post.
    pub link: Arc<Link>,
    /// The source of its events.
    pub events: ConnectionEvents,
}

/// The state of a connected endpoint besides its queue pair.
pub struct Connected<C: Connections> {
    link: Arc<Link>,
    state: Mutex<State<C>>,
}

struct State<C: Connections> {
    info: Info,
    /// The source of connection events, once it is enabled.
    events: Option<ConnectionEvents>,
    stage: Stage<C>,
}

/// The stage of the connection.
enum Stage<C: Connections> {
    /// It may connect, perhaps from an address that is bound already.
    New(Option<C::Bound>),
    /// It was opened for a peer's request, and has to answer it.
    Asked(Claimed<C::Incomer>),
    /// It has a connection, or has had one.
    Begun(EndKey),
    Closed,
}

impl<C: Connections> Connected<C> {
    /// Creates an endpoint with these attributes. The handle in them is a connection request, a
    /// passive endpoint whose address it takes over, which `bound` returns, or null.
    pub fn open(
        connections: &C,
        info: &Info,
        bound: impl FnOnce(&Info) -> Result<C::Bound>,
    ) -> Result<Self> {
        let (requests, handle) = (connections.requests(), info.handle.0);
        let stage = if handle.is_null() {
            Stage::New(None)
        } else if requests.knows(handle) {
            Stage::Asked(requests.claim(handle).ok_or(Errno::EINVAL)?)
        } else {
            Stage::New(Some(bound(info)?))
        };
        Ok(Connected {
            link: Arc::default(),
            state: Mutex::new(State {
                info: info.clone(),
                events: None,
                stage,
            }),
        })
    }

    /// Returns the state of the connection.
    pub fn link(&self) -> &Arc<Link> {
        &self.link
    }

    fn state(&self) -> MutexGuard<'_, State<C>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports connection events to the bound event queue, including those of an existing
    /// connection.
    pub fn tell<S: SharedReceive>(&self, endpoint: FidRef, bindings: &Bindings<S>) {
        let mut state = self.state();
        match (&state.events, &bindings.eq) {
            (Some(events), Some(eq)) => events.redirect(eq.clone()),
            (None, Some(eq)) => state.events = Some(ConnectionEvents::new(endpoint, eq.clone())),
            (_, None) => {}
        }
    }

    fn parts(&self, state: &State<C>, end: C::End) -> Result<Parts<C::End>> {
        Ok(Parts {
            end,
            link: self.link.clone(),
            events: state.events.clone().ok_or(Errno::ENOEQ)?,
        })
    }

    /// Implements `fi_connect` (fi_cm(3)).
    pub fn connect(&self, connections: &C, end: C::End, address: &[u8], data: &[u8]) -> Result {
        let state = &mut *self.state();
        let Stage::New(_) = state.stage else {
            return Err(Errno::EOPBADSTATE);
        };
        let parts = self.parts(state, end)?;
        let State { info, stage, .. } = state;
        let peer = match address.is_empty() {
            true => info.dest_addr.clone(),
            false => address.to_vec(),
        };
        if let Stage::New(bound) = stage {
            let key = connections.connect(parts, info, bound, &peer, data)?;
            *stage = Stage::Begun(key);
        }
        Ok(())
    }

    /// Implements `fi_accept` (fi_cm(3)).
    pub fn accept(&self, connections: &C, end: C::End, data: &[u8]) -> Result {
        let state = &mut *self.state();
        let parts = self.parts(state, end)?;
        let Stage::Asked(claimed) = &state.stage else {
            return Err(Errno::EOPBADSTATE);
        };
        // There is no peer if the request was rejected.
        let incomer = claimed.take().ok_or(Errno::EOPBADSTATE)?;
        let handle = state.info.handle.0;
        match connections.accept(parts, incomer, data) {
            Ok(key) => {
                connections.requests().forget(handle);
                state.stage = Stage::Begun(key);
                Ok(())
            }
            Err((error, Some(incomer))) => {
                claimed.put_back(incomer);
                Err(error)
            }
            Err((error, None)) => {
                // The application may reject the request then.
                connections.requests().abandon(handle);
                state.stage = Stage::Closed;
                Err(error)
            }
        }
    }

    /// Implements `fi_shutdown` (fi_cm(3)).
    pub fn shut_down(&self, connections: &C) -> Result {
        match self.state().stage {
            Stage::Begun(key) => connections.shut_down(key),
            _ => Err(Errno::ENOTCONN),
        }
    }

    /// Returns its own address: that of the connection, or the one it was opened with.
    pub fn name(&self, connections: &C) -> Result<Vec<u8>> {
        let state = self.state();
        let address = match &state.stage {
            Stage::New(bound) => bound
                .as_ref()
                .and_then(|bound| connections.bound_address(bound)),
            Stage::Asked(claimed) => claimed
                .look(|peer| own(connections.incoming_addresses(peer)))
                .flatten(),
            Stage::Begun(key) => own(connections.addresses(*key)),
            Stage::Closed => None,
        };
        let known = || Some(state.info.src_addr.clone()).filter(|known| !known.is_empty());
        address.or_else(known).ok_or(Errno::EADDRNOTAVAIL)
    }

    /// Returns the peer's address.
    pub fn peer_name(&self, connections: &C) -> Result<Vec<u8>> {
        let [_, peer] = match &self.state().stage {
            Stage::Asked(claimed) => claimed
                .look(|peer| connections.incoming_addresses(peer))
                .unwrap_or_default(),
            Stage::Begun(key) => connections.addresses(*key),
            Stage::New(_) | Stage::Closed => [None, None],
        };
        peer.ok_or(Errno::ENOTCONN)
    }

    /// Implements `fi_setname` (fi_cm(3)).
    pub fn set_name(&self, connections: &C, name: &[u8]) -> Result {
        let state = &mut *self.state();
        let Stage::New(bound) = &mut state.stage else {
            return Err(Errno::EOPBADSTATE);
        };
        // The same address may be bound again.
        *bound = None;
        let new = connections.bind(&state.info, name)?;
        let address = connections.bound_address(&new);
        state.info.src_addr = address.unwrap_or_else(|| name.to_vec());
        *bound = Some(new);
        Ok(())
    }

    /// Implements `fi_close`. The endpoint itself ends the queue pair.
    pub fn close(&self, connections: &C) {
        let state = &mut *self.state();
        match std::mem::replace(&mut state.stage, Stage::Closed) {
            Stage::Begun(key) => connections.remove(key),
            // The peer learns of it when the request is dropped.
            Stage::Asked(_) => connections.requests().abandon(state.info.handle.0),
            Stage::New(_) | Stage::Closed => {}
        }
        state.events = None;
    }
}

fn own([own, _]: [Option<Vec<u8>>; 2]) -> Option<Vec<u8>> {
    own
}
