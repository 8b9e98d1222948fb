//! Broadcasts: the whole through a binomial tree, or its blocks through a tree and an all-gather of them.

use super::tree::Tree;
use super::{Blocks, Builder, MemberView, Memory, Span, circulant};

/// Each member passes on what it has received: the root sends log2(n) times its bytes.
pub fn whole(builder: &mut Builder, place: &MemberView, root: usize) {
    let tree = Tree::of(place, root);
    let output = Span::new(Memory::Output, 0, place.count);
    if let Some(parent) = tree.parent() {
        builder.receive(parent, output.alone());
        builder.wait();
    }
    for (child, ..) in tree.children().rev() {
        builder.send(child, output.alone());
    }
    builder.wait();
}

/// Each member gets a block, and gathers those of the others: each byte enters and leaves a member
/// about once.
pub fn in_blocks(builder: &mut Builder, place: &MemberView, root: usize) {
    let tree = Tree::of(place, root);
    let output = Span::new(Memory::Output, 0, place.count);
    let blocks = Blocks::of(output, place.members);
    if let Some(parent) = tree.parent() {
        builder.receive(parent, blocks.circular(place.rank, tree.reach));
        builder.wait();
    }
    for (child, distance, reach) in tree.children().rev() {
        builder.send(child, blocks.circular(place.rank + distance, reach));
    }
    builder.wait();
    circulant::gather_blocks(builder, place, &blocks);
}
