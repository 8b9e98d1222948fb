//! Endpoints that are bound to every address of the host.

use std::net::{Ipv4Addr, SocketAddr};

use prov_base::sockaddr;

use super::*;

fn decoded(side: &Side) -> SocketAddr {
    sockaddr::decode(&side.name).unwrap()
}

fn encoded(ip: Ipv4Addr, port: u16) -> Vec<u8> {
    let addr = SocketAddr::from((ip, port));
    sockaddr::encode(&addr).as_bytes().to_vec()
}

fn everywhere() -> Side {
    Side::at(Ipv4Addr::UNSPECIFIED, Params::default())
}

/// Sends a message, which the other side receives as one of its first peer.
fn message(from: &Side, to: &Side) {
    let (mut bytes, mut room) = (vec![3; 5_000], vec![0; 5_000]);
    to.receive(&mut room, 1, 0);
    from.send(&mut bytes, 1, 0);
    completed(&[to, from], 1);
    completed(&[from, to], 1);
    assert_eq!(room, bytes);
}

#[test]
fn an_endpoint_at_every_address_tells_one_by_which_it_is_reached() {
    let (own, other) = (everywhere(), Side::new(Params::default()));
    assert!(sockaddr::is_destination(&decoded(&own)));
    own.knows(&other.name);
    other.knows(&own.name);
    message(&other, &own);
    message(&own, &other);
}

#[test]
fn whoever_sends_first_the_peers_address_is_the_one_that_is_used() {
    for is_first in [true, false] {
        let (own, other) = (everywhere(), Side::new(Params::default()));
        own.knows(&other.name);
        other.knows(&encoded(Ipv4Addr::LOCALHOST, decoded(&own).port()));
        match is_first {
            true => message(&own, &other),
            false => message(&other, &own),
        }
        message(&own, &other);
        message(&other, &own);
    }
}

#[test]
fn both_may_send_first() {
    let (own, other) = (everywhere(), Side::new(Params::default()));
    own.knows(&other.name);
    other.knows(&encoded(Ipv4Addr::LOCALHOST, decoded(&own).port()));
    let mut bytes = [[1; 8], [2; 8]];
    let mut rooms = [[0; 8]; 2];
    for ((side, bytes), room) in [&own, &other].into_iter().zip(&mut bytes).zip(&mut rooms) {
        side.receive(room, 1, 0);
        side.send(bytes, 1, 0);
    }
    completed(&[&own, &other], 2);
    completed(&[&other, &own], 2);
    assert_eq!(rooms, [[2; 8], [1; 8]]);
}

#[test]
fn an_endpoint_reaches_itself_by_any_of_its_addresses() {
    let (by_name, by_another) = (everywhere(), everywhere());
    by_name.knows(&by_name.name);
    by_another.knows(&encoded(Ipv4Addr::LOCALHOST, decoded(&by_another).port()));
    for own in [by_name, by_another] {
        let (mut bytes, mut room) = (vec![3; 5_000], vec![0; 5_000]);
        own.receive(&mut room, 1, 0);
        own.send(&mut bytes, 1, 0);
        completed(&[&own], 2);
        assert_eq!(room, bytes);
    }
}

/// The system answers with 127.0.0.1, whichever address of that network was asked.
#[test]
fn a_peer_may_answer_from_another_of_its_addresses() {
    let own = everywhere();
    let other = Side::at(Ipv4Addr::new(127, 0, 0, 2), Params::default());
    own.knows(&other.name);
    other.knows(&encoded(Ipv4Addr::new(127, 0, 0, 3), decoded(&own).port()));
    message(&other, &own);
    let (mut bytes, mut room) = (vec![3; 5_000], vec![0; 5_000]);
    other.receive(&mut room, 1, 0);
    own.send(&mut bytes, 1, 0);
    completed(&[&other, &own], 1);
    assert_eq!(room, bytes);
}

#[test]
fn an_endpoint_that_was_restarted_is_the_peer_that_it_was() {
    let (own, other) = (everywhere(), Side::new(Params::default()));
    own.knows(&other.name);
    other.knows(&encoded(Ipv4Addr::LOCALHOST, decoded(&own).port()));
    message(&other, &own);
    own.restart();
    message(&own, &other);
    message(&other, &own);
}

#[test]
fn an_endpoint_is_reached_under_two_of_its_addresses_at_once() {
    for order in [[0, 1], [1, 0]] {
        let (own, other) = (everywhere(), Side::new(Params::default()));
        own.knows(&other.name);
        for last in [1, 2] {
            let ip = Ipv4Addr::new(127, 0, 0, last);
            other.knows(&encoded(ip, decoded(&own).port()));
        }
        let mut rooms = vec![vec![0; 5_000]; 8];
        let mut bytes: Vec<_> = (0..8).map(|tag| vec![tag; 5_000]).collect();
        for (tag, room) in (0..).zip(&mut rooms) {
            own.receive(room, tag, 0);
        }
        for (tag, bytes) in (0..).zip(&mut bytes) {
            other.send_to(order[tag as usize % 2], bytes, tag, 0);
        }
        completed(&[&own, &other], 8);
        completed(&[&other, &own], 8);
        assert_eq!(rooms, bytes);
        // What it sends is from the address under which it was reached first.
        let (mut sent, mut room) = ([1; 8], [0; 8]);
        other.receive(&mut room, 9, order[0]);
        own.send(&mut sent, 9, 0);
        completed(&[&other, &own], 1);
        assert!(own.error().is_none() && other.error().is_none());
    }
}

#[test]
fn an_endpoint_reaches_itself_under_two_of_its_addresses_at_once() {
    let own = everywhere();
    for last in [1, 2] {
        own.knows(&encoded(
            Ipv4Addr::new(127, 0, 0, last),
            decoded(&own).port(),
        ));
    }
    let mut rooms = [[0; 8]; 4];
    for (tag, room) in (0..).zip(&mut rooms) {
        own.receive(room, tag, FI_ADDR_UNSPEC);
        own.send_to(tag % 2, &mut [tag as u8; 8], tag, FI_INJECT);
    }
    completed(&[&own], 8);
    assert_eq!(rooms, [[0; 8], [1; 8], [2; 8], [3; 8]]);
}
