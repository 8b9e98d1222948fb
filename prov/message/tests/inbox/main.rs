//! Model test of inboxes, for any sequence of messages, receives, peeks and ends of links: every
//! receive completes at most once, with the matching message and its bytes; no message is lost or
//! overtaken; what is kept stays within its budgets, and a link that is held back continues as soon
//! as there is room.
//!
//! These are integration tests because they need memory that an application lends, and the crate
//! has no unsafe code.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::unreachable,
    reason = "what does not hold fails the test"
)]

mod budgets;
mod checks;
mod model;
mod provider;
mod step;
mod world;

use std::ffi::{c_char, c_int};

use proptest::prelude::*;

use self::step::{ArrivalMode, Setting, Step, Wanted, setting, step};
use self::world::World;

fn run(setting: Setting, steps: Vec<Step>) {
    let mut world = World::new(setting);
    for step in steps {
        world.step(step);
        world.check();
    }
    world.finish();
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_message_reaches_its_receive_once_and_complete(
        setting in setting(),
        steps in prop::collection::vec(step(), 1..120),
    ) {
        run(setting, steps);
    }
}

#[test]
fn a_receive_takes_a_message_whose_link_was_about_to_continue_with_it() {
    let setting = Setting {
        unexpected: 0,
        in_flight: 400,
    };
    let send = |link| Step::Send {
        link,
        way: ArrivalMode::Pieces,
        tagged: true,
        tag: 0,
        len: 50,
        data: false,
        ack: 0,
    };
    let post = |src| Step::Post {
        at: 0,
        wanted: Wanted {
            tagged: true,
            tag: 0,
            ignore: 0,
            src: Some(src),
        },
        len: 50,
        multi: false,
    };
    // There is room for one of two messages whose senders are unknown.
    let steps = vec![
        Step::Connect(0),
        Step::Relabel(vec![(0, None), (4, None)]),
        send(0),
        Step::Move(0, 0),
        send(4),
        Step::Move(4, 0),
        post(0),
        post(1),
        // When the first one is received there is room for the second, which is then received, too.
        Step::Relabel(vec![(0, Some(0)), (4, Some(1))]),
    ];
    run(setting, steps);
}

#[test]
fn a_link_that_resumes_counts_others_that_are_about_to() {
    let send = |link, tagged, len| Step::Send {
        link,
        way: ArrivalMode::Plain,
        tagged,
        tag: 0,
        len,
        data: false,
        ack: 0,
    };
    // The receive leaves room for the messages of two links.
    let steps = vec![
        send(0, true, 83),
        Step::EndLink(1),
        send(3, true, 0),
        Step::Close(2),
        Step::Connect(0),
        send(0, false, 0),
        Step::EndLink(2),
        Step::Move(0, 0),
        Step::Move(0, 0),
        Step::Connect(0),
        send(2, false, 62),
        send(0, false, 0),
        Step::Move(2, 0),
        Step::Post {
            at: 0,
            wanted: Wanted {
                tagged: true,
                tag: 0,
                ignore: 0,
                src: None,
            },
            len: 0,
            multi: false,
        },
    ];
    run(
        Setting {
            unexpected: 0,
            in_flight: 590,
        },
        steps,
    );
}

/// The framework's function, which this test binary does not have.
#[unsafe(no_mangle)]
extern "C" fn fi_strerror(_: c_int) -> *const c_char {
    c"an error".as_ptr()
}

#[test]
fn a_multi_receive_that_is_cancelled_ends_with_what_still_arrives_in_it() {
    let send = |link, way, len| Step::Send {
        link,
        way,
        tagged: false,
        tag: 0,
        len,
        data: false,
        ack: 0,
    };
    let post = |multi| Step::Post {
        at: 3,
        wanted: Wanted {
            tagged: false,
            tag: 0,
            ignore: 0,
            src: None,
        },
        len: 0,
        multi,
    };
    let plain = ArrivalMode::Plain;
    let steps = vec![
        Step::Switch(3),
        send(3, plain, 0),
        post(false),
        send(0, plain, 0),
        Step::EndLink(0),
        post(true),
        send(0, plain, 0),
        send(0, plain, 0),
        Step::Rush(2),
        Step::EndLink(0),
        send(1, ArrivalMode::Pieces, 1),
        Step::Move(5, 0),
        Step::Switch(3),
    ];
    run(
        Setting {
            unexpected: 0,
            in_flight: 0,
        },
        steps,
    );
}
