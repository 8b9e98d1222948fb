//! Operations of connected endpoints whose connection ends.

use std::sync::Mutex;

use prov_util::eq::{ConnectionEvents, Eq};

use super::*;
use crate::engine::link::endpoint::Msg;
use crate::engine::link::listener::{Incomer, RequestSink};

#[derive(Clone, Default)]
struct Sink(Arc<Mutex<Option<Incomer>>>);

impl RequestSink for Sink {
    fn has_room(&self) -> bool {
        true
    }

    fn request(&self, incomer: Incomer) {
        *self.0.lock().unwrap() = Some(incomer);
    }
}

fn msg_side(sink: &Sink) -> Side {
    let eq = open(Eq::new(Attachment::None, fabric_abi::FI_VERSION(2, 0)));
    let kind = |_, _: &Params| {
        Kind::Msg(Msg {
            events: Some(ConnectionEvents::new(eq.handle().named(), eq.clone())),
            ..Msg::default()
        })
    };
    let listener = |_| ListenerKind::Passive(Box::new(sink.clone()));
    side_of(Params::default(), None, vector(None), kind, listener)
}

/// Creates two of them, connected.
fn connected() -> [Side; 2] {
    let sink = Sink::default();
    let [a, b] = [msg_side(&Sink::default()), msg_side(&sink)];
    let mut core = a.engine.core();
    core.connect_msg(a.ep, None, None, &b.addr, &[]).unwrap();
    drop(core);
    until([&a, &b], || sink.0.lock().unwrap().is_some());
    let incomer = sink.0.lock().unwrap().take().unwrap();
    b.engine.core().accept_msg(b.ep, incomer, &[]).unwrap();
    until([&a, &b], || !a.open_connections().is_empty());
    [a, b]
}

fn ends_of_receives(side: &Side) -> Vec<(usize, Errno, i32)> {
    let failed = side.failed.borrow();
    let ends = failed.iter().map(|error| {
        let context = error.completion.context.addr();
        (context, error.err, error.prov_errno)
    });
    ends.collect()
}

#[test]
fn receives_end_with_their_connection_and_name_its_end_as_the_cause() {
    let [a, b] = connected();
    let (mut out, mut places) = ([7; 8], [[0; 8]; 3]);
    let [first, second, late] = &mut places;
    receive(&a, first, 1);
    receive(&a, second, 2);
    send(&b, &mut out, 3);
    until([&a, &b], || b.count() == 1);
    b.engine.close(b.ep);
    until([&a, &a], || a.failed.borrow().len() == 2);
    let cause = Errno::ESHUTDOWN.number();
    assert_eq!(
        ends_of_receives(&a),
        [(1, Errno::ECANCELED, cause), (2, Errno::ECANCELED, cause)]
    );
    // Messages that had arrived are still received; then no more arrive.
    receive(&a, late, 3);
    until([&a, &a], || a.count() == 1);
    let mut place = [0; 8];
    receive(&a, &mut place, 4);
    until([&a, &a], || a.failed.borrow().len() == 3);
    assert_eq!(ends_of_receives(&a)[2], (4, Errno::ECANCELED, cause));
}

#[test]
fn messages_that_have_arrived_are_received_although_answers_cannot_be_sent() {
    let [a, b] = connected();
    let (mut out, mut place) = ([7; 8], [0; 8]);
    receive(&a, &mut place, 3);
    send(&b, &mut out, 3);
    until([&b, &b], || b.count() == 1);
    b.engine.close(b.ep);
    // The first one is answered with a reset, and the others are not sent.
    let mut unheard = [[1; 8]; 4];
    for (tag, out) in unheard.iter_mut().enumerate() {
        let mut message = tagged(out, tag as u64);
        let _ = a.engine.core().transmit(a.ep, &mut message);
    }
    let received = || {
        a.done
            .borrow()
            .iter()
            .any(|done| done.tag == 3 && done.len == 8)
    };
    until([&a, &a], || received() && a.open_connections().is_empty());
    assert_eq!(place, [7; 8]);
    assert_eq!(a.outstanding(), 0);
}

#[test]
fn receives_end_if_a_connection_fails() {
    let refusing = socket::bound(&"127.0.0.1:0".parse().unwrap(), &Params::default()).unwrap();
    let nobody = socket::name(refusing.as_fd()).unwrap();
    let a = msg_side(&Sink::default());
    let mut place = [0; 8];
    receive(&a, &mut place, 1);
    let mut core = a.engine.core();
    core.connect_msg(a.ep, None, None, &nobody, &[]).unwrap();
    drop(core);
    until([&a, &a], || a.failed.borrow().len() == 1);
    let cause = Errno::ECONNREFUSED.number();
    assert_eq!(ends_of_receives(&a), [(1, Errno::ECANCELED, cause)]);
}

#[test]
fn a_receive_that_the_application_takes_back_has_no_other_cause() {
    let a = msg_side(&Sink::default());
    let mut place = [0; 8];
    receive(&a, &mut place, 1);
    let mut core = a.engine.core();
    let poster = core.endpoints.poster(a.ep).unwrap();
    let cancelled = core.endpoints.cancel(poster, prov_message::Context(1));
    assert_eq!(cancelled, Ok(()));
    drop(core);
    a.drive();
    let cause = Errno::ECANCELED.number();
    assert_eq!(ends_of_receives(&a), [(1, Errno::ECANCELED, cause)]);
}
