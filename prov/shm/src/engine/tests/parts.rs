//! Long messages in parts, and direct copies by the receiver.

use prov_local::copies::{Copies as _, Copying};
use prov_local::parts::{Arrived, PART, Request};
use prov_message::Sleeper;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::super::keys::to_peer;
use super::*;

/// Length of a message in bytes: the first part, three others, and a rest.
const LEN: usize = 4 * PART + 100;

/// Two sides. The first has sent a message for which the second has a receive, and the second has
/// begun to fetch it.
struct Scene {
    sender: Side,
    receiver: Side,
    out: Vec<u8>,
    into: Vec<u8>,
    /// The receiver's direct copy of the first part, if it makes one.
    first: Option<Copying<Shm>>,
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
            .receive(receiver.ep, &buffer(1, &mut into, 10))
            .unwrap();
        let sent = message(to, 1, &mut out, 0);
        sender.core.transmit(sender.ep, &sent).unwrap();
        let mut first = None;
        until(&mut [], |_| {
            sender.core.progress();
            receiver.core.progress();
            first = first.take().or_else(|| receiver.core.next_errand());
            first.is_some()
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
            first,
        }
    }

    /// Finishes the receiver's copy of the first part.
    fn has_first(&mut self) {
        let first = self.first.take().unwrap();
        self.receiver.finish(first);
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
fn while_both_sides_make_progress_the_sender_sends_all_parts_but_the_first() {
    let mut scene = Scene::new(Params::default);
    assert!(scene.sender.turn().is_none(), "it begins meanwhile");
    scene.has_first();
    assert!(scene.is_there(PART) && !scene.is_there(PART + 1));
    for part in 2..=5 {
        assert!(scene.receiver.turn().is_none());
        assert!(scene.is_there((part * PART).min(LEN)));
        assert!(scene.sender.turn().is_none());
    }
    assert_eq!(scene.receiver.completions(), [10]);
    scene.sender.core.progress();
    assert_eq!(scene.sender.completions(), [1]);
}

#[test]
fn a_receiver_does_not_wait_for_a_sender_that_makes_no_progress() {
    let mut scene = Scene::new(Params::default);
    scene.has_first();
    let rest = scene.receiver.turn().unwrap();
    assert!(!scene.is_there(PART + 1));
    scene.receiver.finish(rest);
    assert!(scene.is_there(LEN));
    assert_eq!(scene.receiver.completions(), [10]);
    assert_eq!(scene.sender.completions(), [], "it has yet to hear of that");
    until(&mut [&mut scene.sender], |sides| {
        sides[0].completions() == [1]
    });
}

#[test]
fn while_other_processes_want_the_processor_the_receiver_copies_all_of_a_message() {
    let (sender, receiver) = (Side::new(Params::default()), Side::new(Params::default()));
    receiver.core.signals.yielded(1_000_000);
    let mut scene = Scene::of(sender, receiver);
    scene.has_first();
    assert!(scene.is_there(LEN));
    assert_eq!(scene.receiver.completions(), [10]);
    until(&mut [&mut scene.sender], |sides| {
        sides[0].completions() == [1]
    });
}

#[test]
fn the_receiver_copies_the_rest_if_the_sender_stops_in_the_middle() {
    let mut scene = Scene::new(Params::default);
    assert!(scene.sender.turn().is_none());
    scene.has_first();
    let mut rest = None;
    until(&mut [], |_| {
        rest = scene.receiver.turn();
        rest.is_some()
    });
    assert!(scene.is_there(2 * PART) && !scene.is_there(2 * PART + 1));
    // The sender makes progress again, and sends a part that is not wanted.
    assert!(scene.sender.turn().is_none());
    scene.receiver.finish(rest.unwrap());
    assert!(scene.is_there(LEN));
    assert_eq!(scene.receiver.completions(), [10]);
    until(&mut [&mut scene.sender], |sides| {
        sides[0].completions() == [1]
    });
}

#[test]
fn a_thread_that_goes_to_sleep_copies_the_rest_first() {
    let mut scene = Scene::new(Params::default);
    assert!(scene.sender.turn().is_none());
    scene.has_first();
    assert!(!scene.receiver.core.prepare_wait(Sleeper::Thread));
    let rest = scene.receiver.core.next_errand().unwrap();
    scene.receiver.finish(rest);
    assert!(scene.is_there(LEN));
    scene.receiver.sleeps();
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
            .receive(receiver.ep, &buffer(5, &mut into, context))
            .unwrap();
        sender
            .core
            .transmit(sender.ep, &message(to, 5, &mut out, 0))
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
    assert!(scene.first.is_none());
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
        .receive(receiver.ep, &buffer(1, &mut into, 10))
        .unwrap();
    let mut sent = message(to, 1, &mut [], 0);
    sent.buffers = bytes;
    sender.core.transmit(sender.ep, &sent).unwrap();
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
fn a_transfer_that_has_begun_ends_while_the_owner_of_receives_is_away() {
    let mut scene = Scene::new(Params::default);
    let receiver = &mut scene.receiver;
    receiver.core.endpoints().owner_leaves();
    let first = scene.first.take().unwrap();
    receiver.finish(first);
    let rest = receiver.turn().unwrap();
    receiver.finish(rest);
    assert!(!receiver.core.is_lent(receiver.ep));
    receiver.core.endpoints().owner_enters();
    scene.ends_well();
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
        .receive(receiver.ep, &buffer(9, &mut into, 3))
        .unwrap();
    sender
        .core
        .transmit(sender.ep, &message(to, 9, &mut out, 0))
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
            .receive(one.ep, &buffer(peer as u64, into, peer))
            .unwrap();
        let sent = message(to, peer as u64, &mut outs[peer], 0);
        let side = &mut many[peer];
        side.core.transmit(side.ep, &sent).unwrap();
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
fn a_sleeping_thread_continues_a_copy_that_another_thread_leaves() {
    let mut scene = Scene::new(Params::default);
    let first = scene.first.take().unwrap();
    // The copy is in progress: another thread has nothing to do.
    scene.receiver.sleeps();
    scene.receiver.finish(first);
    assert_eq!(scene.receiver.completions(), []);
    assert!(scene.receiver.wakes());
    scene.ends_well();
}

#[test]
fn a_sleeping_thread_makes_the_copy_for_another_threads_receive() {
    let (mut sender, mut receiver) = (Side::new(Params::default()), Side::new(Params::default()));
    let (mut out, mut into) = (pattern(9, LEN), vec![0; LEN]);
    let to = sender.insert(&receiver.name);
    let sent = message(to, 1, &mut out, 0);
    sender.core.transmit(sender.ep, &sent).unwrap();
    until(&mut [], |_| {
        sender.core.progress();
        receiver.core.progress();
        let mut links = sender.core.links.values();
        links.any(|link| link.has_offers() && !link.has_something_to_send())
    });
    // The message is received into the unexpected queue.
    receiver.sleeps();
    let receive = buffer(1, &mut into, 10);
    receiver.core.receive(receiver.ep, &receive).unwrap();
    assert!(receiver.wakes());
    assert_eq!(completed(&mut [&mut sender, &mut receiver], 1, 1), [10]);
    assert!(into == out);
}

#[test]
fn a_link_has_one_transfer_under_way_however_often_it_gets_a_turn() {
    let (mut sender, mut receiver) = (Side::new(Params::default()), Side::new(Params::default()));
    let to = sender.insert(&receiver.name);
    let mut out = [1, 2, 3].map(|seed| pattern(seed, LEN));
    let mut into = [(); 3].map(|()| vec![0; LEN]);
    for (number, (out, into)) in out.iter_mut().zip(&mut into).enumerate() {
        let tag = number as u64 + 1;
        let posted = buffer(tag, into, 10 + number);
        receiver.core.receive(receiver.ep, &posted).unwrap();
        let sent = message(to, tag, out, 0);
        sender.core.transmit(sender.ep, &sent).unwrap();
    }
    until(&mut [], |_| {
        sender.core.progress();
        if let Some(errand) = receiver.turn() {
            receiver.finish(errand);
        }
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
