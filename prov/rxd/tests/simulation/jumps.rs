//! Round trips that become a thousand times as long from one moment to the next, and short again.

use prov_rxd::protocol::Time;

use crate::network::{Faults, MS};
use crate::world::{Load, Plan, World};

/// Nanoseconds of a short round trip and of a long one, which is longer than the longest
/// retransmission timeout: every packet is sent again before its acknowledgement comes.
const SHORT: Time = MS;
const LONG: Time = 3_000 * MS;
const MINUTE: Time = 60_000 * MS;

/// Two nodes between which a round trip takes so long.
fn world(seed: u64, round_trip: Time, loss: u64, load: Load) -> World {
    World::new(Plan {
        faults: Faults {
            delay: round_trip / 2,
            loss,
            ..Faults::NONE
        },
        nodes: 2,
        operations: 1_000_000,
        longest: 8,
        holds: 0,
        load,
        ..Plan::quiet(seed)
    })
}

/// Round trips become long, and short again after two minutes. Returns the number of messages that arrive in
/// the second of these, in which the network is as it was in the first one, and in the first second after.
fn over_jumps(loss: u64, load: Load) -> [usize; 2] {
    let mut world = world(5, SHORT, loss, load);
    world.run_for(10_000 * MS);
    world.change_delay(LONG / 2);
    world.run_for(MINUTE);
    let long = world.run_for(MINUTE);
    world.change_delay(SHORT / 2);
    // What was sent before is still underway.
    world.run_for(LONG / 2);
    let after = world.run_for(10_000 * MS);
    println!("{load:?}, loss {loss:6} ppm: {long} and {after} messages");
    [long, after]
}

#[test]
fn a_connection_follows_round_trips_that_become_long_and_short_again() {
    // Each message is the answer to one before.
    let [long, after] = over_jumps(0, Load::PingPong(false));
    assert!(long >= 38 && after > 17_000, "{long}, {after}");
    // There are 64 messages in a round trip.
    let [long, after] = over_jumps(0, Load::Bulk);
    assert!(long >= 1_200 && after > 400_000, "{long}, {after}");
    let [long, after] = over_jumps(200_000, Load::Bulk);
    assert!(long >= 200 && after > 50_000, "{long}, {after}");
}

/// Round trips are long for a minute, then everything is lost for four seconds, and round trips are
/// short. Returns the time until the last 100 messages have arrived.
fn recovery(seed: u64, loss: u64, load: Load) -> Time {
    let mut world = world(seed, LONG, loss, load);
    world.run_for(MINUTE);
    world.leave(100);
    world.separate_first(4_000 * MS);
    world.run_for(4_000 * MS);
    world.change_delay(SHORT / 2);
    let took = world.run_timed();
    println!("{load:?}, loss {loss:6} ppm, seed {seed}: {} ms", took / MS);
    took
}

#[test]
fn a_connection_recovers_when_all_that_was_sent_over_a_long_round_trip_is_lost() {
    // The first packet is sent again within the longest timeout, two seconds, and its acknowledgement
    // shows that round trips are short.
    for load in [Load::PingPong(false), Load::Bulk, Load::Mixed] {
        for seed in 0..4 {
            assert!(recovery(seed, 0, load) < 2_500 * MS);
            assert!(recovery(seed, 10_000, load) < 4_000 * MS);
            assert!(recovery(seed, 200_000, load) < 12_000 * MS);
        }
    }
}
