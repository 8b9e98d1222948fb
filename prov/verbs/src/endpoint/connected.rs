//! Endpoints that are connected to a peer (`FI_EP_MSG`).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prov_base::errno::{Errno, Result};
use prov_message::objects::Claimed;
use prov_util::attr::Info;
use prov_util::endpoint::Bindings;
use prov_util::eq::ConnectionEvents;
use prov_util::ffi::FidRef;
use prov_util::ffi::pep::PassiveObject;

use crate::address::{PortSpace, SocketAddress, space_of};
use crate::device::{Id, QueuePair};
use crate::lane::Seats;
use crate::link::{EndKey, Link};
use crate::manager::{EndConfig, EndParts, Incomer, XRC_DATA_LIMIT, XrcEnd};
use crate::passive::PassiveEndpoint;
use crate::resources::Resources;
use crate::shared_receive::SharedReceive;

/// What an endpoint gives to have a connection.
pub struct End {
    /// Its queue pair.
    pub pair: Arc<QueuePair>,
    /// Where its requests are.
    pub seats: Seats,
    /// Whether its receives are shared.
    pub is_shared: bool,
    /// What it has for XRC.
    pub xrc: Option<XrcEnd>,
}

/// What a connected endpoint has besides its queue pair.
pub struct Connected {
    link: Arc<Link>,
    space: PortSpace,
    state: Mutex<State>,
}

struct State {
    info: Info,
    /// Whom to tell, once it is enabled.
    events: Option<ConnectionEvents>,
    stage: Stage,
}

/// How far it has come.
enum Stage {
    /// It may connect, perhaps from an address that it has already.
    New(Option<Id>),
    /// A peer asks, and this is to be the answer.
    Asked(Claimed<Incomer>),
    /// It has a connection, or has had one.
    Begun(EndKey),
    Closed,
}

impl Connected {
    /// An endpoint with these attributes. The handle in them is a connection
    /// request, a passive endpoint whose address it takes, or none.
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

    /// How far the connection has come.
    pub fn link(&self) -> &Arc<Link> {
        &self.link
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells of the connection as the application has bound, also of one that it has
    /// already.
    pub fn tell(&self, endpoint: FidRef, bindings: &Bindings<SharedReceive>) {
        let mut state = self.state();
        match (&state.events, &bindings.eq) {
            (Some(events), Some(eq)) => events.redirect(eq.clone()),
            (None, Some(eq)) => state.events = Some(ConnectionEvents::new(endpoint, eq.clone())),
            (_, None) => {}
        }
    }

    /// `fi_connect`
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
                // Its identifiers are made as they are needed: the address is enough.
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

    /// `fi_accept`
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
        // Nobody is there where the request was rejected.
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
                // The application may think that it has to reject the request then.
                domain.requests.abandon(state.info.handle.0);
                state.stage = Stage::Closed;
                Err(error)
            }
        }
    }

    /// `fi_shutdown`
    pub fn shut_down(&self, domain: &Resources) -> Result {
        match self.state().stage {
            Stage::Begun(key) => domain.manager.shut_down(key),
            _ => Err(Errno::ENOTCONN),
        }
    }

    /// Its own address: where it is connected from, or what it was opened with.
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

    /// The peer's address.
    pub fn peer_name(&self, domain: &Resources) -> Result<Vec<u8>> {
        let address = match &self.state().stage {
            Stage::Asked(claimed) => claimed.look(|asking| asking.id.peer_address()).flatten(),
            Stage::Begun(key) => domain.manager.peer_address(*key),
            Stage::New(_) | Stage::Closed => None,
        };
        Ok(address.ok_or(Errno::ENOTCONN)?.encode())
    }

    /// `fi_setname`
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

    /// `fi_close`. The queue pair is the endpoint's to end.
    pub fn close(&self, domain: &Resources) {
        let state = &mut *self.state();
        match std::mem::replace(&mut state.stage, Stage::Closed) {
            Stage::Begun(key) => domain.manager.remove(key),
            // Who asks hears of that from RDMA CM, when its identifier goes.
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

/// The bound identifier of a passive endpoint that does not listen.
fn id_of_passive(info: &Info) -> Result<Id> {
    let passive = PassiveObject::<PassiveEndpoint>::of_info(info)?;
    let id = passive.with_setup(|setup| setup.id.take());
    id.ok_or(Errno::EOPBADSTATE)
}
