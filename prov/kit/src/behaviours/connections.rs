//! Connections of connected endpoints: fi_cm(3).

use prov_base::errno::Errno;

use crate::connecting::{Connecting, ConnectionEvent};
use crate::{Message, Place, Property, World};

use ConnectionEvent::{Connected, Failed, ShutDown};

/// One message from an endpoint to its peer, of this length.
#[track_caller]
fn is_usable<B: Connecting>(world: &World<B>, from: usize, to: usize, len: usize) {
    let (out, into) = (Place::pattern(len, len), Place::empty(len));
    world[to].receive(Message::any().tag(77).with(into));
    world.send(from, Message::to(0).tag(77).with(out));
    assert_eq!(world.received(to).len, len);
    world.sent(from);
    assert!(into.has(len, len));
}

/// The receive of the first endpoint has ended, since its connection was refused.
#[track_caller]
fn is_refused<B: Connecting>(world: &World<B>) {
    let end = world.failed(0, crate::RECEIVED);
    assert_eq!(end.err, Errno::ECANCELED);
    if !B::LACKS.contains(&Property::Causes) {
        assert_eq!(end.prov_errno, Errno::ECONNREFUSED.number());
    }
}

/// Connection data arrives with the request and with the acceptance, up to the limit.
pub fn data_comes_with_a_request_and_with_its_acceptance<B: Connecting>() {
    for len in [0, 1, 8, B::DATA_LIMIT] {
        let (world, address) = World::<B>::unconnected(2);
        let [asked, answered] = [1, 2].map(|number| Place::pattern(number, len).bytes());
        world.connect(0, &address, &asked);
        let (request, data) = world.request();
        assert_eq!(data, asked);
        world.accept(1, request, &answered);
        assert_eq!(world.event(0), Connected(answered));
        assert_eq!(world.event(1), Connected(Vec::new()));
        is_usable(&world, 0, 1, 8);
        is_usable(&world, 1, 0, 8);
        world.is_quiet();
    }
}

/// Who is rejected gets an error with the data of the refusal, and its receives end; the listener goes
/// on.
pub fn a_rejected_request_fails_with_the_data_of_the_refusal<B: Connecting>() {
    for len in [0, 1, B::DATA_LIMIT] {
        let (world, address) = World::<B>::unconnected(3);
        let (refusal, into) = (Place::pattern(3, len).bytes(), Place::empty(8));
        world[0].receive(Message::any().tag(1).with(into));
        world.connect(0, &address, &[]);
        let (request, _) = world.request();
        world.bench.reject(request, &refusal);
        assert_eq!(world.event(0), Failed(Errno::ECONNREFUSED, refusal));
        is_refused::<B>(&world);
        world.join_up(1, 2, &address);
        is_usable(&world, 2, 1, 1000);
        world.is_quiet();
    }
}

/// Where nobody listens, the connection fails, and so do the receives.
pub fn where_nobody_listens_a_connection_fails<B: Connecting>() {
    let (mut world, address) = World::<B>::unconnected(2);
    let nobody = world.bench.nobody();
    let into = Place::empty(8);
    world[0].receive(Message::any().tag(1).with(into));
    world.connect(0, &nobody, b"data");
    assert_eq!(world.event(0), Failed(Errno::ECONNREFUSED, Vec::new()));
    is_refused::<B>(&world);
    let third = world.join();
    world.join_up(third, 1, &address);
    is_usable(&world, 1, third, 8);
    world.is_quiet();
}

/// Who accepts may send at once, before the other end knows of the connection: nothing is lost, and
/// nothing overtakes.
pub fn messages_follow_the_acceptance_at_once<B: Connecting>() {
    for len in [8, 5000, 1 << 20] {
        let (world, address) = World::<B>::unconnected(2);
        let into = Place::empty(len);
        world[0].receive(Message::any().tag(0).with(into).context(50));
        world.connect(0, &address, &[]);
        let (request, _) = world.request();
        world.accept(1, request, &[]);
        for number in 0..5 {
            let out = Place::pattern(number, len);
            world.send(1, Message::to(0).tag(number as u64).with(out));
        }
        for number in 0..5 {
            if number != 0 {
                let receive = Message::any().tag(number as u64);
                world[0].receive(receive.with(into).context(50 + number));
            }
            assert_eq!(world.done(0, 50 + number).len, len);
            assert!(into.has(number, len), "{len} bytes");
            world.sent(1);
        }
        for side in 0..2 {
            assert_eq!(world.event(side), Connected(Vec::new()));
        }
        world.is_quiet();
    }
}

/// An endpoint closes before its request is answered: who accepts it has a connection that ends, or
/// none; the listener goes on.
pub fn a_request_is_withdrawn<B: Connecting>() {
    let (mut world, address) = World::<B>::unconnected(4);
    world.connect(0, &address, &[]);
    let (request, _) = world.request();
    world.close(0);
    let accepted = world.bench.accept(world[1].opened(), request, &[]);
    if accepted.is_ok() {
        assert_eq!(world.event(1), Connected(Vec::new()));
        assert_eq!(world.event(1), ShutDown);
    }
    world.join_up(2, 3, &address);
    is_usable(&world, 3, 2, 8);
    world.is_quiet();
}

/// An end that is shut down has its messages delivered; the other end is told, and neither can send.
pub fn an_end_that_is_shut_down_is_reported_to_the_other<B: Connecting>() {
    for from in 0..2 {
        let to = 1 - from;
        let world = World::<B>::connected();
        let (out, into) = (Place::pattern(4, 3000), Place::empty(3000));
        world.send(from, Message::to(0).tag(1).with(out));
        world.bench.shut_down(world[from].opened());
        assert_eq!(world.event(to), ShutDown);
        world[to].receive(Message::any().tag(1).with(into));
        world.received(to);
        assert!(into.has(4, 3000));
        for side in 0..2 {
            let refused = world[side].send(Message::to(0).tag(2).with(out).context(60));
            assert!(refused.is_err(), "{refused:?}");
        }
    }
}

/// Receives end with their connection, with its end as the cause; what had arrived is received.
pub fn receives_end_with_their_connection_and_name_its_end_as_the_cause<B: Connecting>() {
    let mut world = World::<B>::connected();
    let (out, into) = (Place::pattern(1, 8), [(); 3].map(|()| Place::empty(8)));
    world[0].receive(Message::any().tag(1).with(into[0]).context(51));
    world[0].receive(Message::any().tag(2).with(into[1]).context(52));
    world.send(1, Message::to(0).tag(3).with(out));
    world.sent(1);
    world.close(1);
    let end_of = |context| {
        let end = world.failed(0, context);
        (end.err, end.prov_errno)
    };
    let ended = (Errno::ECANCELED, Errno::ESHUTDOWN.number());
    assert_eq!([end_of(51), end_of(52)], [ended; 2]);
    assert_eq!(world.event(0), ShutDown);
    // Messages that had arrived are still received; then no more arrive.
    world[0].receive(Message::any().tag(3).with(into[2]).context(53));
    assert_eq!(world.done(0, 53).len, 8);
    assert!(into[2].has(1, 8));
    world[0].receive(Message::any().tag(4).with(into[2]).context(54));
    assert_eq!(end_of(54), ended);
    world.is_quiet();
}

/// What has arrived is received although its receiver sends to an end that is closed.
pub fn what_has_arrived_is_received_although_answers_cannot_be_sent<B: Connecting>() {
    let mut world = World::<B>::connected();
    let (out, into) = (Place::pattern(7, 8), Place::empty(8));
    world[0].receive(Message::any().tag(3).with(into));
    world.send(1, Message::to(0).tag(3).with(out));
    world.sent(1);
    world.close(1);
    // The first one may be answered with a reset, and the others are not sent.
    let posted = (0..4).filter(|number| {
        let message = Message::to(0).tag(9).with(out).context(60 + number);
        world[0].send(message).is_ok()
    });
    let posted: Vec<usize> = posted.collect();
    assert_eq!(world.received(0).len, 8);
    assert!(into.has(7, 8));
    assert_eq!(world.event(0), ShutDown);
    for number in posted {
        let context = 60 + number;
        world.until(|| {
            let failed = world[0].take_error(context).is_some();
            (failed || world[0].take(context).is_some()).then_some(())
        });
    }
    world.is_quiet();
}

/// A receive that the application cancels has no other cause.
pub fn a_receive_that_is_taken_back_has_no_other_cause<B: Connecting>() {
    let world = World::<B>::connected();
    let into = Place::empty(8);
    world[0].receive(Message::any().tag(1).with(into).context(51));
    assert_eq!(world[0].cancel(51), Ok(()));
    let end = world.failed(0, 51);
    let cause = Errno::ECANCELED.number();
    assert_eq!((end.err, end.prov_errno), (Errno::ECANCELED, cause));
    world.is_quiet();
}

/// The two ends of a connection and the listener close in any order, with operations under way; the
/// end that stays is told, and connections of the same listener are not affected.
pub fn ends_and_listeners_close_in_any_order<B: Connecting>() {
    const ORDERS: [[usize; 3]; 6] = [
        [0, 1, 2],
        [0, 2, 1],
        [1, 0, 2],
        [1, 2, 0],
        [2, 0, 1],
        [2, 1, 0],
    ];
    for len in [8, 100_000, 3 << 20] {
        for order in ORDERS {
            let (mut world, address) = World::<B>::unconnected(4);
            world.join_up(0, 1, &address);
            world.join_up(2, 3, &address);
            let (out, into) = (Place::pattern(1, len), Place::empty(len));
            for side in 0..2 {
                for _ in 0..3 {
                    // As much as there is room for.
                    let _ = world[side].send(Message::to(0).tag(1).with(out).context(20));
                    world[side].receive(Message::any().tag(2).with(into).context(21));
                }
                world.turn();
            }
            let mut ends = Vec::from([0, 1]);
            for what in order {
                if what == 2 {
                    world.bench.stop_listening();
                    continue;
                }
                world.close(what);
                ends.retain(|end| *end != what);
                if let [left] = ends[..] {
                    assert_eq!(world.event(left), ShutDown, "{len} bytes, {order:?}");
                }
            }
            is_usable(&world, 2, 3, len);
            is_usable(&world, 3, 2, 8);
            world.is_quiet();
        }
    }
}
