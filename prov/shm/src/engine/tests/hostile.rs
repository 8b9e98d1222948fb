//! A peer that sends and writes arbitrary data.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::listener::Wire;
use prov_base::atomic_ops::Form;
use prov_local::channel::{Channel, Head, MODERATE, SEGMENT, TABLES};
use prov_local::doorbell::Doorbell;
use prov_local::segment::Segment;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::super::setup::introduction::HELLO;
use super::*;
use prov_local::link::records::{ATOMIC, AtomicWord, DONE, HAS_DATA, MORE, RESULT, WRITE};
use prov_message::keys::to_peer;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        self.next() as usize % limit
    }
}

/// Returns a first packet: version, flags, seal, name.
fn hello(name: &str, seal: [u64; 2]) -> Vec<u8> {
    let words = [HELLO, 4, seal[0], seal[1]];
    let mut bytes = words.map(u64::to_ne_bytes).concat();
    bytes.extend_from_slice(name.as_bytes());
    bytes
}

/// Connects as a stranger, and returns its end of the link once the victim has accepted it.
fn intrude(victim: &mut Side) -> (Wire, Channel, Segment) {
    let wire = Wire::reach(SERVICE, &victim.name).unwrap();
    let (channel, fd) = Channel::create().unwrap();
    let segment = Segment::attach(fd.as_fd(), SEGMENT).unwrap();
    let bell = Doorbell::create().unwrap();
    let with = [fd.as_fd(), bell.descriptor()];
    wire.send(&hello(&fresh_name(), [0, 0]), with).unwrap();
    let before = victim.core.open.all().to_vec();
    until(&mut [victim], |sides| {
        let open = sides[0].core.open.all();
        open.iter().any(|key| !before.contains(key))
    });
    (wire, channel, segment)
}

/// A victim with a well-behaved peer, and the means to check that the two still communicate.
struct Scene {
    victim: Side,
    friend: Side,
    to: u64,
    round: u64,
    /// The memory that is registered with the victim.
    _memory: Vec<u8>,
}

impl Scene {
    fn new() -> Self {
        let (victim, friend) = (Side::new(Params::default()), Side::new(Params::default()));
        let mut memory = vec![0; 4096];
        victim.register(1, &mut memory);
        let to = friend.insert(&victim.name);
        Scene {
            victim,
            friend,
            to,
            round: 1 << 40,
            _memory: memory,
        }
    }

    fn is_well(&mut self) {
        let Scene {
            victim,
            friend,
            to,
            round,
            ..
        } = self;
        *round += 1;
        let (mut out, mut into) = (round.to_ne_bytes(), [0; 8]);
        let mut posted = buffer(*round, &mut into, 77);
        victim.core.receive(victim.ep, &mut posted).unwrap();
        friend
            .core
            .transmit(friend.ep, &mut message(*to, *round, &mut out, 0))
            .unwrap();
        let mut received = false;
        until(&mut [victim, friend], |sides| {
            received |= sides[0].completions().contains(&77);
            while sides[0].error().is_some() {}
            sides[1].completions();
            received
        });
        assert_eq!(into, out);
    }
}

#[test]
fn a_first_packet_of_any_kind_does_no_harm() {
    let mut scene = Scene::new();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let good = hello("intruder", [0, 0]);
    for round in 0..300 {
        let wire = Wire::reach(SERVICE, &scene.victim.name).unwrap();
        let mut packet = good.clone();
        let at = random.below(packet.len());
        packet[at] = random.next() as u8;
        packet.truncate(1 + random.below(packet.len()));
        let (_channel, fd) = Channel::create().unwrap();
        let file = std::fs::File::open("/dev/null").unwrap();
        let bell = Doorbell::create().unwrap();
        let (channel, file) = (fd.as_fd(), file.as_fd());
        let with: &[_] = match round % 5 {
            0 => &[],
            1 => &[channel],
            2 => &[file, bell.descriptor()],
            3 => &[channel, file],
            _ => &[channel, bell.descriptor()],
        };
        wire.send(&packet, with.iter().copied()).unwrap();
        if round % 2 == 0 {
            scene.victim.drive();
        }
    }
    // Some peers send a correct request, and are gone before it is answered.
    for _ in 0..20 {
        let wire = Wire::reach(SERVICE, &scene.victim.name).unwrap();
        let (_channel, fd) = Channel::create().unwrap();
        let bell = Doorbell::create().unwrap();
        let with = [fd.as_fd(), bell.descriptor()];
        wire.send(&hello(&fresh_name(), [0, 0]), with).unwrap();
    }
    scene.is_well();
    // Nothing is left of these peers.
    let ep = scene.victim.ep;
    until(&mut [&mut scene.victim], |sides| {
        let core = &mut sides[0].core;
        core.links.len() == 1 && core.rdm(ep).unwrap().peers.len() == 1
    });
}

#[test]
fn messages_that_make_no_sense_end_their_own_link_only() {
    let mut scene = Scene::new();
    scene.is_well();
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    for _ in 0..200 {
        let (_wire, mut channel, _) = intrude(&mut scene.victim);
        for _ in 0..30 {
            let len = [0, 8, 24, 32, 56, 128, 1000, MODERATE][random.below(8)];
            let Ok(Some(space)) = channel.space(len) else {
                break;
            };
            let mut bytes: Vec<u8> = (0..len).map(|_| random.next() as u8).collect();
            // The list may be valid, at the beginning or at the end.
            let at = [0, len.saturating_sub(24)][random.below(2)];
            for (word, value) in bytes[at..].chunks_exact_mut(8).zip([0u64, 8, 1]) {
                if random.below(2) == 0 {
                    word.copy_from_slice(&value.to_ne_bytes());
                }
            }
            space.bytes().write_at(0, &bytes);
            let word = |random: &mut Random| match random.below(4) {
                0 => random.next(),
                1 => (1 << 32) | 1,
                _ => random.next() % 20,
            };
            let _ = space.publish(Head {
                kind: random.below(16) as u8,
                flags: random.below(8) as u8,
                words: [word(&mut random), word(&mut random), word(&mut random)],
            });
            scene.victim.drive();
        }
        scene.is_well();
    }
}

/// Receives what a link has sent, in turns, and returns their number.
fn turns_until_unread(victim: &mut Side, key: LinkKey) -> usize {
    let has_more = |victim: &Side| {
        let mut polled = [PollFd::from_borrowed_fd(
            victim.core.links[key].wire.socket().unwrap(),
            PollFlags::IN,
        )];
        poll(&mut polled, Some(&Timespec::default())) == Ok(1)
    };
    (1..)
        .find(|_| {
            assert!(is_readable(victim));
            victim.core.open.poll_soon();
            victim.core.progress();
            !has_more(victim)
        })
        .unwrap()
}

#[test]
fn a_peer_that_calls_again_and_again_has_a_turn_as_others_have() {
    let mut scene = Scene::new();
    scene.is_well();
    let (wire, _channel, _) = intrude(&mut scene.victim);
    let key = *scene.victim.core.open.all().last().unwrap();
    for _ in 0..100 {
        wire.send(crate::listener::WAKE, None).unwrap();
    }
    assert_eq!(turns_until_unread(&mut scene.victim, key), 7);
    scene.is_well();
}

#[test]
fn a_peer_that_connects_repeatedly_is_accepted_in_turns() {
    let mut scene = Scene::new();
    scene.is_well();
    let wires: Vec<_> = (0..100)
        .map(|_| Wire::reach(SERVICE, &scene.victim.name).unwrap())
        .collect();
    let mut turns = 0;
    while scene.victim.core.links.len() <= wires.len() {
        let before = scene.victim.core.links.len();
        scene.victim.core.progress();
        let admitted = scene.victim.core.links.len() - before;
        assert!(admitted <= 16, "{admitted}");
        turns += usize::from(admitted != 0);
    }
    assert_eq!(turns, 7);
    scene.is_well();
}

/// Returns the words of a segment.
fn words(segment: &Segment) -> Vec<u64> {
    let words = 0..SEGMENT / 8;
    words
        .map(|at| word(segment, at).load(Ordering::Relaxed))
        .collect()
}

/// Returns one of the words of a segment.
fn word(segment: &Segment, at: usize) -> &AtomicU64 {
    assert!(at < SEGMENT / 8);
    // SAFETY: the index was checked, so the word is inside the segment, and the offset is a
    // multiple of 8; the segment lives as long as the returned reference.
    unsafe { AtomicU64::from_ptr(segment.base().add(at * 8).cast().as_ptr()) }
}

#[test]
fn a_peer_that_publishes_messages_after_its_end_blocks_no_thread() {
    let mut scene = Scene::new();
    scene.is_well();
    let (wire, mut channel, segment) = intrude(&mut scene.victim);
    // The victim's own atomic operation publishes each message again, for the next lap of the ring.
    // SAFETY: the segment is mapped as long as the victim makes progress.
    let shared = unsafe { AppIov::from_raw(segment.base().as_ptr(), SEGMENT) };
    scene.victim.register_memory(2, &shared);
    let operation = AtomicWord {
        op: FI_SUM as u8,
        datatype: FI_UINT64 as u8,
        form: Form::Base.code(),
        count: 1,
    };
    let head = Head {
        kind: ATOMIC,
        flags: 0,
        words: [0, 1, operation.pack()],
    };
    let mut first = None;
    while let Ok(Some(space)) = channel.space(32) {
        let before = words(&segment);
        let _ = space.publish(head);
        let after = words(&segment);
        let is_lap = |at: &usize| before[*at] != after[*at] && after[*at] >> 32 == 1;
        let at = (0..before.len()).find(is_lap).unwrap();
        // The bytes of the message are after the four words of its head.
        for (number, value) in [at as u64 * 8, 8, 2, 1 << 32].into_iter().enumerate() {
            word(&segment, at + 4 + number).store(value, Ordering::Relaxed);
        }
        first.get_or_insert(at);
    }
    let key = *scene.victim.core.open.all().last().unwrap();
    drop(wire);
    scene.victim.core.read_wire(key);
    assert!(!scene.victim.core.links.contains_key(key));
    let laps = words(&segment)[first.unwrap()] >> 32;
    assert!(laps < 64, "{laps}");
    scene.is_well();
}

#[test]
fn a_segment_that_is_scribbled_over_ends_its_own_link_only() {
    let mut scene = Scene::new();
    scene.is_well();
    let mut random = Random(0xda94_2042_e4dd_58b5);
    for _ in 0..50 {
        let (_wire, _channel, segment) = intrude(&mut scene.victim);
        for round in 0..2000usize {
            let at = random.below(TABLES / 8) * 8;
            let word = match round % 4 {
                0 => random.next(),
                1 => (1 << 32) | (random.next() % (1 << 24)),
                2 => (2 << 32) | (random.next() % (1 << 24)),
                _ => random.next() % 100_000,
            };
            // Most positions are those of the first slots.
            let at = if round % 2 == 0 { at } else { 4096 + at % 4096 };
            // SAFETY: `at` is inside the segment and a multiple of 8; both sides access the word
            // atomically.
            unsafe { AtomicU64::from_ptr(segment.base().add(at).cast().as_ptr()) }
                .store(word, Ordering::Relaxed);
            if round % 16 == 0 {
                scene.victim.drive();
            }
        }
        scene.is_well();
    }
}

/// Has a victim read `len` bytes, of which these parts arrive, with [`MORE`] or not. Returns the
/// outcome of the read.
fn read_from_a_liar(len: usize, parts: &[(usize, u8)]) -> Errno {
    let mut scene = Scene::new();
    let liar = Side::new(Params::default());
    let to = scene.victim.insert(&liar.name);
    let mut liar = liar;
    let mut out = *b"hello";
    let victim = &mut scene.victim;
    victim
        .core
        .transmit(victim.ep, &mut message(to, 1, &mut out, 0))
        .unwrap();
    assert_eq!(completed(&mut [victim, &mut liar], 0, 1), [1]);
    let mut into = vec![0xee; len + 64];
    victim.asks();
    let mut read = access(Access::Read, to, 3, &mut into[..len], 2);
    victim.core.access(victim.ep, &mut read).unwrap();
    let mut names = victim.core.links.values().flat_map(|link| {
        let names = link.pending.keys();
        names.collect::<Vec<_>>()
    });
    let name = to_peer(names.next().unwrap());
    let link = liar.core.links.values_mut().next().unwrap();
    for &(len, flags) in parts {
        let head = Head {
            kind: RESULT,
            flags,
            words: [name, 0, 0],
        };
        let sent = link.post(head, len, |to| {
            to.write_at(0, &pattern(1, len));
        });
        assert_eq!(sent, Ok(true));
    }
    let mut error = None;
    until(&mut [victim], |sides| {
        error = error.or(sides[0].error());
        error.is_some()
    });
    assert!(into[len..].iter().all(|byte| *byte == 0xee));
    scene.is_well();
    error.unwrap()
}

#[test]
fn what_is_read_has_so_many_bytes_in_all() {
    for parts in [
        &[(1000, MORE), (1001, 0)][..],
        &[(1000, MORE), (999, 0)],
        &[(2000, MORE)],
        &[(0, MORE)],
        &[(1000, MORE), (1000, MORE)],
        &[(1999, MORE), (2, MORE)],
        &[(2001, 0)],
    ] {
        assert_eq!(read_from_a_liar(2000, parts), Errno::EPROTO, "{parts:?}");
    }
}

/// Whether the victim has closed a socket without having sent anything on it.
fn has_ended(wire: &Wire) -> bool {
    matches!(wire.receive(&mut [0]), Ok((0, _)) | Err(Errno::ECONNRESET))
}

#[test]
fn of_the_peers_that_request_no_link_the_oldest_is_closed() {
    const SILENT: usize = 300;
    const KEPT: usize = 128;
    let mut scene = Scene::new();
    let before = scene.victim.core.links.len();
    let mut silent = Vec::new();
    for _ in 0..SILENT {
        silent.push(Wire::reach(SERVICE, &scene.victim.name).unwrap());
        scene.victim.drive();
        assert!(scene.victim.core.links.len() <= before + KEPT);
    }
    until(&mut [&mut scene.victim], |_| {
        silent[..SILENT - KEPT].iter().all(has_ended)
    });
    assert!(!silent[SILENT - KEPT..].iter().any(has_ended));
    scene.is_well();
}

#[test]
fn a_peer_that_requests_no_link_in_time_is_closed() {
    let mut scene = Scene::new();
    scene.is_well();
    let before = scene.victim.core.links.len();
    let silent = Wire::reach(SERVICE, &scene.victim.name).unwrap();
    until(&mut [&mut scene.victim], |_| has_ended(&silent));
    assert_eq!(scene.victim.core.links.len(), before);
    scene.is_well();
}

#[test]
fn a_door_that_was_left_alone_lets_peers_in_later() {
    let mut scene = Scene::new();
    let ep = scene.victim.ep;
    scene.victim.core.rest(ep);
    scene.is_well();
}

/// Encodes a remote list of one piece.
fn part(key: u64, len: u64) -> Vec<u8> {
    [0, len, key].map(u64::to_ne_bytes).concat()
}

#[test]
fn a_stranger_without_a_key_causes_no_completion() {
    let mut scene = Scene::new();
    scene.is_well();
    let (_wire, mut channel, _) = intrude(&mut scene.victim);
    let (none, empty, some) = (Vec::new(), part(5, 0), part(5, 8));
    let both = [part(1, 0), part(5, 0)].concat();
    let atomic = |count| {
        let operation = AtomicWord {
            form: Form::Base.code(),
            op: FI_SUM as u8,
            datatype: FI_UINT64 as u8,
            count,
        };
        operation.pack()
    };
    let write = |list: &[u8], bytes: &[u8]| {
        let count = list.len() as u64 / 24;
        (WRITE, count, [bytes, list].concat())
    };
    let records = [
        write(&none, &[]),
        write(&empty, &[]),
        write(&both, &[]),
        write(&some, &[1; 8]),
        (ATOMIC, atomic(0), none.clone()),
        (ATOMIC, atomic(1), empty.clone()),
        (ATOMIC, atomic(1), [&some[..], &[1; 8]].concat()),
    ];
    for (name, (kind, word, bytes)) in (1..).zip(records) {
        let space = channel.space(bytes.len()).unwrap().unwrap();
        space.bytes().write_at(0, &bytes);
        let _ = space.publish(Head {
            kind,
            flags: HAS_DATA,
            words: [0xbad, name, word],
        });
        let mut answer = None;
        until(&mut [&mut scene.victim], |_| {
            answer = channel.receiver.next().unwrap().map(|record| record.head);
            answer.is_some()
        });
        let _ = channel.receiver.take(0);
        let head = answer.unwrap();
        let refused = u64::from(Errno::EACCES.to_c().unsigned_abs());
        assert_eq!(
            (head.kind, head.words[..2].to_vec()),
            (DONE, vec![name, refused])
        );
        assert_eq!(
            scene.victim.cq.read(1, |_| {}),
            Err(Errno::EAGAIN),
            "{name}"
        );
    }
    scene.is_well();
}

#[test]
fn a_name_that_another_user_has_taken_keeps_no_caller_waiting() {
    use std::os::unix::process::CommandExt;

    let name = fresh_name();
    let listener = Listener::new(SERVICE, &name).unwrap();
    let socket = listener.as_fd().try_clone_to_owned().unwrap();
    let mut other = std::process::Command::new("true");
    other.uid(65534);
    // SAFETY: the closure runs in the child after fork(2) and makes one system call only, which is
    // permitted there. The process that calls listen(2) is the one that the kernel reports to those
    // who connect.
    unsafe { other.pre_exec(move || Ok(rustix::net::listen(&socket, 8)?)) };
    let status = other.status();
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can run as another user");
        return;
    }
    assert!(status.unwrap().success());
    let mut caller = Side::new(Params {
        connect_timeout: 300,
        ..Params::default()
    });
    let to = caller.insert(&name);
    // The number of requests is larger than the listener's queue, and none is accepted.
    for number in 0..4 {
        let mut out = [0; 8];
        let mut sent = message(to, number, &mut out, 0);
        caller.core.transmit(caller.ep, &mut sent).unwrap();
        let mut error = None;
        until(&mut [&mut caller], |sides| {
            error = sides[0].error();
            error.is_some()
        });
        // -FI_EAGAIN is for lack of space in the listener's queue.
        let expected = [Errno::EPERM, Errno::EAGAIN];
        assert!(expected.contains(&error.unwrap()), "{error:?}");
    }
}
