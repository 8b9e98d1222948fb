//! All-to-all exchanges.

use super::{Blocks, Builder, MemberView, Memory, Span};

/// Number of messages in each direction that a member has in progress during a direct exchange: enough
/// to keep the network busy, and few enough that no receiver buffers many blocks.
const WINDOW: usize = 8;

/// Short blocks (the Bruck algorithm): in round k, each member forwards the blocks whose distance
/// has bit k set, to the member 2^k further on. log2(n) messages of n/2 blocks each.
pub fn forwarded(builder: &mut Builder, place: &MemberView) {
    let (members, count, rank) = (place.members, place.count, place.rank);
    let all = count * members;
    let input = Blocks::equal(Span::new(Memory::Input, 0, all), members, count);
    let output = Blocks::equal(Span::new(Memory::Output, 0, all), members, count);
    // Blocks by their remaining distance; at the end, by the distance that they have travelled.
    let work = builder.scratch(all);
    let held = Blocks::equal(work, members, count);
    builder.copy_circular(&input, rank, work);
    let half = builder_room(members) * count;
    let (leaving, arrived) = (builder.scratch(half), builder.scratch(half));
    let mut distance = 1;
    while distance < members {
        let moving: Vec<usize> = (0..members).filter(|way| way & distance != 0).collect();
        let slots = |span: Span| Blocks::equal(span, moving.len(), count);
        for (slot, way) in moving.iter().enumerate() {
            builder.copy(held.block(*way), slots(leaving).block(slot));
        }
        let len = moving.len() * count;
        builder.receive(
            (rank + members - distance) % members,
            arrived.part(0, len).alone(),
        );
        builder.send((rank + distance) % members, leaving.part(0, len).alone());
        builder.wait();
        for (slot, way) in moving.iter().enumerate() {
            builder.copy(slots(arrived).block(slot), held.block(*way));
        }
        distance *= 2;
    }
    for way in 0..members {
        builder.copy(
            held.block(way),
            output.block((rank + members - way) % members),
        );
    }
}

/// Returns the largest number of blocks that one round moves: those whose distance has a certain
/// bit set.
fn builder_room(members: usize) -> usize {
    let mut most = 0;
    let mut distance = 1;
    while distance < members {
        most = most.max((0..members).filter(|way| way & distance != 0).count());
        distance *= 2;
    }
    most
}

/// Long blocks: each is sent directly to its receiver, at increasing distances, so that no member
/// receives from many at a time.
pub fn direct(builder: &mut Builder, place: &MemberView) {
    let (members, count, rank) = (place.members, place.count, place.rank);
    let all = count * members;
    let input = Blocks::equal(Span::new(Memory::Input, 0, all), members, count);
    let output = Blocks::equal(Span::new(Memory::Output, 0, all), members, count);
    builder.copy(input.block(rank), output.block(rank));
    for distance in 1..members {
        let (to, from) = (
            (rank + distance) % members,
            (rank + members - distance) % members,
        );
        builder.receive(from, output.block(from).alone());
        builder.send(to, input.block(to).alone());
        if distance % WINDOW == 0 {
            builder.wait();
        }
    }
    builder.wait();
}

impl Builder {
    /// Copies all blocks in a row, beginning with `first`.
    fn copy_circular(&mut self, blocks: &Blocks, first: usize, to: Span) {
        let [head, tail] = blocks.circular(first, blocks.members);
        self.copy(head, to.part(0, head.len));
        self.copy(tail, to.part(head.len, tail.len));
    }
}
