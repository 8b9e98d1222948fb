//! What the fuzz targets try, for a fixed set of inputs.

#[path = "simulation/random.rs"]
#[allow(dead_code)]
mod random;
#[path = "../../../fuzz/src/rxd_check.rs"]
mod rxd_check;

use random::Random;

prov_base::stand_in!();

#[test]
fn any_datagrams_are_handled_within_bounds() {
    let mut random = Random::new(1);
    for _ in 0..5_000 {
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
    let mut random = Random::new(2);
    for _ in 0..2_000 {
        let len = random.below(200);
        let bytes: Vec<u8> = (0..len).map(|_| random.next() as u8).collect();
        rxd_check::events(&bytes);
    }
}
