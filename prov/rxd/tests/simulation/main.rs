//! Many endpoints on a bad network, in simulated time. What every application is told is compared with
//! what was sent: each message is delivered once, in order and intact, or its sender is told that it
//! may be lost.
//!
//! Everything follows from one seed. A failure prints the command that repeats it.

mod host;
mod network;
mod random;
mod world;

use network::{Faults, MS, US};
use random::Random;
use world::{Plan, World};

prov_base::stand_in!();

/// Runs one plan; returns the number of operations.
fn run(plan: Plan) -> u64 {
    /// Says how to repeat it, if it fails.
    struct Seed(u64);
    impl Drop for Seed {
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!(
                    "repeat with: RXD_SEED={} cargo test -p prov-rxd --test simulation one_seed",
                    self.0
                );
            }
        }
    }
    let _seed = Seed(plan.seed);
    World::new(plan).run()
}

#[test]
fn on_a_good_network_everything_arrives_at_once() {
    for seed in 0..20 {
        let plan = Plan {
            faults: Faults::NONE,
            ..Plan::quiet(seed)
        };
        run(plan);
    }
}

#[test]
fn two_hosts_without_extensions_understand_each_other() {
    for seed in 0..20 {
        run(Plan {
            faults: Faults::NONE,
            extended: false,
            ..Plan::quiet(seed)
        });
        run(Plan {
            faults: Faults {
                loss: 20_000,
                reordering: 50_000,
                late: 100 * US,
                ..Faults::NONE
            },
            extended: false,
            ..Plan::quiet(seed)
        });
    }
}

#[test]
fn without_partitions_and_restarts_nothing_fails() {
    for seed in 100..130 {
        let faults = Faults::random(&mut Random::new(seed));
        run(Plan {
            faults,
            ..Plan::quiet(seed)
        });
    }
}

#[test]
fn one_dead_peer_costs_the_others_nothing() {
    let alone = World::new(Plan::quiet(7)).run_timed();
    let mut world = World::new(Plan::quiet(7));
    world.kill_one_more();
    let beside = world.run_timed();
    assert!(
        beside <= alone + alone / 4 + 10 * MS,
        "{beside} ns beside a dead peer, {alone} ns without"
    );
}

/// The seed of the environment, or none.
#[test]
fn one_seed() {
    let seed = std::env::var("RXD_SEED").ok();
    let seed = seed.and_then(|seed| seed.parse().ok()).unwrap_or(0);
    run(Plan::of_seed(seed));
}

/// As many operations as this are simulated with all faults; `RXD_OPERATIONS` overrides it.
const OPERATIONS: u64 = 1_000_000;

#[test]
fn a_million_operations_with_all_faults() {
    let operations = std::env::var("RXD_OPERATIONS").ok();
    let operations = operations.and_then(|number| number.parse().ok());
    let (mut left, mut seed) = (operations.unwrap_or(OPERATIONS), 1_000);
    while left != 0 {
        left = left.saturating_sub(run(Plan::of_seed(seed)));
        seed += 1;
    }
}
