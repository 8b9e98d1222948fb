//! How often a lane asks the system for news.

use prov_message::Sleeper;

use crate::engine::transfer::progress::Come;

use super::*;

#[test]
fn a_call_right_after_one_in_vain_does_not_ask_again() {
    let side = side();
    let mut core = side.engine.core();
    let deadline = Instant::now() + Duration::from_secs(20);
    // This thread may lose its processor between any two.
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
fn the_thread_that_helps_is_not_woken_while_the_application_drives() {
    let side = side();
    let mut core = side.engine.core();
    assert!(!core.must_wake(), "nobody sleeps");
    assert!(core.may_sleep(Sleeper::Helper));
    assert!(!core.must_wake());
    // But one of the application is, whoever sleeps besides.
    for sleeper in [Sleeper::Thread, Sleeper::Helper] {
        assert!(core.may_sleep(sleeper));
        assert!(core.must_wake());
    }
}
