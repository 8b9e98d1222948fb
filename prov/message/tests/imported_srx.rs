//! An endpoint whose receives belong to another provider (fi_peer(3)). These are integration tests
//! because they need memory that an application lends, and the crate has no unsafe code.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::unreachable,
    reason = "what does not hold fails the test"
)]

mod pipe;

use std::ffi::{c_char, c_int, c_void};
use std::ptr::{null_mut, without_provenance_mut};
use std::sync::Arc;

use fabric_abi::{FI_COMPLETION, fi_peer_srx_context};
use pipe::Pipe;
use prov_base::buffer::AppIov;
use prov_base::errno::{Errno, Result};
use prov_base::sync::LockKind;
use prov_message::lane::NoErrand;
use prov_message::{
    Action, Arrival, Core, Course, Endpoints, EpKey, Expected, Idling, Importing, Lane, Limits,
    OwnerDrives, Placing, Receipt, Sources, Then, UnexpectedHandle, Unmatched,
};
use prov_util::av::InsertObserver;
use prov_util::cq::{Cq, CqConfig};
use prov_util::desc::Descs;
use prov_util::ffi::srx::{
    ImportedSrx, OwnedQueue, QueueOwner, SharedQueue, StartReceives, WholeReceive,
};
use prov_util::ffi::{Handle, Use};
use prov_util::matching::{ANY_SOURCE, Filter, Receive};
use prov_util::progress::Progress;
use prov_util::request::{Receive as Request, Select, Transmit};
use slotmap::{DefaultKey, SlotMap};

/// The content of the lane: a provider whose messages are chosen by the test.
struct Peers {
    endpoints: Endpoints<Pipe>,
    links: SlotMap<DefaultKey, ()>,
    /// Messages that begin in the next progress call.
    due: Vec<(Arrival<Pipe>, Vec<u8>)>,
    keeping: Vec<(UnexpectedHandle, Vec<u8>)>,
    placing: Vec<(DefaultKey, Box<Placing<Pipe>>)>,
    resumed: Vec<DefaultKey>,
    /// Sources that the address vector has learnt.
    learnt: Vec<(EpKey, DefaultKey, u64)>,
}

/// Takes the sources from the address vector.
enum Learnt {}

impl Sources<Peers> for Learnt {
    fn look(core: &mut Peers, _: EpKey) {
        for (ep, link, src) in std::mem::take(&mut core.learnt) {
            core.endpoints.relabel(ep, link, src);
        }
    }
}

impl Core for Peers {
    type Transport = Pipe;
    type Errand = NoErrand;
    type Sources = Learnt;

    fn endpoints(&mut self) -> &mut Endpoints<Pipe> {
        &mut self.endpoints
    }

    fn transmit(&mut self, _: EpKey, _: &mut Transmit) -> Result {
        Ok(())
    }

    fn act(&mut self, action: Action<Pipe>) {
        match action {
            Action::Resume(link, course) | Action::Redirect(link, course) => {
                self.resumed.push(link);
                if let Course::Place(placing) = course {
                    self.placing.push((link, placing));
                }
            }
            _ => {}
        }
    }

    fn progress(&mut self) -> Idling {
        if self.endpoints.is_deaf() {
            return Idling::No;
        }
        for (arrival, bytes) in std::mem::take(&mut self.due) {
            match self.endpoints.arrive(&arrival) {
                Some(Expected { memory, receipt }) => {
                    let placing = Placing {
                        persists: false,
                        place: prov_message::PayloadBuffer::App(memory),
                        done: 0,
                        then: Then::Receive(receipt),
                    };
                    self.placing.push((arrival.link, Box::new(placing)));
                }
                None => {
                    if let Unmatched::Keep(kept) = self.endpoints.unmatched(&arrival) {
                        self.keeping.push((kept, bytes));
                    }
                }
            }
        }
        self.follow_up();
        Idling::No
    }

    fn prepare_wait(&mut self, _sleeper: prov_message::Sleeper) -> bool {
        true
    }

    fn close(&mut self, ep: EpKey) {
        self.endpoints.close(ep);
    }
}

impl Peers {
    /// The rest of the buffered message arrives.
    fn complete(&mut self) {
        for (kept, bytes) in std::mem::take(&mut self.keeping) {
            assert!(self.endpoints.append(kept, &bytes, 0));
            self.endpoints.kept(kept);
        }
        self.follow_up();
    }

    /// The receive whose message is arriving.
    fn expected(&mut self) -> (Receipt<()>, AppIov) {
        let (_, placing) = self.placing.pop().unwrap();
        match placing.then {
            Then::Receive(receipt) => (receipt, placing.place.into_memory()),
            _ => panic!(),
        }
    }
}

struct Nobody;

impl QueueOwner for Nobody {
    fn buffer_released(&self, _: *mut c_void) {}

    fn received(&self, _: &WholeReceive) {}
}

struct Bench {
    lane: Arc<Lane<Peers>>,
    drive: OwnerDrives<Peers>,
    importing: Arc<Importing<Peers>>,
    ep: EpKey,
    link: DefaultKey,
    cq: Use<Cq>,
    place: Vec<u8>,
    /// The provider behind the one that has imported the queue.
    _shared: Handle<SharedQueue>,
    owner: Arc<OwnedQueue>,
}

fn bench(unexpected: usize) -> Bench {
    let owner = OwnedQueue::new(LockKind::Real, 8, Box::new(Nobody));
    let shared = owner.share();
    let mut context = fi_peer_srx_context {
        size: size_of::<fi_peer_srx_context>(),
        srx: shared.as_c(),
    };
    // SAFETY: the context describes a queue that the bench keeps as long as the imported one.
    let srx = unsafe { ImportedSrx::import((&raw mut context).cast()) }.unwrap();
    let mut links = SlotMap::with_key();
    let link = links.insert(());
    let lane = Lane::start(LockKind::Real, |_| {
        Ok(Peers {
            endpoints: Endpoints::new(Limits {
                unexpected,
                in_flight: 0,
                announcements: 10,
                unannounced: 0,
                saved: 0,
                memory: usize::MAX,
                strangers: None,
            }),
            links,
            due: Vec::new(),
            keeping: Vec::new(),
            placing: Vec::new(),
            resumed: Vec::new(),
            learnt: Vec::new(),
        })
    })
    .unwrap();
    let cq = Cq::new(CqConfig::default());
    let cq = Use::of(&Handle::new(cq.unwrap(), null_mut(), Vec::new()));
    let mut core = lane.core();
    let ep = pipe::add(&mut core.endpoints, 8, 8);
    core.endpoints.get_mut(ep).unwrap().reports.rx_cq = Some(cq.clone());
    let importing = Importing::new(&lane, ep);
    let home: Arc<dyn StartReceives> = importing.clone();
    let home = Arc::downgrade(&home);
    core.endpoints.import_receives(ep, srx, home).unwrap();
    drop(core);
    Bench {
        owner,
        _shared: shared,
        drive: OwnerDrives(lane.clone()),
        lane,
        importing,
        ep,
        link,
        cq,
        place: vec![0; 256 << 10],
    }
}

impl Bench {
    /// A peer sends, and the owner makes progress.
    fn sends_on(&self, link: DefaultKey, src: u64, tag: u64, len: usize) {
        let arrival = pipe::arrival((self.ep, link), src, Some(tag), len);
        let message = (arrival, vec![tag as u8; len]);
        self.lane.core().due.push(message);
        self.drives();
    }

    fn sends(&self, tag: u64, len: usize) {
        self.sends_on(self.link, 0, tag, len);
    }

    fn drives(&self) {
        let _section = self.owner.enter();
        self.drive.progress();
    }

    /// The owner's application posts a receive whose context is its tag.
    fn posts(&mut self, src: u64, tag: u64) {
        // SAFETY: `place` is a field of the bench, which outlives the receive, and has this length.
        let buf = unsafe { AppIov::from_raw(self.place.as_mut_ptr(), self.place.len()) };
        let receive = Receive {
            context: tag as usize,
            buf,
            src,
            tag,
            ignore: 0,
            flags: FI_COMPLETION,
        };
        self.owner.enter().post(true, receive).unwrap();
    }

    /// The context and length of the next completion, or its error.
    fn completes(&self) -> Option<(usize, Result<usize>)> {
        let mut done = None;
        match self.cq.read(1, |completion| {
            done = Some((completion.context.addr(), Ok(completion.len)));
        }) {
            Err(Errno::EAVAIL) => {
                let error = self.cq.read_error().unwrap();
                Some((error.completion.context.addr(), Err(error.err)))
            }
            _ => done,
        }
    }

    fn kept_bytes(&self) -> usize {
        self.lane.core().endpoints.kept_bytes()
    }

    /// The link ends, and with it the message that is arriving.
    fn breaks_while_it_arrives(&self, error: Errno) {
        let mut core = self.lane.core();
        let (receipt, memory) = core.expected();
        core.endpoints.received(&receipt, memory, Err(error));
        drop(core);
        self.breaks();
    }

    fn breaks(&self) {
        let mut core = self.lane.core();
        core.endpoints
            .link_ended(self.ep, self.link, Errno::ECONNRESET);
    }
}

#[test]
fn a_message_that_waited_is_received_when_the_owner_starts_it() {
    let mut bench = bench(1 << 20);
    bench.sends(7, 100);
    bench.lane.core().complete();
    assert!(bench.kept_bytes() > 0);
    bench.posts(ANY_SOURCE, 7);
    assert_eq!(bench.completes(), Some((7, Ok(100))));
    assert_eq!(bench.place[..100], [7; 100]);
    assert_eq!((bench.kept_bytes(), bench.completes()), (0, None));
}

#[test]
fn nothing_can_be_posted_to_the_endpoint_itself() {
    let bench = bench(1 << 20);
    let mut request = Request {
        select: Select::Untagged,
        buffers: AppIov::EMPTY,
        peer: ANY_SOURCE,
        flags: 0,
        context: without_provenance_mut(1),
        desc: Descs::NONE,
    };
    let posted = bench.lane.core().receive(bench.ep, &mut request);
    assert_eq!(posted, Err(Errno::ENOSYS));
}

#[test]
fn a_receive_whose_link_ends_is_reported_when_the_owner_drives_again() {
    let mut bench = bench(1 << 20);
    bench.posts(ANY_SOURCE, 7);
    bench.sends(7, 100);
    // The link ends in a call such as a send, which does not hold the owner's lock.
    bench.breaks_while_it_arrives(Errno::ECONNRESET);
    assert_eq!(bench.completes(), None);
    bench.drives();
    assert_eq!(bench.completes(), Some((7, Err(Errno::ECONNRESET))));
    assert_eq!(bench.completes(), None);
}

#[test]
fn an_incomplete_message_of_an_ended_peer_fails_when_it_is_started() {
    let mut bench = bench(1 << 20);
    bench.sends(7, 100);
    bench.sends(8, 0);
    bench.breaks();
    // The complete message can still be received.
    bench.posts(ANY_SOURCE, 8);
    assert_eq!(bench.completes(), Some((8, Ok(0))));
    assert_eq!(bench.kept_bytes(), 0);
    bench.posts(ANY_SOURCE, 7);
    assert_eq!(bench.completes(), Some((7, Err(Errno::ECONNRESET))));
}

#[test]
fn a_link_that_is_held_back_resumes_when_the_owner_takes_its_message_or_another() {
    let mut bench = bench(256 << 10);
    let other = bench.lane.core().links.insert(());
    bench.sends(7, 100_000);
    bench.lane.core().complete();
    bench.sends(8, 200_000);
    bench.sends_on(other, 1, 9, 90_000);
    assert_eq!(bench.lane.core().resumed, []);
    // That leaves room for the small message.
    bench.posts(ANY_SOURCE, 7);
    assert_eq!(bench.lane.core().resumed, [other]);
    bench.posts(ANY_SOURCE, 8);
    assert_eq!(bench.lane.core().resumed, [other, bench.link]);
    let (receipt, _) = bench.lane.core().expected();
    assert_eq!((receipt.context.0, receipt.len), (8, 200_000));
}

#[test]
fn room_is_given_to_links_only_while_the_owner_is_there() {
    let mut bench = bench(256 << 10);
    let other = bench.lane.core().links.insert(());
    bench.sends(7, 100_000);
    bench.sends_on(other, 1, 8, 90_000);
    bench.breaks();
    bench.lane.core().follow_up();
    assert_eq!(bench.lane.core().resumed, []);
    bench.drives();
    assert_eq!(bench.lane.core().resumed, [other]);
    bench.posts(ANY_SOURCE, 8);
    let (receipt, _) = bench.lane.core().expected();
    assert_eq!(receipt.context.0, 8);
}

#[test]
fn the_owner_learns_sources_and_messages_keep_their_order() {
    let mut bench = bench(1 << 20);
    bench.sends_on(bench.link, ANY_SOURCE, 7, 0);
    bench.posts(3, 7);
    assert_eq!(bench.completes(), None);
    {
        // The provider knows the source before it tells the owner.
        let mut core = bench.lane.core();
        core.endpoints.relabel(bench.ep, bench.link, 3);
    }
    bench.sends_on(bench.link, 3, 7, 0);
    assert_eq!(bench.completes(), None);
    bench.importing.inserted();
    assert_eq!(bench.completes(), Some((7, Ok(0))));
    bench.posts(3, 7);
    assert_eq!(bench.completes(), Some((7, Ok(0))));
    let core = &mut *bench.lane.core();
    assert!(
        core.endpoints
            .inbox(core.endpoints.get(bench.ep).unwrap().inbox)
            .is_some()
    );
}

#[test]
fn sources_that_the_vector_reports_reach_the_owner() {
    let mut bench = bench(1 << 20);
    bench.sends_on(bench.link, ANY_SOURCE, 7, 0);
    bench.posts(3, 7);
    let learnt = (bench.ep, bench.link, 3);
    bench.lane.core().learnt.push(learnt);
    bench.importing.inserted();
    assert_eq!(bench.completes(), Some((7, Ok(0))));
}

#[test]
fn a_message_that_the_owner_discards_is_freed() {
    let bench = bench(1 << 20);
    bench.sends(7, 100);
    bench.sends(8, 100);
    let section = bench.owner.enter();
    assert!(section.peek_discard(true, Filter::ANY).is_some());
    assert!(section.peek_discard(true, Filter::ANY).is_some());
    drop(section);
    assert_eq!((bench.kept_bytes(), bench.completes()), (0, None));
}

#[test]
fn an_endpoint_that_closes_takes_its_messages_with_it() {
    let mut bench = bench(1 << 20);
    bench.posts(ANY_SOURCE, 9);
    bench.sends(7, 100);
    bench.sends(9, 100);
    bench.breaks_while_it_arrives(Errno::ECANCELED);
    {
        let _section = bench.owner.enter();
        bench.lane.core().close(bench.ep);
    }
    assert_eq!(bench.kept_bytes(), 0);
    bench.drives();
    assert_eq!(bench.completes(), None);
    assert!(bench.owner.enter().peek(true, Filter::ANY).is_none());
}

/// The framework's function, which this test binary does not have.
#[unsafe(no_mangle)]
extern "C" fn fi_strerror(_: c_int) -> *const c_char {
    c"an error".as_ptr()
}
