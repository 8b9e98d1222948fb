//! How often a lane makes system calls to look for events.

use prov_message::Sleeper;

use crate::engine::transfer::progress::Come;

use super::*;

#[test]
fn a_call_right_after_one_in_vain_does_not_ask_again() {
    let side = side();
    let mut core = side.engine.core();
    let deadline = Instant::now() + Duration::from_secs(20);
    // This thread may be preempted between any two.
    loop {
        let asked = core.polls;
        if core.do_what_is_ready() == Come::NotAsked {
            assert_eq!(core.polls, asked);
            break;
        }
        assert!(Instant::now() < deadline, "each call asks");
    }
    let asked = core.polls;
    assert!(core.may_sleep(Sleeper::Thread));
    assert_eq!(
        core.polls,
        asked + 1,
        "a thread sleeps at what it has not seen"
    );
}

#[test]
fn who_sleeps_is_woken_but_for_the_thread_that_helps_where_that_hears_an_alarm() {
    let side = side();
    let mut core = side.engine.core();
    core.sleepers = None;
    assert!(!core.must_wake());
    assert!(core.may_sleep(Sleeper::Helper));
    assert_eq!(core.must_wake(), !core.signals.relieves_helper());
    // One of them belongs to the application, whichever thread sleeps besides.
    for sleeper in [Sleeper::Thread, Sleeper::Helper] {
        assert!(core.may_sleep(sleeper));
        assert!(core.must_wake());
    }
}
