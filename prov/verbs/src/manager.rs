//! The connections of a fabric (fi_cm(3)), whose progress is driven by reads of its event queues.

mod connection;
mod crossing;
mod enabled;
pub mod hello;
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
use prov_message::objects::RequestReporter;
use prov_util::attr::Info;
use prov_util::progress::Progress;
use slotmap::{DefaultKey, Key, KeyData, SlotMap};

use crate::address::{PortSpace, SocketAddress};
use crate::device::{Channel, Context, DeviceEvent, Event, EventKind, Id, QueuePair, is_number};
use crate::lane::{Ear, Seats};
use connection::{Connection, RESOLVING_MS, Stage};
use crossing::{Asked, Crossing, Initiators, Role};
use enabled::Enabled;
use hello::Hello;
use prov_device::link::{EndKey, Lost};
use watch::Watch;

pub use connection::{EndConfig, EndParts};
pub use crossing::XrcEnd;
pub use hello::DATA_LIMIT as XRC_DATA_LIMIT;
pub use message::DATA_LIMIT;

/// Largest number of events of one progress call, which is part of another call.
const MOST_EVENTS: usize = 64;

/// All ends and listeners of a fabric, with the channel of their events.
pub struct Manager {
    watch: Watch,
    channel: Arc<Channel>,
    state: Mutex<State>,
    /// A forked child does not use connections and listeners.
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
    /// The listener for datagrams of XRC that belongs to this listener.
    DatagramListener {
        of: EndKey,
        _id: Id,
    },
    /// A connection of XRC.
    Crossing(Box<Crossing>),
    /// An identifier of this connection of XRC.
    Part(EndKey, Role),
    /// A connection of XRC that is being processed.
    Away,
    Sentinel(Box<Sentinel>),
}

/// An identifier that is only bound to a device: identifiers are informed when the device goes
/// away; a driver that cannot revoke the device from its users reports it in no other way.
struct Sentinel {
    _id: Id,
    context: Context,
}

/// A listener.
struct Listener {
    id: Id,
    reporter: RequestReporter<Incomer>,
    describe: Describe,
    /// The listener for datagrams of XRC.
    datagrams: Option<EndKey>,
}

/// Sets the attributes with which an endpoint for such a peer is to be opened.
pub type Describe = Box<dyn Fn(&Incomer, &mut Info) + Send>;

/// A peer that requests a connection.
pub struct Incomer {
    /// Its identifier.
    pub id: Id,
    /// The parameters of a request of XRC.
    asked: Option<Asked>,
}

impl Manager {
    /// Creates a manager without connections.
    pub fn new() -> Result<Arc<Self>> {
        Manager::over(Channel::new()?)
    }

    /// Creates a manager with this channel.
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

    /// Creates a manager of a simulated device without events.
    #[cfg(test)]
    pub fn fake(context: Context) -> Arc<Self> {
        Manager::over(Channel::fake(context)).expect("a manager")
    }

    /// Requests a connection with `peer`, with connection data, from the address that `id` is bound
    /// to or else from `own`.
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
            // A bound address must not be given again.
            let own = own.filter(|_| !is_bound);
            id.resolve(own, peer, RESOLVING_MS)?;
            parts.link.belong(&lost, key);
            let data = data.to_vec();
            let connection = Connection::new(id, Stage::Resolving, parts, data);
            Ok(End::Connection(Box::new(connection)))
        })
    }

    /// Accepts the request of a peer; returns the request if that fails.
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
            // The peer's messages may arrive before the event of the connection, and be answered.
            connection.link.set_connected(true);
            Ok(End::Connection(Box::new(connection)))
        });
        outcome.map_err(|error| (error, taken))
    }

    /// Makes `id` listen; requests go to the reporter, with the attributes that `describe` sets. So
    /// does `datagrams`, for XRC, at the same port.
    pub fn listen(
        &self,
        id: Id,
        datagrams: Option<Id>,
        reporter: RequestReporter<Incomer>,
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
                reporter,
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

    /// Ends a connection, with an event for the application.
    pub fn shut_down(&self, key: EndKey) -> Result {
        let state = &mut *self.state.lock();
        match state.ends.get_mut(key) {
            Some(End::Connection(connection)) => connection.shut_down(),
            _ => state.uncross(key),
        }
    }

    /// Ends a connection or a listener for good. No further events follow.
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

    /// Returns the own address of an end or listener.
    pub fn local_address(&self, key: EndKey) -> Option<SocketAddress> {
        match self.state.lock().ends.get(key)? {
            End::Connection(connection) => connection.id.local_address(),
            End::Listener(listener) => listener.id.local_address(),
            End::Crossing(crossing) => crossing.local_address(),
            _ => None,
        }
    }

    /// Returns the address of an end's peer.
    pub fn peer_address(&self, key: EndKey) -> Option<SocketAddress> {
        match self.state.lock().ends.get(key)? {
            End::Connection(connection) => connection.id.peer_address(),
            End::Crossing(crossing) => Some(crossing.peer.clone()),
            _ => None,
        }
    }

    /// Registers an enabled endpoint: if its device goes away, its requests end.
    pub fn enabled(&self, context: Context, pair: Arc<QueuePair>, seats: Seats) {
        self.state.lock().enabled.add(context, pair, seats);
    }

    /// Makes the kernel report when a device goes away, for endpoints without connections.
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

    /// Handles the closing of the endpoint of a queue pair.
    pub fn closed(&self, pair: &Arc<QueuePair>) {
        self.state.lock().enabled.remove(pair);
    }

    /// Handles an event of a device.
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

    /// Rejects the request of a peer, with connection data.
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

/// Returns the number for identifiers.
fn number(key: EndKey) -> u64 {
    key.data().as_ffi()
}

impl State {
    /// Adds the end that `make` creates for a key.
    fn add(&mut self, make: impl FnOnce(&Arc<Channel>, EndKey) -> Result<End>) -> Result<EndKey> {
        let channel = &self.channel;
        self.ends.try_insert_with_key(|key| make(channel, key))
    }

    /// Processes some events. The channel stays readable if there are more.
    fn take_events(&mut self) {
        for _ in 0..MOST_EVENTS {
            let Some(event) = self.channel.next_event() else {
                return;
            };
            self.happened(event);
        }
    }

    /// Ends the connections for which requests have failed.
    fn end_lost(&mut self) {
        for key in self.lost.take() {
            match self.ends.get_mut(key) {
                Some(End::Connection(connection)) => connection.lost(),
                Some(End::Crossing(_)) => self.lose_crossing(key),
                // It has been closed.
                _ => {}
            }
        }
    }

    fn happened(&mut self, event: Event) {
        let key = EndKey::from(KeyData::from_ffi(event.key));
        // A request for an XRC connection.
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
        // The end may have been closed.
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
                    let Listener {
                        reporter, describe, ..
                    } = &**listener;
                    reporter.request_with(incomer, &peer, data, describe);
                }
            }
        }
    }
}

/// Number of unanswered requests at a passive endpoint above which further ones are rejected: more
/// than there are when a large job starts.
pub const UNANSWERED_LIMIT: usize = 4096;

impl Listener {
    /// Whether the application answers fast enough. If not, the identifier of the request is
    /// destroyed, and RDMA CM rejects it.
    fn has_room(&self) -> bool {
        let has_room = self.reporter.unanswered() < UNANSWERED_LIMIT;
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
