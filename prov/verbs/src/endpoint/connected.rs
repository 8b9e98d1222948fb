//! Endpoints that are connected to a peer (`FI_EP_MSG`).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prov_base::errno::{Errno, Result};
use prov_device::link::{EndKey, Link};
use prov_message::objects::Claimed;
use prov_util::attr::Info;
use prov_util::endpoint::Bindings;
use prov_util::eq::ConnectionEvents;
use prov_util::ffi::FidRef;
use prov_util::ffi::pep::PassiveObject;

use crate::address::{PortSpace, SocketAddress, space_of};
use crate::device::{Id, QueuePair};
use crate::lane::{Seats, SharedReceive};
use crate::manager::{EndConfig, EndParts, Incomer, XRC_DATA_LIMIT, XrcEnd};
use crate::passive::PassiveEndpoint;
use crate::resources::Resources;

/// What an endpoint provides for a connection.
pub struct End {
    /// Its queue pair.
    pub pair: Arc<QueuePair>,
    /// Its lane members.
    pub seats: Seats,
    /// Whether its receives are shared.
    pub is_shared: bool,
    /// Its XRC objects.
    pub xrc: Option<XrcEnd>,
}

/// The state of a connected endpoint besides its queue pair.
pub struct Connected {
    link: Arc<Link>,
    space: PortSpace,
    state: Mutex<State>,
}

struct State {
    info: Info,
    /// The source of connection events, once it is enabled.
    events: Option<ConnectionEvents>,
    stage: Stage,
}

/// The stage of the connection.
enum Stage {
    /// It may connect, perhaps from an address that is bound already.
    New(Option<Id>),
    /// It was opened for a peer's request, and has to answer it.
    Asked(Claimed<Incomer>),
    /// It has a connection, or has had one.
    Begun(EndKey),
    Closed,
}

impl Connected {
    /// Creates an endpoint with these attributes. The handle in them is a connection request, a
    /// passive endpoint whose address it takes over, or null.
    pub fn open(domain: &Resources, info: &Info) -> Result<Self> {
        let stage = if info.handle.0.is_null() {
            Stage::New(None)
        } else if domain.requests.knows(info.handle.0) {
            let incomer = domain.requests.claim(info.handle.0).ok_or(Errno::EINVAL)?;
            Stage::Asked(incomer)
        } else {
            Stage::New(Some(id_of_passive(info)?))
        };
        let this = Connected {
            link: Arc::default(),
            space: space_of(info.addr_format),
            state: Mutex::new(State {
                info: info.clone(),
                events: None,
                stage,
            }),
        };
        Ok(this)
    }

    /// Returns the state of the connection.
    pub fn link(&self) -> &Arc<Link> {
        &self.link
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports connection events to the bound event queue, including those of an existing
    /// connection.
    pub fn tell(&self, endpoint: FidRef, bindings: &Bindings<SharedReceive>) {
        let mut state = self.state();
        match (&state.events, &bindings.eq) {
            (Some(events), Some(eq)) => events.redirect(eq.clone()),
            (None, Some(eq)) => state.events = Some(ConnectionEvents::new(endpoint, eq.clone())),
            (_, None) => {}
        }
    }

    /// Implements `fi_connect` (fi_cm(3)).
    pub fn connect(&self, domain: &Resources, end: End, address: &[u8], data: &[u8]) -> Result {
        let state = &mut *self.state();
        let address = match address.is_empty() {
            true => &state.info.dest_addr,
            false => address,
        };
        let peer = SocketAddress::decode(address).ok_or(Errno::EINVAL)?;
        if peer.space() != self.space {
            return Err(Errno::EINVAL);
        }
        let Stage::New(id) = &mut state.stage else {
            return Err(Errno::EOPBADSTATE);
        };
        let own = SocketAddress::decode(&state.info.src_addr);
        let xrc = end.xrc.clone();
        let parts = parts(&self.link, &state.events, domain, end)?;
        let key = match xrc {
            None => domain
                .manager
                .connect(parts, id.take(), own.as_ref(), &peer, data)?,
            Some(_) if data.len() > XRC_DATA_LIMIT => return Err(Errno::EINVAL),
            Some(xrc) => {
                // Identifiers are created when they are needed: the address is sufficient.
                let bound = id.take().and_then(|id| id.local_address());
                let own = bound.or(own);
                domain
                    .manager
                    .connect_xrc(parts, xrc, own.as_ref(), &peer, data)?
            }
        };
        state.stage = Stage::Begun(key);
        Ok(())
    }

    /// Implements `fi_accept` (fi_cm(3)).
    pub fn accept(&self, domain: &Resources, end: End, data: &[u8]) -> Result {
        let state = &mut *self.state();
        let xrc = end.xrc.clone();
        if xrc.is_some() && data.len() > XRC_DATA_LIMIT {
            return Err(Errno::EINVAL);
        }
        let parts = parts(&self.link, &state.events, domain, end)?;
        let Stage::Asked(claimed) = &state.stage else {
            return Err(Errno::EOPBADSTATE);
        };
        // There is no peer if the request was rejected.
        let incomer = claimed.take().ok_or(Errno::EOPBADSTATE)?;
        let accepted = match xrc {
            None => domain.manager.accept(parts, incomer, data),
            Some(xrc) => domain.manager.accept_xrc(parts, xrc, incomer, data),
        };
        match accepted {
            Ok(key) => {
                domain.requests.forget(state.info.handle.0);
                state.stage = Stage::Begun(key);
                Ok(())
            }
            Err((error, Some(incomer))) => {
                claimed.put_back(incomer);
                Err(error)
            }
            Err((error, None)) => {
                // The application may reject the request then.
                domain.requests.abandon(state.info.handle.0);
                state.stage = Stage::Closed;
                Err(error)
            }
        }
    }

    /// Implements `fi_shutdown` (fi_cm(3)).
    pub fn shut_down(&self, domain: &Resources) -> Result {
        match self.state().stage {
            Stage::Begun(key) => domain.manager.shut_down(key),
            _ => Err(Errno::ENOTCONN),
        }
    }

    /// Returns its own address: that of the connection, or the one it was opened with.
    pub fn name(&self, domain: &Resources) -> Result<Vec<u8>> {
        let state = self.state();
        let address = match &state.stage {
            Stage::New(Some(id)) => id.local_address(),
            Stage::Asked(claimed) => claimed.look(|asking| asking.id.local_address()).flatten(),
            Stage::Begun(key) => domain.manager.local_address(*key),
            Stage::New(None) | Stage::Closed => None,
        };
        let known = || SocketAddress::decode(&state.info.src_addr);
        let address = address.or_else(known).ok_or(Errno::EADDRNOTAVAIL)?;
        Ok(address.encode())
    }

    /// Returns the peer's address.
    pub fn peer_name(&self, domain: &Resources) -> Result<Vec<u8>> {
        let address = match &self.state().stage {
            Stage::Asked(claimed) => claimed.look(|asking| asking.id.peer_address()).flatten(),
            Stage::Begun(key) => domain.manager.peer_address(*key),
            Stage::New(_) | Stage::Closed => None,
        };
        Ok(address.ok_or(Errno::ENOTCONN)?.encode())
    }

    /// Implements `fi_setname` (fi_cm(3)).
    pub fn set_name(&self, name: &[u8]) -> Result {
        let state = &mut *self.state();
        let address = SocketAddress::decode(name).ok_or(Errno::EINVAL)?;
        if address.space() != self.space {
            return Err(Errno::EINVAL);
        }
        let Stage::New(id) = &mut state.stage else {
            return Err(Errno::EOPBADSTATE);
        };
        *id = None;
        let mut bound = Id::waiting(self.space)?;
        bound.bind(&address)?;
        state.info.src_addr = bound.local_address().unwrap_or(address).encode();
        *id = Some(bound);
        Ok(())
    }

    /// Implements `fi_close`. The endpoint itself ends the queue pair.
    pub fn close(&self, domain: &Resources) {
        let state = &mut *self.state();
        match std::mem::replace(&mut state.stage, Stage::Closed) {
            Stage::Begun(key) => domain.manager.remove(key),
            // The peer is informed by RDMA CM when its identifier is destroyed.
            Stage::Asked(_) => domain.requests.abandon(state.info.handle.0),
            Stage::New(_) | Stage::Closed => {}
        }
        state.events = None;
    }
}

fn parts(
    link: &Arc<Link>,
    events: &Option<ConnectionEvents>,
    domain: &Resources,
    end: End,
) -> Result<EndParts> {
    let events = events.clone().ok_or(Errno::ENOEQ)?;
    Ok(EndParts {
        pair: end.pair,
        seats: end.seats,
        link: link.clone(),
        events,
        config: EndConfig {
            context: domain.context,
            is_shared: end.is_shared,
            terms: domain.terms(),
        },
    })
}

/// Returns the bound identifier of a passive endpoint that does not listen.
fn id_of_passive(info: &Info) -> Result<Id> {
    let passive = PassiveObject::<PassiveEndpoint>::of_info(info)?;
    let id = passive.with_setup(|setup| setup.id.take());
    id.ok_or(Errno::EOPBADSTATE)
}
