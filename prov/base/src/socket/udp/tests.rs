//! Datagrams between sockets of the loopback interface, which loses none that has room.

use std::time::{Duration, Instant};

use super::arrivals::Arrivals;
use super::outbox::{Outbox, Sent};
use super::*;
use crate::buffer::AppIov;
use crate::sockaddr::encode;
use crate::socket::name;

fn socket(ip: &str) -> (OwnedFd, Encoded) {
    let socket = bound(&SocketAddr::new(ip.parse().unwrap(), 0)).unwrap();
    let at = encode(&name(socket.as_fd()).unwrap());
    (socket, at)
}

fn lend(bytes: &mut [u8]) -> AppIov {
    // SAFETY: the tests keep the bytes until the datagram is sent or copied.
    unsafe { AppIov::from_raw(bytes.as_mut_ptr(), bytes.len()) }
}

/// Receives as many datagrams: their lengths and first bytes.
fn received(socket: &OwnedFd, count: usize, several: bool) -> Vec<(usize, Option<u8>)> {
    received_by(&mut Arrivals::new(true), socket, count, several)
}

fn received_by(
    arrivals: &mut Arrivals,
    socket: &OwnedFd,
    count: usize,
    several: bool,
) -> Vec<(usize, Option<u8>)> {
    let mut all = Vec::new();
    let deadline = Instant::now() + Duration::from_secs(60);
    while all.len() < count {
        assert!(Instant::now() < deadline, "{} of {count}", all.len());
        match arrivals.receive(socket.as_fd(), several) {
            Ok(()) => {}
            Err(Errno::EAGAIN) => continue,
            Err(error) => panic!("{error:?}"),
        }
        while let Some(datagram) = arrivals.front() {
            assert!(datagram.from.is_some());
            all.push((datagram.bytes.len(), datagram.bytes.first().copied()));
            arrivals.pop();
        }
    }
    all
}

#[test]
fn a_datagram_has_its_bytes_and_its_sender() {
    for ip in ["127.0.0.1", "::1"] {
        let ((a, from), (b, to)) = (socket(ip), socket(ip));
        send(a.as_fd(), &lend(&mut [7; 100]), &to).unwrap();
        send(a.as_fd(), &AppIov::EMPTY, &to).unwrap();
        for len in [100, 0] {
            let mut arrivals = Arrivals::new(true);
            while arrivals.receive(b.as_fd(), false) == Err(Errno::EAGAIN) {}
            let datagram = arrivals.front().unwrap();
            assert_eq!(datagram.bytes, &[7; 100][..len]);
            assert_eq!(datagram.from.map(|addr| encode(&addr)), Some(from));
            arrivals.pop();
            assert!(arrivals.is_empty() && arrivals.front().is_none());
        }
    }
}

/// Linux before 4.18 would send them as one.
#[test]
fn a_system_that_does_not_divide_pieces_is_given_each_datagram() {
    let ((a, _), (b, to)) = (socket("127.0.0.1"), socket("127.0.0.1"));
    let mut outbox = Outbox::default();
    for number in 0..40 {
        outbox.push(&lend(&mut [number; 8]), &to);
    }
    assert_eq!(outbox.send_some(a.as_fd(), false), Ok(16));
    assert_eq!(outbox.send_some(a.as_fd(), true), Ok(24));
    let all: Vec<_> = (0..40).map(|number| (8, Some(number))).collect();
    assert_eq!(received(&b, 40, true), all);
}

#[test]
fn datagrams_that_were_read_one_by_one_are_then_read_together_and_one_by_one() {
    for named in [false, true] {
        let ((a, from), (b, to)) = (socket("127.0.0.1"), socket("127.0.0.1"));
        let mut arrivals = Arrivals::new(named);
        for round in 0..4 {
            let mut outbox = Outbox::default();
            for number in 0..40 {
                outbox.push(&lend(&mut [number; 8]), &to);
            }
            assert_eq!(outbox.send(a.as_fd()), (40, Sent::All));
            for number in 0..40 {
                let several = round == 1 && number == 20;
                while arrivals.receive(b.as_fd(), several) == Err(Errno::EAGAIN) {}
                let datagram = arrivals.front().unwrap();
                assert_eq!(datagram.bytes, [number; 8]);
                let sender = datagram.from.map(|addr| encode(&addr));
                assert!(sender == Some(from) || (!named && sender.is_none()));
                arrivals.pop();
            }
            assert_eq!(arrivals.receive(b.as_fd(), false), Err(Errno::EAGAIN));
        }
    }
}

#[test]
fn a_datagram_that_is_too_long_is_refused() {
    let ((a, _), (_, to)) = (socket("127.0.0.1"), socket("127.0.0.1"));
    let mut bytes = vec![0; LONGEST];
    let sent = send(a.as_fd(), &lend(&mut bytes), &to);
    assert_eq!(sent, Err(Errno::EMSGSIZE));
    assert_eq!(send(a.as_fd(), &lend(&mut bytes[..65_507]), &to), Ok(()));
}

#[test]
fn datagrams_that_are_sent_together_arrive_separately_and_in_order() {
    for (coalesces, several) in [(false, false), (true, false), (true, true), (false, true)] {
        let ((a, _), (b, to), (c, other)) = (
            socket("127.0.0.1"),
            socket("127.0.0.1"),
            socket("127.0.0.1"),
        );
        let mut arrivals = Arrivals::new(true);
        if coalesces {
            arrivals.coalesce(b.as_fd());
        }
        let mut outbox = Outbox::default();
        let mut expected = Vec::new();
        // Equal ones, a shorter one, a longer one, none at all, and another's in between.
        let lens = [[8; 70].as_slice(), &[5, 5, 0, 9, 1, 1, 1200, 1200, 3]].concat();
        for (number, len) in lens.into_iter().enumerate() {
            let mut bytes = vec![number as u8; len];
            outbox.push(&lend(&mut bytes), &to);
            expected.push((len, bytes.first().copied()));
            if number == 40 {
                outbox.push(&lend(&mut [1, 2, 3]), &other);
            }
        }
        assert_eq!(outbox.len(), expected.len() + 1);
        assert_eq!(outbox.send(a.as_fd()), (expected.len() + 1, Sent::All));
        assert!(outbox.is_empty() && outbox.bytes() == 0);
        let received_by_b = received_by(&mut arrivals, &b, expected.len(), several);
        assert_eq!(received_by_b, expected);
        assert_eq!(received(&c, 1, several), [(3, Some(1))]);
    }
}

#[test]
fn a_datagram_that_cannot_be_sent_leaves_the_others() {
    let ((a, _), (b, to)) = (socket("127.0.0.1"), socket("127.0.0.1"));
    // A socket of one family sends nothing to the other.
    let nowhere = encode(&"[::1]:9".parse().unwrap());
    let mut outbox = Outbox::default();
    for number in 0..3 {
        outbox.push(&lend(&mut [number]), &to);
    }
    for number in 0..2 {
        outbox.push(&lend(&mut [number]), &nowhere);
    }
    outbox.push(&lend(&mut [9]), &to);
    let failed = |sent| matches!(sent, Sent::Failed(_));
    let (left, outcome) = outbox.send(a.as_fd());
    assert!(left == 3 && failed(outcome), "{left} {outcome:?}");
    let (left, outcome) = outbox.send(a.as_fd());
    assert!(left == 0 && failed(outcome), "{left} {outcome:?}");
    assert_eq!(outbox.send(a.as_fd()), (1, Sent::All));
    let first = |number| (1, Some(number));
    assert_eq!(
        received(&b, 4, true),
        [first(0), first(1), first(2), first(9)]
    );
}

#[test]
fn messages_longer_than_the_routes_packets_are_sent_as_single_datagrams() {
    // The loopback interface takes 65,536 bytes: two of these are no piece.
    let ((a, _), (b, to)) = (socket("127.0.0.1"), socket("127.0.0.1"));
    set_receive_buffer(b.as_fd(), 1 << 20);
    let mut outbox = Outbox::default();
    let mut bytes = vec![3; 60_000];
    outbox.push(&lend(&mut bytes), &to);
    outbox.push(&lend(&mut bytes), &to);
    assert_eq!(outbox.send(a.as_fd()), (2, Sent::All));
    assert_eq!(received(&b, 2, true), [(60_000, Some(3)); 2]);
}

#[test]
fn a_group_is_joined_once_and_left_once() {
    let any = bound(&"0.0.0.0:0".parse().unwrap()).unwrap();
    let group = "224.0.1.200:7".parse().unwrap();
    assert!(is_group(&group));
    // Where no route leads to groups, there is nothing to join.
    if join(any.as_fd(), &group).is_ok() {
        assert_eq!(join(any.as_fd(), &group), Err(Errno::EADDRINUSE));
        assert_eq!(leave(any.as_fd(), &group), Ok(()));
        assert_eq!(leave(any.as_fd(), &group), Err(Errno::EADDRNOTAVAIL));
    }
}

#[test]
fn a_datagram_that_is_withdrawn_is_not_sent_and_the_others_stay_in_order() {
    let ((a, _), (b, to)) = (socket("127.0.0.1"), socket("127.0.0.1"));
    // Runs of equal lengths, which end with a shorter one.
    let lengths = [8, 8, 8, 4, 16, 16, 2, 0, 5];
    for first in 0..lengths.len() {
        let mut outbox = Outbox::default();
        for (number, len) in lengths.into_iter().enumerate() {
            outbox.push(&lend(&mut [number as u8; 16][..len]), &to);
        }
        let mut left: Vec<usize> = (0..lengths.len()).collect();
        // One, then those at both ends of the rest.
        for at in [first, 0, lengths.len() - 3] {
            outbox.withdraw(at);
            left.remove(at);
        }
        assert_eq!(outbox.len(), left.len());
        outbox.push(&lend(&mut [99; 5]), &to);
        assert_eq!(outbox.send(a.as_fd()), (left.len() + 1, Sent::All));
        let expected = left.iter().map(|&number| {
            let len = lengths[number];
            (len, (len != 0).then_some(number as u8))
        });
        let expected: Vec<_> = expected.chain([(5, Some(99))]).collect();
        assert_eq!(received(&b, expected.len(), true), expected);
    }
    let mut outbox = Outbox::default();
    outbox.push(&lend(&mut [1; 8]), &to);
    outbox.withdraw(0);
    assert!(outbox.is_empty() && outbox.bytes() == 0);
    outbox.withdraw(0);
    assert_eq!(outbox.send(a.as_fd()), (0, Sent::All));
}

#[test]
fn what_follows_a_withdrawn_datagram_to_another_destination_has_its_own_bytes() {
    let (a, _) = socket("127.0.0.1");
    let [(b, to_b), (c, to_c)] = [(); 2].map(|()| socket("127.0.0.1"));
    let mut outbox = Outbox::default();
    outbox.push(&lend(&mut [1; 8]), &to_b);
    outbox.push(&lend(&mut [2; 8]), &to_c);
    outbox.withdraw(1);
    outbox.push(&lend(&mut [3; 8]), &to_b);
    outbox.push(&lend(&mut [4; 8]), &to_b);
    outbox.push(&lend(&mut [5; 8]), &to_c);
    assert_eq!(outbox.send(a.as_fd()), (4, Sent::All));
    let expected = [(8, Some(1)), (8, Some(3)), (8, Some(4))];
    assert_eq!(received(&b, 3, true), expected);
    assert_eq!(received(&c, 1, true), [(8, Some(5))]);
}
