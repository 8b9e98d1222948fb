//! The connection manager of the device: listeners and connections of the process, by addresses that
//! look like those of the internet.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;

use parking_lot::Mutex;
use prov_base::errno::{Errno, Result};
use prov_base::sockaddr;
use prov_message::objects::{RequestReporter, Requests};
use prov_util::attr::Info;
use prov_util::eq::ConnectionEvents;
use prov_util::progress::Progress;
use slotmap::{DefaultKey, SlotMap};

use super::{NoEvents, Pair};
use crate::connected::{Connections, Parts};
use crate::device::QueuePair as _;
use crate::lane::Ear;
use crate::link::{EndKey, Link, Lost};

/// The connections and listeners of a fabric.
pub struct Connector {
    table: Arc<Table>,
    requests: Arc<Requests<Incomer>>,
    lost: Arc<Lost>,
    events: Arc<NoEvents>,
}

#[derive(Default)]
struct Table {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    ends: SlotMap<DefaultKey, End>,
    /// Bound addresses, with the listener there.
    bound: HashMap<SocketAddr, Option<Arc<dyn Listener>>>,
    last_port: u16,
}

/// One end of a connection.
struct End {
    own: SocketAddr,
    peer: SocketAddr,
    pair: Arc<Pair>,
    link: Arc<Link>,
    events: ConnectionEvents,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The request waits for an answer.
    Asking,
    /// Connected with that end.
    Connected(EndKey),
    Ended,
}

/// Takes the requests for an address.
pub trait Listener: Send + Sync {
    /// Whether it takes more; requests are refused otherwise.
    fn has_room(&self) -> bool;

    /// Takes a request of a peer with this address, with connection data.
    fn request(&self, incomer: Incomer, address: &[u8], data: &[u8]);
}

impl Listener for RequestReporter<Incomer> {
    fn has_room(&self) -> bool {
        RequestReporter::has_room(self)
    }

    fn request(&self, incomer: Incomer, address: &[u8], data: &[u8]) {
        RequestReporter::request(self, incomer, address, data);
    }
}

/// A bound address.
pub struct Bound {
    address: SocketAddr,
    table: Arc<Table>,
}

/// A peer that asks for a connection, which fails when this is dropped.
pub struct Incomer {
    own: SocketAddr,
    peer: SocketAddr,
    from: EndKey,
    table: Arc<Table>,
}

impl Drop for Bound {
    fn drop(&mut self) {
        let listener = self.table.state.lock().bound.remove(&self.address);
        // Requests may be dropped with it, which lock the table.
        drop(listener);
    }
}

impl Drop for Incomer {
    fn drop(&mut self) {
        self.refuse(&[]);
    }
}

impl Incomer {
    /// Rejects the request, with connection data.
    pub fn refuse(&self, data: &[u8]) {
        let state = &mut *self.table.state.lock();
        if let Some(end) = state.ends.get_mut(self.from)
            && end.stage == Stage::Asking
        {
            end.fail(data);
        }
    }
}

impl End {
    /// Ends a request for a connection, with the connection data of the refusal.
    fn fail(&mut self, data: &[u8]) {
        self.stage = Stage::Ended;
        self.pair.end();
        self.events.failed(Errno::ECONNREFUSED, data);
    }
}

impl Bound {
    /// Returns the address.
    pub fn name(&self) -> Vec<u8> {
        encode(&self.address)
    }

    /// Takes requests for this address until it is dropped.
    pub fn listen(&self, listener: impl Listener + 'static) {
        let mut state = self.table.state.lock();
        state.bound.insert(self.address, Some(Arc::new(listener)));
    }
}

impl Connector {
    /// Creates a connector without connections.
    pub fn new() -> Result<Arc<Self>> {
        Ok(Arc::new(Connector {
            table: Arc::default(),
            requests: Arc::default(),
            lost: Arc::new(Lost::new()?),
            events: NoEvents::new()?,
        }))
    }

    /// Returns the requests of peers that are not answered yet.
    pub fn asking(&self) -> &Arc<Requests<Incomer>> {
        &self.requests
    }

    /// Binds an address; a port is chosen if it has none.
    pub fn bind_to(&self, address: &[u8]) -> Result<Bound> {
        let mut address = sockaddr::decode(address).ok_or(Errno::EINVAL)?;
        let state = &mut *self.table.state.lock();
        if address.port() == 0 {
            state.choose_port(&mut address)?;
        }
        if state.bound.contains_key(&address) {
            return Err(Errno::EADDRINUSE);
        }
        state.bound.insert(address, None);
        Ok(Bound {
            address,
            table: self.table.clone(),
        })
    }
}

impl State {
    fn choose_port(&mut self, address: &mut SocketAddr) -> Result {
        for _ in 0..u16::MAX {
            self.last_port = self.last_port.wrapping_add(1).max(1);
            address.set_port(self.last_port);
            if !self.bound.contains_key(address) {
                return Ok(());
            }
        }
        Err(Errno::EADDRINUSE)
    }

    /// Returns the listener for an address: bound to it, or to all addresses with its port.
    fn listener(&self, address: &SocketAddr) -> Option<Arc<dyn Listener>> {
        let mut any = *address;
        any.set_ip(match address {
            SocketAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
        });
        let found = [address, &any].map(|at| self.bound.get(at).cloned().flatten());
        found.into_iter().flatten().next()
    }

    /// Ends a connection at one end; reports that to the application, unless it is the one that has
    /// closed it.
    fn end(&mut self, key: EndKey, is_reported: bool) {
        let Some(end) = self.ends.get_mut(key) else {
            return;
        };
        let stage = std::mem::replace(&mut end.stage, Stage::Ended);
        end.link.set_connected(false);
        end.pair.end();
        if let Stage::Connected(peer) = stage {
            if is_reported {
                end.events.shut_down();
            }
            self.end(peer, true);
        }
    }
}

impl Connections for Connector {
    type Bound = Bound;
    type Incomer = Incomer;
    type End = Arc<Pair>;

    fn requests(&self) -> &Requests<Incomer> {
        &self.requests
    }

    fn bind(&self, _: &Info, address: &[u8]) -> Result<Bound> {
        self.bind_to(address)
    }

    fn bound_address(&self, bound: &Bound) -> Option<Vec<u8>> {
        Some(bound.name())
    }

    fn incoming_addresses(&self, incomer: &Incomer) -> [Option<Vec<u8>>; 2] {
        [&incomer.own, &incomer.peer].map(|address| Some(encode(address)))
    }

    fn connect(
        &self,
        parts: Parts<Arc<Pair>>,
        info: &Info,
        bound: &mut Option<Bound>,
        peer: &[u8],
        data: &[u8],
    ) -> Result<EndKey> {
        let peer = sockaddr::decode(peer).ok_or(Errno::EINVAL)?;
        let mut state = self.table.state.lock();
        let own = bound.as_ref().map(|bound| bound.address);
        let mut own = own
            .or_else(|| sockaddr::decode(&info.src_addr))
            .unwrap_or(peer);
        if bound.is_none() {
            state.choose_port(&mut own)?;
        }
        let lost = &self.lost;
        let key = state.ends.insert_with_key(|key| {
            parts.link.belong(lost, key);
            End {
                own,
                peer,
                pair: parts.end,
                link: parts.link,
                events: parts.events,
                stage: Stage::Asking,
            }
        });
        let listener = state.listener(&peer);
        let listener = listener.filter(|listener| listener.has_room());
        if listener.is_none()
            && let Some(end) = state.ends.get_mut(key)
        {
            end.fail(&[]);
        }
        drop(state);
        let incomer = Incomer {
            own: peer,
            peer: own,
            from: key,
            table: self.table.clone(),
        };
        // Without the lock, which a request takes that cannot be reported.
        match listener {
            Some(listener) => listener.request(incomer, &encode(&own), data),
            None => drop(incomer),
        }
        Ok(key)
    }

    fn accept(
        &self,
        parts: Parts<Arc<Pair>>,
        incomer: Incomer,
        data: &[u8],
    ) -> std::result::Result<EndKey, (Errno, Option<Incomer>)> {
        let state = &mut *self.table.state.lock();
        let asking = state.ends.get_mut(incomer.from);
        let Some(asking) = asking.filter(|end| end.stage == Stage::Asking) else {
            // The lock is still held: the request must not be dropped here.
            return Err((Errno::ECONNABORTED, Some(incomer)));
        };
        let (ours, theirs) = (parts.end.clone(), asking.pair.clone());
        let (their_link, their_events) = (asking.link.clone(), asking.events.clone());
        let lost = &self.lost;
        let key = state.ends.insert_with_key(|key| {
            parts.link.belong(lost, key);
            End {
                own: incomer.own,
                peer: incomer.peer,
                pair: parts.end,
                link: parts.link.clone(),
                events: parts.events.clone(),
                stage: Stage::Connected(incomer.from),
            }
        });
        if let Some(asking) = state.ends.get_mut(incomer.from) {
            asking.stage = Stage::Connected(key);
        }
        ours.connect(theirs.number());
        theirs.connect(ours.number());
        parts.link.set_connected(true);
        their_link.set_connected(true);
        parts.events.connected(&[]);
        their_events.connected(data);
        Ok(key)
    }

    fn shut_down(&self, key: EndKey) -> Result {
        let state = &mut *self.table.state.lock();
        match state.ends.get(key).map(|end| end.stage) {
            Some(Stage::Asking) | None => Err(Errno::ENOTCONN),
            Some(_) => {
                state.end(key, true);
                Ok(())
            }
        }
    }

    fn remove(&self, key: EndKey) {
        let state = &mut *self.table.state.lock();
        state.end(key, false);
        state.ends.remove(key);
    }

    fn addresses(&self, key: EndKey) -> [Option<Vec<u8>>; 2] {
        let state = self.table.state.lock();
        match state.ends.get(key) {
            Some(end) => [&end.own, &end.peer].map(|address| Some(encode(address))),
            None => [None, None],
        }
    }
}

fn encode(address: &SocketAddr) -> Vec<u8> {
    sockaddr::encode(address).as_bytes().to_vec()
}

impl Progress for Connector {
    /// Ends the connections for which requests have failed.
    fn progress(&self) {
        for key in self.lost.take() {
            self.table.state.lock().end(key, true);
        }
    }

    fn wait_fd(&self) -> Option<RawFd> {
        Some(self.lost.as_fd().as_raw_fd())
    }

    fn prepare_wait(&self) -> bool {
        !self.lost.are_there()
    }
}

impl Ear for Connector {
    fn hear(&self) {}

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.events.descriptor()
    }
}
