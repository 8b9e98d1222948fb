//! Connections, with the events of RDMA CM chosen by the test.

use std::ptr::null_mut;

use fabric_abi::{FI_CONNECTED, FI_SHUTDOWN, FI_VERSION};
use prov_device::link::Link;
use prov_util::eq::{ConnectionEvents, Eq, EventBody};
use prov_util::ffi::{Handle, Use};
use prov_util::wait::Attachment;

use super::*;
use crate::device::fake;
use crate::device::fake::xrc::{self as cm, Kind};
use crate::device::{ProtectionDomain, Terms};
use crate::lane::Lane;
use crate::lane::tests::{
    endpoint_over, fail_oldest, fail_oldest_receive, flush_oldest, lane, receive, send,
};
use crate::sys::ibverbs::IBV_QPS_INIT;

/// An endpoint with a connection to a peer, established or in progress.
struct Endpoint {
    manager: Arc<Manager>,
    key: EndKey,
    lane: Arc<Lane>,
    seats: Seats,
    eq: Use<Eq>,
}

#[derive(Debug, PartialEq)]
enum Told {
    Connected(Vec<u8>),
    ShutDown,
    Failed(Errno, Vec<u8>),
}

impl Endpoint {
    fn asking() -> Self {
        Self::asking_on(fake::context("fake"))
    }

    fn asking_on(context: Context) -> Self {
        let endpoint = Self::open(context, |manager, parts| {
            let peer = SocketAddress::Internet("10.0.0.1:7471".parse().unwrap());
            manager.connect(parts, None, None, &peer, b"hello").unwrap()
        });
        endpoint.happens(EventKind::AddressResolved, 0, &[]);
        endpoint.happens(EventKind::RouteResolved, 0, &[]);
        endpoint
    }

    /// Creates an endpoint that has accepted the request of a peer.
    fn accepting() -> Self {
        Self::open(fake::context("fake"), |manager, parts| {
            let mut id = Id::new(&manager.channel, PortSpace::Tcp, 0).unwrap();
            let own = SocketAddress::Internet("10.0.0.2:7471".parse().unwrap());
            id.bind(&own).unwrap();
            let accepted = manager.accept(parts, Incomer { id, asked: None }, &[]);
            accepted.unwrap_or_else(|(error, _)| panic!("{error}"))
        })
    }

    fn open(context: Context, begin: impl FnOnce(&Manager, EndParts) -> EndKey) -> Self {
        cm::be_at(context);
        let manager = Manager::fake(context);
        let (lane, pd) = (lane(context), ProtectionDomain::new(context).unwrap());
        let link = Arc::<Link>::default();
        let (pair, seats) = endpoint_over(&lane, &pd, &link);
        let eq = Eq::new(Attachment::None, FI_VERSION(2, 0));
        let eq = Use::of(&Handle::new(eq, null_mut(), Vec::new()));
        let parts = EndParts {
            pair,
            seats: seats.clone(),
            link,
            events: ConnectionEvents::new(eq.handle().named(), eq.clone()),
            config: EndConfig {
                context,
                is_shared: false,
                terms: Terms {
                    reads_as_target: 1,
                    reads_as_initiator: 1,
                    receiver_timer: 12,
                },
            },
        };
        let key = begin(&manager, parts);
        Endpoint {
            manager,
            key,
            lane,
            seats,
            eq,
        }
    }

    fn connected() -> Self {
        let endpoint = Self::asking();
        endpoint.happens(EventKind::Answered, 0, b"\x07welcome");
        assert_eq!(endpoint.told(), [Told::Connected(b"welcome".to_vec())]);
        endpoint
    }

    fn happens(&self, kind: EventKind, status: i32, data: &[u8]) {
        self.manager.state.lock().happened(Event {
            kind,
            key: number(self.key),
            status,
            data: data.to_vec(),
            pair: 17,
            incoming: None,
        });
    }

    /// Returns the events for the application.
    fn told(&self) -> Vec<Told> {
        let mut told = Vec::new();
        loop {
            let read = self.eq.read(usize::MAX, false, |event| {
                let EventBody::Connection { data, .. } = &event.body else {
                    panic!("{event:?}");
                };
                told.push(match event.kind {
                    FI_CONNECTED => Told::Connected(data.clone()),
                    FI_SHUTDOWN => Told::ShutDown,
                    other => panic!("{other}"),
                });
            });
            match (read, self.eq.read_error(false)) {
                (_, Ok(error)) => told.push(Told::Failed(error.err, error.err_data.into())),
                (Ok(_), _) => {}
                (Err(_), Err(_)) => return told,
            }
        }
    }

    fn told_in_a_turn(&self) -> Vec<Told> {
        assert!(!self.manager.prepare_wait());
        self.manager.progress();
        assert!(self.manager.prepare_wait());
        self.told()
    }
}

/// Returns the calls of RDMA CM.
fn asked() -> Vec<Kind> {
    cm::calls().iter().map(|call| call.kind).collect()
}

#[test]
fn a_request_that_fails_ends_its_connection_at_both_ends() {
    for is_receive in [false, true] {
        let endpoint = Endpoint::connected();
        let Endpoint { lane, seats, .. } = &endpoint;
        let name = |seat: &Option<crate::lane::Seat>| seat.as_ref().unwrap().name;
        assert!(endpoint.manager.prepare_wait());
        for _ in 0..2 {
            receive(seats).unwrap();
            send(seats).unwrap();
        }
        asked();
        match is_receive {
            true => fail_oldest_receive(lane, name(&seats.receive), 0),
            false => fail_oldest(lane, name(&seats.send), 0),
        }
        assert_eq!(send(seats), Err(Errno::ENOTCONN));
        assert_eq!(endpoint.told_in_a_turn(), [Told::ShutDown]);
        assert_eq!(asked(), [Kind::Disconnect]);
        assert_eq!(send(seats), Err(Errno::ENOTCONN));
        // Only once.
        fail_oldest(lane, name(&seats.send), if is_receive { 0 } else { 1 });
        assert_eq!(endpoint.told_in_a_turn(), []);
        endpoint.happens(EventKind::Disconnected, 0, &[]);
        assert_eq!(endpoint.told(), []);
    }
}

#[test]
fn a_request_that_fails_after_the_end_of_its_connection_is_not_reported() {
    let endpoint = Endpoint::connected();
    send(&endpoint.seats).unwrap();
    endpoint.happens(EventKind::Disconnected, 0, &[]);
    assert_eq!(endpoint.told(), [Told::ShutDown]);
    let name = endpoint.seats.send.as_ref().unwrap().name;
    fail_oldest(&endpoint.lane, name, 0);
    assert_eq!(endpoint.told_in_a_turn(), []);
    // Nor for one that is closed.
    let endpoint = Endpoint::connected();
    send(&endpoint.seats).unwrap();
    let name = endpoint.seats.send.as_ref().unwrap().name;
    fail_oldest(&endpoint.lane, name, 0);
    endpoint.manager.remove(endpoint.key);
    assert_eq!(endpoint.told_in_a_turn(), []);
}

#[test]
fn a_flush_before_a_connection_has_ended_ends_it() {
    let endpoint = Endpoint::connected();
    let name = endpoint.seats.send.as_ref().unwrap().name;
    send(&endpoint.seats).unwrap();
    flush_oldest(&endpoint.lane, name, 0);
    assert_eq!(endpoint.told_in_a_turn(), [Told::ShutDown]);
    // After that event, it is expected.
    let endpoint = Endpoint::connected();
    let name = endpoint.seats.send.as_ref().unwrap().name;
    send(&endpoint.seats).unwrap();
    endpoint.happens(EventKind::Disconnected, 0, &[]);
    flush_oldest(&endpoint.lane, name, 0);
    assert!(endpoint.manager.prepare_wait());
}

#[test]
fn a_connection_that_is_lost_before_the_peer_knows_of_it_is_ended_when_it_does() {
    let endpoint = Endpoint::accepting();
    let name = endpoint.seats.send.as_ref().unwrap().name;
    // The peer's first message may have arrived, and be answered.
    send(&endpoint.seats).unwrap();
    fail_oldest(&endpoint.lane, name, 0);
    assert_eq!(
        endpoint.told_in_a_turn(),
        [Told::Failed(Errno::EIO, Vec::new())]
    );
    asked();
    endpoint.happens(EventKind::Established, 0, &[]);
    assert_eq!(asked(), [Kind::Disconnect]);
    assert_eq!(endpoint.told(), []);
}

#[test]
fn iwarp_reports_only_that_a_connection_is_established() {
    fake::states();
    let endpoint = Endpoint::asking_on(fake::iwarp("fake"));
    // The system does the rest.
    assert_eq!(fake::states(), [IBV_QPS_INIT]);
    asked();
    endpoint.happens(EventKind::Established, 0, b"\x07welcome");
    assert_eq!(fake::states(), []);
    assert_eq!(endpoint.told(), [Told::Connected(b"welcome".to_vec())]);
    // There is no answer to confirm.
    assert_eq!(asked(), []);
    assert_eq!(send(&endpoint.seats), Ok(()));
    endpoint.happens(EventKind::Disconnected, 0, &[]);
    assert_eq!(endpoint.told(), [Told::ShutDown]);
}

#[test]
fn a_rejection_has_its_data_whichever_side_sends_it() {
    for status in [28, -libc::ECONNREFUSED] {
        let endpoint = Endpoint::asking();
        endpoint.happens(EventKind::Rejected, status, b"\x02no");
        let data = b"no".to_vec();
        assert_eq!(endpoint.told(), [Told::Failed(Errno::ECONNREFUSED, data)]);
    }
    // By RDMA CM itself.
    let endpoint = Endpoint::asking();
    endpoint.happens(EventKind::Rejected, 8, b"\x02no");
    assert_eq!(
        endpoint.told(),
        [Told::Failed(Errno::ECONNREFUSED, Vec::new())]
    );
}
