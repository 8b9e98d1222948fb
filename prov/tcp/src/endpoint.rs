//! fi_endpoint(3): MSG and RDM endpoints.

use std::ffi::{c_int, c_void};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fabric_abi::*;
use prov_util::attr::Info;
use prov_util::cntr::Cntr;
use prov_util::cq::Cq;
use prov_util::endpoint::{self, AtomicQuery, Bound, OptionValue};
use prov_util::eq::{Eq, Event, EventBody, EventError};
use prov_util::errno::{Errno, Result};
use prov_util::ffi::domain::DomainObject;
use prov_util::ffi::ep::{EndpointObject, SharedReceiveObject};
use prov_util::ffi::pep::PassiveObject;
use prov_util::ffi::{AnyFid, Handle, Use};
use prov_util::progress::Progress;
use prov_util::request::{Atomic, Receive, RemoteAccess, Transmit};
use prov_util::{atomic_ops, sockaddr};

use crate::connreq::Requests;
use crate::domain::Domain;
use crate::engine::endpoint::{EndpointState, EventSink, Kind, Msg, Queues, Receiver};
use crate::engine::keys::EpKey;
use crate::engine::listener::{Incomer, ListenerKind};
use crate::engine::op::Context;
use crate::engine::rdm::Rdm;
use crate::engine::{ATOMIC_LIMIT, Engine, socket};
use crate::params::Params;
use crate::passive::PassiveEndpoint;
use crate::shared_receive::SharedReceive;
use crate::wire::authentication::Key;
use crate::wire::handshake::MAX_DATA;

/// Room below which a multi-receive buffer is given back, unless the
/// application says otherwise (`FI_OPT_MIN_MULTI_RECV`).
pub const MIN_MULTI_RECV: usize = 64;
/// Connections that may wait to be taken from the system.
const BACKLOG: i32 = 4096;

/// An endpoint.
pub struct Endpoint {
    engine: Arc<Engine>,
    key: EpKey,
    is_rdm: bool,
    default_flags: (u64, u64),
    params: Arc<Params>,
    requests: Arc<Requests>,
    setup: Mutex<Setup>,
}

/// What is only needed to set up the endpoint and to take it down.
struct Setup {
    info: Info,
    /// Bound, and not listening or connecting yet.
    socket: Option<OwnedFd>,
    /// Where the application finds the endpoint's events and completions.
    cqs: Vec<Use<Cq>>,
    cntrs: Vec<Use<Cntr>>,
    eq: Option<Use<Eq>>,
    shared: Option<Use<SharedReceiveObject<SharedReceive>>>,
    /// The peer whose request this endpoint is to accept.
    incomer: Option<Incomer>,
}

impl Endpoint {
    /// An RDM endpoint, bound to its address.
    pub fn rdm(domain: &Handle<DomainObject<Domain>>, info: &Info) -> Result<Self> {
        let addr = match sockaddr::decode(&info.src_addr) {
            Some(addr) => addr,
            None if info.addr_format == FI_SOCKADDR_IN6 => {
                SocketAddr::from((std::net::Ipv6Addr::UNSPECIFIED, 0))
            }
            None => SocketAddr::from((std::net::Ipv4Addr::UNSPECIFIED, 0)),
        };
        let socket = socket::bound(&addr, &domain.params)?;
        let auth_key = domain.auth_key(info)?;
        let this = Self::new(domain, info, auth_key, Kind::Rdm(Box::new(Rdm::new())));
        this.setup().socket = Some(socket);
        Ok(this)
    }

    /// A connected endpoint, yet without a connection.
    pub fn msg(domain: &Handle<DomainObject<Domain>>, info: &Info) -> Result<Self> {
        let auth_key = domain.auth_key(info)?;
        let handle = info.handle.0;
        let (mut incomer, mut socket) = (None, None);
        if domain.requests.knows(handle) {
            let asks = domain.requests.take(handle).ok_or(Errno::EINVAL)?;
            if asks.auth_key != auth_key {
                log::warn!("a connection request came with another key than the endpoint has");
                domain.requests.put_back(handle, asks);
                return Err(Errno::EKEYREJECTED);
            }
            incomer = Some(asks);
        } else if !handle.is_null() {
            // SAFETY: fi_endpoint(3): the handle is a connection request's,
            // which it is not, or an open passive endpoint.
            let passive = unsafe { AnyFid::new(handle.cast()) }?;
            let passive = passive.expect::<PassiveObject<PassiveEndpoint>>()?;
            socket = Some(passive.take_socket().ok_or(Errno::EINVAL)?);
        }
        let kind = Kind::Msg(Msg {
            conn: None,
            events: None,
            ended: false,
        });
        let this = Self::new(domain, info, auth_key, kind);
        let mut setup = this.setup();
        setup.incomer = incomer;
        setup.socket = socket;
        drop(setup);
        Ok(this)
    }

    fn new(
        domain: &Handle<DomainObject<Domain>>,
        info: &Info,
        auth_key: Option<Key>,
        kind: Kind,
    ) -> Self {
        let is_rdm = matches!(kind, Kind::Rdm(_));
        let or = |asked: usize, otherwise| if asked == 0 { otherwise } else { asked };
        let usual = if is_rdm { 65536 } else { 256 };
        let mut core = domain.engine.core();
        let receiver = core.receivers.insert(Receiver::new(
            or(info.rx.size, usual),
            MIN_MULTI_RECV,
            false,
        ));
        let key = core.add_endpoint(EndpointState {
            kind,
            queues: Queues::default(),
            receiver,
            outstanding: 0,
            tx_size: or(info.tx.size, usual),
            enabled: false,
            directed: info.caps & FI_DIRECTED_RECV != 0,
            rx_caps: info.rx_caps(),
            job: domain.job(auth_key.as_ref()),
            auth_key,
        });
        drop(core);
        Endpoint {
            engine: domain.engine.clone(),
            key,
            is_rdm,
            default_flags: (info.tx.op_flags, info.rx.op_flags),
            params: domain.params.clone(),
            requests: domain.requests.clone(),
            setup: Mutex::new(Setup {
                info: info.clone(),
                socket: None,
                cqs: Vec::new(),
                cntrs: Vec::new(),
                eq: None,
                shared: None,
                incomer: None,
            }),
        }
    }

    fn setup(&self) -> MutexGuard<'_, Setup> {
        self.setup.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn progress(&self) -> Arc<dyn Progress> {
        self.engine.clone()
    }

    fn bind_cq(&self, cq: Use<Cq>, flags: u64) -> Result {
        if flags & (FI_TRANSMIT | FI_RECV) == 0 {
            return Err(Errno::EBADFLAGS);
        }
        {
            // One queue for each direction (fi_endpoint(3)).
            let mut core = self.engine.core();
            let queues = &core.endpoint(self.key)?.queues;
            if (flags & FI_TRANSMIT != 0 && queues.tx_cq.is_some())
                || (flags & FI_RECV != 0 && queues.rx_cq.is_some())
            {
                return Err(Errno::EINVAL);
            }
        }
        cq.add_source(self.progress())?;
        self.setup().cqs.push(cq.clone());
        let mut core = self.engine.core();
        let queues = &mut core.endpoint(self.key)?.queues;
        if flags & FI_TRANSMIT != 0 {
            queues.tx_cq = Some(cq.clone());
        }
        if flags & FI_RECV != 0 {
            queues.rx_cq = Some(cq);
        }
        Ok(())
    }

    fn bind_cntr(&self, cntr: Use<Cntr>, flags: u64) -> Result {
        cntr.add_source(self.progress())?;
        self.setup().cntrs.push(cntr.clone());
        let mut core = self.engine.core();
        let queues = &mut core.endpoint(self.key)?.queues;
        for (flag, place) in [
            (FI_SEND, &mut queues.send),
            (FI_RECV, &mut queues.recv),
            (FI_READ, &mut queues.read),
            (FI_WRITE, &mut queues.write),
            (FI_REMOTE_READ, &mut queues.remote_read),
            (FI_REMOTE_WRITE, &mut queues.remote_write),
        ] {
            if flags & flag != 0 {
                *place = Some(cntr.clone());
            }
        }
        Ok(())
    }

    fn enable_rdm(&self, setup: &mut Setup) -> Result {
        let mut core = self.engine.core();
        let state = core.endpoint(self.key)?;
        if state.enabled {
            return Ok(());
        }
        let Kind::Rdm(rdm) = &state.kind else {
            return Err(Errno::EOPBADSTATE);
        };
        if rdm.av.is_none() {
            return Err(Errno::ENOAV);
        }
        state.queues.check()?;
        let socket = setup.socket.take().ok_or(Errno::EOPBADSTATE)?;
        let addr = socket::name(socket.as_fd())?;
        let auth_key = state.auth_key.clone();
        let door = ListenerKind::Rdm(self.key);
        let listener = core.add_listener(socket, door, auth_key, BACKLOG)?;
        let state = core.endpoint(self.key)?;
        state.enabled = true;
        if let Kind::Rdm(rdm) = &mut state.kind {
            rdm.listener = Some(listener);
            rdm.addr = Some(addr);
        }
        Ok(())
    }
}

impl endpoint::Endpoint for Endpoint {
    type SharedReceive = SharedReceive;

    fn bind(
        this: &Handle<EndpointObject<Self>>,
        bound: Bound<SharedReceive>,
        flags: u64,
    ) -> Result {
        match bound {
            Bound::Cq(cq) => this.bind_cq(cq, flags),
            Bound::Cntr(cntr) => this.bind_cntr(cntr, flags),
            Bound::Av(av) => {
                let mut core = this.engine.core();
                let state = core.endpoint(this.key)?;
                let Kind::Rdm(rdm) = &mut state.kind else {
                    return Err(Errno::EINVAL);
                };
                if rdm.av.is_some() {
                    return Err(Errno::EINVAL);
                }
                rdm.bind_av(av.clone());
                state.queues.av = Some(av);
                Ok(())
            }
            Bound::Eq(eq) => {
                let mut setup = this.setup();
                if setup.eq.is_some() {
                    return Err(Errno::EINVAL);
                }
                eq.add_source(this.progress())?;
                setup.eq = Some(eq.clone());
                let sink = Sink {
                    fid: Fid(this.fid()),
                    eq,
                };
                let mut core = this.engine.core();
                if let Kind::Msg(msg) = &mut core.endpoint(this.key)?.kind {
                    msg.events = Some(Box::new(sink));
                }
                Ok(())
            }
            Bound::SharedReceive(shared) => {
                if !Arc::ptr_eq(&shared.engine, &this.engine) {
                    return Err(Errno::EINVAL);
                }
                let mut core = this.engine.core();
                let state = core.endpoint(this.key)?;
                let own = std::mem::replace(&mut state.receiver, shared.key);
                core.close_receiver(own);
                this.setup().shared = Some(shared);
                Ok(())
            }
            Bound::Foreign(_) => Err(Errno::EINVAL),
        }
    }

    fn enable(this: &Handle<EndpointObject<Self>>) -> Result {
        let mut setup = this.setup();
        if this.is_rdm {
            return this.enable_rdm(&mut setup);
        }
        let mut core = this.engine.core();
        let state = core.endpoint(this.key)?;
        state.queues.check()?;
        state.enabled = true;
        Ok(())
    }

    fn close(this: &Handle<EndpointObject<Self>>) -> Result {
        this.engine.core().close_endpoint(this.key);
        let mut setup = this.setup();
        let progress = this.progress();
        for cq in setup.cqs.drain(..) {
            cq.remove_source(&progress);
        }
        for cntr in setup.cntrs.drain(..) {
            cntr.remove_source(&progress);
        }
        if let Some(eq) = setup.eq.take() {
            eq.remove_source(&progress);
            eq.forget(this.fid());
        }
        setup.shared = None;
        setup.socket = None;
        if let Some(incomer) = setup.incomer.take() {
            this.requests.put_back(setup.info.handle.0, incomer);
        }
        Ok(())
    }

    #[inline]
    fn transmit(&self, message: &Transmit) -> Result {
        self.engine.core().transmit(self.key, message)
    }

    #[inline]
    fn receive(&self, receive: &Receive) -> Result {
        self.engine.core().receive(self.key, receive)
    }

    #[inline]
    fn access(&self, access: RemoteAccess) -> Result {
        self.engine.core().access(self.key, &access)
    }

    #[inline]
    fn atomic(&self, atomic: Atomic) -> Result {
        self.engine.core().atomic(self.key, &atomic)
    }

    fn cancel(&self, context: *mut c_void) -> Result {
        let mut core = self.engine.core();
        let receiver = core.endpoint(self.key)?.receiver;
        core.cancel(receiver, Some(self.key), Context::of(context))
    }

    fn name(&self) -> Result<Vec<u8>> {
        let setup = self.setup();
        let mut core = self.engine.core();
        let addr = match &core.endpoint(self.key)?.kind {
            Kind::Rdm(rdm) => match (rdm.addr, &setup.socket) {
                (Some(addr), _) => addr,
                (None, Some(socket)) => socket::name(socket.as_fd())?,
                (None, None) => return Err(Errno::EOPBADSTATE),
            },
            Kind::Msg(Msg { conn: None, .. }) if setup.socket.is_some() => {
                let socket = setup.socket.as_ref().ok_or(Errno::EOPBADSTATE)?;
                socket::name(socket.as_fd())?
            }
            Kind::Msg(msg) => match (msg.conn, &setup.incomer) {
                (Some(conn), _) => core.local_name(conn)?,
                (None, Some(incomer)) => socket::name(incomer.socket.as_fd())?,
                (None, None) if setup.info.src_addr.is_empty() => {
                    return Err(Errno::EADDRNOTAVAIL);
                }
                (None, None) => return Ok(setup.info.src_addr.clone()),
            },
        };
        Ok(sockaddr::encode(&addr).as_bytes().to_vec())
    }

    fn set_name(&self, name: &[u8]) -> Result {
        let addr = sockaddr::decode(name).ok_or(Errno::EINVAL)?;
        let mut setup = self.setup();
        if self.is_rdm {
            if setup.socket.is_none() {
                return Err(Errno::EOPBADSTATE);
            }
            // The old address first: it may be the same.
            setup.socket = None;
            setup.socket = Some(socket::bound(&addr, &self.params)?);
        }
        setup.info.src_addr = sockaddr::encode(&addr).as_bytes().to_vec();
        Ok(())
    }

    fn peer_name(&self) -> Result<Vec<u8>> {
        let setup = self.setup();
        let mut core = self.engine.core();
        let addr = match &core.endpoint(self.key)?.kind {
            Kind::Msg(msg) => match (msg.conn, &setup.incomer) {
                (Some(conn), _) => core.peer_name(conn)?,
                (None, Some(incomer)) => socket::peer_name(incomer.socket.as_fd())?,
                (None, None) => return Err(Errno::ENOTCONN),
            },
            Kind::Rdm(_) => return Err(Errno::ENOSYS),
        };
        Ok(sockaddr::encode(&addr).as_bytes().to_vec())
    }

    fn connect(&self, address: &[u8], data: &[u8]) -> Result {
        if self.is_rdm {
            return Err(Errno::ENOSYS);
        }
        if data.len() > MAX_DATA {
            return Err(Errno::EINVAL);
        }
        let mut setup = self.setup();
        let dest = if address.is_empty() {
            &setup.info.dest_addr
        } else {
            address
        };
        let dest = sockaddr::decode(dest).ok_or(Errno::EINVAL)?;
        let source = sockaddr::decode(&setup.info.src_addr);
        let socket = setup.socket.take();
        self.engine
            .core()
            .connect_msg(self.key, socket, source, &dest, data)
    }

    fn accept(&self, data: &[u8]) -> Result {
        if data.len() > MAX_DATA {
            return Err(Errno::EINVAL);
        }
        let mut setup = self.setup();
        self.engine.core().may_connect(self.key)?;
        let incomer = setup.incomer.take().ok_or(Errno::EOPBADSTATE)?;
        // The request has its answer, whether or not that gets through.
        self.requests.forget(setup.info.handle.0);
        self.engine.core().accept_msg(self.key, incomer, data)
    }

    fn shutdown(&self, _flags: u64) -> Result {
        self.engine.core().shut_down(self.key)
    }

    fn option(&self, name: c_int) -> Result<OptionValue> {
        match name {
            FI_OPT_CM_DATA_SIZE => Ok(OptionValue::Size(MAX_DATA)),
            FI_OPT_MIN_MULTI_RECV => {
                let mut core = self.engine.core();
                let receiver = core.endpoint(self.key)?.receiver;
                let receiver = core.receivers.get(receiver).ok_or(Errno::EOPBADSTATE)?;
                Ok(OptionValue::Size(receiver.min_multi_recv))
            }
            _ => Err(Errno::ENOPROTOOPT),
        }
    }

    fn set_option(&self, name: c_int, value: OptionValue) -> Result {
        match (name, value) {
            (FI_OPT_MIN_MULTI_RECV, OptionValue::Size(bytes)) => {
                let mut core = self.engine.core();
                let receiver = core.endpoint(self.key)?.receiver;
                let receiver = core.receivers.get_mut(receiver).ok_or(Errno::EOPBADSTATE)?;
                receiver.set_min_multi_recv(bytes);
                Ok(())
            }
            _ => Err(Errno::ENOPROTOOPT),
        }
    }

    fn atomic_count(&self, query: AtomicQuery) -> Result<usize> {
        atomic_ops::query(query.datatype, query.op, query.flags, ATOMIC_LIMIT)
            .map(|attr| attr.count)
    }

    fn default_flags(&self) -> (u64, u64) {
        self.default_flags
    }
}

/// The endpoint as events name it.
struct Fid(*mut fid);

// SAFETY: the pointer is handed to the application and never followed here.
unsafe impl Send for Fid {}

/// Tells the application what becomes of a connection.
struct Sink {
    fid: Fid,
    eq: Use<Eq>,
}

impl Sink {
    fn write(&self, kind: u32, data: &[u8]) {
        let event = Event {
            kind,
            body: EventBody::Connection {
                fid: self.fid.0,
                info: None,
                data: data.to_vec(),
            },
        };
        if let Err(error) = self.eq.write(event) {
            log::warn!("an event is lost: {error}");
        }
    }
}

impl EventSink for Sink {
    fn connected(&self, data: &[u8]) {
        self.write(FI_CONNECTED, data);
    }

    fn shut_down(&self) {
        self.write(FI_SHUTDOWN, &[]);
    }

    fn failed(&self, error: Errno, data: &[u8]) {
        // SAFETY: the endpoint exists as long as it has this sink, and its
        // structure begins with a `fid`.
        let context = unsafe { (*self.fid.0).context };
        let written = self.eq.write_error(EventError {
            err_data: data.into(),
            ..EventError::new(self.fid.0, context, error)
        });
        if let Err(error) = written {
            log::warn!("an event is lost: {error}");
        }
    }
}
