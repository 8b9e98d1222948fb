//! Model test of [`Peers`], for any sequence of events of links that open and end arbitrarily: no
//! waiting request is lost, sent twice or reordered; attempts are made one at a time and end in
//! time; numbers lead to the addresses that they mean.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use proptest::prelude::*;
use slotmap::SlotMap;

use super::tests::Vector;
use super::*;

new_key_type! { struct LinkKey; }

const ADDRESSES: std::ops::Range<u8> = b'A'..b'F';
const CONNECT: Duration = Duration::from_millis(400);

#[derive(Clone, Debug)]
enum Event {
    Insert(char),
    Remove(u64),
    Post(u64),
    /// The application posts an operation that it has to retry.
    Come(u64),
    /// A receive for one peer's messages is posted.
    Seek(u64),
    /// Links have room for this many requests when they open.
    Room(usize),
    /// Attempts that start fail immediately.
    Fail(bool),
    Open(char),
    Break(char, u8),
    /// The peer establishes a link, which then opens or fails like others.
    Call(char),
    /// The same, but the peer's request waits for the end of our attempt.
    Cross(char),
    Drain(char),
    Pass(u16),
    Follow,
}

fn event() -> impl Strategy<Value = Event> {
    let addr = ADDRESSES.prop_map(char::from);
    let number = 0..5u64;
    prop_oneof![
        3 => addr.clone().prop_map(Event::Insert),
        1 => number.clone().prop_map(Event::Remove),
        8 => number.clone().prop_map(Event::Post),
        2 => number.clone().prop_map(Event::Come),
        2 => number.prop_map(Event::Seek),
        1 => (0..4usize).prop_map(Event::Room),
        1 => any::<bool>().prop_map(Event::Fail),
        4 => addr.clone().prop_map(Event::Open),
        3 => (addr.clone(), any::<u8>()).prop_map(|(addr, how)| Event::Break(addr, how)),
        2 => addr.clone().prop_map(Event::Call),
        1 => addr.clone().prop_map(Event::Cross),
        2 => addr.prop_map(Event::Drain),
        3 => (0..200u16).prop_map(Event::Pass),
        1 => Just(Event::Follow),
    ]
}

/// What the provider knows of a peer without [`Peers`].
#[derive(Clone, Copy, PartialEq, Debug)]
enum State {
    Nothing,
    /// An attempt, with its link.
    UnderWay(LinkKey),
    Pausing(Instant),
    Open(LinkKey),
}

struct Known {
    state: State,
    /// The deadline of the attempts, while there are any.
    deadline: Option<Instant>,
    crossing: Option<LinkKey>,
    /// Operations that were posted and have not ended, oldest first.
    waiting: VecDeque<u32>,
    /// Whether receives wait for the peer.
    is_missed: bool,
    /// Whether the application retries an operation for it.
    is_asked: bool,
    is_lost: bool,
    /// The source that was assigned to the messages on its link.
    label: u64,
}

impl Default for Known {
    fn default() -> Self {
        Known {
            state: State::Nothing,
            deadline: None,
            crossing: None,
            waiting: VecDeque::new(),
            is_missed: false,
            is_asked: false,
            is_lost: false,
            label: UNKNOWN_SOURCE,
        }
    }
}

struct World {
    av: Arc<Vector>,
    peers: Peers<LinkKey, Arc<Vector>, u32>,
    /// The peer's address for every link that exists.
    links: SlotMap<LinkKey, char>,
    known: BTreeMap<char, Known>,
    now: Instant,
    posted: u32,
    ended: u32,
    room: usize,
    fails: bool,
}

impl World {
    fn new() -> Self {
        let av = Arc::new(Vector::default());
        let mut peers = Peers::new(Patience::within(CONNECT));
        peers.bind_av(av.clone());
        World {
            av,
            peers,
            links: SlotMap::with_key(),
            known: ADDRESSES
                .map(|addr| (addr.into(), Known::default()))
                .collect(),
            now: Instant::now(),
            posted: 0,
            ended: 0,
            room: usize::MAX,
            fails: false,
        }
    }

    fn of(&mut self, addr: char) -> &mut Known {
        self.known.get_mut(&addr).unwrap()
    }

    fn address(&self, key: PeerKey) -> char {
        *self.peers.address(key).unwrap()
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Insert(addr) => {
                self.av.insert(addr);
            }
            Event::Remove(number) => self.av.remove(number),
            Event::Post(number) => self.post(number),
            Event::Come(number) => self.come(number),
            Event::Seek(number) => self.seek(number),
            Event::Room(room) => self.room = if room == 0 { usize::MAX } else { room },
            Event::Fail(fails) => self.fails = fails,
            Event::Open(addr) => {
                if let State::UnderWay(link) = self.of(addr).state {
                    self.open(addr, link);
                }
            }
            Event::Break(addr, how) => self.break_link(addr, how),
            Event::Call(addr) => self.call(addr),
            Event::Cross(addr) => self.cross(addr),
            Event::Drain(addr) => {
                if let State::Open(link) = self.of(addr).state {
                    self.drain(addr, link, usize::MAX);
                }
            }
            Event::Pass(time) => self.pass(Duration::from_millis(time.into())),
            Event::Follow => self.peers.follow(),
        }
        self.relabel();
    }

    fn post(&mut self, number: u64) {
        let meant = self.av.lookup(number);
        let request = self.posted;
        if let Some(link) = self.peers.open_link(number)
            && let Some(&addr) = self.links.get(link)
        {
            self.posted += 1;
            self.send_fast(meant, addr, link);
            return;
        }
        match (self.peers.destination(number), meant) {
            (Err(Errno::EINVAL), None) => {}
            (Ok(Destination::Open(link)), meant) => {
                self.posted += 1;
                self.send_fast(meant, self.links[link], link);
            }
            (Ok(Destination::Waits(key)), Some(meant)) => {
                assert_eq!(self.address(key), meant);
                self.posted += 1;
                let step = self.peers.defer(key, request, self.now).unwrap();
                self.of(meant).waiting.push_back(request);
                self.step(meant, step);
            }
            (answer, meant) => panic!("{meant:?} leads to {answer:?}"),
        }
    }

    /// No operation may wait for a link that can be used directly.
    fn send_fast(&mut self, meant: Option<char>, addr: char, link: LinkKey) {
        assert_eq!(meant, Some(addr));
        assert_eq!(self.of(addr).state, State::Open(link));
        assert!(self.of(addr).waiting.is_empty());
        self.ended += 1;
    }

    fn come(&mut self, number: u64) {
        let Ok(Destination::Waits(key)) = self.peers.destination(number) else {
            return;
        };
        let addr = self.address(key);
        if let Ok(step) = self.peers.await_link(key, self.now) {
            let known = self.of(addr);
            known.is_asked |= !matches!(known.state, State::Open(_));
            self.step(addr, step);
        }
    }

    fn seek(&mut self, number: u64) {
        let meant = self.av.lookup(number);
        let step = self.peers.seek(number, self.now);
        match meant.filter(|&addr| self.of(addr).is_lost) {
            Some(addr) => {
                self.of(addr).is_missed = true;
                self.step(addr, step);
            }
            None => assert_eq!(step, ConnectStep::Wait),
        }
    }

    /// Starts an attempt if that is the step; no other one may be under way.
    fn step(&mut self, addr: char, step: ConnectStep) {
        let state = self.of(addr).state;
        let ConnectStep::Start(key) = step else {
            assert_ne!(state, State::Nothing, "nothing is done for {addr}");
            return;
        };
        assert!(matches!(state, State::Nothing | State::Pausing(_)));
        assert_eq!(self.address(key), addr);
        let target = self.peers.target(key).unwrap();
        assert_eq!(target.addr, addr);
        let deadline = target.deadline;
        assert!(deadline <= self.now + CONNECT);
        let link = self.links.insert(addr);
        let before = self.of(addr).deadline.replace(deadline);
        assert!(before.is_none_or(|before| before >= deadline));
        if self.fails {
            // The attempt fails before its link has a key.
            self.links.remove(link);
            let ended = self
                .peers
                .not_begun(key, Failure::of(Errno::EMFILE), self.now);
            self.end(addr, ended);
        } else {
            self.peers.begun(key, link);
            self.of(addr).state = State::UnderWay(link);
        }
    }

    fn open(&mut self, addr: char, link: LinkKey) {
        let key = self.peers.find(&addr).unwrap();
        let opened = self.peers.opened(key, link).unwrap();
        assert_eq!(opened.displaced, None);
        let known = self.of(addr);
        assert_eq!(opened.crossing, known.crossing);
        if let Some(refused) = known.crossing.take() {
            self.links.remove(refused);
        }
        *self.of(addr) = Known {
            state: State::Open(link),
            waiting: std::mem::take(&mut self.of(addr).waiting),
            label: opened.source,
            ..Known::default()
        };
        self.drain(addr, link, self.room);
    }

    /// Sends the waiting requests, in order, as far as there is room.
    fn drain(&mut self, addr: char, link: LinkKey, room: usize) {
        let key = self.peers.find(&addr).unwrap();
        for _ in 0..room {
            let next = self.peers.next_waiting(key, link);
            assert_eq!(next, self.of(addr).waiting.pop_front());
            if next.is_none() {
                return;
            }
            self.ended += 1;
        }
        if let Some(next) = self.peers.next_waiting(key, link) {
            assert_eq!(self.peers.put_back(key, next), None);
        }
    }

    fn break_link(&mut self, addr: char, how: u8) {
        let (State::UnderWay(link) | State::Open(link)) = self.of(addr).state else {
            return;
        };
        let failure = match how % 4 {
            0 => Failure::Hopeless(Errno::EPROTO),
            1 | 2 => Failure::of(Errno::ECONNREFUSED),
            _ => Failure::of(Errno::ECONNRESET),
        };
        let key = self.peers.find(&addr).unwrap();
        self.links.remove(link);
        // The peer's own request is answered first, and may replace ours.
        let crossing = self.peers.take_crossing(key);
        assert_eq!(crossing, self.of(addr).crossing.take());
        if let Some(theirs) = crossing {
            assert_eq!(self.peers.adopt(key, theirs, self.now), Some(link));
            self.of(addr).state = State::UnderWay(theirs);
            let ended = self.peers.ended(key, link, failure, self.now);
            assert!(matches!(ended, Ended::Quietly));
            return;
        }
        let ended = self.peers.ended(key, link, failure, self.now);
        self.end(addr, ended);
        // It ends only once.
        if let Some(key) = self.peers.find(&addr) {
            let again = self.peers.ended(key, link, failure, self.now);
            assert!(matches!(again, Ended::Quietly));
        }
    }

    fn end(&mut self, addr: char, ended: Ended<char, u32>) {
        let now = self.now;
        let known = self.known.get_mut(&addr).unwrap();
        let was_open = matches!(known.state, State::Open(_));
        known.state = State::Nothing;
        match ended {
            Ended::Quietly => {
                assert!(!was_open && known.waiting.is_empty());
                assert!(!known.is_asked && !known.is_missed);
                known.deadline = None;
            }
            Ended::Again(at) => {
                assert!(at > now && known.deadline.is_some_and(|deadline| at < deadline));
                known.state = State::Pausing(at);
            }
            Ended::Lost { again, .. } => {
                assert!(was_open && again.is_some() != known.waiting.is_empty());
                known.is_lost = true;
                if let Some(at) = again {
                    assert!(at > now);
                    known.state = State::Pausing(at);
                }
            }
            Ended::GivenUp(given_up) => {
                assert!(!was_open);
                assert_eq!((given_up.addr, &given_up.failed), (addr, &known.waiting));
                assert_eq!(given_up.source, self.av.find(&addr));
                known.is_lost = true;
                self.ended += given_up.failed.len() as u32;
                known.waiting.clear();
                known.deadline = None;
                known.is_asked = false;
                known.is_missed = false;
            }
        }
    }

    fn call(&mut self, addr: char) {
        if let State::Open(_) = self.of(addr).state {
            return;
        }
        let link = self.links.insert(addr);
        let key = self.peers.peer_at(&addr);
        let gave_way = match self.of(addr).state {
            State::UnderWay(ours) => Some(ours),
            _ => None,
        };
        assert_eq!(self.peers.adopt(key, link, self.now), gave_way);
        if let Some(ours) = gave_way {
            self.links.remove(ours);
        }
        let deadline = self.peers.target(key).unwrap().deadline;
        let known = self.of(addr);
        known.state = State::UnderWay(link);
        known.deadline.get_or_insert(deadline);
    }

    fn cross(&mut self, addr: char) {
        let Some(key) = self.peers.find(&addr) else {
            return;
        };
        if self.of(addr).crossing.is_some() {
            return;
        }
        let theirs = self.links.insert(addr);
        let met = self.peers.crosses(key, theirs);
        assert_eq!(met, matches!(self.of(addr).state, State::UnderWay(_)));
        if met {
            self.of(addr).crossing = Some(theirs);
        } else {
            self.links.remove(theirs);
        }
    }

    /// Ends all pauses that are over at that time, and attempts that take too long.
    fn pass(&mut self, time: Duration) {
        self.now += time;
        for addr in ADDRESSES.map(char::from) {
            let known = self.of(addr);
            let (state, deadline) = (known.state, known.deadline);
            match state {
                State::Pausing(at) => {
                    let is_due = at <= self.now;
                    let key = self.peers.find(&addr).unwrap();
                    let step = self.peers.due(key, self.now);
                    assert_eq!(step == ConnectStep::Start(key), is_due);
                    if is_due {
                        self.step(addr, step);
                    }
                }
                State::UnderWay(_) if deadline.is_some_and(|at| at <= self.now) => {
                    self.break_link(addr, 1);
                    let is_over = match self.of(addr).state {
                        State::Nothing => true,
                        // The peer's own link has replaced it.
                        State::UnderWay(_) => true,
                        State::Pausing(_) | State::Open(_) => false,
                    };
                    assert!(is_over, "attempts to reach {addr} go on");
                }
                _ => {}
            }
        }
    }

    fn relabel(&mut self) {
        for (link, source) in self.peers.take_relabelled() {
            if let Some(&addr) = self.links.get(link)
                && self.of(addr).state == State::Open(link)
            {
                self.of(addr).label = source;
            }
        }
    }

    fn check(&mut self) {
        for number in 0..8 {
            // A link that has ended is rejected.
            if let Some(link) = self.peers.open_link(number)
                && let Some(&addr) = self.links.get(link)
            {
                assert_eq!(self.av.lookup(number), Some(addr));
                assert_eq!(self.known[&addr].state, State::Open(link));
                assert!(self.known[&addr].waiting.is_empty());
            }
        }
        let waiting: usize = self.known.values().map(|known| known.waiting.len()).sum();
        assert_eq!(self.posted - self.ended, waiting as u32);
        let any_lost = self
            .known
            .iter()
            .any(|(addr, known)| known.is_lost && self.peers.find(addr).is_some());
        assert_eq!(self.peers.any_lost(), any_lost);
        for (addr, known) in &mut self.known {
            let Some(key) = self.peers.find(addr) else {
                // Including what was removed.
                assert_eq!((known.state, known.waiting.len()), (State::Nothing, 0));
                known.is_lost = false;
                known.is_asked = false;
                known.is_missed = false;
                continue;
            };
            let link = match known.state {
                State::UnderWay(link) | State::Open(link) => Some(link),
                State::Nothing | State::Pausing(_) => None,
            };
            assert_eq!(self.peers.link(key), link);
            if !self.peers.av_changed() {
                let source = self.av.find(addr).unwrap_or(UNKNOWN_SOURCE);
                assert_eq!(self.peers.source(key), source);
                if let State::Open(_) = known.state {
                    assert_eq!(known.label, source);
                }
                let is_needed = source != UNKNOWN_SOURCE || known.state != State::Nothing;
                assert!(is_needed, "{addr} is remembered for nothing");
            }
        }
    }

    /// Closes the endpoint: exactly the requests wait that were posted and have not ended.
    fn close(mut self) {
        let mut left: Vec<u32> = self.peers.drain().collect();
        let mut expected: Vec<u32> = Vec::new();
        for known in self.known.values() {
            expected.extend(&known.waiting);
        }
        left.sort_unstable();
        expected.sort_unstable();
        assert_eq!(left, expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn peers_do_as_the_model(events in proptest::collection::vec(event(), 1..if cfg!(miri) { 30 } else { 120 })) {
        let mut world = World::new();
        for event in events {
            world.happen(event);
            world.check();
        }
        world.close();
    }
}
