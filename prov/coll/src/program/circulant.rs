//! Algorithms on circulant graphs: in each of ceil(log2 n) rounds every member sends one message to the member that is
//! a *skip* further on and receives one from the member a skip before, for any n. Barrier (dissemination), all-gather
//! (the Bruck algorithm with blocks received in place), reduce-scatter (Jesper Larsson Träff, "Optimal, Non-pipelined
//! Reduce-scatter and Allreduce Algorithms", 2024), and what these make together. Each block crosses the network once
//! per member that needs it: n - 1 blocks per member, the minimum.

use super::{Blocks, Builder, MemberView, Memory, Span, tree};

/// Returns the skips of the rounds of a reduction, each with the one before it, longest first: n is
/// halved, rounded up, until it is 1. An all-gather uses them shortest first.
fn skips(members: usize) -> impl DoubleEndedIterator<Item = (usize, usize)> {
    let mut skips = Vec::new();
    let mut reach = members;
    while reach > 1 {
        let skip = reach.div_ceil(2);
        skips.push((skip, reach));
        reach = skip;
    }
    skips.into_iter()
}

/// Returns the rank that is `distance` further on.
fn after(place: &MemberView, distance: usize) -> usize {
    (place.rank + distance) % place.members
}

/// Returns the rank that is `distance` before.
fn before(place: &MemberView, distance: usize) -> usize {
    (place.rank + place.members - distance) % place.members
}

/// Each member gets a message, directly or through others, from all members: from 2^k members after
/// round k.
pub fn barrier(builder: &mut Builder, place: &MemberView) {
    let mut distance = 1;
    while distance < place.members {
        builder.receive(before(place, distance), Span::EMPTY.alone());
        builder.send(after(place, distance), Span::EMPTY.alone());
        builder.wait();
        distance *= 2;
    }
}

/// Gathers the blocks of all members; the member's own block is in place.
pub fn gather_blocks(builder: &mut Builder, place: &MemberView, blocks: &Blocks) {
    for (skip, reach) in skips(place.members).rev() {
        let number = reach - skip;
        builder.receive(
            after(place, skip),
            blocks.circular(place.rank + skip, number),
        );
        builder.send(before(place, skip), blocks.circular(place.rank, number));
        builder.wait();
    }
}

/// Combines the blocks of all members: the member's own block is complete at the end, the others
/// are left half-combined.
fn reduce_blocks(builder: &mut Builder, place: &MemberView, blocks: &Blocks) {
    // No round receives more than half of all blocks, and the first blocks are the longest.
    let most = blocks.span(0, place.members.div_ceil(2)).len;
    let arrived = builder.scratch(most);
    for (skip, reach) in skips(place.members) {
        let number = reach - skip;
        let combined = blocks.circular(place.rank, number);
        let [first, second] = combined;
        let incoming = arrived.part(0, first.len + second.len);
        builder.receive(before(place, skip), incoming.alone());
        builder.send(
            after(place, skip),
            blocks.circular(place.rank + skip, number),
        );
        builder.wait();
        builder.combine_pieces(&combined, incoming);
    }
}

/// Each member's input, in the block of its rank.
pub fn all_gather(builder: &mut Builder, place: &MemberView) {
    let output = Span::new(Memory::Output, 0, place.count * place.members);
    let blocks = Blocks::equal(output, place.members, place.count);
    let input = Span::new(Memory::Input, 0, place.count);
    builder.copy(input, blocks.block(place.rank));
    gather_blocks(builder, place, &blocks);
}

/// The inputs are combined in scratch memory, in which the member's block is the result.
pub fn reduce_scatter(builder: &mut Builder, place: &MemberView) {
    let all = place.count * place.members;
    let work = builder.scratch(all);
    builder.copy(Span::new(Memory::Input, 0, all), work);
    let blocks = Blocks::equal(work, place.members, place.count);
    reduce_blocks(builder, place, &blocks);
    let output = Span::new(Memory::Output, 0, place.count);
    builder.copy(blocks.block(place.rank), output);
}

/// A reduce-scatter within the output, and an all-gather of its blocks.
pub fn all_reduce(builder: &mut Builder, place: &MemberView) {
    let output = Span::new(Memory::Output, 0, place.count);
    builder.copy(Span::new(Memory::Input, 0, place.count), output);
    let blocks = Blocks::of(output, place.members);
    reduce_blocks(builder, place, &blocks);
    gather_blocks(builder, place, &blocks);
}

/// A reduce-scatter, and a gather of its blocks at the root.
pub fn reduce(builder: &mut Builder, place: &MemberView, root: usize) {
    let work = match place.rank == root {
        true => Span::new(Memory::Output, 0, place.count),
        false => builder.scratch(place.count),
    };
    builder.copy(Span::new(Memory::Input, 0, place.count), work);
    let blocks = Blocks::of(work, place.members);
    reduce_blocks(builder, place, &blocks);
    tree::gather_blocks(builder, place, root, &blocks);
}
