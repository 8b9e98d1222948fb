//! Messages beyond the budgets, while the application waits for one behind them.

use fabric_abi::FI_PEEK;

use super::*;
use crate::endpoints::receiving::Posting;

/// Limits under which one message of 40 KiB is kept of a sender that cannot announce.
const TIGHT: Limits = Limits {
    unexpected: 64 << 10,
    in_flight: 0,
    announcements: 4,
    unannounced: 0,
    saved: 0,
    memory: 1 << 20,
    strangers: None,
};

const LEN: usize = 20 << 10;

impl World {
    fn post(&mut self, tag: u64, flags: u64) -> Posting {
        let mut receive = Receive {
            buffers: AppIov::EMPTY,
            select: Select::Tagged { tag, ignore: 0 },
            peer: ANY_SOURCE,
            desc: Descs::NONE,
            flags,
            context: std::ptr::without_provenance_mut(1),
        };
        let poster = self.endpoints.poster(self.ep).unwrap();
        self.endpoints.post(poster, &mut receive).unwrap()
    }

    fn flood_of(&mut self, link: DefaultKey, src: u64) -> usize {
        let message = self.from(link, src, LEN, false);
        (0..100).take_while(|_| self.keeps(&message)).count()
    }

    /// Completes the messages of links that were resumed, as a provider does. Returns their number.
    fn completed(&mut self) -> usize {
        let mut number = 0;
        while let Some(action) = self.endpoints.actions.pop_front() {
            if let Action::Resume(_, Course::Keep(kept)) = action {
                assert!(self.endpoints.append(kept, &[0; LEN], 0));
                self.endpoints.kept(kept);
                number += 1;
            }
        }
        number
    }
}

#[test]
fn a_posted_receive_gets_what_is_behind_the_budget() {
    let mut world = World::new(TIGHT);
    let link = world.links.insert(());
    assert_eq!(world.flood_of(link, 3), 1);
    assert_eq!(world.completed(), 0);
    // Tagged, while untagged messages wait.
    world.post(7, 0);
    assert_eq!(world.completed(), 1);
    let kept = world.flood_of(link, 3);
    let all = (1 << 20) / (LEN + KEEPING_COST);
    assert_eq!(kept + 2, all, "the memory is the limit");
    assert!(world.endpoints.kept_bytes() <= 1 << 20);
}

#[test]
fn a_receive_that_is_over_awaits_nothing() {
    let mut world = World::new(TIGHT);
    let link = world.links.insert(());
    world.post(7, 0);
    let poster = world.endpoints.poster(world.ep).unwrap();
    let context = crate::operation::Context(1);
    world.endpoints.cancel(poster, context).unwrap();
    assert_eq!(world.flood_of(link, 3), 1);
}

#[test]
fn what_was_awaited_leaves_the_budgets_of_others_alone() {
    let mut world = World::new(TIGHT);
    world.post(7, 0);
    let link = world.links.insert(());
    world.flood_of(link, 3);
    let poster = world.endpoints.poster(world.ep).unwrap();
    let context = crate::operation::Context(1);
    world.endpoints.cancel(poster, context).unwrap();
    let other = world.links.insert(());
    assert_eq!(world.flood_of(other, 4), 1);
}

#[test]
fn a_link_whose_peer_owes_an_answer_is_not_held_back() {
    let mut world = World::new(TIGHT);
    let link = world.links.insert(());
    assert_eq!(world.flood_of(link, 3), 1);
    assert_eq!(world.completed(), 0);
    world.endpoints.has_to_go_on(link, true);
    assert_eq!(world.completed(), 1);
    assert!(world.keeps(&world.from(link, 3, LEN, false)));
    let other = world.links.insert(());
    assert_eq!(world.flood_of(other, 4), 1);
    world.endpoints.has_to_go_on(link, false);
    assert!(!world.keeps(&world.from(link, 3, LEN, false)));
}

#[test]
fn a_look_in_vain_awaits_until_something_is_found() {
    let mut world = World::new(TIGHT);
    let link = world.links.insert(());
    assert_eq!(world.flood_of(link, 3), 1);
    assert_eq!(world.post(7, FI_PEEK), Posting::NotFound);
    assert_eq!(world.completed(), 1);
    let sought = Arrival {
        tagged: true,
        tag: 7,
        ..world.from(link, 3, LEN, false)
    };
    assert!(world.keeps(&sought));
    assert_eq!(world.post(7, FI_PEEK), Posting::Done);
    assert!(!world.keeps(&world.from(link, 3, LEN, false)));
}

#[test]
fn announcements_are_recorded_beyond_their_budget_too() {
    let mut world = World::new(Limits {
        announcements: 0,
        ..TIGHT
    });
    let link = world.links.insert(());
    let message = world.from(link, 3, LEN, true);
    let mut names = 0..;
    let mut recorded = |world: &mut World| {
        let recorded = names.by_ref().take(200).take_while(|&name| {
            matches!(
                world.endpoints.announced_in_order(&message, name),
                Notice::Taken
            )
        });
        recorded.count()
    };
    let first = recorded(&mut world);
    assert!(first < 200);
    world.post(7, 0);
    assert_eq!(
        world.endpoints.kept_bytes(),
        KEEPING_COST,
        "of the one that was held back"
    );
    assert_eq!(recorded(&mut world), 200);
    assert_eq!(world.endpoints.kept_bytes(), 201 * KEEPING_COST);
    for _ in 0..first + 201 {
        world.receive();
    }
    assert_eq!(world.endpoints.kept_bytes(), 0);
}

#[test]
fn strangers_stay_within_their_limits() {
    let mut world = World::met_by(strangers(LIMIT));
    world.post(7, 0);
    let (link, kept) = world.flood(ANY_SOURCE, FLOOD);
    assert_eq!((kept, world.resumed()), (50, 0));
    world.post(8, 0);
    assert_eq!(world.resumed(), 0);
    world.endpoints.relabel(world.ep, link, 3);
    assert_eq!(world.resumed(), 1);
}

#[test]
fn a_stranger_beyond_a_budget_resumes_when_it_is_known_and_awaited() {
    let mut world = World::new(Limits {
        strangers: Some(strangers(1 << 20)),
        ..TIGHT
    });
    world.endpoints.get_mut(world.ep).unwrap().meets_strangers = true;
    world.post(7, 0);
    let link = world.links.insert(());
    assert_eq!(world.flood_of(link, ANY_SOURCE), 1);
    assert_eq!(world.completed(), 0);
    world.endpoints.relabel(world.ep, link, 3);
    assert_eq!(world.completed(), 1);
}
