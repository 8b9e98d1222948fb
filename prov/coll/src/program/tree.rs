//! Binomial trees: ceil(log2 n) rounds, in which the number of members that take part doubles or is halved. Ranks are
//! counted from the root on (*relative* ranks). The member of relative rank v, of which 2^k is the lowest bit, has the
//! members from v up to v + 2^k below it.

use super::{Blocks, Builder, MemberView, Memory, Span};

/// A member's place in the tree.
pub struct Tree {
    root: usize,
    members: usize,
    /// The member's rank, relative to the root.
    relative: usize,
    /// Members of the subtree that begins with this one.
    pub reach: usize,
}

impl Tree {
    pub fn of(place: &MemberView, root: usize) -> Self {
        let relative = (place.rank + place.members - root) % place.members;
        let below = match relative {
            0 => place.members,
            _ => 1 << relative.trailing_zeros(),
        };
        Tree {
            root,
            members: place.members,
            relative,
            reach: below.min(place.members - relative),
        }
    }

    fn rank(&self, relative: usize) -> usize {
        (self.root + relative) % self.members
    }

    /// Returns the parent's rank; `None` for the root.
    pub fn parent(&self) -> Option<usize> {
        let lowest = 1usize << self.relative.trailing_zeros().min(usize::BITS - 1);
        (self.relative != 0).then(|| self.rank(self.relative - lowest))
    }

    /// Returns the children, nearest first: rank, distance from this member, and number of members
    /// of its subtree.
    pub fn children(&self) -> impl DoubleEndedIterator<Item = (usize, usize, usize)> {
        let distances = (0..usize::BITS).map(|bit| 1usize << bit);
        let distances: Vec<usize> = distances.take_while(|bit| *bit < self.reach).collect();
        distances.into_iter().map(|distance| {
            let reach = distance.min(self.reach - distance);
            (self.rank(self.relative + distance), distance, reach)
        })
    }
}

/// Each member combines the values of its children with its own input, and sends the result to its
/// parent.
pub fn reduce(builder: &mut Builder, place: &MemberView, root: usize) {
    let tree = Tree::of(place, root);
    let input = Span::new(Memory::Input, 0, place.count);
    let Some(parent) = tree.parent() else {
        let output = Span::new(Memory::Output, 0, place.count);
        builder.copy(input, output);
        combine_children(builder, &tree, output);
        return;
    };
    if tree.reach == 1 {
        builder.send(parent, input.alone());
        builder.wait();
        return;
    }
    let work = builder.scratch(place.count);
    builder.copy(input, work);
    combine_children(builder, &tree, work);
    builder.send(parent, work.alone());
    builder.wait();
}

fn combine_children(builder: &mut Builder, tree: &Tree, work: Span) {
    let arrived = builder.scratch(work.len);
    for (child, ..) in tree.children() {
        builder.receive(child, arrived.alone());
        builder.wait();
        builder.combine(work, arrived);
    }
}

/// The root sends each child the blocks of its subtree.
pub fn scatter(builder: &mut Builder, place: &MemberView, root: usize) {
    let tree = Tree::of(place, root);
    let count = place.count;
    let output = Span::new(Memory::Output, 0, count);
    let Some(parent) = tree.parent() else {
        let input = Span::new(Memory::Input, 0, count * place.members);
        let blocks = Blocks::equal(input, place.members, count);
        for (child, distance, reach) in tree.children().rev() {
            builder.send(child, blocks.circular(root + distance, reach));
        }
        builder.copy(blocks.block(root), output);
        builder.wait();
        return;
    };
    if tree.reach == 1 {
        builder.receive(parent, output.alone());
        builder.wait();
        return;
    }
    let held = builder.scratch(count * tree.reach);
    builder.receive(parent, held.alone());
    builder.wait();
    for (child, distance, reach) in tree.children().rev() {
        builder.send(child, held.part(distance * count, reach * count).alone());
    }
    builder.copy(held.part(0, count), output);
    builder.wait();
}

/// Each member sends the blocks of its subtree to its parent.
pub fn gather(builder: &mut Builder, place: &MemberView, root: usize) {
    let tree = Tree::of(place, root);
    let count = place.count;
    let input = Span::new(Memory::Input, 0, count);
    let Some(parent) = tree.parent() else {
        let output = Span::new(Memory::Output, 0, count * place.members);
        let blocks = Blocks::equal(output, place.members, count);
        for (child, distance, reach) in tree.children() {
            builder.receive(child, blocks.circular(root + distance, reach));
        }
        builder.copy(input, blocks.block(root));
        builder.wait();
        return;
    };
    if tree.reach == 1 {
        builder.send(parent, input.alone());
        builder.wait();
        return;
    }
    let held = builder.scratch(count * tree.reach);
    for (child, distance, reach) in tree.children() {
        builder.receive(child, held.part(distance * count, reach * count).alone());
    }
    builder.copy(input, held.part(0, count));
    builder.wait();
    builder.send(parent, held.alone());
    builder.wait();
}

/// Each member has its own block in place; at the end, the root has all blocks.
pub fn gather_blocks(builder: &mut Builder, place: &MemberView, root: usize, blocks: &Blocks) {
    let tree = Tree::of(place, root);
    for (child, distance, reach) in tree.children() {
        builder.receive(child, blocks.circular(place.rank + distance, reach));
    }
    builder.wait();
    if let Some(parent) = tree.parent() {
        builder.send(parent, blocks.circular(place.rank, tree.reach));
        builder.wait();
    }
}
