use std::sync::Mutex;

use prov_base::buffer::AppIov;
use prov_base::errno::Errno;
use prov_util::desc::Descs;
use prov_util::mr::Job;
use prov_util::request::{Receive, Select};
use slotmap::{DefaultKey, SlotMap};

use super::*;
use crate::StrangersKept;
use crate::endpoints::Attributes;
use crate::endpoints::actions::{Action, Course};
use crate::endpoints::arriving::{Notice, Unmatched};

mod awaited;

enum Pipe {}

impl Transport for Pipe {
    type Link = DefaultKey;
    type Ack = ();
    type Name = u64;
    type Endpoint = ();
}

struct World {
    endpoints: Endpoints<Pipe>,
    ep: EpKey,
    links: SlotMap<DefaultKey, ()>,
}

impl World {
    fn new(limits: Limits) -> Self {
        let mut endpoints = Endpoints::new(limits);
        let attributes = Attributes {
            tx_size: 1,
            most_receives: 1 << 20,
            directed: false,
            job: Job::NONE,
        };
        World {
            ep: endpoints.add(attributes, ()),
            endpoints,
            links: SlotMap::new(),
        }
    }

    fn from(&self, link: DefaultKey, src: u64, len: usize, announces: bool) -> Arrival<Pipe> {
        Arrival {
            link,
            ep: self.ep,
            src,
            tagged: false,
            tag: 0,
            len,
            data: None,
            ack: (),
            announces,
        }
    }

    /// Whether a message whose whole payload arrives in one piece is kept.
    fn keeps(&mut self, arrival: &Arrival<Pipe>) -> bool {
        match self.endpoints.unmatched(arrival) {
            Unmatched::Keep(kept) => {
                assert!(self.endpoints.append(kept, &vec![0; arrival.len], 0));
                self.endpoints.kept(kept);
                true
            }
            Unmatched::Complete => true,
            Unmatched::HeldBack => false,
            Unmatched::Gone => panic!("the endpoint is open"),
        }
    }
}

const LINKS: usize = if cfg!(miri) { 100 } else { 4000 };

/// An admission examines one link, however many are held back.
fn assert_admissions_visit_one_each(world: &mut World) {
    let before = world.endpoints.kept.visits;
    for _ in 0..100 {
        world.endpoints.admit_held_back();
    }
    let visits = world.endpoints.kept.visits - before;
    assert!(visits <= 100, "{visits} visits for 100 admissions");
}

#[test]
fn an_admission_examines_only_links_that_continue() {
    let mut world = World::new(Limits {
        unexpected: 1 << 20,
        ..Limits::default()
    });
    for _ in 0..LINKS {
        let link = world.links.insert(());
        let message = world.from(link, 0, 64 << 10, false);
        while world.keeps(&message) {}
    }
    assert_admissions_visit_one_each(&mut world);
}

#[test]
fn an_admission_examines_only_throttled_links_that_recover() {
    let mut world = World::new(Limits {
        unexpected: 1 << 20,
        ..Limits::default()
    });
    for _ in 0..LINKS {
        let link = world.links.insert(());
        assert!(world.keeps(&world.from(link, 0, 60 << 10, true)));
    }
    assert!(world.endpoints.throttled().count() > LINKS / 2);
    assert_admissions_visit_one_each(&mut world);
}

/// Limits of strangers, with counters that only this test uses.
fn strangers(bytes: usize) -> StrangersLimits {
    // Reachable for ever, and so not leaked.
    static ALL: Mutex<Vec<&StrangersKept>> = Mutex::new(Vec::new());
    let of: &StrangersKept = Box::leak(Box::default());
    ALL.lock().unwrap().push(of);
    StrangersLimits {
        of,
        bytes,
        announcements: 8,
    }
}

impl World {
    /// With these limits for strangers, which can reach the endpoint.
    fn met_by(strangers: StrangersLimits) -> Self {
        let mut world = World::new(Limits {
            strangers: Some(strangers),
            ..Limits::default()
        });
        let ep = world.endpoints.get_mut(world.ep);
        ep.unwrap().meets_strangers = true;
        world
    }

    /// How many messages of a new link are kept before it is held back.
    fn flood(&mut self, src: u64, most: usize) -> (DefaultKey, usize) {
        let link = self.links.insert(());
        let message = self.from(link, src, 0, false);
        let kept = (0..most).take_while(|_| self.keeps(&message)).count();
        (link, kept)
    }

    /// How many links were resumed since the last call.
    fn resumed(&mut self) -> usize {
        let actions = std::iter::from_fn(|| self.endpoints.actions.pop_front());
        let resumes = |action: &Action<Pipe>| matches!(action, Action::Resume(..));
        actions.filter(resumes).count()
    }

    /// Posts a receive that matches any message.
    fn receive(&mut self) {
        let mut receive = Receive {
            buffers: AppIov::EMPTY,
            select: Select::Untagged,
            peer: ANY_SOURCE,
            desc: Descs::NONE,
            flags: 0,
            context: std::ptr::null_mut(),
        };
        let poster = self.endpoints.poster(self.ep).unwrap();
        self.endpoints.post(poster, &mut receive).unwrap();
    }
}

/// More messages than a stranger may leave. Miri is slow.
const FLOOD: usize = if cfg!(miri) { 150 } else { 1000 };

const LIMIT: usize = 100 * (MESSAGE_COST + KEEPING_COST);

#[test]
fn strangers_leave_far_less_than_known_peers_in_the_whole_process() {
    let limits = strangers(LIMIT);
    let mut worlds = [World::met_by(limits), World::met_by(limits)];
    let kept: usize = (0..20)
        .map(|at| worlds[at % 2].flood(ANY_SOURCE, FLOOD).1)
        .sum();
    assert!((90..=100).contains(&kept), "{kept}");
    for world in &mut worlds {
        assert_eq!(world.flood(7, FLOOD).1, FLOOD, "of a known peer");
    }
    let [mut first, second] = worlds;
    drop(second);
    let (_, kept) = first.flood(ANY_SOURCE, FLOOD);
    assert!(kept > 10, "a closed lane gives back what it had: {kept}");
    drop(first);
    assert_eq!(World::met_by(limits).flood(ANY_SOURCE, FLOOD).1, 50);
}

#[test]
fn an_endpoint_whose_peers_were_accepted_knows_them() {
    let mut world = World::met_by(strangers(LIMIT));
    let ep = world.endpoints.get_mut(world.ep);
    ep.unwrap().meets_strangers = false;
    assert_eq!(world.flood(ANY_SOURCE, FLOOD).1, FLOOD);
}

#[test]
fn a_stranger_resumes_when_it_is_known_and_counts_as_known_from_then_on() {
    let mut world = World::met_by(strangers(LIMIT));
    let (link, kept) = world.flood(ANY_SOURCE, FLOOD);
    assert_eq!((kept, world.resumed()), (50, 0));
    assert!(world.endpoints.holds_back_strangers());
    world.endpoints.relabel(world.ep, link, 3);
    assert_eq!(world.resumed(), 1);
    assert!(!world.endpoints.holds_back_strangers());
    assert_eq!(world.flood(ANY_SOURCE, FLOOD).1, 50, "for others");
}

#[test]
fn a_message_that_is_too_long_for_a_stranger_waits_until_it_is_known() {
    let mut world = World::met_by(strangers(LIMIT));
    let link = world.links.insert(());
    assert!(!world.keeps(&world.from(link, ANY_SOURCE, LIMIT, false)));
    assert!(world.endpoints.holds_back_strangers());
    world.endpoints.relabel(world.ep, link, 3);
    assert_eq!(world.resumed(), 1);
}

#[test]
fn a_lane_that_buffers_nothing_of_strangers_lets_one_continue_whatever_other_lanes_buffer() {
    let limits = strangers(LIMIT);
    let (mut full, mut other) = (World::met_by(limits), World::met_by(limits));
    while full.flood(ANY_SOURCE, FLOOD).1 > 0 {}
    assert_eq!(other.flood(ANY_SOURCE, FLOOD).1, 1);
    assert_eq!(other.flood(ANY_SOURCE, FLOOD).1, 0);
    for _ in 0..2 {
        assert_eq!(other.resumed(), 0);
        other.receive();
        assert_eq!(other.resumed(), 1);
    }
}

#[test]
fn no_stranger_is_forgotten_while_receives_are_posted() {
    let mut world = World::met_by(strangers(LIMIT));
    const STRANGERS: usize = if cfg!(miri) { 150 } else { 500 };
    let (mut kept, mut held_back) = (0, 0);
    for _ in 0..STRANGERS {
        let (_, of_link) = world.flood(ANY_SOURCE, 3);
        kept += of_link;
        held_back += usize::from(of_link < 3);
    }
    assert!(held_back > STRANGERS - 100);
    let mut resumed = 0;
    for _ in 0..kept + held_back {
        world.receive();
        resumed += world.resumed();
    }
    assert_eq!(resumed, held_back);
    assert_eq!(world.endpoints.kept_bytes(), 0);
}

#[test]
fn what_links_of_strangers_leave_behind_counts_until_it_is_received() {
    let mut world = World::met_by(strangers(LIMIT));
    for _ in 0..50 {
        let (link, _) = world.flood(ANY_SOURCE, FLOOD);
        world
            .endpoints
            .link_ended(world.ep, link, Errno::ECONNRESET);
    }
    let kept = world.endpoints.kept_bytes() / KEEPING_COST;
    assert!((95..=100).contains(&kept), "{kept}");
    for _ in 0..kept {
        world.receive();
    }
    assert_eq!(world.endpoints.kept_bytes(), 0);
    assert_eq!(world.flood(ANY_SOURCE, FLOOD).1, 50);
}

#[test]
fn strangers_announce_less_than_known_peers() {
    let mut world = World::met_by(strangers(LIMIT));
    let announce = |world: &mut World, src| {
        let link = world.links.insert(());
        let message = world.from(link, src, 1 << 40, true);
        (0..FLOOD as u64)
            .take_while(|&name| world.endpoints.announced(&message, name))
            .count()
    };
    assert_eq!(announce(&mut world, ANY_SOURCE), 4);
    assert_eq!(announce(&mut world, ANY_SOURCE), 2);
    assert_eq!(announce(&mut world, 5), FLOOD);
}

impl World {
    /// How many messages with this tag, and names from 0 on, a new link announces before it is held
    /// back.
    fn announces(&mut self, src: u64, tag: u64, most: u64) -> (DefaultKey, u64) {
        let link = self.links.insert(());
        let mut kept = 0;
        while kept < most && self.announces_one(link, src, tag, kept) == Notice::Taken {
            kept += 1;
        }
        (link, kept)
    }

    fn announces_one(&mut self, link: DefaultKey, src: u64, tag: u64, name: u64) -> Notice {
        let message = Arrival {
            tagged: true,
            tag,
            ..self.from(link, src, 1 << 40, true)
        };
        self.endpoints.announced_in_order(&message, name)
    }

    /// Posts a receive for a tag.
    fn receive_tagged(&mut self, tag: u64) {
        let mut receive = Receive {
            buffers: AppIov::EMPTY,
            select: Select::Tagged { tag, ignore: 0 },
            peer: ANY_SOURCE,
            desc: Descs::NONE,
            flags: 0,
            context: std::ptr::null_mut(),
        };
        let poster = self.endpoints.poster(self.ep).unwrap();
        self.endpoints.post(poster, &mut receive).unwrap();
    }

    /// Names that were requested or refused, and links that were resumed, since the last call.
    fn outcome(&mut self) -> (Vec<u64>, Vec<DefaultKey>) {
        let (mut names, mut resumed) = (Vec::new(), Vec::new());
        while let Some(action) = self.endpoints.actions.pop_front() {
            match action {
                Action::Fetch(_, fetch) => names.push(fetch.name),
                Action::Refuse(_, name, ..) => names.push(name),
                Action::Resume(link, course) => {
                    assert!(matches!(course, Course::Done));
                    resumed.push(link);
                }
                _ => {}
            }
        }
        (names, resumed)
    }
}

#[test]
fn a_sender_that_announces_too_much_waits_until_there_is_room() {
    let mut world = World::met_by(strangers(LIMIT));
    let (link, kept) = world.announces(ANY_SOURCE, 1, FLOOD as u64);
    assert_eq!((kept, world.outcome()), (4, (vec![], vec![])));
    assert!(world.endpoints.holds_back_announcement(link));
    // It continues when three of its announcements have been received.
    for name in 0..2 {
        world.receive_tagged(1);
        let (names, resumed) = world.outcome();
        assert_eq!(names, [name]);
        match name {
            0 => assert_eq!(resumed, [link]),
            _ => assert_eq!(resumed, []),
        }
    }
    assert_eq!(world.announces_one(link, ANY_SOURCE, 1, 5), Notice::Taken);
    assert_eq!(
        world.announces_one(link, ANY_SOURCE, 1, 6),
        Notice::HeldBack
    );
    world.endpoints.relabel(world.ep, link, 3);
    assert_eq!(world.outcome(), (vec![], vec![link]));
    for name in [2, 3, 4, 5, 6] {
        world.receive_tagged(1);
        assert_eq!(world.outcome(), (vec![name], vec![]));
    }
}

#[test]
fn a_receive_takes_the_announcement_that_its_link_is_held_back_with() {
    let mut world = World::met_by(strangers(LIMIT));
    let (link, kept) = world.announces(ANY_SOURCE, 1, FLOOD as u64);
    // This one finds even less room.
    let (second, few) = world.announces(ANY_SOURCE, 2, FLOOD as u64);
    assert_eq!((kept, few), (4, 2));
    let third = world.links.insert(());
    let notice = world.announces_one(third, ANY_SOURCE, 3, 7);
    assert_eq!(notice, Notice::Taken);
    let notice = world.announces_one(third, ANY_SOURCE, 4, 8);
    assert_eq!(notice, Notice::HeldBack);
    world.receive_tagged(4);
    assert_eq!(world.outcome(), (vec![8], vec![third]));
    // A message whose link, or whose endpoint, has ended does not wait.
    world
        .endpoints
        .link_ended(world.ep, link, Errno::ECONNRESET);
    assert!(!world.endpoints.holds_back_announcement(link));
    world.outcome();
    world
        .endpoints
        .link_ended(world.ep, second, Errno::ECONNRESET);
    assert_eq!(world.outcome(), (vec![], vec![]));
}

#[test]
fn a_known_peer_that_announces_too_much_waits_too() {
    let mut world = World::new(Limits {
        announcements: 256,
        ..Limits::default()
    });
    let (link, kept) = world.announces(3, 1, FLOOD as u64);
    assert_eq!(kept, 128);
    world.receive_tagged(1);
    assert_eq!(world.outcome(), (vec![0], vec![link]));
}

#[test]
fn links_that_announce_too_much_are_not_examined_until_they_can_continue() {
    let mut world = World::met_by(strangers(LIMIT));
    let mut held_back = 0;
    for _ in 0..LINKS {
        let (_, kept) = world.announces(ANY_SOURCE, 1, FLOOD as u64);
        held_back += usize::from(kept < FLOOD as u64);
    }
    assert_eq!(held_back, LINKS);
    assert_admissions_visit_one_each(&mut world);
}

#[test]
fn what_an_endpoint_sends_to_itself_is_kept_beyond_all_budgets_and_uses_up_none() {
    let mut world = World::new(Limits {
        unexpected: 1 << 10,
        announcements: 4,
        ..Limits::default()
    });
    let own = world.links.insert(());
    world.endpoints.link_is_own(own);
    const COUNT: usize = if cfg!(miri) { 10 } else { 100 };
    for _ in 0..COUNT {
        assert!(world.keeps(&world.from(own, 0, 64 << 10, true)));
        let notice = world
            .endpoints
            .announced_in_order(&world.from(own, 0, 1 << 30, true), 1);
        assert_eq!(notice, Notice::Taken);
    }
    assert!(world.endpoints.kept_bytes() >= COUNT * (64 << 10));
    assert_eq!(world.endpoints.throttled().count(), 0);
    // A peer finds as much room as if it were alone.
    let peer = world.links.insert(());
    let short = world.from(peer, 0, 1, false);
    let mut count = 0;
    while world.keeps(&short) {
        count += 1;
    }
    assert_eq!(count, (1 << 9) / (KEEPING_COST + 1));
    // Nor is there room for more than the process has.
    let endless = world.from(own, 0, usize::MAX / 4, true);
    assert!(!world.keeps(&endless));
}
