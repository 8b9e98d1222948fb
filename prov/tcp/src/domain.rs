//! fi_domain(3) and fi_endpoint(3): the additions of tcp to the objects of a software provider.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;

use fabric_abi::*;
use prov_base::errno::{Errno, Result};
use prov_base::logging::Targets;
use prov_base::sockaddr;
use prov_base::sync::LockKind;
use prov_local::onesided::table::RegionTable;
use prov_message::Signals;
use prov_message::objects::{Claimed, Domain, Enabling, Provider, Requests, SoftEndpoint};
use prov_util::attr::{Info, ip};
use prov_util::endpoint::{OPT_ONLY_RENDEZVOUS, OptionValue};
use prov_util::eq::ConnectionEvents;
use prov_util::ffi::pep::PassiveObject;
use prov_util::mr::publish::Publisher;
use prov_util::mr::{Job, MrTable};

use crate::LOG;
use crate::bases::Name;
use crate::engine::ending::closing;
use crate::engine::link::endpoint::{Kind, Msg, OwnPart};
use crate::engine::link::listener::{BACKLOG, Incomer, ListenerKind};
use crate::engine::link::rdm::Rdm;
use crate::engine::link::socket;
use crate::engine::{Core, Lane};
use crate::params::{self, Params};
use crate::passive::PassiveEndpoint;
use crate::wire::authentication::Key;
use crate::wire::handshake::{Features, MAX_DATA};

type Endpoint = SoftEndpoint<Tcp>;

/// A domain of tcp.
pub struct Tcp {
    name: Name,
    params: Arc<Params>,
    requests: Arc<Requests<Incomer>>,
    /// The key that peers of its endpoints must prove, unless the endpoints have keys of their own.
    auth_key: Option<Key>,
    /// The table of regions that peers on this host access by themselves, if that is enabled.
    regions: Option<Arc<RegionTable>>,
}

impl Tcp {
    /// Creates a domain of the provider of this name with the attributes in `info`.
    pub fn domain(
        name: Name,
        params: Arc<Params>,
        requests: Arc<Requests<Incomer>>,
        info: &Info,
    ) -> Result<Domain<Self>> {
        let auth_key = match info.domain.authorization()? {
            Some(key) => Key::new(key),
            None => params.auth_key()?,
        };
        let job = auth_key.as_ref().map(|key| key.bytes().to_vec());
        let may_be_accessed = params.features().has(Features::REGIONS);
        let regions = || RegionTable::for_domain(LOG.mr);
        let own = Tcp {
            name,
            params,
            requests,
            auth_key,
            regions: may_be_accessed.then(regions).flatten(),
        };
        Ok(Domain::new(own, info, job, LOG.mr))
    }

    /// Takes the peer whose request an endpoint is to accept, or the socket of the passive endpoint
    /// that it replaces.
    fn take_handle(
        &self,
        info: &Info,
        auth_key: &Option<Key>,
    ) -> Result<(Option<Claimed<Incomer>>, Option<OwnedFd>)> {
        let handle = info.handle.0;
        if handle.is_null() {
            return Ok((None, None));
        }
        if !self.requests.knows(handle) {
            let passive = PassiveObject::<PassiveEndpoint>::of_info(info)?;
            let socket = passive.with_setup(|setup| setup.socket.take());
            let socket = socket.ok_or(Errno::EINVAL)?;
            return Ok((None, Some(socket)));
        }
        let incomer = self.requests.claim(handle).ok_or(Errno::EINVAL)?;
        if incomer.look(|incomer| incomer.auth_key != *auth_key) == Some(true) {
            log::warn!(
                target: crate::LOG.ep_ctrl,
                "a connection request came with another key than the endpoint has"
            );
            self.requests.unclaim(handle);
            return Err(Errno::EKEYREJECTED);
        }
        Ok((Some(incomer), None))
    }
}

/// The state of an endpoint before it is enabled, and its name.
pub struct Setup {
    info: Info,
    is_rdm: bool,
    auth_key: Option<Key>,
    /// A bound socket that is not listening or connecting yet.
    socket: Option<OwnedFd>,
    /// The peer whose request this endpoint is to accept.
    incomer: Option<Claimed<Incomer>>,
    /// Which context of a scalable endpoint it is; 0 where it is none.
    context: u8,
    /// Whether peers access memory only for announced messages ([`OPT_ONLY_RENDEZVOUS`]).
    only_rendezvous: bool,
    /// Whether peers can find the endpoint: not if it is a transmit context alone.
    is_receiver: bool,
}

/// Returns the source of connection events for the queue that is bound to a connected endpoint.
fn events(bound: &Enabling<'_, Tcp>) -> Option<ConnectionEvents> {
    let eq = bound.bindings.eq.clone()?;
    Some(ConnectionEvents::new(bound.endpoint.clone(), eq))
}

impl Provider for Tcp {
    type Core = Core;
    type Setup = Setup;

    const LOG: Targets = LOG;
    const ATOMIC_LIMIT: usize = params::ATOMIC_LIMIT;
    const IMPORTS_RECEIVES: bool = true;
    const THREAD: &'static str = "fi_tcp helper";

    /// The C library's sockets enables an endpoint whatever is bound to it.
    fn needs_queues(&self) -> bool {
        self.name != Name::Sockets
    }

    fn drives_automatically(&self) -> bool {
        !self.params.disable_auto_progress
    }

    fn lane(&self, memory: &Arc<MrTable>, lock: LockKind) -> Result<Arc<Lane>> {
        let core = |signals: &Arc<Signals>| {
            let (params, regions) = (self.params.clone(), self.regions.clone());
            Core::new(params, Some(memory.clone()), regions, signals.clone())
        };
        Lane::start(lock, core)
    }

    fn publisher(&self) -> Option<Arc<dyn Publisher>> {
        let regions = self.regions.clone();
        regions.map(|regions| regions as Arc<dyn Publisher>)
    }

    fn open(domain: &Domain<Self>, info: &Info) -> Result<Setup> {
        let own = &domain.own;
        let auth_key = info.ep.authorization()?.and_then(Key::new);
        let auth_key = auth_key.or_else(|| own.auth_key.clone());
        let (incomer, socket) = match info.ep.ep_type {
            FI_EP_MSG => own.take_handle(info, &auth_key)?,
            FI_EP_RDM | FI_EP_DGRAM => (None, Some(socket::bound(&ip::source(info), &own.params)?)),
            _ => return Err(Errno::EINVAL),
        };
        Ok(Setup {
            info: info.clone(),
            is_rdm: info.ep.ep_type != FI_EP_MSG,
            auth_key,
            socket,
            incomer,
            context: 0,
            only_rendezvous: false,
            is_receiver: true,
        })
    }

    fn open_contexts(domain: &Domain<Self>, info: &Info, pairs: usize) -> Result<Vec<Setup>> {
        let own = &domain.own;
        let auth_key = info.ep.authorization()?.and_then(Key::new);
        let auth_key = auth_key.or_else(|| own.auth_key.clone());
        let sockets = socket::bound_in_row(&ip::source(info), pairs, &own.params)?;
        let setup = |(context, socket)| Setup {
            info: info.clone(),
            is_rdm: true,
            auth_key: auth_key.clone(),
            socket: Some(socket),
            incomer: None,
            context,
            only_rendezvous: false,
            is_receiver: usize::from(context) < info.ep.receive_contexts(),
        };
        Ok((0..=u8::MAX).zip(sockets).map(setup).collect())
    }

    fn job(domain: &Domain<Self>, setup: &Setup) -> Job {
        let key = setup.auth_key.as_ref();
        key.map_or(Job::NONE, |key| domain.memory.job(key.bytes()))
    }

    fn is_alone(info: &Info) -> bool {
        info.ep.ep_type != FI_EP_MSG
    }

    fn usual_tx_size(&self, info: &Info) -> usize {
        self.params.usual_tx_size(info.ep.ep_type)
    }

    fn enable(&self, setup: &mut Setup, enabling: Enabling<'_, Self>) -> Result<OwnPart> {
        let bindings = enabling.bindings;
        let kind = if setup.is_rdm {
            let av = bindings.av.clone().ok_or(Errno::ENOAV)?;
            let socket = setup.socket.as_ref().ok_or(Errno::EOPBADSTATE)?;
            let addr = socket::name(socket.as_fd())?;
            Kind::Rdm(Box::new(Rdm {
                context: setup.context,
                ..Rdm::new(av, addr, &self.params)
            }))
        } else {
            Kind::Msg(Msg {
                events: events(&enabling),
                ..Msg::default()
            })
        };
        Ok(OwnPart {
            kind,
            auth_key: setup.auth_key.clone(),
            msg_order: setup.info.tx.msg_order,
            is_for_rma: setup.info.caps & FI_RMA != 0,
            only_rendezvous: setup.only_rendezvous,
            has_fences: setup.info.caps & FI_FENCE != 0,
        })
    }

    fn enabled(&self, setup: &mut Setup, ep: &Endpoint) -> Result {
        if !setup.is_rdm || !setup.is_receiver {
            return Ok(());
        }
        let seat = ep.seated()?;
        let socket = setup.socket.take().ok_or(Errno::EOPBADSTATE)?;
        let mut core = seat.lane.core();
        let kind = ListenerKind::Rdm(seat.key);
        let listener = core.add_listener(socket, kind, setup.auth_key.clone(), BACKLOG)?;
        if let Some(rdm) = core.rdm(seat.key) {
            rdm.listener = Some(listener);
        }
        Ok(())
    }

    fn rebound(&self, _: &mut Setup, part: &mut OwnPart, bound: Enabling<'_, Self>) {
        if let Kind::Msg(msg) = &mut part.kind {
            msg.events = events(&bound);
        }
    }

    fn closed(&self, setup: &mut Setup) {
        setup.socket = None;
        // The peer sees its socket close.
        if setup.incomer.take().is_some() {
            self.requests.abandon(setup.info.handle.0);
        }
    }

    fn name(ep: &Endpoint) -> Result<Vec<u8>> {
        let setup = ep.setup();
        let addr = if let Some(socket) = &setup.socket {
            socket::name(socket.as_fd())?
        } else if let Some(addr) = asking(&setup, |socket| socket::name(socket.as_fd())) {
            addr?
        } else {
            match in_lane(ep, socket::name) {
                Some(addr) => addr?,
                None if setup.info.src_addr.is_empty() => return Err(Errno::EADDRNOTAVAIL),
                None => return Ok(setup.info.src_addr.clone()),
            }
        };
        Ok(sockaddr::encode(&addr).as_bytes().to_vec())
    }

    fn set_name(ep: &Endpoint, name: &[u8]) -> Result {
        let mut setup = ep.setup();
        let addr = sockaddr::decode_as(name, setup.info.addr_format)?;
        let has_begun = match ep.seat() {
            Some(seat) => setup.is_rdm || seat.lane.core().may_connect(seat.key).is_err(),
            None => false,
        };
        if has_begun || setup.incomer.is_some() {
            return Err(Errno::EOPBADSTATE);
        }
        let is_rdm = setup.is_rdm;
        socket::rebind(&mut setup.socket, &addr, |addr| match is_rdm {
            true => socket::bound(addr, &ep.domain().own.params),
            false => socket::from_source(addr),
        })?;
        setup.info.src_addr = sockaddr::encode(&addr).as_bytes().to_vec();
        Ok(())
    }

    fn descriptor(ep: &Endpoint) -> Result<RawFd> {
        let mut setup = ep.setup();
        let in_use = asking(&setup, |socket| socket.as_raw_fd());
        if let Some(fd) = in_use.or_else(|| in_lane(ep, |socket| socket.as_raw_fd())) {
            return Ok(fd);
        }
        let socket = match setup.socket.take() {
            Some(socket) => socket,
            // Options that are set on the socket now have to be in effect when it is connected.
            None if !setup.is_rdm => {
                socket::from_source(&ip::source_towards_destination(&setup.info))?
            }
            None => return Err(Errno::EOPBADSTATE),
        };
        Ok(setup.socket.insert(socket).as_raw_fd())
    }

    fn peer_name(ep: &Endpoint) -> Result<Vec<u8>> {
        let setup = ep.setup();
        if setup.is_rdm {
            return Err(Errno::ENOSYS);
        }
        let addr = match asking(&setup, |socket| socket::peer_name(socket.as_fd())) {
            Some(addr) => addr?,
            None => in_lane(ep, socket::peer_name).ok_or(Errno::ENOTCONN)??,
        };
        Ok(sockaddr::encode(&addr).as_bytes().to_vec())
    }

    #[allow(clippy::indexing_slicing, reason = "limited to the data")]
    fn connect(ep: &Endpoint, address: &[u8], data: &[u8]) -> Result {
        let mut setup = ep.setup();
        if setup.is_rdm {
            return Err(Errno::ENOSYS);
        }
        let data = &data[..data.len().min(MAX_DATA)];
        let dest = match address.is_empty() {
            true => &setup.info.dest_addr,
            false => address,
        };
        let dest = sockaddr::decode(dest).ok_or(Errno::EINVAL)?;
        let source = sockaddr::decode(&setup.info.src_addr);
        let seat = ep.seated()?;
        let mut core = seat.lane.core();
        core.connect_msg(seat.key, setup.socket.take(), source, &dest, data)
    }

    #[allow(clippy::indexing_slicing, reason = "limited to the data")]
    fn accept(ep: &Endpoint, data: &[u8]) -> Result {
        let mut setup = ep.setup();
        let data = &data[..data.len().min(MAX_DATA)];
        let seat = ep.seated()?;
        let mut core = seat.lane.core();
        core.may_connect(seat.key)?;
        let claimed = setup.incomer.as_ref().ok_or(Errno::EOPBADSTATE)?;
        // There is no peer if the request was rejected.
        let incomer = claimed.take().ok_or(Errno::EOPBADSTATE)?;
        setup.incomer = None;
        let (requests, handle) = (&ep.domain().own.requests, setup.info.handle.0);
        let accepted = core.accept_msg(seat.key, incomer, data);
        match accepted {
            Ok(()) => requests.forget(handle),
            // The application may reject the request then.
            Err(_) => requests.abandon(handle),
        }
        accepted
    }

    fn endpoint_option(ep: &Endpoint, name: i32) -> Result<OptionValue> {
        match name {
            FI_OPT_FIREWALL_ADDR if ep.setup().is_rdm => Ok(OptionValue::Int(
                ep.domain().own.params.firewall_addr.into(),
            )),
            _ => Err(Errno::ENOPROTOOPT),
        }
    }

    fn set_endpoint_option(ep: &Endpoint, name: i32, value: OptionValue) -> Result {
        match (name, value) {
            (OPT_ONLY_RENDEZVOUS, OptionValue::Bool(only)) => {
                ep.setup().only_rendezvous = only;
                Ok(())
            }
            _ => Err(Errno::ENOPROTOOPT),
        }
    }

    fn shutdown(ep: &Endpoint) -> Result {
        if ep.setup().is_rdm {
            return Err(Errno::ENOSYS);
        }
        if let Some(seat) = ep.seat() {
            closing::shut_down(&seat.lane, seat.key);
        }
        Ok(())
    }

    fn option(&self, name: i32) -> Result<OptionValue> {
        match name {
            FI_OPT_CM_DATA_SIZE => Ok(OptionValue::Size(MAX_DATA)),
            _ => Err(Errno::ENOPROTOOPT),
        }
    }
}

/// Passes the socket of the peer whose request an endpoint may accept to `ask`, if there is one.
fn asking<R>(setup: &Setup, ask: impl FnOnce(&OwnedFd) -> R) -> Option<R> {
    let claimed = setup.incomer.as_ref()?;
    claimed.look(|incomer| ask(&incomer.socket))
}

/// Passes the socket of an endpoint in a lane to `ask`, if it has one there.
fn in_lane<R>(ep: &Endpoint, ask: impl FnOnce(BorrowedFd<'_>) -> R) -> Option<R> {
    let seat = ep.seat()?;
    seat.lane.core().socket_of(seat.key).map(ask)
}
