//! Threads that sleep while another thread uses the engine.

use super::*;
use crate::engine::link::detours::Detour;
use crate::engine::link::ready::Why;
use crate::wire::handshake::Features;
use prov_base::poller::Favourite;

/// Creates two sides with a connection; the second one reads little in one call.
fn connected(params: Params) -> (Side, Side) {
    let b = side_with(Params {
        prefetch_rbuf_size: 4096,
        ..params
    });
    let a = side();
    a.knows(b.addr);
    let (mut first, mut at_b) = ([1; 8], [0; 8]);
    receive(&b, &mut at_b, 0);
    send(&a, &mut first, 0);
    until([&a, &b], || a.count() == 1 && b.count() == 1);
    (a, b)
}

/// Does what a thread does before it sleeps. Only the tested event wakes it: there is no timer, and
/// no connection is read without asking the poller.
pub(super) fn prepare_sleep(side: &Side) {
    // The first calls may give way to the peer that has woken it, and read the packet that has.
    until([side, side], || (0..3).any(|_| side.engine.prepare_wait()));
    let mut core = side.engine.core();
    core.poller.forget_timers();
    core.favourite = Favourite::default();
}

/// Whether a thread that sleeps on the engine's descriptor is woken.
pub(super) fn wakes(side: &Side) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec};
    let poller = side
        .engine
        .core()
        .poller()
        .unwrap()
        .try_clone_to_owned()
        .unwrap();
    let mut fds = [PollFd::new(&poller, PollFlags::IN)];
    let patience = Timespec {
        tv_sec: 20,
        tv_nsec: 0,
    };
    rustix::event::poll(&mut fds, Some(&patience)) == Ok(1)
}

#[test]
fn a_receive_for_a_message_that_is_held_back_wakes_a_sleeping_thread() {
    const LEN: usize = 60_000;
    let (a, b) = connected(Params {
        max_unexpected: 1000,
        max_unannounced: 0,
        max_saved: 0,
        ..Params::default()
    });
    // As with the C library, which announces nothing.
    for side in [&a, &b] {
        let conn = side.open_connections()[0];
        side.engine.core().conns[conn].features = Features::default();
    }
    let (mut out, mut place) = (vec![5; LEN], vec![0; LEN]);
    send(&a, &mut out, 1);
    until([&a, &b], || {
        a.count() == 2
            && b.engine
                .core()
                .conns
                .values()
                .any(|conn| conn.detours.has(Detour::HeldBack))
    });
    // A thread goes to sleep, and another posts the receive.
    prepare_sleep(&b);
    receive(&b, &mut place, 1);
    assert!(wakes(&b));
    until([&b, &b], || b.count() == 2);
    assert_eq!(place, out);
}

#[test]
fn a_sleeping_thread_is_woken_for_data_that_another_leaves_unread() {
    const LEN: usize = 100_000;
    let (a, b) = connected(Params::default());
    prepare_sleep(&b);
    let mut out = vec![5; LEN];
    send(&a, &mut out, 1);
    until([&a, &a], || a.count() == 2);
    // More than one call receives, and no other call follows.
    b.engine.progress();
    assert_eq!(b.engine.core().ready.of(Why::Read).len(), 1);
    assert!(wakes(&b));
}
