//! The connections of a fabric (fi_cm(3)), which reads of its event queues move
//! on.

mod connection;
mod crossing;
mod enabled;
mod hello;
mod message;
#[cfg(test)]
mod tests;
mod watch;

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;

use parking_lot::Mutex;
use prov_base::errno::{Errno, Result};
use prov_base::netif;
use prov_base::process::Process;
use prov_base::warn_again;
use prov_message::objects::Door;
use prov_util::attr::Info;
use prov_util::progress::Progress;
use slotmap::{DefaultKey, Key, KeyData, SlotMap};

use crate::address::{PortSpace, SocketAddress};
use crate::device::{Channel, Context, DeviceEvent, Event, EventKind, Id, QueuePair, is_number};
use crate::lane::{Ear, Seats};
use crate::link::{EndKey, Lost};
use connection::{Connection, RESOLVING_MS, Stage};
use crossing::{Asked, Crossing, Initiators, Role};
use enabled::Enabled;
use hello::Hello;
use watch::Watch;

pub use connection::{EndConfig, EndParts};
pub use crossing::XrcEnd;
pub use hello::DATA_LIMIT as XRC_DATA_LIMIT;
pub use message::DATA_LIMIT;

/// Events that one turn takes: who drives it wants something else.
const MOST_EVENTS: usize = 64;

/// All ends and listeners of a fabric, with the channel of their events.
pub struct Manager {
    watch: Watch,
    channel: Arc<Channel>,
    state: Mutex<State>,
    /// A forked child leaves connections and listeners alone.
    process: Process,
}

struct State {
    ends: SlotMap<DefaultKey, End>,
    enabled: Enabled,
    initiators: Initiators,
    lost: Arc<Lost>,
    channel: Arc<Channel>,
}

enum End {
    Connection(Box<Connection>),
    Listener(Box<Listener>),
    /// Of XRC, and who listens for datagrams in place of this listener.
    DatagramListener {
        of: EndKey,
        _id: Id,
    },
    /// A connection of XRC.
    Crossing(Box<Crossing>),
    /// An identifier of this connection of XRC.
    Part(EndKey, Role),
    /// A connection of XRC that is worked on.
    Away,
    Sentinel(Box<Sentinel>),
}

/// Nothing but an identifier on a device: those are told when it goes away, where a
/// driver that cannot take it from its users says nothing else.
struct Sentinel {
    _id: Id,
    context: Context,
}

/// What listens.
struct Listener {
    id: Id,
    door: Door<Incomer>,
    describe: Describe,
    /// Of XRC: who listens for datagrams.
    datagrams: Option<EndKey>,
}

/// Says what an endpoint for such a peer is to be opened with.
pub type Describe = Box<dyn Fn(&Incomer, &mut Info) + Send>;

/// A peer that asks for a connection.
pub struct Incomer {
    /// Its identifier.
    pub id: Id,
    /// What it asks for with XRC.
    asked: Option<Asked>,
}

impl Manager {
    /// Without connections.
    pub fn new() -> Result<Arc<Self>> {
        Manager::over(Channel::new()?)
    }

    /// Without connections, of which this channel tells.
    fn over(channel: Arc<Channel>) -> Result<Arc<Self>> {
        let lost = Arc::new(Lost::new()?);
        let manager = Arc::new(Manager {
            watch: Watch::new(channel.as_fd(), lost.as_fd())?,
            channel: channel.clone(),
            process: Process::current(),
            state: Mutex::new(State {
                ends: SlotMap::new(),
                enabled: Enabled::default(),
                initiators: Initiators::default(),
                lost,
                channel,
            }),
        });
        watch::join(&manager);
        Ok(manager)
    }

    /// Of a made-up device, where nothing happens.
    #[cfg(test)]
    pub fn fake(context: Context) -> Arc<Self> {
        Manager::over(Channel::fake(context)).expect("a manager")
    }

    /// Asks `peer` for a connection, with connection data, from the address that
    /// `id` is bound to or else from `own`.
    pub fn connect(
        &self,
        parts: EndParts,
        id: Option<Id>,
        own: Option<&SocketAddress>,
        peer: &SocketAddress,
        data: &[u8],
    ) -> Result<EndKey> {
        let state = &mut *self.state.lock();
        let is_bound = id.is_some();
        let lost = state.lost.clone();
        state.add(|channel, key| {
            let mut id = match id {
                None => Id::new(channel, peer.space(), number(key))?,
                Some(mut id) => {
                    id.move_to(channel, number(key))?;
                    id
                }
            };
            // An address that is taken already is not to be named again.
            let own = own.filter(|_| !is_bound);
            id.resolve(own, peer, RESOLVING_MS)?;
            parts.link.belong(&lost, key);
            let data = data.to_vec();
            let connection = Connection::new(id, Stage::Resolving, parts, data);
            Ok(End::Connection(Box::new(connection)))
        })
    }

    /// Says yes to a peer that asks; gives it back where that cannot be said.
    pub fn accept(
        &self,
        parts: EndParts,
        incomer: Incomer,
        data: &[u8],
    ) -> std::result::Result<EndKey, (Errno, Option<Incomer>)> {
        let state = &mut *self.state.lock();
        let mut taken = Some(incomer);
        let lost = state.lost.clone();
        let outcome = state.add(|channel, key| {
            let mut incomer = taken.take().ok_or(Errno::EINVAL)?;
            if incomer.asked.is_some() {
                taken = Some(incomer);
                return Err(Errno::EINVAL);
            }
            if !incomer.id.is_on(parts.config.context) {
                taken = Some(incomer);
                return Err(Errno::ENODEV);
            }
            incomer.id.move_to(channel, number(key))?;
            parts.link.belong(&lost, key);
            let data = message::answer(data);
            let mut connection = Connection::new(incomer.id, Stage::Accepting, parts, Vec::new());
            connection.ready()?;
            let param = connection.param(&data);
            connection.id.accept(&param)?;
            // What the peer sends may be here before the word that it can, and be
            // answered.
            connection.link.set_connected(true);
            Ok(End::Connection(Box::new(connection)))
        });
        outcome.map_err(|error| (error, taken))
    }

    /// Has `id` listen; who asks comes to the door, with what `describe` says. So does
    /// `datagrams`, for XRC, at the same port.
    pub fn listen(
        &self,
        id: Id,
        datagrams: Option<Id>,
        door: Door<Incomer>,
        backlog: i32,
        describe: Describe,
    ) -> Result<EndKey> {
        let state = &mut *self.state.lock();
        let listener = state.add(|channel, key| {
            let mut id = id;
            id.move_to(channel, number(key))?;
            id.listen(backlog)?;
            Ok(End::Listener(Box::new(Listener {
                id,
                door,
                describe,
                datagrams: None,
            })))
        })?;
        if let Some(mut id) = datagrams {
            let added = state.add(|channel, key| {
                id.move_to(channel, number(key))?;
                id.listen(backlog)?;
                Ok(End::DatagramListener {
                    of: listener,
                    _id: id,
                })
            });
            match (added, state.ends.get_mut(listener)) {
                (Ok(key), Some(End::Listener(listener))) => listener.datagrams = Some(key),
                (added, _) => {
                    state.ends.remove(listener);
                    added?;
                }
            }
        }
        Ok(listener)
    }

    /// Ends a connection; the application hears of it.
    pub fn shut_down(&self, key: EndKey) -> Result {
        let state = &mut *self.state.lock();
        match state.ends.get_mut(key) {
            Some(End::Connection(connection)) => connection.shut_down(),
            _ => state.uncross(key),
        }
    }

    /// Ends a connection or a listener for good. No event comes any more.
    pub fn remove(&self, key: EndKey) {
        if !self.process.is_current() {
            return;
        }
        let mut state = self.state.lock();
        let end = state.ends.remove(key);
        match end {
            Some(End::Connection(mut connection)) => connection.leave(),
            Some(End::Crossing(crossing)) => state.leave(crossing),
            Some(End::Listener(listener)) => {
                if let Some(datagrams) = listener.datagrams {
                    state.ends.remove(datagrams);
                }
            }
            _ => {}
        }
    }

    /// The own address of an end or listener.
    pub fn local_address(&self, key: EndKey) -> Option<SocketAddress> {
        match self.state.lock().ends.get(key)? {
            End::Connection(connection) => connection.id.local_address(),
            End::Listener(listener) => listener.id.local_address(),
            End::Crossing(crossing) => crossing.local_address(),
            _ => None,
        }
    }

    /// The address of an end's peer.
    pub fn peer_address(&self, key: EndKey) -> Option<SocketAddress> {
        match self.state.lock().ends.get(key)? {
            End::Connection(connection) => connection.id.peer_address(),
            End::Crossing(crossing) => Some(crossing.peer.clone()),
            _ => None,
        }
    }

    /// An endpoint is enabled: when its device goes away, its requests end.
    pub fn enabled(&self, context: Context, pair: Arc<QueuePair>, seats: Seats) {
        self.state.lock().enabled.add(context, pair, seats);
    }

    /// Has the system say when a device goes away, to endpoints without connections.
    pub fn attend(&self, context: Context) {
        let state = &mut *self.state.lock();
        let mut ends = state.ends.values();
        if ends.any(|end| matches!(end, End::Sentinel(known) if known.context == context)) {
            return;
        }
        for interface in netif::interfaces(None) {
            let mut address = interface.addr;
            address.set_port(0);
            let added = state.add(|channel, key| {
                let mut id = Id::new(channel, PortSpace::Tcp, number(key))?;
                id.bind(&SocketAddress::Internet(address))?;
                match id.context() == Some(context) {
                    true => Ok(End::Sentinel(Box::new(Sentinel { _id: id, context }))),
                    false => Err(Errno::ENODEV),
                }
            });
            if added.is_ok() {
                return;
            }
        }
        log::info!(
            target: crate::LOG.core,
            "{context:?} has no address, by which one would hear that it goes away"
        );
    }

    /// The endpoint of a queue pair is closed.
    pub fn closed(&self, pair: &Arc<QueuePair>) {
        self.state.lock().enabled.remove(pair);
    }

    /// A device has said something.
    fn device_says(&self, context: Context, event: DeviceEvent) {
        let state = &mut *self.state.lock();
        for (_, end) in &mut state.ends {
            if let End::Connection(connection) = end
                && connection.config.context == context
            {
                connection.device_says(event);
            }
        }
        state.device_says_to_crossings(context, event);
        if event == DeviceEvent::Failed {
            state.enabled.device_failed(context);
        }
    }

    /// Tells a peer that asks that it is rejected, with connection data.
    pub fn refuse(&self, mut incomer: Incomer, data: &[u8]) {
        let _state = self.state.lock();
        let message = match incomer.asked {
            None => message::answer(data),
            Some(Asked { hello, .. }) => Hello {
                target: 0,
                queue: 0,
                ..hello
            }
            .with(data),
        };
        if let Err(error) = incomer.id.reject(&message) {
            log::info!(target: crate::LOG.ep_ctrl, "rdma_reject: {error}");
        }
    }
}

/// As identifiers have it.
fn number(key: EndKey) -> u64 {
    key.data().as_ffi()
}

impl State {
    /// Adds what `make` makes for a key.
    fn add(&mut self, make: impl FnOnce(&Arc<Channel>, EndKey) -> Result<End>) -> Result<EndKey> {
        let channel = &self.channel;
        self.ends.try_insert_with_key(|key| make(channel, key))
    }

    /// Takes some events. The channel stays readable while there are others.
    fn take_events(&mut self) {
        for _ in 0..MOST_EVENTS {
            let Some(event) = self.channel.next_event() else {
                return;
            };
            self.happened(event);
        }
    }

    /// Ends the connections that requests have failed of.
    fn end_lost(&mut self) {
        for key in self.lost.take() {
            match self.ends.get_mut(key) {
                Some(End::Connection(connection)) => connection.lost(),
                Some(End::Crossing(_)) => self.lose_crossing(key),
                // It is closed.
                _ => {}
            }
        }
    }

    fn happened(&mut self, event: Event) {
        let key = EndKey::from(KeyData::from_ffi(event.key));
        // A request for one of XRC.
        let (key, is_datagram) = match self.ends.get(key) {
            Some(&End::Part(of, role)) => return self.part_happened(of, role, event),
            Some(&End::DatagramListener { of, .. }) => (of, true),
            Some(End::Listener(listener)) if listener.datagrams.is_some() => (key, false),
            _ => return self.happened_to(key, event),
        };
        if let (EventKind::Requested, Some(id)) = (event.kind, event.incoming) {
            self.asked_for(key, id, &event.data, is_datagram);
        }
    }

    fn happened_to(&mut self, key: EndKey, event: Event) {
        // Of an end that has been closed.
        let Some(end) = self.ends.get_mut(key) else {
            return;
        };
        match end {
            End::Connection(connection) => connection.happened(event),
            End::DatagramListener { .. } | End::Crossing(_) | End::Part(..) | End::Away => {}
            End::Sentinel(sentinel) => {
                let context = sentinel.context;
                if event.kind == EventKind::DeviceRemoved {
                    // The device waits for that.
                    self.ends.remove(key);
                    self.enabled.device_failed(context);
                }
            }
            End::Listener(listener) => {
                if let (EventKind::Requested, Some(id)) = (event.kind, event.incoming) {
                    if !listener.has_room() {
                        return;
                    }
                    let incomer = Incomer { id, asked: None };
                    let peer = incomer.id.peer_address();
                    let data = message::of_request(peer.as_ref(), &event.data);
                    let peer = peer.map(|address| address.encode()).unwrap_or_default();
                    let Listener { door, describe, .. } = &**listener;
                    door.request_with(incomer, &peer, data, describe);
                }
            }
        }
    }
}

/// Requests without an answer at a passive endpoint, beyond which further ones are
/// rejected: more than there are when a large job begins.
pub const UNANSWERED_LIMIT: usize = 4096;

impl Listener {
    /// Whether the application keeps up with its answers. If not, who asks is let go of,
    /// and rejected by RDMA CM.
    fn has_room(&self) -> bool {
        let has_room = self.door.unanswered() < UNANSWERED_LIMIT;
        if !has_room {
            warn_again!(
                target: crate::LOG.ep_ctrl,
                "a connection request is rejected: too many have no answer"
            );
        }
        has_room
    }
}

impl Ear for Manager {
    fn hear(&self) {
        self.progress();
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

impl Progress for Manager {
    fn progress(&self) {
        let ready = self.watch.ready();
        if ready.devices {
            watch::hear_devices();
        }
        for context in ready.gone {
            self.device_says(context, DeviceEvent::Failed);
        }
        if (ready.channel || ready.lost)
            && let Some(mut state) = self.state.try_lock()
        {
            state.take_events();
            state.end_lost();
        }
    }

    fn wait_fd(&self) -> Option<RawFd> {
        Some(self.watch.as_raw_fd())
    }

    fn prepare_wait(&self) -> bool {
        !self.watch.has_some()
    }
}
