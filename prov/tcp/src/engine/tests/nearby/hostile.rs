//! Peers that claim to be on the same host, or share memory with malicious contents.

use std::os::fd::AsRawFd as _;

use super::*;

/// A peer with a malicious segment.
struct Fiend {
    stranger: Stranger,
    stream: SharedStream,
    fd: OwnedFd,
}

/// Moves to shared memory with an endpoint, as a connecting peer does.
fn fiend(side: &Side) -> Fiend {
    const SECRET: u64 = 99;
    let mut stranger = Stranger::of(side);
    stranger.introduce();
    stranger.show_card();
    stranger.hear_acquaintance(side);
    let (stream, fd) = SharedStream::create(SECRET).unwrap();
    stranger.offer_memory(fd.as_fd());
    let heard = stranger.hear_acquaintance(side);
    assert_eq!(heard.len(), 1);
    assert_eq!((heard[0].0, heard[0].1), (Subject::Moved.code(), SECRET));
    stranger.acquaint(Subject::Moved.code(), 0, 0);
    side.drive();
    Fiend {
        stranger,
        stream,
        fd,
    }
}

#[test]
fn a_peer_is_followed_to_memory_that_is_its_own() {
    let a = side();
    let mut fiend = fiend(&a);
    let (mut place, mut bytes) = ([0; 5], [0; MAX_HEADER]);
    receive(&a, &mut place, 7);
    let mut header = Header::new(Op::Tagged);
    (header.tag, header.payload) = (7, 5);
    let len = header.encode(&[], ByteOrder::Native, 0, &mut bytes);
    fiend.stream.send(&bytes[..len]).unwrap();
    fiend.stream.send(b"hello").unwrap();
    until([&a, &a], || a.count() == 1);
    assert_eq!(&place, b"hello");
}

#[test]
fn invalid_shared_memory_is_ignored_and_the_socket_is_used() {
    IS_FOR_RMA.set(false);
    let a = side();
    let file = std::fs::File::open("/proc/self/exe").unwrap();
    let unsealed = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&unsealed, SEGMENT as u64).unwrap();
    // It does not contain the mark of a channel.
    let (_blank, blank) = Segment::create(SEGMENT, &[]).unwrap();
    for fd in [file.as_fd(), unsealed.as_fd(), blank.as_fd()] {
        let mut stranger = Stranger::of(&a);
        stranger.introduce();
        stranger.show_card();
        stranger.hear_acquaintance(&a);
        stranger.offer_memory(fd);
        let heard = stranger.hear_acquaintance(&a);
        assert_eq!(heard, [(Subject::Stays.code(), 0, 0)]);
        assert!(stranger.hear(&a).is_some());
    }
    // Nor is the memory of a peer used that cannot be woken.
    let (_stream, fd) = SharedStream::create(1).unwrap();
    for bell in [
        0,
        1 + file.as_raw_fd() as u64,
        1 + fd.as_raw_fd() as u64,
        u64::MAX,
    ] {
        let mut stranger = Stranger::of(&a);
        stranger.introduce();
        stranger.acquaint(Subject::Card.code(), 0, bell);
        stranger.hear_acquaintance(&a);
        stranger.offer_memory(fd.as_fd());
        let heard = stranger.hear_acquaintance(&a);
        assert_eq!(heard, [(Subject::Stays.code(), 0, 0)]);
    }
    // It does not open files of a process that it does not know either.
    let mut stranger = Stranger::of(&a);
    stranger.offer_memory(blank.as_fd());
    let heard = stranger.hear_acquaintance(&a);
    assert_eq!(heard, [(Subject::Stays.code(), 0, 0)]);
}

#[test]
fn a_peer_that_moves_out_of_turn_loses_the_connection() {
    let a = side();
    let says: [&dyn Fn(&mut Fiend); 4] = [
        &|fiend| fiend.stranger.offer_memory(fiend.fd.as_fd()),
        &|fiend| _ = fiend.stream.send(&[0xff; 64]),
        &|fiend| {
            let mut header = Header::new(Op::Acquaint);
            header.op_data = Subject::Moved.code();
            let mut bytes = [0; MAX_HEADER];
            let len = header.encode(&[], ByteOrder::Native, 0, &mut bytes);
            _ = fiend.stream.send(&bytes[..len]);
        },
        &|fiend| {
            let mut header = Header::new(Op::DirectMsg);
            (header.size, header.id) = (1 << 20, 5);
            let mut bytes = [0; MAX_HEADER];
            let len = header.encode(&[], ByteOrder::Native, 0, &mut bytes);
            _ = fiend.stream.send(&bytes[..len]);
        },
    ];
    for (number, say) in says.iter().enumerate() {
        let mut fiend = fiend(&a);
        say(&mut fiend);
        let gone = number != 0;
        let heard = fiend.stranger.hear(&a);
        // The bytes that follow on the socket are not a message.
        assert_eq!(heard.is_none(), gone, "{number}");
        assert_eq!(a.open_connections().is_empty(), gone);
        drop(fiend);
        until([&a, &a], || a.open_connections().is_empty());
    }
}

#[test]
fn the_end_of_a_peer_is_detected_after_any_number_of_packets_that_wake() {
    let a = side();
    let mut fiend = fiend(&a);
    let calls = [0; 1 << 16];
    let mut sent = 0;
    // As many as the socket buffers, which one progress call does not process entirely.
    while let Ok(n) = std::io::Write::write(&mut fiend.stranger.stream, &calls) {
        sent += n;
    }
    assert!(sent > 16 << 10);
    fiend
        .stranger
        .stream
        .shutdown(std::net::Shutdown::Write)
        .unwrap();
    until([&a, &a], || a.open_connections().is_empty());
}

#[test]
fn a_peer_that_overwrites_the_shared_memory_loses_at_most_the_connection() {
    let a = side();
    let mut number = 1u64;
    for round in 0..300 {
        let fiend = fiend(&a);
        let memory = Segment::attach(fiend.fd.as_fd(), SEGMENT).unwrap();
        for _ in 0..200 {
            number = number
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            // Mostly control words, slots, and their headers.
            let at = match number >> 62 {
                0 => (number >> 20) as usize % 4096,
                1 => 4096 + (number >> 20) as usize % 8 * 128,
                _ => (number >> 20) as usize % TABLES,
            } & !7;
            let value = match (number >> 60) & 3 {
                0 => number,
                1 => u64::MAX,
                2 => 1 << 32 | (number >> 40) & 0xffff_ffff,
                _ => number & 0xff,
            };
            // SAFETY: the word is inside the mapping and aligned. The write races with the other
            // side on purpose: this test checks that it reads each word once and checks it.
            unsafe { memory.base().add(at).cast::<u64>().write_volatile(value) };
            if number.is_multiple_of(16) {
                a.drive();
            }
        }
        (0..20).for_each(|_| a.drive());
        drop(fiend);
        until([&a, &a], || a.open_connections().is_empty());
        if round % 50 == 0 {
            let b = side();
            a.knows(b.addr);
            let (mut out, mut place) = ([1; 8], [0; 8]);
            let peer = (round / 50) as u64;
            receive(&b, &mut place, 1);
            let mut message = Transmit {
                peer,
                ..tagged(&mut out, 1)
            };
            a.engine.core().transmit(a.ep, &mut message).unwrap();
            until([&a, &b], || b.count() == 1);
        }
    }
}
