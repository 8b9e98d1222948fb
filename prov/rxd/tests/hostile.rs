//! What the fuzz targets try, for a fixed set of inputs, or more with `RXD_TIMES`.

#[path = "simulation/random.rs"]
#[allow(dead_code)]
mod random;
#[path = "../../../fuzz/src/rxd_check.rs"]
#[allow(clippy::unwrap_used, reason = "a check that fails panics")]
mod rxd_check;

use random::Random;

prov_base::stand_in!();

/// The rounds, and the generator's seed: `RXD_SEED` tries other inputs.
fn rounds(usual: u64) -> (u64, Random) {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let times = number("RXD_TIMES").unwrap_or(1);
    (usual * times, Random::new(number("RXD_SEED").unwrap_or(1)))
}

#[test]
fn any_datagrams_are_handled_within_bounds() {
    let (rounds, mut random) = rounds(5_000);
    for _ in 0..rounds {
        let mut bytes = vec![random.next() as u8];
        for _ in 0..random.below(20) {
            let len = random.below(120);
            bytes.extend((len as u16).to_le_bytes());
            let begin = bytes.len();
            bytes.extend((0..len).map(|_| random.next() as u8));
            // Mostly types that exist, small numbers, and sequence numbers that are due.
            if let Some(packet) = bytes.get_mut(begin..).filter(|packet| packet.len() > 40) {
                packet[1] = random.below(18) as u8;
                packet[3] = 0;
                packet[8] = random.below(8) as u8;
                packet[9] = 0;
                for byte in &mut packet[16..] {
                    *byte = match random.below(3) {
                        0 => *byte,
                        _ => 0,
                    };
                }
            }
        }
        rxd_check::datagrams(&bytes);
    }
}

#[test]
fn any_order_of_events_ends() {
    let (rounds, mut random) = rounds(2_000);
    for _ in 0..rounds {
        let len = random.below(200);
        let bytes: Vec<u8> = (0..len).map(|_| random.next() as u8).collect();
        rxd_check::events(&bytes);
    }
}
