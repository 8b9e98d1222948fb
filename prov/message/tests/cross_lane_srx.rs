//! Endpoints that take the receives of a shared context in another lane.

#![allow(clippy::unwrap_used, reason = "a panic is a failed test")]

mod pipe;

use std::ffi::{c_char, c_int};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use fabric_abi::{FI_ADDR_UNSPEC, FI_COMPLETION, FI_MULTI_RECV};
use prov_base::buffer::AppIov;
use prov_base::errno::Errno;
use prov_message::cross_lane_srx::{Answer, Receives, Sought};
use prov_message::{
    Context, Endpoints, EpKey, Inbox, InboxKey, NoLink, Poster, Reports, Taken, Transport,
};
use prov_util::cq::{Cq, CqConfig};
use prov_util::ffi::{Handle, Use};
use prov_util::matching::MultiId;
use prov_util::request::{Receive, Select};

enum Fake {}

impl Transport for Fake {
    const MIN_MULTI_RECV: usize = 8;
    type Link = NoLink;
    type Ack = ();
    type Name = ();
    type Endpoint = ();
}

/// A shared context in a lane of its own.
struct Shared {
    lane: Mutex<Lane>,
}

struct Lane {
    endpoints: Endpoints<Fake>,
    inbox: InboxKey,
    posted: u64,
}

impl Shared {
    fn new() -> Arc<Self> {
        let mut endpoints = Endpoints::default();
        let inbox = endpoints.add_inbox(16, true);
        Arc::new(Shared {
            lane: Mutex::new(Lane {
                endpoints,
                inbox,
                posted: 0,
            }),
        })
    }

    /// Posts a receive, without telling the endpoints of it.
    fn post(&self, receive: &mut Receive) {
        let mut lane = self.lane.lock().unwrap();
        lane.posted += 1;
        let poster = Poster {
            inbox: lane.inbox,
            ep: None,
            directed: false,
        };
        lane.endpoints.post(poster, receive).unwrap();
    }
}

impl Receives for Shared {
    fn arrive(&self, message: &Sought, waits: &AtomicBool, before: Option<u64>) -> Answer {
        let mut lane = self.lane.lock().unwrap();
        if before.is_some_and(|before| before != lane.posted) {
            return Answer::Later(lane.posted);
        }
        let inbox = lane.inbox;
        match lane.endpoints.match_in(inbox, message) {
            Some(matched) => Answer::Receive(matched),
            None => {
                waits.store(true, Ordering::SeqCst);
                Answer::None
            }
        }
    }

    fn any_posted(&self) -> bool {
        let lane = self.lane.lock().unwrap();
        let inbox = lane.endpoints.inbox(lane.inbox);
        inbox.is_some_and(Inbox::any_posted)
    }

    fn finish_multi(&self, tagged: bool, multi: MultiId) -> bool {
        let mut lane = self.lane.lock().unwrap();
        let inbox = lane.inbox;
        lane.endpoints.finish_multi(inbox, tagged, multi)
    }
}

/// An endpoint in its lane, with its queue.
struct Peer {
    endpoints: Endpoints<Fake>,
    ep: EpKey,
    cq: Use<Cq>,
    waits: Arc<AtomicBool>,
}

impl Peer {
    fn new() -> Self {
        let mut endpoints = Endpoints::default();
        let ep = pipe::add(&mut endpoints, 8, 8);
        let cq = Cq::new(CqConfig::default()).unwrap();
        let cq = Use::of(&Handle::new(cq, std::ptr::null_mut(), Vec::new()));
        endpoints.get_mut(ep).unwrap().reports.rx_cq = Some(cq.clone());
        Peer {
            endpoints,
            ep,
            cq,
            waits: Arc::default(),
        }
    }

    fn share(&mut self, shared: &Arc<Shared>) -> Result<(), Errno> {
        let (receives, waits) = (shared.clone(), self.waits.clone());
        let reports = Reports::default();
        self.endpoints
            .share_cross_lane(self.ep, receives, waits, reports)
    }

    fn arrive(&mut self, tag: Option<u64>, payload: &[u8]) {
        let arrival = pipe::arrival((self.ep, NoLink::default()), 0, tag, payload.len());
        assert_ne!(self.endpoints.take_in(&arrival, payload), Taken::Refused);
    }

    /// The contexts of the receives that have completed, with the flag of released buffers.
    fn completed(&self) -> Vec<(usize, bool)> {
        let mut completed = Vec::new();
        let _ = self.cq.read(16, |done| {
            completed.push((done.context.addr(), done.flags & FI_MULTI_RECV != 0));
        });
        completed
    }
}

fn receive(number: usize, place: &mut [u8], tag: Option<u64>) -> Receive {
    Receive {
        select: match tag {
            Some(tag) => Select::Tagged { tag, ignore: 0 },
            None => Select::Untagged,
        },
        // SAFETY: the memory lives as long as the test, which reads it through the queue alone.
        buffers: unsafe { AppIov::from_raw(place.as_mut_ptr(), place.len()) },
        desc: prov_util::desc::Descs::NONE,
        peer: FI_ADDR_UNSPEC,
        flags: FI_COMPLETION,
        context: std::ptr::without_provenance_mut(number),
    }
}

/// The framework's function, which this test binary does not have.
#[unsafe(no_mangle)]
extern "C" fn fi_strerror(_: c_int) -> *const c_char {
    c"an error".as_ptr()
}

#[test]
fn messages_that_wait_are_received_in_order_when_the_endpoint_is_bound() {
    let (shared, mut peer) = (Shared::new(), Peer::new());
    let mut places = [[0; 1]; 3];
    for (number, place) in places.iter_mut().enumerate() {
        shared.post(&mut receive(number, place, None));
    }
    for byte in [7, 8] {
        peer.arrive(None, &[byte]);
    }
    assert_eq!(peer.completed(), []);
    peer.share(&shared).unwrap();
    assert_eq!(peer.completed(), [(0, false), (1, false)]);
    peer.arrive(None, &[9]);
    assert_eq!(peer.completed(), [(2, false)]);
    assert_eq!(places, [[7], [8], [9]]);
}

#[test]
fn a_message_does_not_overtake_one_that_waits_for_the_same_receive() {
    let (shared, mut peer) = (Shared::new(), Peer::new());
    peer.share(&shared).unwrap();
    peer.arrive(None, &[1]);
    assert!(peer.waits.load(Ordering::SeqCst));
    let mut places = [[0; 1]; 2];
    // The endpoint has not heard of it when the next message arrives.
    shared.post(&mut receive(0, &mut places[0], None));
    peer.arrive(None, &[2]);
    assert_eq!(peer.completed(), [(0, false)]);
    shared.post(&mut receive(1, &mut places[1], None));
    assert!(peer.waits.load(Ordering::SeqCst));
    peer.endpoints.seek_for(peer.ep);
    assert_eq!(peer.completed(), [(1, false)]);
    assert!(!peer.waits.load(Ordering::SeqCst));
    assert_eq!(places, [[1], [2]]);
}

#[test]
fn tagged_messages_are_found_by_their_tags() {
    let (shared, mut peer) = (Shared::new(), Peer::new());
    peer.share(&shared).unwrap();
    for tag in [5, 6] {
        peer.arrive(Some(u64::from(tag)), &[tag]);
    }
    let mut place = [0; 1];
    shared.post(&mut receive(3, &mut place, Some(6)));
    peer.endpoints.seek_for(peer.ep);
    assert_eq!(peer.completed(), [(3, false)]);
    assert_eq!(place, [6]);
    assert!(peer.waits.load(Ordering::SeqCst));
}

#[test]
fn a_multi_receive_buffer_is_released_with_its_last_message() {
    let (shared, mut peer) = (Shared::new(), Peer::new());
    peer.arrive(None, &[1; 4]);
    peer.share(&shared).unwrap();
    let mut place = [0; 15];
    let mut multi = receive(4, &mut place, None);
    multi.flags |= FI_MULTI_RECV;
    shared.post(&mut multi);
    peer.endpoints.seek_for(peer.ep);
    peer.arrive(None, &[2; 4]);
    assert_eq!(peer.completed(), [(4, false), (4, true)]);
    assert_eq!(place[..8], [1, 1, 1, 1, 2, 2, 2, 2]);
}

#[test]
fn receives_of_the_endpoint_itself_get_no_messages_and_can_be_cancelled() {
    let (shared, mut peer) = (Shared::new(), Peer::new());
    let mut places = [[0; 1]; 3];
    let [first, second, third] = &mut places;
    let own = peer.endpoints.poster(peer.ep).unwrap();
    for (number, place) in [(1, first), (2, second)] {
        let mut receive = receive(number, place, None);
        peer.endpoints.post(own, &mut receive).unwrap();
    }
    peer.share(&shared).unwrap();
    peer.arrive(None, &[7]);
    assert_eq!(peer.completed(), []);
    shared.post(&mut receive(3, third, None));
    peer.endpoints.seek_for(peer.ep);
    assert_eq!(peer.completed(), [(3, false)]);
    let own = peer.endpoints.poster(peer.ep).unwrap();
    let one = Context::of(std::ptr::without_provenance_mut(1));
    peer.endpoints.cancel(own, one).unwrap();
    let cancelled = || {
        peer.cq
            .read_error()
            .map(|error| error.completion.context.addr())
    };
    assert_eq!(cancelled(), Ok(1));
    assert_eq!(peer.endpoints.cancel(own, one), Err(Errno::ENOENT));
    peer.endpoints.end_receives(peer.ep, Errno::ECANCELED);
    assert_eq!(cancelled(), Ok(2));
    assert_eq!(places, [[0], [0], [7]]);
}

#[test]
fn an_endpoint_that_leaves_keeps_its_messages() {
    let (shared, mut peer) = (Shared::new(), Peer::new());
    peer.share(&shared).unwrap();
    peer.arrive(None, &[1]);
    peer.endpoints.unshare(peer.ep);
    let mut places = [[0; 1]; 2];
    shared.post(&mut receive(0, &mut places[0], None));
    peer.endpoints.seek_for(peer.ep);
    assert_eq!(peer.completed(), []);
    let own = peer.endpoints.poster(peer.ep).unwrap();
    peer.endpoints
        .post(own, &mut receive(1, &mut places[1], None))
        .unwrap();
    assert_eq!(peer.completed(), [(1, false)]);
    peer.arrive(None, &[2]);
    peer.share(&shared).unwrap();
    assert_eq!(peer.completed(), [(0, false)]);
    assert_eq!(places, [[2], [1]]);
}

#[test]
fn a_context_of_the_same_lane_keeps_its_endpoints() {
    let (shared, mut peer) = (Shared::new(), Peer::new());
    let inbox = peer.endpoints.add_inbox(8, true);
    peer.endpoints.share(peer.ep, inbox).unwrap();
    assert_eq!(peer.share(&shared), Err(Errno::EOPBADSTATE));
}
