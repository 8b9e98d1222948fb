//! Tests with input that violates the protocol: any bytes, and damaged packets.

#[path = "../../../../fuzz/src/packet_check.rs"]
mod packet_check;
#[path = "../../../../fuzz/src/packet_seeds.rs"]
mod packet_seeds;

use proptest::prelude::*;

#[test]
fn valid_damaged_and_truncated_packets_are_read_or_refused() {
    for seed in packet_seeds::packets() {
        packet_check::check(&seed);
        for at in 0..seed.len() {
            packet_check::check(&seed[..at]);
            for damage in [1, 0x80, 0xff] {
                let mut damaged = seed.clone();
                damaged[at] ^= damage;
                packet_check::check(&damaged);
            }
        }
    }
}

proptest! {
    #[test]
    fn any_bytes_behind_a_head_are_read_or_refused(
        which in any::<prop::sample::Index>(),
        behind in prop::collection::vec(any::<u8>(), 0..200),
        at in 0_usize..64,
        byte: u8,
    ) {
        let seeds = packet_seeds::packets();
        let mut bytes = seeds[which.index(seeds.len())].clone();
        bytes.truncate(64);
        bytes.extend(behind);
        if let Some(place) = bytes.get_mut(at) {
            *place = byte;
        }
        packet_check::check(&bytes);
    }
}
