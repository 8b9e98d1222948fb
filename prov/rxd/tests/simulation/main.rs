//! Many endpoints on a bad network, in simulated time. What every application is told is compared with
//! what was sent: each message is delivered once, in order and intact, or its sender is told that it
//! may be lost.
//!
//! Everything follows from one seed. A failure prints the command that repeats it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a check that fails panics"
)]

mod awaited;
mod c_peer;
mod forged;
mod host;
mod jumps;
mod network;
mod owing;
mod random;
mod restarted;
mod side;
mod strangers;
mod twins;
mod world;

use host::Failing;
use network::{Faults, MS, US};
use prov_rxd::protocol::Time;
use random::Random;
use world::{Load, Plan, World};

prov_base::stand_in!();

/// Runs one plan; returns the number of operations.
fn run(plan: Plan) -> u64 {
    /// Says how to repeat it, if it fails.
    struct Seed(u64);
    impl Drop for Seed {
        fn drop(&mut self) {
            if std::thread::panicking() {
                let thread = std::thread::current();
                let name = thread.name().unwrap_or_default();
                let (seed, name) = match name.contains("million") {
                    true => (format!("RXD_SEED={} ", self.0), "one_seed"),
                    false => (String::new(), name),
                };
                eprintln!("repeat with: {seed}cargo test -p prov-rxd --test simulation {name}");
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
        let faults = Faults::random(&mut Random::new(seed), true);
        run(Plan {
            faults,
            ..Plan::quiet(seed)
        });
    }
}

#[test]
fn applications_that_make_no_calls_for_a_while_miss_nothing() {
    for seed in 300..312 {
        let extended = seed % 3 != 0;
        run(Plan {
            faults: Faults::random(&mut Random::new(seed), extended),
            extended,
            has_absences: true,
            ..Plan::quiet(seed)
        });
    }
}

#[test]
fn headers_that_are_damaged_change_nothing() {
    for seed in 200..220 {
        run(Plan {
            faults: Faults {
                corruption: 50_000,
                loss: 10_000 * (seed % 2),
                late: 100 * US,
                ..Faults::NONE
            },
            ..Plan::quiet(seed)
        });
    }
}

#[test]
fn what_devices_do_not_copy_fails_and_nothing_else() {
    let (mut failed, mut all) = (0, 0);
    for seed in 400..420 {
        let mut world = World::new(Plan {
            faults: Faults::random(&mut Random::new(seed), true),
            failing: Failing {
                reads: 50_000,
                writes: 200_000,
                messages: 0,
            },
            ..Plan::quiet(seed)
        });
        all += world.run() as usize;
        failed += world.not_copied();
    }
    assert!(failed > 100, "{failed} of {all}");
}

#[test]
fn a_message_that_a_device_does_not_read_ends_but_is_not_received() {
    for seed in 420..440 {
        run(Plan {
            faults: Faults::random(&mut Random::new(seed), true),
            failing: Failing {
                messages: 5_000,
                ..Failing::default()
            },
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

/// Sends messages of 1 MiB over a link of 1 GB/s; returns the goodput in MB/s.
fn goodput(extended: bool, delay: Time, loss: u64) -> u64 {
    const MESSAGES: u64 = 32;
    let faults = Faults {
        loss,
        duplication: 20_000 * u64::from(loss != 0),
        reordering: 100_000 * u64::from(loss != 0),
        corruption: 0,
        late: delay / 2,
        delay,
        per_byte: 1,
        queue: 200 * US,
        is_shared: false,
    };
    let mut world = World::new(Plan {
        faults,
        extended,
        nodes: 2,
        longest: 1 << 20,
        operations: MESSAGES,
        holds: 0,
        load: Load::Bulk,
        ..Plan::quiet(3)
    });
    let took = world.run_timed();
    let goodput = (MESSAGES << 20) * 1_000 / took;
    let packets = (MESSAGES << 20) / 1_440;
    println!(
        "delay {:5} us, loss {loss:6} ppm, extended {extended:5}: {goodput:4} MB/s, {}.{:02} datagrams each",
        delay / US,
        world.datagrams() / packets,
        world.datagrams() * 100 / packets % 100,
    );
    goodput
}

#[test]
fn losses_cost_little_goodput() {
    let losses = [0, 1_000, 10_000, 50_000, 200_000];
    let near = losses.map(|loss| goodput(true, 20 * US, loss));
    assert!(near[0] > 900 && near[2] > 800 && near[4] > 300, "{near:?}");
    let far = losses.map(|loss| goodput(true, 20 * MS, loss));
    assert!(far[0] > 40 && far[2] > 20 && far[4] > 8, "{far:?}");
    let old = losses.map(|loss| goodput(false, 20 * US, loss));
    assert!(old[0] > 900 && old[2] > 200 && old[4] > 10, "{old:?}");
}

/// Messages both ways, each of which answers the one before; returns the time of one such exchange.
fn exchange(seed: u64, loss: u64, len: usize, completes: bool, is_busy: bool) -> Time {
    const MESSAGES: u64 = 500;
    let mut world = World::new(Plan {
        faults: Faults {
            loss,
            duplication: 20_000,
            reordering: 100_000,
            late: 200 * US,
            ..Faults::NONE
        },
        nodes: 2,
        operations: MESSAGES,
        longest: len,
        holds: 0,
        load: Load::PingPong(completes),
        is_busy,
        ..Plan::quiet(seed)
    });
    world.run_timed() / MESSAGES
}

#[test]
fn an_exchange_whose_messages_are_lost_takes_a_few_round_trips() {
    // A message or its answer is lost in one of three exchanges. The first probe comes after half a
    // millisecond and two round trips, the next ones after twice as long each.
    for completes in [false, true] {
        for (loss, most) in [(10_000, MS / 4), (50_000, MS / 2), (200_000, 3 * MS / 2)] {
            for seed in 0..8 {
                let took = exchange(seed, loss, 8, completes, false);
                assert!(took < most, "{loss} ppm, seed {seed}: {took} ns");
            }
        }
    }
}

#[test]
fn busy_hosts_find_losses_soon() {
    for (len, most) in [(8, 2 * MS), (4_096, 5 * MS), (65_536, 20 * MS)] {
        let took = (0..8).map(|seed| exchange(seed, 200_000, len, true, true));
        let mean = took.sum::<Time>() / 8;
        println!("{len} bytes: {} us", mean / US);
        assert!(mean < most, "{len} bytes: {mean} ns");
    }
}

/// A node sends 20 messages to another one, which closes its endpoint when it has so many of them.
/// Returns how many succeed, and the time until all are done.
fn until_closed(seed: u64, most: u64, longest: usize) -> (usize, Time) {
    let mut world = World::new(Plan {
        faults: Faults {
            loss: 200_000,
            duplication: 20_000,
            reordering: 100_000,
            late: 200 * US,
            ..Faults::NONE
        },
        nodes: 2,
        operations: 20,
        holds: 0,
        longest,
        load: Load::UntilClosed(most),
        ..Plan::quiet(seed)
    });
    let took = world.run_timed();
    (world.succeeded(), took)
}

#[test]
fn who_closes_leaves_nobody_waiting() {
    for seed in 0..200 {
        let (succeeded, took) = until_closed(seed, 20, 64);
        assert!(succeeded == 20 && took < 500 * MS, "{took} ns");
    }
    // The rest is on the way, or not even that, when the other side closes.
    let mut failed = 0;
    for seed in 0..200 {
        let (succeeded, took) = until_closed(seed, 10, 5_000);
        assert!((10..=20).contains(&succeeded), "{succeeded}");
        assert!(took < 1_000 * MS, "seed {seed}: {took} ns");
        failed += 20 - succeeded;
    }
    assert!(failed > 200, "{failed}");
}

/// Two nodes send messages of 64 KiB to two others over a link of 125 MB/s that they share, the second one
/// from some time on. Returns how many messages of each have arrived when one has sent all of its own.
fn shared(seed: u64, delay: Time, messages: u64, later: Time) -> [u64; 2] {
    let mut world = World::new(Plan {
        faults: Faults {
            delay,
            per_byte: 8,
            queue: 2 * MS + delay,
            is_shared: true,
            ..Faults::NONE
        },
        nodes: 4,
        longest: 64 << 10,
        operations: messages,
        holds: 0,
        load: Load::Bulk,
        ..Plan::quiet(seed)
    });
    world.delay(1, later);
    let sent = world.run_until_one_is_done();
    [sent[0], sent[1]]
}

#[test]
fn two_flows_share_a_link() {
    // After slow start a window grows by a packet in a round trip: over a long link, who comes later
    // has caught up only in part when the other one ends.
    for (delay, later) in [(50 * US, 3), (5 * MS, 5)] {
        for seed in 0..2 {
            let sent = shared(seed, delay, 200, 0);
            assert!(sent.iter().all(|sent| *sent >= 200 / 3), "{sent:?}");
            // One alone needs half a second.
            let sent = shared(seed, delay, 1_000, 20 * MS);
            assert!(sent.iter().all(|sent| *sent >= 1_000 / later), "{sent:?}");
        }
    }
    // Three seconds are enough for nearly half.
    let sent = shared(1, 5 * MS, 4_000, 20 * MS);
    assert!(sent.iter().all(|sent| *sent >= 4_000 / 3), "{sent:?}");
}

/// Messages and reads both ways with a peer that behaves as the C library's.
fn with_c_peer(seed: u64, faults: Faults) {
    use c_peer::CPeer;
    use host::{KEY, Kind, Op, SimHost, name_of, remote_of};
    use prov_rxd::protocol::{Endpoint, Request};

    let mut random = Random::new(seed);
    let mut network = network::Network::new(faults);
    let mut endpoint = Endpoint::new(world::config(0, 1, &mut random, true, 600_000 * MS));
    let mut host = SimHost::new(Random::new(seed));
    host.holds = 20_000;
    let mut other = CPeer::new(name_of(1));
    let mut wires: Vec<(Time, bool, Vec<u8>)> = Vec::new();
    let (mut sent, mut expected) = (Vec::new(), Vec::new());
    let (mut now, mut left) = (1_000 * MS, 200u64);
    let deadline = now + 3_000_000 * MS;
    while left != 0 || !host.ops.is_empty() || !other.is_idle() {
        assert!(now < deadline, "{} left, {} to do", left, host.ops.len());
        if left != 0 && host.ops.len() < 20 && random.below(20) == 0 {
            left -= 1;
            let len = match random.below(4) {
                0 => random.below(300_000) as usize,
                _ => 8 + random.below(2_000) as usize,
            };
            let id = 1 << 32 | left;
            match random.below(6) {
                0 => other.read(now, 2 << 32 | left, len),
                1 | 2 => {
                    expected.push(2 << 32 | left);
                    other.send(now, 2 << 32 | left, len);
                }
                kind => {
                    let peer = endpoint.peer(&name_of(1), 1).unwrap();
                    let is_read = kind == 3;
                    let op = Op {
                        peer,
                        kind: if is_read { Kind::Read } else { Kind::Message },
                        len,
                        is_wrong: false,
                        got: 0,
                    };
                    host.ops.insert(id, op);
                    let (tag, data) = (Some(id), None);
                    let request = match is_read {
                        true => Request::Read {
                            remote: remote_of(id, len, 1, KEY),
                        },
                        false => {
                            sent.push(id);
                            Request::Message { tag, data, len }
                        }
                    };
                    endpoint.submit(now, peer, id, &request).unwrap();
                }
            }
        }
        for peer in std::mem::take(&mut host.held) {
            endpoint.resume(now, peer, &mut host);
        }
        endpoint.transmit(now, &mut host);
        other.tick(now);
        let ours = host.outbox.drain(..).map(|leaving| (true, leaving.bytes));
        let theirs = other.outbox.drain(..).map(|bytes| (false, bytes));
        for (is_ours, bytes) in ours.chain(theirs) {
            let (from, to) = (u32::from(!is_ours), u32::from(is_ours));
            let len = bytes.len();
            network.send(now, &mut random, from, to, len, |at, _| {
                wires.push((at, is_ours, bytes.clone()));
            });
        }
        now += 10 * US;
        wires.sort_by_key(|(at, ..)| *at);
        let due = wires.partition_point(|(at, ..)| *at <= now);
        for (_, is_ours, bytes) in wires.drain(..due) {
            match is_ours {
                true => other.receive(now, &bytes),
                false => endpoint.receive(now, Some(1), &bytes, &mut host),
            }
        }
        for outcome in host.done.drain(..) {
            assert_eq!(outcome.result, Ok(()));
        }
    }
    let from_c = host.delivered.clone();
    assert_eq!(from_c, expected);
    let to_c = other.delivered.iter().filter(|id| **id >> 32 == 1);
    assert_eq!(to_c.copied().collect::<Vec<_>>(), sent);
}

#[test]
fn a_peer_of_the_c_library_gets_and_sends_everything() {
    for seed in 0..10 {
        with_c_peer(seed, Faults::NONE);
        with_c_peer(
            seed,
            Faults {
                loss: 10_000,
                duplication: 20_000,
                reordering: 20_000,
                late: 100 * US,
                ..Faults::NONE
            },
        );
    }
    with_c_peer(
        99,
        Faults {
            loss: 200_000,
            ..Faults::NONE
        },
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
