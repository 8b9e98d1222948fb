//! Datagrams of somebody who lies. Anybody can send a set-up request in the name of a peer: it must not
//! change where the operations to that peer go. A peer can send anything: it must not get what is meant
//! for something else.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a check that fails panics"
)]

use std::collections::HashMap;

use prov_base::errno::Errno;
use prov_rxd::protocol::{
    Admission, AtomicArrival, Config, Datagram, Endpoint, Failure, Host, MessageArrival, Name,
    Payload, PeerId, Request, Time, WriteArrival, seal,
};
use prov_util::request::{RemoteIov, RemotePiece};

prov_base::stand_in!();

const MS: Time = 1_000_000;
const MTU: usize = 512;

/// An application that only sends and receives short messages.
#[derive(Default)]
struct Application {
    outbox: Vec<Vec<u8>>,
    received: usize,
    outcomes: HashMap<u32, Result<(), Failure>>,
    /// Strangers' paths that are in use.
    paths: usize,
    /// Whether there is no room for messages, and the lengths of those that were held back.
    is_full: bool,
    held: Vec<usize>,
    /// The lengths of the others.
    lens: Vec<usize>,
}

/// The source of a datagram that has no path.
const UNKNOWN: u8 = 255;

impl Host for Application {
    type Op = u32;
    type Response = u32;
    type Path = u8;

    fn transmit(&mut self, datagram: &Datagram<'_, u8, u32, u32>) -> bool {
        let mut bytes = datagram.header.to_vec();
        if let Payload::Op { len, .. } = datagram.payload {
            bytes.resize(bytes.len() + len, 7);
        }
        self.outbox.push(bytes);
        true
    }

    /// The first byte is the address, the others mean nothing.
    fn canonical(&self, name: &Name) -> Name {
        [name[0]; 64]
    }

    fn resolve(&mut self, name: &Name) -> Option<u8> {
        self.paths += 1;
        Some(name[0])
    }

    fn is_unknown(from: u8) -> bool {
        from == UNKNOWN
    }

    fn released(&mut self, _: u8) {
        self.paths -= 1;
    }

    fn appeared(&mut self, _: PeerId, _: &Name, _: u8) {}

    fn disappeared(&mut self, _: PeerId, _: u8) {
        self.paths -= 1;
    }

    fn message(&mut self, _: PeerId, message: &MessageArrival, _: &[u8]) -> Admission {
        if self.is_full {
            self.held.push(message.len);
            return Admission::Held;
        }
        self.received += 1;
        self.lens.push(message.len);
        Admission::Taken
    }

    fn write(&mut self, _: PeerId, _: &WriteArrival, _: &[u8]) -> Result<(), Errno> {
        Err(Errno::EACCES)
    }

    fn segment(&mut self, _: PeerId, _: usize, _: &[u8], _: bool) -> bool {
        true
    }

    fn finished(&mut self, _: PeerId) -> Result<(), Errno> {
        Ok(())
    }

    fn interrupted(&mut self, _: PeerId, _: Failure) {}

    fn read(&mut self, _: PeerId, _: &RemoteIov) -> Result<u32, Errno> {
        Err(Errno::EACCES)
    }

    fn atomic(&mut self, _: PeerId, _: &AtomicArrival<'_>) -> Result<Option<u32>, Errno> {
        Err(Errno::EACCES)
    }

    fn responded(&mut self, _: PeerId, _: u32, _: bool) {}

    fn result(&mut self, _: u32, _: usize, _: &[u8]) {}

    fn done(&mut self, op: u32, outcome: Result<(), Failure>) {
        self.outcomes.insert(op, outcome);
    }
}

/// One of two endpoints. Its name is its path, repeated.
struct Side {
    endpoint: Endpoint<Application>,
    app: Application,
    other: u8,
    submitted: u32,
}

impl Side {
    fn new(own: u8, other: u8, extended: bool) -> Side {
        let endpoint = Endpoint::new(Config {
            name: [own; 64],
            mtu: MTU,
            max_unacked: 16,
            retry: true,
            extended,
            give_up: 120_000 * MS,
            max_strangers: 4,
            max_guests: 4,
            max_buffered: 1 << 10,
            secret: [own.into(), 2],
        });
        Side {
            endpoint,
            app: Application::default(),
            other,
            submitted: 0,
        }
    }

    fn submit(&mut self, now: Time) {
        let request = Request::Message {
            tag: None,
            data: None,
            len: 8,
        };
        self.submit_any(now, &request);
    }

    fn submit_any(&mut self, now: Time, request: &Request) {
        let peer = self.endpoint.peer(&[self.other; 64], self.other).unwrap();
        self.submitted += 1;
        self.endpoint
            .submit(now, peer, self.submitted, request)
            .unwrap();
    }

    fn receive(&mut self, now: Time, datagram: &[u8]) {
        self.endpoint
            .receive(now, Some(self.other), datagram, &mut self.app);
    }

    fn transmit(&mut self, now: Time) -> Vec<Vec<u8>> {
        self.endpoint.transmit(now, &mut self.app);
        std::mem::take(&mut self.app.outbox)
    }
}

/// A request in the name of `peer`, with this address.
fn forged(peer: u8, address: u64, extended: bool) -> Vec<u8> {
    let mut bytes = vec![2, 9, 0, 0];
    bytes.resize(16, 0);
    bytes.extend(address.to_ne_bytes());
    bytes.extend([peer; 64]);
    if extended {
        bytes.extend(0x7278_642b_6372_6303_u64.to_ne_bytes());
        bytes.extend((MTU as u32).to_ne_bytes());
        bytes.extend(1024_u32.to_ne_bytes());
        bytes.extend(99_u64.to_ne_bytes());
        bytes.extend([0; 12]);
        bytes.extend(crc32c::crc32c(&bytes).to_ne_bytes());
    }
    bytes
}

/// Delivers everything both ways for a second, in steps of a millisecond.
fn second(sides: &mut [Side; 2], now: &mut Time) {
    for _ in 0..1000 {
        let [one, other] = sides;
        for datagram in one.transmit(*now) {
            other.receive(*now, &datagram);
        }
        for datagram in other.transmit(*now) {
            one.receive(*now, &datagram);
        }
        *now += MS;
    }
}

/// All operations of both have succeeded, and what was sent has arrived once.
fn check(sides: &[Side; 2], case: &str) {
    for (side, other) in [(&sides[0], &sides[1]), (&sides[1], &sides[0])] {
        let outcomes = &side.app.outcomes;
        assert_eq!(outcomes.len() as u32, side.submitted, "{case}");
        assert!(outcomes.values().all(Result::is_ok), "{case}: {outcomes:?}");
        assert_eq!(other.app.received as u32, side.submitted, "{case}");
    }
}

/// Runs a test with the extensions of this library on both sides, on one, and on none.
fn for_all(test: impl Fn([Side; 2], &str)) {
    for (one, other) in [(true, true), (true, false), (false, true), (false, false)] {
        let sides = [Side::new(1, 2, one), Side::new(2, 1, other)];
        test(sides, &format!("extensions: {one}, {other}"));
    }
}

#[test]
fn a_forged_request_does_not_take_over_a_connection_that_is_being_set_up() {
    for_all(|mut sides, case| {
        let mut now = MS;
        let [one, _] = &mut sides;
        one.submit(now);
        let request = one.transmit(now);
        one.receive(now, &forged(2, 0xbad_0001, true));
        one.transmit(now);
        for datagram in request {
            sides[1].receive(now, &datagram);
        }
        second(&mut sides, &mut now);
        check(&sides, case);
    });
}

#[test]
fn a_forged_request_before_the_first_operation_does_not_misdirect_it() {
    for_all(|mut sides, case| {
        for extended in [true, false] {
            let mut now = MS;
            let [one, _] = &mut sides;
            one.receive(now, &forged(2, 0xbad_0001, extended));
            one.transmit(now);
            one.submit(now);
            second(&mut sides, &mut now);
            check(&sides, case);
        }
    });
}

#[test]
fn a_forged_request_between_two_real_ones_does_no_harm() {
    for_all(|mut sides, case| {
        let mut now = MS;
        let [one, other] = &mut sides;
        one.submit(now);
        other.submit(now);
        let (from_one, from_other) = (one.transmit(now), other.transmit(now));
        for datagram in from_other {
            one.receive(now, &datagram);
        }
        one.receive(now, &forged(2, 0xbad_0001, true));
        for datagram in from_one {
            other.receive(now, &datagram);
        }
        second(&mut sides, &mut now);
        check(&sides, case);
    });
}

#[test]
fn a_peer_whose_request_has_come_receives_before_it_has_sent_anything() {
    for_all(|mut sides, case| {
        let mut now = MS;
        let [one, other] = &mut sides;
        one.submit(now);
        for datagram in one.transmit(now) {
            other.receive(now, &datagram);
        }
        // The answer and everything else of this side is lost for the time being.
        other.submit(now);
        other.transmit(now);
        second(&mut sides, &mut now);
        check(&sides, case);
    });
}

#[test]
fn requests_in_the_name_of_others_leave_nothing_behind() {
    let mut side = Side::new(1, 2, true);
    for name in 3..200 {
        let request = forged(name, 7, true);
        side.endpoint.receive(MS, Some(2), &request, &mut side.app);
    }
    assert_eq!(side.app.paths, 0);
    assert!(side.transmit(MS).is_empty());
}

#[test]
fn the_first_request_of_a_stranger_is_answered() {
    let mut side = Side::new(1, 2, true);
    let mut now = MS;
    for name in 3..200 {
        let request = forged(name, 7, true);
        let from = Some(UNKNOWN);
        side.endpoint.receive(now, from, &request, &mut side.app);
        let answers = side.transmit(now);
        assert_eq!(answers.len(), 1, "{name}");
        assert_eq!(answers[0][1], 10);
        assert!(side.app.paths <= 4, "more strangers than there may be");
        now += 1_000 * MS;
    }
}

#[test]
fn a_message_that_is_held_back_cannot_be_exchanged_for_another_one() {
    let mut sides = [Side::new(1, 2, true), Side::new(2, 1, true)];
    let mut now = MS;
    sides[0].submit(now);
    let request = sides[0].transmit(now).remove(0);
    let first = u64_at(&request, 88 + 16);
    sides[1].receive(now, &request);
    second(&mut sides, &mut now);
    let [liar, side] = &mut sides;
    side.app.is_full = true;
    // The packet of a message of 8 bytes, and many that come before their turn and take all room.
    liar.submit(now);
    let [packet] = &liar.transmit(now)[..] else {
        panic!("a message of one packet");
    };
    let seq = first.wrapping_add(1);
    for ahead in 1..1000_u64 {
        let mut early = packet.clone();
        seal(&mut early, seq.wrapping_add(ahead));
        side.receive(now, &early);
    }
    side.receive(now, packet);
    assert_eq!(side.app.held, [8]);
    // There is room again, and another message with the same sequence number comes.
    side.app.is_full = false;
    let peer = side.endpoint.find(&[1; 64]).unwrap();
    side.endpoint.resume(now, peer, &mut side.app);
    let mut other = packet.clone();
    other.resize(packet.len() + 100, 1);
    seal(&mut other, seq);
    side.receive(now, &other);
    assert_eq!(side.app.lens[..2], [8, 8]);
    assert!(!side.app.lens.contains(&108));
}

/// Two sides with a connection, of which the first one has sent a message; a packet of its, and the
/// sequence number of the next one.
fn connected() -> ([Side; 2], Time, Vec<u8>, u64) {
    let mut sides = [Side::new(1, 2, true), Side::new(2, 1, true)];
    let mut now = MS;
    sides[0].submit(now);
    let request = sides[0].transmit(now).remove(0);
    let first = u64_at(&request, 88 + 16);
    sides[1].receive(now, &request);
    second(&mut sides, &mut now);
    check(&sides, "one message");
    sides[0].submit(now);
    let packet = sides[0].transmit(now).remove(0);
    (sides, now, packet, first.wrapping_add(1))
}

#[test]
fn what_short_packets_cost_beyond_their_bytes_counts_towards_the_budget() {
    let ([_, mut side], now, packet, seq) = connected();
    for ahead in 1..1000_u64 {
        let mut early = packet.clone();
        seal(&mut early, seq.wrapping_add(ahead));
        side.receive(now, &early);
    }
    let sent = side.transmit(now);
    let ack = sent.iter().find(|packet| packet[1] == 11).unwrap();
    let kept: u32 = ack[32..].iter().map(|byte| byte.count_ones()).sum();
    assert!(kept >= 4, "{kept}");
    // Each has an allocation and a place in a tree.
    assert!(kept * 64 <= 1 << 10, "{kept}");
}

#[test]
fn a_peer_that_waits_for_messages_is_shown_life_while_it_is_there_and_for_an_hour_at_most() {
    let ([mut liar, mut side], now, packet, seq) = connected();
    let number = u32::from_ne_bytes(packet[4..8].try_into().unwrap());
    let mut probe = header(12, 1 << 11 | 1 << 14, number, 0);
    probe.extend([0; 4]);
    probe.extend(u32::MAX.to_ne_bytes());
    probe.extend([0; 8]);
    seal(&mut probe, seq.wrapping_sub(1));
    side.receive(now, &probe);
    assert!(side.endpoint.is_awaited(now + 60_000 * MS));
    assert!(!side.endpoint.is_awaited(now + 3_600_000 * MS));
    side.endpoint.show_life(now + MS, now, &mut side.app);
    assert!(side.endpoint.is_awaited(now + 60_000 * MS));
    // The peer is gone.
    liar.endpoint.acknowledge_last(now, &mut liar.app);
    for packet in liar.transmit(now) {
        side.receive(now, &packet);
    }
    side.endpoint.show_life(now + MS, now, &mut side.app);
    assert!(!side.endpoint.is_awaited(now + MS));
}

#[test]
fn a_peer_with_several_spellings_of_its_name_is_one_peer() {
    let mut side = Side::new(1, 2, true);
    for spelling in 0..100 {
        let mut request = forged(3, 7, true);
        request[24 + 63] = spelling;
        side.endpoint.receive(MS, Some(3), &request, &mut side.app);
        side.transmit(MS);
    }
    assert_eq!(side.app.paths, 1);
}

/// The header of a packet.
fn header(kind: u8, flags: u16, number: u32, seq: u64) -> Vec<u8> {
    let mut bytes = vec![2, kind];
    bytes.extend(flags.to_ne_bytes());
    bytes.extend(number.to_ne_bytes());
    bytes.extend(seq.to_ne_bytes());
    bytes
}

/// The answer of a peer of the C library to a request with the address `to`.
fn answer(to: u64, address: u64) -> Vec<u8> {
    let mut bytes = header(10, 0, 0, 0);
    bytes.extend(to.to_ne_bytes());
    bytes.extend(address.to_ne_bytes());
    bytes
}

/// A message of 8 bytes.
fn message(number: u32, seq: u64) -> Vec<u8> {
    let mut bytes = header(0, 1 << 5, number, seq);
    bytes.extend([7; 8]);
    bytes
}

/// An acknowledgement with room for 16 packets.
fn acknowledgement(number: u32, next: u64) -> Vec<u8> {
    let mut bytes = header(11, 0, number, next);
    bytes.extend([0; 4]);
    bytes.extend(16_u32.to_ne_bytes());
    bytes.extend([0; 8]);
    bytes
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap())
}

#[test]
fn a_packet_that_comes_twice_is_no_restart_whatever_the_number_that_it_carries() {
    let mut side = Side::new(1, 2, false);
    side.submit(MS);
    let request = side.transmit(MS).remove(0);
    let address = u64_at(&request, 16);
    // The peer is restarted between its answers, so that it is told another address than at first.
    side.receive(MS, &answer(address, 1));
    side.receive(MS, &forged(2, 5, false));
    side.receive(MS, &answer(address, 5));
    let sent = side.transmit(MS);
    let told = sent.iter().find(|packet| packet[1] == 10).unwrap();
    let number = u64_at(told, 24) as u32;
    assert_ne!(number, address as u32);
    for _ in 0..3 {
        side.receive(MS, &message(number, 0));
    }
    // Packets of before that come late belong to the same connection.
    for _ in 0..2 {
        side.receive(MS, &message(address as u32, 0));
        side.receive(MS, &message(number, 1));
        side.receive(MS, &message(address as u32, 2));
    }
    assert_eq!(side.app.received, 3);
    assert!(side.app.outcomes.is_empty(), "{:?}", side.app.outcomes);
    // When it is really restarted, it gets a number that it has not used. What comes before its first
    // packet does not hide that it is restarted.
    side.receive(MS, &forged(2, 5, false));
    let sent = side.transmit(MS);
    let told = sent.iter().find(|packet| packet[1] == 10).unwrap();
    let fresh = u64_at(told, 24) as u32;
    side.receive(MS, &message(number, 0));
    side.receive(MS, &acknowledgement(fresh, 0));
    side.receive(MS, &message(fresh, 1));
    assert_eq!(side.app.received, 3);
    side.receive(MS, &message(fresh, 0));
    assert_eq!(side.app.received, 4);
    assert_eq!(side.app.outcomes[&1], Err(Failure::Restarted));
}

/// A peer of the C library that acknowledges a read and all that asks for it, and sends no result, but
/// a message from time to time if it `sends`. Returns what has become of the read after so many
/// milliseconds.
fn owed(sends: bool, after: Time) -> Option<Result<(), Failure>> {
    let mut side = Side::new(1, 2, false);
    let mut remote = RemoteIov::default();
    let (addr, len, key) = (1, 1000, 2);
    assert!(remote.push(RemotePiece { addr, len, key }));
    let mut now = MS;
    side.submit_any(now, &Request::Read { remote });
    let address = u64_at(&side.transmit(now)[0], 16);
    side.receive(now, &answer(address, 1));
    let mut sent = 0;
    for step in 0..after / 100 {
        for packet in side.transmit(now) {
            assert!(matches!(packet[1], 2 | 11 | 12));
            if packet[1] != 11 {
                side.receive(now, &acknowledgement(address as u32, 1));
            }
        }
        if sends && step % 600 == 0 {
            side.receive(now, &message(address as u32, sent));
            sent += 1;
        }
        now += 100 * MS;
    }
    assert_eq!(side.app.received as u64, sent);
    side.app.outcomes.get(&1).copied()
}

#[test]
fn a_result_that_a_peer_of_the_c_library_owes_is_not_awaited_forever() {
    assert_eq!(owed(false, 115_000), None);
    assert_eq!(owed(false, 130_000), Some(Err(Failure::Silent)));
}

#[test]
fn a_peer_of_the_c_library_that_sends_other_things_first_is_awaited() {
    assert_eq!(owed(true, 400_000), None);
}

#[test]
fn a_peer_with_several_addresses_may_answer_from_any_of_them() {
    for_all(|mut sides, case| {
        let mut now = MS;
        let [one, other] = &mut sides;
        one.submit(now);
        for _ in 0..1000 {
            for datagram in one.transmit(now) {
                other.receive(now, &datagram);
            }
            if one.app.outcomes.len() == 1 && other.submitted == 0 {
                other.submit(now);
            }
            for datagram in other.transmit(now) {
                let (from, app) = (Some(UNKNOWN), &mut one.app);
                one.endpoint.receive(now, from, &datagram, app);
            }
            now += MS;
        }
        assert_eq!(other.submitted, 1, "{case}");
        check(&sides, case);
    });
}

#[test]
fn nobody_answers_for_a_peer_who_has_not_got_the_request() {
    for_all(|mut sides, case| {
        let mut now = MS;
        let [one, other] = &mut sides;
        one.submit(now);
        let requests = one.transmit(now);
        let address = u64_at(&requests[0], 16);
        for guess in [address ^ 1 << 63, address ^ 1 << 32, address << 32 >> 32] {
            let (from, app) = (Some(UNKNOWN), &mut one.app);
            let forged = answer(guess, 0xbad_0001);
            one.endpoint.receive(now, from, &forged, app);
        }
        for datagram in requests {
            other.receive(now, &datagram);
        }
        second(&mut sides, &mut now);
        check(&sides, case);
        // Nor does anybody send for it.
        let [one, other] = &mut sides;
        other.submit(now);
        for datagram in other.transmit(now) {
            let (from, app) = (Some(UNKNOWN), &mut one.app);
            one.endpoint.receive(now, from, &datagram, app);
        }
        assert_eq!(one.app.received, 0, "{case}");
        second(&mut sides, &mut now);
        check(&sides, case);
    });
}

/// The answer of a peer of this library that has no room for the request, and wants it with a cookie.
fn full(to: u64, cookie: u64) -> Vec<u8> {
    let mut bytes = answer(to, 0);
    bytes[4..8].copy_from_slice(&(to as u32).to_ne_bytes());
    bytes.extend(0x7278_642b_6372_6303_u64.to_ne_bytes());
    bytes.extend((MTU as u32).to_ne_bytes());
    bytes.extend(1024_u32.to_ne_bytes());
    bytes.extend(0_u64.to_ne_bytes());
    bytes.extend(cookie.to_ne_bytes());
    bytes.extend([0; 4]);
    bytes.extend(crc32c::crc32c(&bytes).to_ne_bytes());
    bytes
}

#[test]
fn a_peer_that_wants_a_cookie_gets_one_more_request_at_once_and_none_if_it_gives_no_cookie() {
    for (cookie, expected) in [(0, 1), (5, 2)] {
        let mut side = Side::new(1, 2, true);
        side.submit(0);
        let mut requests = 0;
        for _ in 0..100 {
            for request in side.transmit(0) {
                requests += 1;
                side.receive(0, &full(u64_at(&request, 16), cookie));
            }
        }
        assert_eq!(requests, expected, "{cookie}");
    }
}
