//! Two ends of a stream against a model: the bytes that one has accepted are those that the other
//! one returns, once and in order, whatever happens to the subflows.

use std::io::Write as _;
use std::os::unix::net::UnixStream;

use super::*;
use crate::wire::multipath::{FRAME, Frame};

/// Numbers that look random.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % limit
    }
}

/// A subflow's two ends.
fn pair() -> [OwnedFd; 2] {
    let (near, far) = UnixStream::pair().unwrap();
    [near, far].map(|end| {
        end.set_nonblocking(true).unwrap();
        end.into()
    })
}

/// Both ends of a stream that is divided, with this many subflows.
fn ends(count: u8) -> [Multipath; 2] {
    let mut ends = pair().map(|first| Multipath::new([0; 16], first, Plan::default()));
    for number in 1..count {
        connect(&mut ends, number);
    }
    for end in &mut ends {
        end.departs();
    }
    for end in &mut ends {
        end.comes_in(&[]).unwrap();
    }
    ends
}

fn connect(ends: &mut [Multipath; 2], number: u8) {
    for (end, socket) in ends.iter_mut().zip(pair()) {
        end.add(number, socket);
    }
}

/// Byte of the stream at a position.
fn byte(at: usize) -> u8 {
    (at / 7 + at % 251) as u8
}

/// Receives what has arrived; checks it, and returns the number of bytes.
fn check(end: &mut Multipath, got: &mut usize, room: usize) -> Result<usize> {
    end.has_event();
    let mut bytes = vec![0; room];
    let received = end.receive(&mut bytes)?;
    for &is in &bytes[..received] {
        assert_eq!(is, byte(*got), "at {got}");
        *got += 1;
    }
    Ok(received)
}

/// Lets an end send this many bytes of the stream, as far as it accepts them.
fn send(end: &mut Multipath, sent: &mut usize, len: usize) {
    let bytes: Vec<u8> = (*sent..*sent + len).map(byte).collect();
    match end.send(&bytes) {
        Ok(accepted) => *sent += accepted,
        Err(error) => assert_eq!(error, Errno::EAGAIN),
    }
}

/// Lets everything arrive.
fn settle(ends: &mut [Multipath; 2], got: &mut [usize; 2], sent: [usize; 2]) {
    for _ in 0..1_000_000 {
        for (end, got) in ends.iter_mut().zip(got.iter_mut()) {
            while check(end, got, 100_000).is_ok_and(|received| received != 0) {}
            end.pump();
        }
        if *got == [sent[1], sent[0]] {
            return;
        }
    }
    panic!("sent {sent:?}, received {got:?}");
}

#[test]
fn bytes_arrive_once_and_in_order_on_any_number_of_subflows() {
    for count in 1..6 {
        let mut random = Random(count.into());
        let mut ends = ends(count);
        let (mut sent, mut got) = ([0; 2], [0; 2]);
        for _ in 0..300 {
            let side = random.below(2);
            let most = [100, 40_000, 700_000][random.below(3)];
            let len = 1 + random.below(most);
            send(&mut ends[side], &mut sent[side], len);
            let other = random.below(2);
            let room = 1 + random.below(200_000);
            let _ = check(&mut ends[other], &mut got[other], room);
        }
        settle(&mut ends, &mut got, sent);
        for end in &mut ends {
            assert!(!end.has_to_send());
            assert_eq!(end.flows.len(), usize::from(count));
        }
    }
}

#[test]
fn short_messages_take_the_first_subflow_and_long_ones_all() {
    let mut ends = ends(4);
    let (mut sent, mut got) = ([0; 2], [0; 2]);
    let used = |end: &Multipath| {
        let flows = end.flows.iter();
        flows.map(|flow| flow.has_in_flight()).collect::<Vec<_>>()
    };
    for _ in 0..100 {
        send(&mut ends[0], &mut sent[0], 200);
        settle(&mut ends, &mut got, sent);
    }
    assert_eq!(used(&ends[0]), [true, false, false, false]);
    send(&mut ends[0], &mut sent[0], 1 << 20);
    assert_eq!(used(&ends[0]), [true; 4]);
    settle(&mut ends, &mut got, sent);
}

/// An end that does not read what precedes the peer's frames, since a message there waits.
#[test]
fn an_end_that_is_held_back_sends_more_than_the_window() {
    let mut ends = pair().map(|first| Multipath::new([0; 16], first, Plan::default()));
    connect(&mut ends, 1);
    ends[0].departs();
    ends[1].comes_in(&[]).unwrap();
    ends[1].departs();
    let (mut sent, mut got) = (0, 0);
    for _ in 0..1000 {
        send(&mut ends[0], &mut sent, 1 << 20);
        ends[0].go_on();
        while check(&mut ends[1], &mut got, 1 << 20).is_ok() {}
        if got as u64 > 2 * WINDOW {
            return;
        }
    }
    panic!("sent {sent}, received {got}");
}

#[test]
fn subflows_that_fail_lose_and_repeat_nothing() {
    for seed in 0..12 {
        let mut random = Random(seed);
        let mut ends = ends(4);
        let (mut sent, mut got) = ([0; 2], [0; 2]);
        for _ in 0..120 {
            let side = random.below(2);
            let most = [100, 40_000, 300_000][random.below(3)];
            let len = 1 + random.below(most);
            send(&mut ends[side], &mut sent[side], len);
            let _ = check(&mut ends[1 - side], &mut got[1 - side], 150_000);
            // At least one subflow works all the time, and another one is made again.
            let number = random.below(3) as u8;
            let works = |end: &Multipath| end.working().any(|other| other == number);
            match random.below(12) {
                // Both sides find out in time, or one does, or a new one replaces it.
                0 if works(&ends[0]) && ends[0].is_confirmed && ends[1].is_confirmed => {
                    let index = ends[0].index_of(number).unwrap();
                    let socket = ends[0].flows[index].socket();
                    rustix::net::shutdown(socket, rustix::net::Shutdown::Both).unwrap();
                }
                1 if ends[0].is_confirmed && ends[1].is_confirmed => {
                    for end in &mut ends {
                        if let Some(index) = end.index_of(number) {
                            end.stop_sending(index, Errno::ETIMEDOUT);
                        }
                    }
                }
                2 | 3 if ends[0].is_confirmed && ends[1].is_confirmed => {
                    connect(&mut ends, number);
                }
                _ => {}
            }
        }
        settle(&mut ends, &mut got, sent);
        assert!(ends.iter_mut().any(|end| !end.take_ended().is_empty()));
    }
}

#[test]
fn a_stream_ends_with_its_last_subflow() {
    let [mut here, there] = ends(3);
    let mut here_sent = 0;
    send(&mut here, &mut here_sent, 10);
    drop(there);
    let mut got = 0;
    let outcome = loop {
        match check(&mut here, &mut got, 100) {
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            outcome => break outcome,
        }
    };
    assert!(
        matches!(outcome, Ok(0) | Err(Errno::ECONNRESET)),
        "{outcome:?}"
    );
    assert!(here.is_over() && here.send(b"x").is_err());
}

#[test]
fn a_first_subflow_that_fails_with_plain_data_ends_the_stream() {
    let mut ends = pair().map(|first| Multipath::new([0; 16], first, Plan::default()));
    connect(&mut ends, 1);
    ends[0].departs();
    assert!(!ends[0].is_confirmed);
    ends[0].stop_sending(0, Errno::ECONNRESET);
    assert_eq!(ends[0].send(b"x"), Err(Errno::ECONNRESET));
    assert!(ends[0].is_over());
}

#[test]
fn a_peer_that_reads_nothing_bounds_what_is_kept() {
    let [mut here, _there] = ends(2);
    let mut sent = 0;
    for _ in 0..200 {
        send(&mut here, &mut sent, 1 << 20);
    }
    assert!(sent as u64 <= WINDOW && !here.has_room());
}

#[test]
fn acknowledgements_are_received_although_nothing_is_taken() {
    let mut ends = ends(2);
    let (mut sent, mut got) = ([0; 2], [0; 2]);
    // Neither side takes anything until its own data has arrived.
    while sent[0] < 3 * WINDOW as usize {
        send(&mut ends[0], &mut sent[0], 500_000);
        if sent[1] < 1 << 20 {
            send(&mut ends[1], &mut sent[1], 300_000);
        }
        while check(&mut ends[1], &mut got[1], 1 << 20).is_ok() {}
        ends[0].has_event();
        ends[0].pump();
    }
    assert_eq!(got[0], 0);
    settle(&mut ends, &mut got, sent);
}

#[test]
fn everything_is_acknowledged_on_request() {
    let mut ends = ends(3);
    let (mut sent, mut got) = ([0; 2], [0; 2]);
    send(&mut ends[0], &mut sent[0], 100_000);
    settle(&mut ends, &mut got, sent);
    assert!(ends[0].awaits_ack());
    ends[0].ask_for_ack();
    settle(&mut ends, &mut got, sent);
    let _ = check(&mut ends[1], &mut got[1], 1);
    let _ = check(&mut ends[0], &mut got[0], 1);
    assert!(!ends[0].awaits_ack());
}

/// What a peer may not send.
#[test]
fn frames_that_break_the_protocol_are_refused() {
    let far = 1 << 40;
    let data = |offset, len: usize| {
        let frame = Frame::Data { offset, len }.encode();
        [&frame[..], &vec![0; len][..]].concat()
    };
    let cases: [(&str, Vec<u8>); 6] = [
        ("beyond the window", data(far, 5)),
        ("just beyond the window", data(WINDOW, 1)),
        ("never sent", Frame::Ack { offset: 1 }.encode().to_vec()),
        ("no frame", vec![0; FRAME]),
        (
            "too long",
            [0xd0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0].to_vec(),
        ),
        (
            "gaps",
            (0..5000).flat_map(|at| data(1 + 2 * at, 1)).collect(),
        ),
    ];
    for (what, bytes) in cases {
        let [first, peer] = pair();
        let mut here = Multipath::new([0; 16], first, Plan::default());
        here.departs();
        here.comes_in(&bytes).unwrap();
        let mut outcome = Err(Errno::EAGAIN);
        for _ in 0..20_000 {
            here.has_event();
            outcome = here.receive(&mut [0; 64]);
            if outcome != Err(Errno::EAGAIN) && outcome != Err(Errno::EINTR) {
                break;
            }
        }
        assert_eq!(outcome, Err(Errno::EPROTO), "{what}");
        assert!(here.take_fault().is_some(), "{what}");
        drop(peer);
    }
    let [first, _peer] = pair();
    let mut here = Multipath::new([0; 16], first, Plan::default());
    here.comes_in(&[]).unwrap();
    assert!(here.comes_in(&[]).is_err());
}

/// Any frames are refused or are a stream.
#[test]
fn any_bytes_are_received_or_refused() {
    for seed in 0..300 {
        let mut random = Random(seed);
        let mut bytes = Vec::new();
        for _ in 0..60 {
            let offset = random.below(3000) as u64;
            let len = 1 + random.below(500);
            match random.below(20) {
                0 => bytes.push(random.below(256) as u8),
                1 => bytes.extend(Frame::Ask { offset }.encode()),
                2 => bytes.extend(Frame::Ack { offset: 0 }.encode()),
                _ => {
                    bytes.extend(Frame::Data { offset, len }.encode());
                    bytes.extend((0..len).map(|at| byte(offset as usize + at)));
                }
            }
        }
        let [first, _peer] = pair();
        let mut here = Multipath::new([0; 16], first, Plan::default());
        here.departs();
        here.comes_in(&bytes).unwrap();
        let mut got = 0;
        for _ in 0..2000 {
            if let Ok(0) | Err(Errno::EPROTO) = check(&mut here, &mut got, 1 + random.below(900)) {
                break;
            }
        }
        assert!(got <= 3500);
    }
}

#[test]
fn what_is_next_is_found_behind_what_comes_later() {
    const LEN: usize = MAX_DATA;
    let (mut ends, mut peers) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        let (near, far) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        ends.push(OwnedFd::from(near));
        peers.push(far);
    }
    let second = ends.pop().unwrap();
    let mut end = Multipath::new([0; 16], ends.pop().unwrap(), Plan::default());
    end.add(1, second);
    end.comes_in(&[]).unwrap();
    // The first frame of the stream is the last one that arrives.
    for frame in (0..4).rev() {
        let offset = frame * LEN;
        let header = Frame::Data {
            offset: offset as u64,
            len: LEN,
        };
        let bytes: Vec<u8> = (offset..offset + LEN).map(byte).collect();
        let peer = &mut peers[frame % 2];
        peer.write_all(&header.encode()).unwrap();
        peer.write_all(&bytes).unwrap();
    }
    // One event says that all of that has come.
    end.has_event();
    let (mut bytes, mut got) = (vec![0; LEN], 0);
    while got < 4 * LEN {
        match end.receive(&mut bytes) {
            Ok(received) => {
                for &is in &bytes[..received] {
                    assert_eq!(is, byte(got), "at {got}");
                    got += 1;
                }
            }
            Err(error) => assert_eq!(error, Errno::EINTR, "at {got}"),
        }
    }
}
