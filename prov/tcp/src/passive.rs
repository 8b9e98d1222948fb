//! fi_passive_ep(3): listening for connected endpoints, on sockets.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use prov_base::errno::{Errno, Result};
use prov_base::sockaddr;
use prov_message::objects::{Listening, RequestReporter, Requests, SoftPassive};
use prov_util::attr::Info;
use prov_util::progress::Progress;

use crate::LOG;
use crate::engine::Lane;
use crate::engine::link::keys::ListenerKey;
use crate::engine::link::listener::{BACKLOG, Incomer, ListenerKind, RequestSink};
use crate::engine::link::socket;
use crate::params::Params;
use crate::wire::authentication::Key;
use crate::wire::handshake::{Features, Kind, MAX_DATA, Message};

/// A passive endpoint of tcp.
pub struct Passive {
    /// The lane of the fabric.
    lane: Arc<Lane>,
    params: Arc<Params>,
}

/// A passive endpoint.
pub type PassiveEndpoint = SoftPassive<Passive>;

/// The state of a passive endpoint before it listens.
pub struct Setup {
    /// The key that peers must prove.
    auth_key: Option<Key>,
    /// `fi_info::addr_format`
    addr_format: u32,
    /// A bound socket that is not listening yet.
    pub socket: Option<OwnedFd>,
}

impl Passive {
    /// Creates an endpoint that is bound to the source address in `info`, if there is one.
    pub fn endpoint(
        lane: Arc<Lane>,
        params: Arc<Params>,
        requests: Arc<Requests<Incomer>>,
        info: &Info,
    ) -> Result<PassiveEndpoint> {
        let auth_key = match (info.ep.authorization()?, info.domain.authorization()?) {
            (Some(key), _) | (None, Some(key)) => Key::new(key),
            (None, None) => params.auth_key()?,
        };
        let socket = match sockaddr::decode(&info.src_addr) {
            Some(addr) => Some(socket::bound(&addr, &params)?),
            None => None,
        };
        let setup = Setup {
            auth_key,
            addr_format: info.addr_format,
            socket,
        };
        let own = Passive { lane, params };
        Ok(SoftPassive::new(own, setup, requests, info))
    }
}

impl Listening for Passive {
    type Incomer = Incomer;
    type Setup = Setup;
    type Listener = ListenerKey;

    const LOG_TARGET: &'static str = LOG.ep_ctrl;
    const BACKLOG: i32 = BACKLOG;
    const DATA_LIMIT: usize = MAX_DATA;

    fn progress(&self) -> Arc<dyn Progress> {
        self.lane.clone()
    }

    fn listen(
        &self,
        setup: &mut Setup,
        reporter: RequestReporter<Incomer>,
        backlog: i32,
    ) -> Result<ListenerKey> {
        let socket = setup.socket.take().ok_or(Errno::EOPBADSTATE)?;
        let kind = ListenerKind::Passive(Box::new(reporter));
        let mut core = self.lane.core();
        core.add_listener(socket, kind, setup.auth_key.clone(), backlog)
    }

    fn close(&self, setup: &mut Setup, listener: Option<ListenerKey>) {
        if let Some(listener) = listener {
            self.lane.core().remove_listener(listener);
        }
        setup.socket = None;
    }

    fn name(&self, setup: &Setup, listener: Option<&ListenerKey>) -> Result<Vec<u8>> {
        let addr = match (&setup.socket, listener) {
            (Some(socket), _) => socket::name(socket.as_fd())?,
            (None, Some(&listener)) => {
                let core = self.lane.core();
                let listener = core.listeners.get(listener).ok_or(Errno::EOPBADSTATE)?;
                socket::name(listener.socket.as_fd())?
            }
            (None, None) => return Err(Errno::EADDRNOTAVAIL),
        };
        Ok(sockaddr::encode(&addr).as_bytes().to_vec())
    }

    fn set_name(&self, setup: &mut Setup, name: &[u8]) -> Result<Vec<u8>> {
        let addr = sockaddr::decode_as(name, setup.addr_format)?;
        socket::rebind(&mut setup.socket, &addr, |addr| {
            socket::bound(addr, &self.params)
        })?;
        Ok(sockaddr::encode(&addr).as_bytes().to_vec())
    }

    fn refuse(&self, incomer: Incomer, data: &[u8]) {
        refuse(incomer, data);
    }
}

/// Rejects a request, with connection data.
pub fn refuse(incomer: Incomer, data: &[u8]) {
    let answer = Message::new(Kind::Reject, Features::default(), 0, data);
    // If it does not reach the peer, the end of the connection does.
    let _ = socket::send(incomer.socket.as_fd(), &answer.encode());
    socket::end(incomer.socket);
}

impl RequestSink for RequestReporter<Incomer> {
    fn has_room(&self) -> bool {
        self.has_room()
    }

    fn request(&self, incomer: Incomer) {
        let Some(peer) = socket::name_of_requester(incomer.socket.as_fd()) else {
            return;
        };
        let data = incomer.message.data.clone();
        self.request(incomer, sockaddr::encode(&peer).as_bytes(), &data);
    }
}
