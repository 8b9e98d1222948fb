//! Connections between two hosts ([`world`]).

mod world;

use self::world::{Host, Told, World, address};
use super::*;
use crate::device::SharedQueue;
use crate::device::fake::xrc::{self as fake, Call, Kind};
use crate::lane::tests::{complete_oldest, fail_oldest, lane, room, send};

const PORT: u16 = 7471;

fn connected(data: &[u8]) -> Vec<Told> {
    vec![Told::Connected(data.to_vec())]
}

fn refused(data: &[u8]) -> Vec<Told> {
    vec![Told::Failed(Errno::ECONNREFUSED, data.to_vec())]
}

/// Returns the destination of a message of an endpoint.
fn post(world: &World, host: usize, number: usize) -> fake::Post {
    fake::posts();
    send(&world.hosts[host].endpoints[number].seats).unwrap();
    fake::posts()[0]
}

#[test]
fn connections_between_two_hosts_share_their_initiators() {
    let mut world = World::new();
    for number in 0..3 {
        world.connect(0);
        world.run();
        assert_eq!(world.told(0, number), connected(b"welcome"));
        assert_eq!(world.told(1, number), connected(b""));
        assert_eq!(world.asked[number], (b"hello".to_vec(), number != 0));
    }
    for host in [0, 1] {
        let (pair, queue) = post(&world, host, 0);
        assert_eq!(queue, world.hosts[1 - host].receives());
        for number in [1, 2] {
            assert_eq!(post(&world, host, number), (pair, queue));
        }
    }
    // Each connection has both targets open, of which there are two.
    let mut targets = fake::targets();
    assert_eq!(targets.len(), 6);
    targets.sort_unstable();
    targets.dedup();
    assert_eq!(targets.len(), 2);
    // The first one leaves, which does not affect the others.
    world.close(0, 0);
    world.close(1, 0);
    world.run();
    assert_eq!(world.told(0, 1), connected(b"welcome"));
    post(&world, 0, 1);
    world.connect(1);
    world.run();
    assert_eq!(world.told(1, 3), connected(b"welcome"));
    assert!(world.asked[3].1);
    world.close_all();
}

#[test]
fn a_connection_waits_for_an_initiator_that_is_being_connected() {
    let mut world = World::new();
    let numbers = [0, 0, 0].map(|host| world.connect(host));
    // The same from the other side.
    world.connect(1);
    world.run();
    for number in numbers {
        assert_eq!(world.told(0, number), connected(b"welcome"));
    }
    assert_eq!(world.told(1, 0), connected(b"welcome"));
    let requests = world.asked.iter().filter(|(_, is_datagram)| !is_datagram);
    assert!(requests.count() <= 2);
    world.close_all();
}

#[test]
fn a_refusal_has_its_data_and_the_next_one_tries_itself() {
    let mut world = World::new();
    world.answer = Err(b"no".to_vec());
    let numbers = [0, 0].map(|host| world.connect(host));
    world.run();
    for number in numbers {
        assert_eq!(world.told(0, number), refused(b"no"));
    }
    assert_eq!(world.asked.len(), 2);
    assert!(world.asked.iter().all(|(_, is_datagram)| !is_datagram));
    // A request over a shared initiator is rejected, too.
    world.answer = Ok(Vec::new());
    let first = world.connect(0);
    world.run();
    assert_eq!(world.told(0, first), connected(b""));
    world.answer = Err(b"full".to_vec());
    let second = world.connect(0);
    world.run();
    assert_eq!(world.told(0, second), refused(b"full"));
    assert_eq!(world.told(0, first), connected(b""));
    // It can still be shared.
    world.answer = Ok(Vec::new());
    let third = world.connect(0);
    world.run();
    assert_eq!(world.told(0, third), connected(b""));
    assert_eq!(post(&world, 0, third), post(&world, 0, first));
    world.close_all();
}

#[test]
fn an_answer_that_is_lost_is_given_again() {
    let mut world = World::new();
    world.connect(0);
    world.run();
    world.connect(0);
    world.until(|call| call.kind == Kind::Connect);
    let (host, call) = world.calls.front().cloned().unwrap();
    assert!(call.is_datagram);
    world.lost = 1;
    world.until(|call| call.kind == Kind::Accept);
    world.calls.retain(|(_, call)| call.kind != Kind::Accept);
    world.lost = 0;
    // RDMA CM repeats the request.
    world.calls.push_front((host, call));
    world.run();
    assert_eq!(world.told(0, 1), connected(b"welcome"));
    assert_eq!(world.told(1, 1), connected(b""));
    assert_eq!(world.asked.len(), 2);
    world.close_all();
}

#[test]
fn answers_that_are_none_end_the_attempt() {
    let damages: [fn(&mut Call); 5] = [
        |call| call.data.truncate(15),
        |call| call.data[0] = 1,
        |call| call.data[1] ^= 1,
        |call| call.data[15] ^= 1,
        |call| call.pair = 1 << 24,
    ];
    for damage in damages {
        let mut world = World::new();
        world.connect(0);
        world.until(|call| call.kind == Kind::Accept);
        let call = &mut world.calls.front_mut().unwrap().1;
        damage(call);
        world.lost = 0;
        let (host, call) = world.calls.pop_front().unwrap();
        let (asker, key) = world.askers[call.peer.as_ref().unwrap()];
        let event = Event {
            kind: EventKind::Answered,
            key,
            status: 0,
            data: call.data,
            pair: call.pair,
            incoming: None,
        };
        world.on(asker, |host| host.state.happened(event));
        let expected = vec![Told::Failed(Errno::EPROTO, Vec::new())];
        assert_eq!(world.told(asker, 0), expected);
        assert_ne!(asker, host);
        world.close_all();
    }
}

#[test]
fn nobody_else_gets_in_by_the_way_back() {
    let damages: [fn(&mut Call); 5] = [
        |call| call.data[15] ^= 1,
        |call| call.data[1] = 0,
        |call| call.data[0] = 3,
        |call| call.data[6] ^= 1,
        |call| call.own = Some(address(7, 1)),
    ];
    for damage in damages {
        let mut world = World::new();
        world.connect(0);
        // The other side requests the way back.
        world.until(|call| call.kind == Kind::Connect && call.data[1] == 1);
        let (host, call) = world.calls.pop_front().unwrap();
        let mut false_one = call.clone();
        damage(&mut false_one);
        let targets = fake::targets();
        world.request(host, &false_one);
        assert_eq!(fake::targets(), targets);
        assert_eq!(world.told(0, 0), []);
        // The genuine request is still accepted.
        world.calls.push_front((host, call));
        world.run();
        assert_eq!(world.told(0, 0), connected(b"welcome"));
        world.close_all();
    }
}

#[test]
fn an_end_that_is_closed_at_any_time_leaves_nothing() {
    for is_second in [false, true] {
        for closing in [0, 1] {
            for steps in 0..40 {
                let mut world = World::new();
                if is_second {
                    world.connect(0);
                    world.run();
                }
                world.connect(0);
                for _ in 0..steps {
                    if let Some((host, call)) = world.calls.pop_front() {
                        world.carry(host, &call);
                    }
                }
                let last = world.hosts[closing].endpoints.len();
                if last > usize::from(is_second) {
                    world.close(closing, last - 1);
                }
                world.close_all();
            }
        }
    }
}

#[test]
fn an_endpoint_that_shuts_down_gets_an_event_and_sends_no_more() {
    let mut world = World::new();
    world.connect(0);
    world.run();
    let key = world.hosts[0].endpoints[0].key.unwrap();
    assert_eq!(world.on(0, |host| host.state.uncross(key)), Ok(()));
    assert_eq!(world.told(0, 0)[1..], [Told::ShutDown]);
    assert!(!world.hosts[0].endpoints[0].link.is_connected());
    assert_eq!(
        send(&world.hosts[0].endpoints[0].seats),
        Err(Errno::ENOTCONN)
    );
    assert_eq!(world.on(0, |host| host.state.uncross(key)), Ok(()));
    world.run();
    world.close_all();
}

#[test]
fn a_device_takes_its_connections_along_and_a_queue_pair_those_that_use_it() {
    for event in [DeviceEvent::Failed, DeviceEvent::PairFailed(0)] {
        let mut world = World::new();
        world.connect(0);
        world.connect(0);
        world.run();
        let (pair, _) = post(&world, 0, 0);
        let event = match event {
            DeviceEvent::PairFailed(_) => DeviceEvent::PairFailed(pair),
            other => other,
        };
        world.on(0, |host| {
            let context = host.context;
            host.state.device_says_to_crossings(context, event);
        });
        for number in [0, 1] {
            assert_eq!(world.told(0, number)[1..], [Told::ShutDown], "{event:?}");
        }
        if matches!(event, DeviceEvent::PairFailed(_)) {
            // The next one has another.
            let next = world.connect(0);
            world.run();
            assert_eq!(world.told(0, next), connected(b"welcome"));
            assert_ne!(post(&world, 0, next).0, pair);
        }
        world.close_all();
    }
}

#[test]
fn a_request_that_fails_ends_all_users_of_its_initiator() {
    let mut world = World::new();
    let numbers = [0, 0].map(|host| world.connect(host));
    world.run();
    let (pair, _) = post(&world, 0, 0);
    let name = world.hosts[0].endpoints[0]
        .seats
        .send
        .as_ref()
        .unwrap()
        .name;
    fail_oldest(&world.hosts[0].lane, name, 0);
    world.on(0, |host| host.state.end_lost());
    for number in numbers {
        assert_eq!(world.told(0, number)[1..], [Told::ShutDown]);
    }
    let next = world.connect(0);
    world.run();
    assert_eq!(world.told(0, next), connected(b"welcome"));
    assert_ne!(post(&world, 0, next).0, pair);
    world.close_all();
}

#[test]
fn requests_of_an_endpoint_that_has_left_keep_their_space_until_they_complete() {
    let mut world = World::new();
    world.connect(0);
    world.connect(0);
    world.run();
    let (all, _) = room(&world.hosts[0].lane);
    for _ in 0..3 {
        post(&world, 0, 0);
    }
    let name = world.hosts[0].endpoints[0]
        .seats
        .send
        .as_ref()
        .unwrap()
        .name;
    assert_eq!(room(&world.hosts[0].lane).0, all - 3);
    world.close(0, 0);
    assert_eq!(room(&world.hosts[0].lane).0, all - 3);
    complete_oldest(&world.hosts[0].lane, name, 0);
    assert_eq!(room(&world.hosts[0].lane).0, all - 2);
    // The initiator is destroyed with the last one, and with it the rest.
    world.close(0, 1);
    assert_eq!(room(&world.hosts[0].lane).0, all);
    world.close_all();
}

#[test]
fn a_shared_queue_completes_in_one_lane() {
    let mut world = World::new();
    world.connect(0);
    let Host {
        shared,
        pd,
        domain,
        context,
        ..
    } = &world.hosts[0];
    let other = lane(*context);
    let refused = shared.complete_in(&other, |queue, size| {
        SharedQueue::of_xrc(pd, domain, queue, size, 1)
    });
    assert_eq!(refused, Err(Errno::EINVAL));
    world.run();
    world.close_all();
}
