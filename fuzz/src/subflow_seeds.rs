//! Seeds for the fuzz target `subflows`, shared with the provider's tests.

use prov_tcp::wire::multipath::{Frame, Join, Offer};

/// Inputs for the `subflows` target.
pub fn subflows() -> Vec<Vec<u8>> {
    let addresses = ["10.0.7.2:4711", "[fd00::1]:4712"].map(|text| text.parse().unwrap());
    let offer = Offer {
        token: [7; 16],
        streams: 2,
        addresses: addresses.to_vec(),
    };
    let join = Join {
        token: [7; 16],
        number: 3,
    };
    let mut seeds = vec![offer.encode(), join.encode()];
    // Frames in order, out of order, and twice.
    for offsets in [[0, 40, 80], [80, 0, 40], [0, 20, 0]] {
        let mut seed = Vec::new();
        for offset in offsets {
            seed.extend(Frame::Data { offset, len: 40 }.encode());
            seed.extend([offset as u8; 40]);
            seed.extend(Frame::Ask { offset }.encode());
        }
        seed.extend(Frame::Ack { offset: 0 }.encode());
        seeds.push(seed);
    }
    seeds
}
