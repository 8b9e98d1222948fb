//! The steps of one member of a group in a collective operation: a list that depends only on the
//! kind of the operation, the member's rank and the size of the group. It is independent of
//! endpoints and memory; `engine` executes it.
//!
//! Members are *ranks*, memory is counted in elements. A group of n members needs at most about
//! log2(n) rounds of messages, except for long all-to-all exchanges, which send each block directly
//! to its destination (n - 1 messages).

mod broadcast;
mod circulant;
mod doubling;
mod exchange;
#[cfg(test)]
mod tests;
mod tree;

/// Operands of at most this many bytes are reduced whole in each round (latency: log2(n) rounds); longer ones are
/// divided into blocks of which each member reduces one (bandwidth: each byte is sent twice instead of log2(n) times,
/// in twice as many rounds).
pub const WHOLE_LIMIT: usize = 16 << 10;

/// Blocks of an all-to-all exchange of at most this many bytes travel together through log2(n)
/// members; longer ones are sent directly to their destinations, since each member on the way costs
/// a copy.
pub const FORWARDED_LIMIT: usize = 1 << 10;

pub use prov_util::collective::{Kind, MemberView, extents};

/// The memory in which a [`Span`] lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// The application's input, which is only read.
    Input,
    /// The application's output, which holds the result.
    Output,
    /// The operation's own memory, of [`Program::scratch`] elements.
    Scratch,
}

/// Consecutive elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub memory: Memory,
    pub start: usize,
    pub len: usize,
}

/// What a message is sent from or received into: up to two spans, one after the other.
pub type Pieces = [Span; 2];

/// One step of a [`Program`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Sends the elements to a rank.
    Send { to: usize, pieces: Pieces },
    /// Receives as many elements from a rank.
    Receive { from: usize, pieces: Pieces },
    /// Waits until all messages before have been sent and received.
    Wait,
    /// Copies `from` to `to`, which are equally long.
    Copy { from: Span, to: Span },
    /// Combines each element of `with` into the one of `into`, which are equally long.
    Combine { into: Span, with: Span },
}

/// The steps of a member, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    pub steps: Vec<Step>,
    /// Number of elements of memory that it needs besides the application's.
    pub scratch: usize,
}

/// Returns the ranks to which these steps send.
pub fn receivers(steps: &[Step]) -> impl Iterator<Item = usize> + '_ {
    steps.iter().filter_map(|step| match *step {
        Step::Send { to, .. } => Some(to),
        _ => None,
    })
}

/// Returns the steps of a member. Ranks are below `place.members`, and [`extents`] has checked the
/// sizes.
pub fn program(kind: Kind, place: &MemberView) -> Program {
    let mut builder = Builder::default();
    let whole = place.count.saturating_mul(place.size) <= WHOLE_LIMIT;
    match kind {
        Kind::Barrier => circulant::barrier(&mut builder, place),
        Kind::Broadcast { root } if whole => broadcast::whole(&mut builder, place, root),
        Kind::Broadcast { root } => broadcast::in_blocks(&mut builder, place, root),
        Kind::AllToAll if place.count.saturating_mul(place.size) <= FORWARDED_LIMIT => {
            exchange::forwarded(&mut builder, place);
        }
        Kind::AllToAll => exchange::direct(&mut builder, place),
        Kind::AllReduce if whole => doubling::all_reduce(&mut builder, place),
        Kind::AllReduce => circulant::all_reduce(&mut builder, place),
        Kind::AllGather => circulant::all_gather(&mut builder, place),
        Kind::ReduceScatter => circulant::reduce_scatter(&mut builder, place),
        Kind::Reduce { root } if whole => tree::reduce(&mut builder, place, root),
        Kind::Reduce { root } => circulant::reduce(&mut builder, place, root),
        Kind::Scatter { root } => tree::scatter(&mut builder, place, root),
        Kind::Gather { root } => tree::gather(&mut builder, place, root),
    }
    builder.0
}

impl Span {
    pub fn new(memory: Memory, start: usize, len: usize) -> Self {
        Span { memory, start, len }
    }

    /// No elements.
    pub const EMPTY: Span = Span {
        memory: Memory::Scratch,
        start: 0,
        len: 0,
    };

    /// Returns `len` of the elements, beginning with the one at `skip`.
    fn part(self, skip: usize, len: usize) -> Self {
        debug_assert!(skip + len <= self.len);
        Span::new(self.memory, self.start + skip, len)
    }

    fn alone(self) -> Pieces {
        [self, Span::EMPTY]
    }
}

/// Writes a program.
#[derive(Default)]
struct Builder(Program);

impl Builder {
    /// Allocates so many elements of the operation's own memory.
    fn scratch(&mut self, elements: usize) -> Span {
        let span = Span::new(Memory::Scratch, self.0.scratch, elements);
        self.0.scratch += elements;
        span
    }

    fn send(&mut self, to: usize, pieces: Pieces) {
        self.0.steps.push(Step::Send { to, pieces });
    }

    fn receive(&mut self, from: usize, pieces: Pieces) {
        self.0.steps.push(Step::Receive { from, pieces });
    }

    fn wait(&mut self) {
        self.0.steps.push(Step::Wait);
    }

    fn copy(&mut self, from: Span, to: Span) {
        debug_assert_eq!(from.len, to.len);
        if from.len > 0 {
            self.0.steps.push(Step::Copy { from, to });
        }
    }

    fn combine(&mut self, into: Span, with: Span) {
        debug_assert_eq!(into.len, with.len);
        if into.len > 0 {
            self.0.steps.push(Step::Combine { into, with });
        }
    }

    /// Combines `with`, a single span, into two spans.
    fn combine_pieces(&mut self, into: &Pieces, with: Span) {
        let [first, second] = *into;
        self.combine(first, with.part(0, first.len));
        self.combine(second, with.part(first.len, second.len));
    }
}

/// Memory divided into a block for each member, in the order of ranks.
#[derive(Clone, Copy)]
struct Blocks {
    memory: Memory,
    start: usize,
    members: usize,
    division: Division,
}

#[derive(Clone, Copy)]
enum Division {
    /// Blocks of this many elements.
    Equal(usize),
    /// This many elements in all; if they do not divide evenly, the first blocks are longer by one.
    Of(usize),
}

impl Blocks {
    /// Returns blocks of `count` elements for each of the members.
    fn equal(span: Span, members: usize, count: usize) -> Self {
        Blocks {
            memory: span.memory,
            start: span.start,
            members,
            division: Division::Equal(count),
        }
    }

    /// Divides the elements of `span` among the members.
    fn of(span: Span, members: usize) -> Self {
        Blocks {
            memory: span.memory,
            start: span.start,
            members,
            division: Division::Of(span.len),
        }
    }

    /// Returns the offset of block `index`; `members` is the end of the last one.
    fn offset(&self, index: usize) -> usize {
        match self.division {
            Division::Equal(count) => index * count,
            Division::Of(len) => {
                let (each, longer) = (len / self.members, len % self.members);
                index * each + index.min(longer)
            }
        }
    }

    /// Returns the blocks from `first` up to, but without, `end`.
    fn span(&self, first: usize, end: usize) -> Span {
        let (from, to) = (self.offset(first), self.offset(end));
        Span::new(self.memory, self.start + from, to - from)
    }

    /// Returns one block.
    fn block(&self, index: usize) -> Span {
        self.span(index, index + 1)
    }

    /// Returns `number` blocks beginning with `first`, modulo the members; the last block is
    /// followed by the first.
    fn circular(&self, first: usize, number: usize) -> Pieces {
        let first = first % self.members;
        let end = first + number;
        if end <= self.members {
            self.span(first, end).alone()
        } else {
            [
                self.span(first, self.members),
                self.span(0, end - self.members),
            ]
        }
    }
}
