//! Copies that both sides make.

use prov_local::copies::Work;
use prov_local::joint::{Cut, Helped, Joint, Open, What};
use prov_message::Sleeper;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::*;

/// Bytes of a message that are copied in three turns.
const LEN: usize = 3 << 20;

/// Two sides, of which the first has sent a message that the second has begun to
/// copy.
struct Scene {
    sender: Side,
    receiver: Side,
    out: Vec<u8>,
    into: Vec<u8>,
}

/// The side can put nothing into slots.
fn has_no_slots(side: &Side) {
    Scene::joint(side).far.bounce.have_no_memory();
}

/// Copies from one process after which the parts of some go through slots.
const DIRECTLY: usize = 32;

impl Scene {
    fn new() -> Scene {
        Scene::after(0)
    }

    /// The same when so many messages were copied before.
    fn after(copies: usize) -> Scene {
        let (sender, receiver) = (Side::new(Params::default()), Side::new(Params::default()));
        let mut scene = Scene {
            sender,
            receiver,
            out: pattern(9, LEN),
            into: vec![0; LEN],
        };
        let to = scene.sender.insert(&scene.receiver.name);
        for _ in 0..copies {
            let receive = buffer(1, &mut scene.into, 9);
            let sent = message(to, 1, &mut scene.out, 0);
            let receiver = &mut scene.receiver;
            receiver.core.receive(receiver.ep, &receive).unwrap();
            scene.sender.core.transmit(scene.sender.ep, &sent).unwrap();
            let sides = &mut [&mut scene.sender, receiver];
            assert_eq!(completed(sides, 1, 1), [9]);
            assert_eq!(completed(sides, 0, 1), [1]);
        }
        scene.into.fill(0);
        let receive = buffer(1, &mut scene.into, 10);
        scene
            .receiver
            .core
            .receive(scene.receiver.ep, &receive)
            .unwrap();
        let sent = message(to, 1, &mut scene.out, 0);
        scene.sender.core.transmit(scene.sender.ep, &sent).unwrap();
        let mut errand = None;
        until(&mut [], |_| {
            scene.sender.core.progress();
            scene.receiver.core.progress();
            errand = errand.take().or_else(|| scene.receiver.core.next_errand());
            errand.is_some()
        });
        scene.receiver.finish(errand.unwrap());
        scene
    }

    /// The same without slots.
    fn without_slots() -> Scene {
        let scene = Scene::new();
        has_no_slots(&scene.sender);
        scene
    }

    /// What the two share, as a side has it.
    fn joint(side: &Side) -> Joint {
        let link = side.core.links.values().next().unwrap();
        link.channel.as_ref().unwrap().joint().clone()
    }

    /// The message is received, and was sent.
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
    pub(super) fn finish(&mut self, mut errand: Work<Shm>) {
        errand.run();
        self.core.errand_done(errand);
    }

    /// One turn, since there may be another one as long as somebody is waited for.
    fn turn(&mut self) {
        self.core.progress();
        if let Some(errand) = self.core.next_errand() {
            self.finish(errand);
        }
    }

    /// Puts parts of the peer's copy into slots, of which none are there before.
    fn fill_slots(&mut self) {
        for _ in 0..2 {
            let help = self.help().unwrap();
            self.finish(help);
        }
    }

    /// Work for the peer's copy.
    fn help(&mut self) -> Option<Work<Shm>> {
        let work = self.core.next_errand();
        assert!(
            work.as_ref()
                .is_none_or(|work| matches!(work, Work::Help(_)))
        );
        work
    }
}

#[test]
fn who_waits_for_the_end_of_a_large_copy_makes_a_part_of_it() {
    let mut scene = Scene::without_slots();
    let help = scene.sender.help().unwrap();
    scene.sender.finish(help);
    // So many bytes in one turn.
    let at = LEN - (512 << 10);
    assert!(
        scene.into[at..] == scene.out[at..],
        "the last part is there"
    );
    assert!(scene.into[at - 1] != scene.out[at - 1] || scene.out[at - 1] == 0);
    assert_eq!(scene.receiver.completions(), []);
    scene.ends_well();
}

#[test]
fn where_both_are_at_it_the_parts_of_a_copy_go_through_slots() {
    let mut scene = Scene::after(DIRECTLY);
    let before = scene.into.clone();
    scene.sender.fill_slots();
    assert!(
        scene.into == before,
        "the sender writes to no memory of the receiver"
    );
    scene.receiver.turn();
    assert!(scene.into[LEN - 1000..] == scene.out[LEN - 1000..]);
    scene.ends_well();
}

#[test]
fn what_was_offered_is_not_touched_when_its_link_has_ended() {
    let (mut sender, mut receiver) = (Side::new(Params::default()), Side::new(Params::default()));
    let to = sender.insert(&receiver.name);
    let mut into = vec![0; LEN];
    // SAFETY: a new mapping.
    let out = unsafe {
        use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
        mmap_anonymous(null_mut(), LEN, ProtFlags::READ, MapFlags::PRIVATE).unwrap()
    };
    // SAFETY: nothing is written there.
    let bytes = unsafe { AppIov::from_raw(out.cast(), LEN) };
    let receive = buffer(1, &mut into, 10);
    receiver.core.receive(receiver.ep, &receive).unwrap();
    let mut nothing = [];
    let mut sent = message(to, 1, &mut nothing, 0);
    sent.buffers = bytes;
    sender.core.transmit(sender.ep, &sent).unwrap();
    let mut errand = None;
    until(&mut [], |_| {
        sender.core.progress();
        receiver.core.progress();
        errand = errand.take().or_else(|| receiver.core.next_errand());
        errand.is_some()
    });
    receiver.finish(errand.unwrap());
    let help = sender.help().unwrap();
    let key = sender.core.open.all()[0];
    let fault = super::super::link::Fault::Ended(Errno::ESHUTDOWN);
    sender.core.break_link(key, fault);
    assert_eq!(sender.error(), Some(Errno::ESHUTDOWN));
    // SAFETY: the operation is over: nobody needs the memory.
    unsafe { rustix::mm::munmap(out, LEN).unwrap() };
    sender.finish(help);
    assert!(!sender.core.is_lent(sender.ep));
}

#[test]
fn a_copy_that_has_begun_ends_while_the_owner_of_receives_is_away() {
    let mut scene = Scene::new();
    let receiver = &mut scene.receiver;
    receiver.core.endpoints().owner_leaves();
    until(&mut [receiver], |sides| {
        let receiver = &mut sides[0];
        receiver.turn();
        !receiver.core.is_lent(receiver.ep)
    });
    scene.receiver.core.endpoints().owner_enters();
    scene.ends_well();
}

#[test]
fn a_message_is_not_sent_while_its_sender_reads_it() {
    let mut scene = Scene::new();
    let help = scene.sender.help().unwrap();
    let Scene {
        sender, receiver, ..
    } = &mut scene;
    // The peer is done, and says so.
    until(&mut [receiver], |sides| {
        sender.core.progress();
        assert_eq!(sender.completions(), []);
        sides[0].completions() == [10]
    });
    for _ in 0..1000 {
        receiver.drive();
        sender.core.progress();
    }
    assert!(sender.core.is_lent(sender.ep));
    assert_eq!(sender.completions(), []);
    sender.finish(help);
    assert!(!sender.core.is_lent(sender.ep));
    assert_eq!(sender.completions(), [1]);
    assert!(scene.into == scene.out);
}

#[test]
fn what_the_peer_has_taken_and_could_not_do_is_copied_all_the_same() {
    let mut scene = Scene::new();
    let board = Scene::joint(&scene.sender).far;
    let seen = board.look().unwrap();
    board.claim(&seen, 1).unwrap();
    (0..1000).for_each(|_| scene.receiver.turn());
    assert_eq!(scene.receiver.completions(), [], "it may be written to");
    assert!(scene.receiver.core.is_lent(scene.receiver.ep));
    board.done(&seen, 1, false);
    scene.ends_well();
}

#[test]
fn who_could_not_do_a_part_of_a_copy_takes_no_more_of_it() {
    let mut scene = Scene::without_slots();
    let board = Scene::joint(&scene.receiver).own;
    let name = Scene::joint(&scene.sender).far.look().unwrap().what.name;
    let len = LEN as u64;
    // Nothing is there.
    let what = What {
        name,
        addr: 8,
        len,
        first: 0,
        slots: 64,
    };
    let parts = Cut::of(len).count();
    let mut open = Open::new(&board, 100, &what, parts);
    let help = scene.sender.help().unwrap();
    scene.sender.finish(help);
    assert!(scene.sender.help().is_none());
    let taken = std::iter::from_fn(|| {
        let taken = open.claim(&board, u16::MAX).unwrap();
        (!taken.is_empty()).then_some(taken.len())
    });
    let put = usize::from(Cut::of(len).within(512 << 10));
    assert_eq!(taken.sum::<usize>(), usize::from(parts) - put);
    assert_eq!(open.helped(&board), Ok(Helped::Failed));
    // The next one is another matter.
    let addr = scene.into.as_ptr().expose_provenance() as u64;
    let what = What {
        name,
        addr,
        len,
        first: 0,
        slots: 64,
    };
    let mut open = Open::new(&board, 101, &what, parts);
    let help = scene.sender.help().unwrap();
    scene.sender.finish(help);
    open.close(&board).unwrap();
    assert_eq!(open.helped(&board), Ok(Helped::All));
}

#[test]
fn memory_that_the_peer_may_write_to_is_kept_when_its_link_ends() {
    let mut scene = Scene::new();
    let board = Scene::joint(&scene.sender).far;
    let seen = board.look().unwrap();
    board.claim(&seen, 1).unwrap();
    let key = scene.receiver.core.open.all()[0];
    let fault = super::super::link::Fault::Ended(Errno::ESHUTDOWN);
    scene.receiver.core.break_link(key, fault);
    (0..1000).for_each(|_| scene.receiver.turn());
    assert_eq!(
        (scene.receiver.completions(), scene.receiver.error()),
        (vec![], None)
    );
    board.done(&seen, 1, true);
    let mut error = None;
    until(&mut [&mut scene.receiver], |sides| {
        error = sides[0].error();
        error.is_some()
    });
    assert_eq!(error, Some(Errno::ESHUTDOWN));
    assert!(!scene.receiver.core.is_lent(scene.receiver.ep));
}

#[test]
fn a_peer_that_asks_for_what_it_was_not_offered_gets_nothing() {
    let mut scene = Scene::without_slots();
    let board = Scene::joint(&scene.receiver).own;
    let name = Scene::joint(&scene.sender).far.look().unwrap().what.name;
    let addr = scene.into.as_ptr().expose_provenance() as u64;
    let before = scene.into.clone();
    let len = LEN as u64;
    let wrong = [
        (name ^ 1, addr, len, 24),
        (u64::MAX, addr, len, 24),
        (name, addr, len + 1, 25),
        (name, addr, u64::MAX, 9),
        (name, 8, len, 24),
        (name, u64::MAX, len, 24),
        // More parts than there are bytes.
        (name, addr, len, u16::MAX),
        (name, addr, 0, 3),
    ];
    for (number, (name, addr, len, parts)) in wrong.into_iter().enumerate() {
        let what = What {
            name,
            addr,
            len,
            first: 0,
            slots: 64,
        };
        let _open = Open::new(&board, 100 + number as u32, &what, parts);
        for _ in 0..40 {
            if let Some(help) = scene.sender.help() {
                scene.sender.finish(help);
            }
        }
        assert!(scene.into == before, "{what:?}");
    }
    // The victim is well; the other one's own copy is spoilt.
    let Scene {
        sender, receiver, ..
    } = &mut scene;
    let mut error = None;
    until(&mut [sender, receiver], |sides| {
        error = sides[1].error();
        error.is_some()
    });
    assert_eq!(error, Some(Errno::EPROTO));
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

impl Side {
    /// What a thread does that will sleep.
    pub(super) fn sleeps(&mut self) {
        until(&mut [], |_| self.core.prepare_wait(Sleeper::Thread));
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
fn who_sleeps_goes_on_with_a_copy_that_another_thread_leaves() {
    let mut scene = Scene::new();
    let receiver = &mut scene.receiver;
    let errand = receiver.core.next_errand().unwrap();
    // It is under way: there is nothing to do for another thread.
    receiver.sleeps();
    receiver.finish(errand);
    assert_eq!(receiver.completions(), []);
    assert!(receiver.wakes());
    scene.ends_well();
}

#[test]
fn who_sleeps_makes_the_copy_that_another_thread_posts_a_receive_for() {
    let (mut sender, mut receiver) = (Side::new(Params::default()), Side::new(Params::default()));
    let (mut out, mut into) = (pattern(9, LEN), vec![0; LEN]);
    let to = sender.insert(&receiver.name);
    let sent = message(to, 1, &mut out, 0);
    sender.core.transmit(sender.ep, &sent).unwrap();
    until(&mut [], |_| {
        sender.core.progress();
        receiver.core.progress();
        let mut links = sender.core.links.values();
        links.any(|link| link.has_large_offers() && !link.has_something_to_send())
    });
    // It is taken in.
    receiver.sleeps();
    let receive = buffer(1, &mut into, 10);
    receiver.core.receive(receiver.ep, &receive).unwrap();
    assert!(receiver.wakes());
    assert_eq!(completed(&mut [&mut sender, &mut receiver], 1, 1), [10]);
    assert!(into == out);
}
