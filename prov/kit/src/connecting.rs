//! Connected endpoints: `FI_EP_MSG` (fi_cm(3)).

use fabric_abi::{FI_CONNECTED, FI_SHUTDOWN};
use prov_base::errno::{Errno, Result};
use prov_util::eq::{Eq, EventBody};

use crate::{Bench, Opened, Setting, Side, World};

/// A [`Bench`] whose endpoints have to be connected: it has listeners, too. Its [`Bench::introduce`]
/// is [`connect`].
pub trait Connecting: Bench {
    /// A request for a connection.
    type Request;
    /// Largest connection data in bytes.
    const DATA_LIMIT: usize;

    /// Begins to listen; returns the address.
    fn listen(&mut self) -> Vec<u8>;

    /// Stops listening.
    fn stop_listening(&mut self);

    /// An address at which nobody listens.
    fn nobody(&mut self) -> Vec<u8>;

    /// Drives the listener. Returns the next request, and the data that has come with it.
    fn next_request(&self) -> Option<(Self::Request, Vec<u8>)>;

    /// Asks for a connection (fi_connect(3)).
    ///
    /// # Errors
    /// Those of fi_connect(3).
    fn connect(&self, from: &Opened<Self::Core>, to: &[u8], data: &[u8]) -> Result;

    /// Accepts a request (fi_accept(3)).
    ///
    /// # Errors
    /// Those of fi_accept(3).
    fn accept(&self, at: &Opened<Self::Core>, request: Self::Request, data: &[u8]) -> Result;

    /// Rejects a request (fi_reject(3)).
    fn reject(&self, request: Self::Request, data: &[u8]);

    /// Ends a connection (fi_shutdown(3)).
    fn shut_down(&self, at: &Opened<Self::Core>);
}

/// An event of a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ConnectionEvent {
    /// It is there (`FI_CONNECTED`); the data came with the acceptance.
    Connected(Vec<u8>),
    /// It has ended (`FI_SHUTDOWN`).
    ShutDown,
    /// It has failed; the data came with the refusal.
    Failed(Errno, Vec<u8>),
}

/// Reads the next event of a connection.
pub(crate) fn next_event(eq: &Eq) -> Option<ConnectionEvent> {
    let mut found = None;
    let read = eq.read(usize::MAX, false, |event| {
        found = match (&event.body, event.kind) {
            (EventBody::Connection { data, .. }, FI_CONNECTED) => {
                Some(ConnectionEvent::Connected(data.clone()))
            }
            (EventBody::Connection { .. }, FI_SHUTDOWN) => Some(ConnectionEvent::ShutDown),
            _ => panic!("{event:?}"),
        };
    });
    if read == Err(Errno::EAVAIL) {
        let error = eq.read_error(false).unwrap();
        return Some(ConnectionEvent::Failed(error.err, error.err_data.into()));
    }
    found
}

/// Connects two endpoints, to each of which the other one is number 0 and 1 alike.
pub fn connect<B: Connecting>(bench: &mut B, sides: &[&Side<B>]) {
    let [from, at] = sides else {
        panic!("{} endpoints are to be connected", sides.len());
    };
    let address = bench.listen();
    bench.connect(from.opened(), &address, &[]).unwrap();
    let drive = || sides.iter().for_each(|side| side.drive());
    let request = loop {
        match bench.next_request() {
            Some((request, _)) => break request,
            None => drive(),
        }
    };
    bench.accept(at.opened(), request, &[]).unwrap();
    for side in sides {
        let event = loop {
            match side.take_event() {
                Some(event) => break event,
                None => drive(),
            }
        };
        assert_eq!(event, ConnectionEvent::Connected(Vec::new()));
    }
    bench.stop_listening();
}

impl<B: Connecting> World<B> {
    /// Endpoints without connections, and the address at which the bench listens.
    pub fn unconnected(count: usize) -> (World<B>, Vec<u8>) {
        let mut world = World::<B>::of_strangers(Setting::default(), count);
        let address = world.bench.listen();
        (world, address)
    }

    /// Two endpoints, connected.
    pub fn connected() -> World<B> {
        World::of(2)
    }

    /// Asks for a connection.
    pub fn connect(&self, from: usize, to: &[u8], data: &[u8]) {
        self.bench.connect(self[from].opened(), to, data).unwrap();
    }

    /// The next request, with the data that has come with it.
    #[track_caller]
    pub fn request(&self) -> (B::Request, Vec<u8>) {
        self.until(|| self.bench.next_request())
    }

    /// Accepts a request.
    pub fn accept(&self, at: usize, request: B::Request, data: &[u8]) {
        let accepted = self.bench.accept(self[at].opened(), request, data);
        accepted.unwrap();
    }

    /// Connects two endpoints.
    #[track_caller]
    pub fn join_up(&self, from: usize, at: usize, address: &[u8]) {
        self.connect(from, address, &[]);
        let (request, _) = self.request();
        self.accept(at, request, &[]);
        for side in [from, at] {
            assert_eq!(self.event(side), ConnectionEvent::Connected(Vec::new()));
        }
    }

    /// The next event of an endpoint's connection.
    #[track_caller]
    pub fn event(&self, at: usize) -> ConnectionEvent {
        self.until(|| self[at].take_event())
    }
}
