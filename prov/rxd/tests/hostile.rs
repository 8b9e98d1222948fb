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

/// An order of events in which an answer that was late passed for that of a restarted peer. Found by
/// the fuzzer.
const LATE_ANSWER: [u8; 88] = [
    0xff, 0xfe, 0x20, 0x30, 0x00, 0x5f, 0xa4, 0xa4, 0x2e, 0xa4, 0xa4, 0xa4, 0x00, 0x29, 0x56, 0x56,
    0x00, 0x00, 0x56, 0x56, 0x56, 0x56, 0x56, 0x56, 0x56, 0x56, 0x56, 0x56, 0x56, 0x56, 0x56, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x1e, 0xa4, 0x00, 0x29, 0x56, 0x56, 0x00, 0x00, 0x56, 0x56, 0x56,
    0x56, 0xff, 0xff, 0xff, 0x01, 0x56, 0x56, 0x56, 0x56, 0x56, 0x56, 0x56, 0x56, 0x56, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x1e, 0xe4, 0x56, 0x56, 0x56, 0x56, 0x56, 0x56, 0x00, 0x00, 0x00, 0x01,
    0x00, 0x00, 0x1e, 0xe4, 0xe4, 0x0a, 0xe1, 0x00,
];

#[test]
fn an_answer_that_was_late_does_not_end_a_connection_for_ever() {
    rxd_check::events(&LATE_ANSWER);
}
