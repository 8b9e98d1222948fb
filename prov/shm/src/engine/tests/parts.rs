//! Long messages in parts, and direct copies by the receiver.

use prov_local::copies::{Copies as _, Copying};
use prov_local::parts::{Arrived, PART, Request};
use prov_message::Sleeper;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::*;
use prov_message::keys::to_peer;

/// Length of a message in bytes: four parts, and a rest.
const LEN: usize = 4 * PART + 100;

/// Two sides. The first has sent a message for which the second has a receive, and the second has
/// begun to fetch it.
struct Scene {
    sender: Side,
    receiver: Side,
    out: Vec<u8>,
    into: Vec<u8>,
    /// The receiver's direct copy, if it makes one.
    copy: Option<Copying<Shm>>,
}

impl Scene {
    fn new(params: impl Fn() -> Params) -> Scene {
        Scene::of(Side::new(params()), Side::new(params()))
    }

    fn of(mut sender: Side, mut receiver: Side) -> Scene {
        let (mut out, mut into) = (pattern(9, LEN), vec![0; LEN]);
        let to = sender.insert(&receiver.name);
        receiver
            .core
            .receive(receiver.ep, &mut buffer(1, &mut into, 10))
            .unwrap();
        let mut sent = message(to, 1, &mut out, 0);
        sender.core.transmit(sender.ep, &mut sent).unwrap();
        let mut copy = None;
        until(&mut [], |_| {
            sender.core.progress();
            receiver.core.progress();
            copy = copy.take().or_else(|| receiver.core.next_errand());
            copy.is_some()
                || receiver
                    .core
                    .links
                    .values()
                    .any(|link| link.pulls.is_open())
        });
        Scene {
            sender,
            receiver,
            out,
            into,
            copy,
        }
    }

    /// Finishes the receiver's copy.
    fn is_copied(&mut self) {
        let copy = self.copy.take().unwrap();
        self.receiver.finish(copy);
    }

    /// Whether this number of bytes has arrived.
    fn is_there(&self, len: usize) -> bool {
        self.into[..len] == self.out[..len]
    }

    /// Checks that the message is received and its send completes.
    fn ends_well(mut self) {
        let Scene {
            sender, receiver, ..
        } = &mut self;
        assert_eq!(completed(&mut [sender, receiver], 1, 1), [10]);
        assert_eq!(completed(&mut [sender, receiver], 0, 1), [1]);
        assert!(self.into == self.out);
    }
}

impl Side {
    pub(super) fn finish(&mut self, mut errand: Copying<Shm>) {
        errand.run();
        self.core.errand_done(errand);
    }

    /// Polls for parts in both directions. Returns the direct copy that this side has to make.
    fn turn(&mut self) -> Option<Copying<Shm>> {
        self.core.progress();
        self.core.next_errand()
    }

    /// Does what a thread does before it sleeps.
    pub(super) fn sleeps(&mut self) {
        until(&mut [], |_| {
            let may_sleep = self.core.prepare_wait(Sleeper::Thread);
            let errand = self.core.next_errand();
            assert!(errand.is_none() || !may_sleep);
            if let Some(errand) = errand {
                self.finish(errand);
            }
            may_sleep
        });
    }

    /// Whether a thread that sleeps would be woken.
    pub(super) fn wakes(&self) -> bool {
        let mut sleeper = [PollFd::from_borrowed_fd(
            self.core.poller().unwrap(),
            PollFlags::IN,
        )];
        let most = Timespec {
            tv_sec: 20,
            tv_nsec: 0,
        };
        poll(&mut sleeper, Some(&most)) == Ok(1)
    }
}

#[test]
fn the_receiver_copies_all_of_a_message_whatever_the_sender_does() {
    let mut scene = Scene::new(Params::default);
    assert!(!scene.is_there(1));
    scene.is_copied();
    assert!(scene.is_there(LEN));
    assert_eq!(scene.receiver.completions(), [10]);
    assert_eq!(scene.sender.completions(), [], "it has yet to hear of that");
    until(&mut [&mut scene.sender], |sides| {
        sides[0].completions() == [1]
    });
}

#[test]
fn a_thread_that_goes_to_sleep_makes_the_copy_first() {
    let mut scene = Scene::new(Params::default);
    // Another thread makes the copy.
    scene.receiver.sleeps();
    scene.is_copied();
    assert_eq!(scene.receiver.completions(), [10]);
    let Scene {
        sender, receiver, ..
    } = &mut scene;
    let to = sender.insert(&receiver.name);
    let (mut out, mut into) = (pattern(3, LEN), vec![0; LEN]);
    let mut posted = buffer(2, &mut into, 11);
    receiver.core.receive(receiver.ep, &mut posted).unwrap();
    let mut sent = message(to, 2, &mut out, 0);
    sender.core.transmit(sender.ep, &mut sent).unwrap();
    receiver.sleeps();
    assert_eq!(receiver.completions(), [11]);
    assert!(into == out);
}

#[test]
fn a_copy_that_has_begun_ends_while_the_owner_of_receives_is_away() {
    let mut scene = Scene::new(Params::default);
    scene.receiver.core.endpoints().owner_leaves();
    scene.is_copied();
    assert!(!scene.receiver.core.is_lent(scene.receiver.ep));
    scene.receiver.core.endpoints().owner_enters();
    scene.ends_well();
}

#[test]
fn short_messages_pass_between_the_parts_of_a_long_one() {
    let mut scene = Scene::new(without_cma);
    let Scene {
        sender, receiver, ..
    } = &mut scene;
    let to = sender.insert(&receiver.name);
    let (mut out, mut into) = (*b"a letter", [0; 8]);
    for context in 20..22 {
        receiver
            .core
            .receive(receiver.ep, &mut buffer(5, &mut into, context))
            .unwrap();
        sender
            .core
            .transmit(sender.ep, &mut message(to, 5, &mut out, 0))
            .unwrap();
        assert!(sender.turn().is_none());
        assert!(receiver.turn().is_none());
        assert_eq!(receiver.completions(), [context]);
        assert_eq!(into, out);
    }
    assert_eq!(sender.completions(), [5, 5]);
    assert!(!scene.is_there(LEN));
    scene.ends_well();
}

#[test]
fn a_message_arrives_in_parts_if_memory_cannot_be_read_and_sleeping_threads_are_woken() {
    let mut scene = Scene::new(without_cma);
    assert!(scene.copy.is_none());
    let Scene {
        sender, receiver, ..
    } = &mut scene;
    let mut done = Vec::new();
    for _ in 0..20 {
        // Each side sleeps until the other one has done something.
        sender.sleeps();
        until(&mut [], |_| {
            receiver.drive();
            !receiver
                .core
                .links
                .values()
                .any(|link| link.pulls.has_part())
        });
        done.extend(receiver.completions());
        if !done.is_empty() {
            break;
        }
        receiver.sleeps();
        assert!(sender.wakes(), "a slot is free");
        sender.drive();
        assert!(receiver.wakes(), "a part has come");
    }
    assert_eq!(done, [10]);
    assert!(scene.is_there(LEN));
}

#[test]
fn parts_of_a_peer_that_has_ended_are_not_waited_for() {
    let Scene {
        sender,
        mut receiver,
        ..
    } = Scene::new(without_cma);
    drop(sender);
    let mut error = None;
    until(&mut [&mut receiver], |sides| {
        error = error.or(sides[0].error());
        error.is_some()
    });
    assert_eq!(error, Some(Errno::ESHUTDOWN));
    let Scene {
        mut sender,
        receiver,
        ..
    } = Scene::new(without_cma);
    drop(receiver);
    let mut error = None;
    until(&mut [&mut sender], |sides| {
        error = error.or(sides[0].error());
        error.is_some()
    });
    assert_eq!(error, Some(Errno::ESHUTDOWN));
}

#[test]
fn an_offered_payload_is_not_read_when_its_link_has_ended() {
    let (mut sender, mut receiver) = (Side::new(without_cma()), Side::new(without_cma()));
    let to = sender.insert(&receiver.name);
    let mut into = vec![0; LEN];
    // SAFETY: the mapping is new, at an address that the system chooses, so it replaces none.
    let out = unsafe {
        use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
        mmap_anonymous(null_mut(), LEN, ProtFlags::READ, MapFlags::PRIVATE).unwrap()
    };
    // SAFETY: the memory is mapped until the operation is complete, and a send only reads it.
    let bytes = unsafe { AppIov::from_raw(out.cast(), LEN) };
    receiver
        .core
        .receive(receiver.ep, &mut buffer(1, &mut into, 10))
        .unwrap();
    let mut sent = message(to, 1, &mut [], 0);
    sent.buffers = bytes;
    sender.core.transmit(sender.ep, &mut sent).unwrap();
    until(&mut [], |_| {
        sender.core.progress();
        receiver.drive();
        receiver
            .core
            .links
            .values()
            .any(|link| link.pulls.is_open())
    });
    assert!(sender.turn().is_none());
    let key = sender.core.open.all()[0];
    let fault = super::super::link::Fault::Ended(Errno::ESHUTDOWN);
    sender.core.break_link(key, fault);
    assert_eq!(sender.error(), Some(Errno::ESHUTDOWN));
    // SAFETY: the operation is complete, so that nothing uses the memory.
    unsafe { rustix::mm::munmap(out, LEN).unwrap() };
    for _ in 0..100 {
        assert!(sender.turn().is_none());
    }
}

#[test]
fn a_peer_gets_no_parts_that_it_was_not_offered() {
    let mut scene = Scene::new(without_cma);
    let link = scene.sender.core.links.values().next().unwrap();
    let name = to_peer(link.pending.keys().next().unwrap());
    let channel = scene.receiver.core.links.values().next().unwrap();
    let mut inflow = channel.channel.as_ref().unwrap().inflow();
    let len = LEN as u64;
    for (number, (name, at, len)) in [
        (name ^ 1, 0, len),
        (u64::MAX, 0, len),
        (name, len, 1),
        (name, 0, u64::from(u32::MAX)),
        (name, u64::MAX, len),
    ]
    .into_iter()
    .enumerate()
    {
        // A second receiving end of the record replaces the first one.
        assert!(inflow.open(Request { name, at, len }));
        for _ in 0..8 {
            assert!(scene.sender.turn().is_none());
            // Parts within the offer arrive, and none beyond it.
            if let Ok(Arrived::Part(part)) = inflow.look() {
                assert!(part.at + part.len as u64 <= LEN as u64);
                inflow.took();
            }
        }
        assert_eq!(inflow.look(), Ok(Arrived::Refused), "{number}");
        inflow.close();
    }
    // The victim still works.
    let Scene {
        sender, receiver, ..
    } = &mut scene;
    let to = sender.insert(&receiver.name);
    let (mut out, mut into) = (*b"after", [0; 5]);
    receiver
        .core
        .receive(receiver.ep, &mut buffer(9, &mut into, 3))
        .unwrap();
    sender
        .core
        .transmit(sender.ep, &mut message(to, 9, &mut out, 0))
        .unwrap();
    assert_eq!(completed(&mut [sender, receiver], 1, 1), [3]);
    assert_eq!(into, out);
}

#[test]
fn peers_have_their_turns_with_parts() {
    const PEERS: usize = 3;
    let mut one = Side::new(without_cma());
    let mut many: Vec<Side> = (0..PEERS).map(|_| Side::new(without_cma())).collect();
    let mut outs: Vec<_> = (0..PEERS).map(|peer| pattern(peer, LEN)).collect();
    let mut into = vec![vec![0; LEN]; PEERS];
    for (peer, into) in into.iter_mut().enumerate() {
        let to = many[peer].insert(&one.name);
        one.core
            .receive(one.ep, &mut buffer(peer as u64, into, peer))
            .unwrap();
        let mut sent = message(to, peer as u64, &mut outs[peer], 0);
        let side = &mut many[peer];
        side.core.transmit(side.ep, &mut sent).unwrap();
    }
    let are_open = |one: &Side| {
        let links = one.core.links.values();
        links.filter(|link| link.pulls.is_open()).count() == PEERS
    };
    until(&mut [], |_| {
        many.iter_mut().for_each(|side| _ = side.core.progress());
        one.drive();
        are_open(&one)
    });
    // With each turn, one part of each sender arrives.
    for part in 1..=5 {
        many.iter_mut().for_each(Side::drive);
        one.drive();
        let len = (part * PART).min(LEN);
        assert!(
            outs.iter()
                .zip(&into)
                .all(|(out, into)| out[..len] == into[..len])
        );
    }
    let mut done = one.completions();
    done.sort_unstable();
    assert_eq!(done, [0, 1, 2]);
}

#[test]
fn a_sleeping_thread_makes_the_copy_for_another_threads_receive() {
    let (mut sender, mut receiver) = (Side::new(Params::default()), Side::new(Params::default()));
    let (mut out, mut into) = (pattern(9, LEN), vec![0; LEN]);
    let to = sender.insert(&receiver.name);
    let mut sent = message(to, 1, &mut out, 0);
    sender.core.transmit(sender.ep, &mut sent).unwrap();
    until(&mut [], |_| {
        sender.core.progress();
        receiver.core.progress();
        let mut links = sender.core.links.values();
        links.any(|link| link.has_offers() && !link.has_something_to_send())
    });
    // The message is received into the unexpected queue.
    receiver.sleeps();
    let mut receive = buffer(1, &mut into, 10);
    receiver.core.receive(receiver.ep, &mut receive).unwrap();
    assert!(receiver.wakes());
    assert_eq!(completed(&mut [&mut sender, &mut receiver], 1, 1), [10]);
    assert!(into == out);
}

#[test]
fn a_link_has_one_transfer_under_way_however_often_it_gets_a_turn() {
    let (mut sender, mut receiver) = (Side::new(without_cma()), Side::new(without_cma()));
    let to = sender.insert(&receiver.name);
    let mut out = [1, 2, 3].map(|seed| pattern(seed, LEN));
    let mut into = [(); 3].map(|()| vec![0; LEN]);
    for (number, (out, into)) in out.iter_mut().zip(&mut into).enumerate() {
        let tag = number as u64 + 1;
        let mut posted = buffer(tag, into, 10 + number);
        receiver.core.receive(receiver.ep, &mut posted).unwrap();
        let mut sent = message(to, tag, out, 0);
        sender.core.transmit(sender.ep, &mut sent).unwrap();
    }
    until(&mut [], |_| {
        sender.core.progress();
        assert!(receiver.turn().is_none());
        let mut links = receiver.core.links.values();
        links.any(|link| link.pulls.is_open())
    });
    let link = receiver.core.links.keys().next().unwrap();
    for _ in 0..3 {
        receiver.core.copy_in_turn(link);
    }
    let received = completed(&mut [&mut sender, &mut receiver], 1, 3);
    assert_eq!(received, [10, 11, 12]);
    assert!(into == out);
}
