//! Programs of all members, executed together on a simulated network, compared with the definition
//! of the operation.

use std::collections::{HashMap, VecDeque};

use proptest::prelude::*;

use super::*;

/// Combines two elements such that the result depends on which elements were combined, and how
/// often, but not on their order.
fn combined(one: u64, other: u64) -> u64 {
    one.wrapping_add(other)
}

/// Returns the number of elements of both spans.
fn length(pieces: &Pieces) -> usize {
    pieces.iter().map(|piece| piece.len).sum()
}

struct Member {
    program: Program,
    at: usize,
    memory: [Vec<u64>; 3],
    /// Receives that are posted, by sender.
    posted: HashMap<usize, VecDeque<Pieces>>,
    /// Number of sends and receives that have not ended.
    under_way: usize,
    sent: usize,
}

impl Member {
    fn memory(&mut self, memory: Memory) -> &mut Vec<u64> {
        &mut self.memory[match memory {
            Memory::Input => 0,
            Memory::Output => 1,
            Memory::Scratch => 2,
        }]
    }

    fn read(&mut self, span: Span) -> Vec<u64> {
        self.memory(span.memory)[span.start..span.start + span.len].to_vec()
    }

    fn write(&mut self, span: Span, elements: &[u64]) {
        assert_ne!(span.memory, Memory::Input, "the input is only read");
        self.memory(span.memory)[span.start..span.start + span.len].copy_from_slice(elements);
    }

    fn write_pieces(&mut self, pieces: &Pieces, elements: &[u64]) {
        assert_eq!(elements.len(), length(pieces), "as long as it was sent");
        let (head, tail) = elements.split_at(pieces[0].len);
        self.write(pieces[0], head);
        self.write(pieces[1], tail);
    }
}

/// Messages in progress, by sender and receiver. The content is read when a message is delivered,
/// so that a program that changes memory that it still sends fails.
type Network = HashMap<(usize, usize), VecDeque<Pieces>>;

struct Group {
    members: Vec<Member>,
    network: Network,
}

impl Group {
    fn new(kind: Kind, count: usize, size: usize, inputs: &[Vec<u64>], roots: &[Vec<u64>]) -> Self {
        let number = inputs.len();
        let member = |rank| {
            let place = MemberView {
                rank,
                members: number,
                count,
                size,
            };
            let (input, output) = extents(kind, &place).unwrap();
            assert_eq!(inputs[rank].len(), input);
            let program = program(kind, &place);
            let scratch = vec![0xdead_u64; program.scratch];
            let before: Vec<u64> = match roots.get(rank) {
                Some(content) => content.clone(),
                None => vec![0xbad; output],
            };
            Member {
                program,
                at: 0,
                memory: [inputs[rank].clone(), before, scratch],
                posted: HashMap::new(),
                under_way: 0,
                sent: 0,
            }
        };
        Group {
            members: (0..number).map(member).collect(),
            network: Network::new(),
        }
    }

    /// Executes one step of a member, or one delivery to it; returns whether there was any.
    fn step(&mut self, rank: usize) -> bool {
        if self.deliver(rank) {
            return true;
        }
        let member = &mut self.members[rank];
        let Some(step) = member.program.steps.get(member.at).copied() else {
            return false;
        };
        match step {
            Step::Wait if member.under_way > 0 => return false,
            Step::Wait => {}
            Step::Send { to, pieces } => {
                assert_ne!(to, rank, "a member does not send to itself");
                member.under_way += 1;
                member.sent += 1;
                self.network
                    .entry((rank, to))
                    .or_default()
                    .push_back(pieces);
            }
            Step::Receive { from, pieces } => {
                assert_ne!(from, rank);
                member.under_way += 1;
                member.posted.entry(from).or_default().push_back(pieces);
            }
            Step::Copy { from, to } => {
                let elements = member.read(from);
                member.write(to, &elements);
            }
            Step::Combine { into, with } => {
                let (mut target, operand) = (member.read(into), member.read(with));
                for (target, operand) in target.iter_mut().zip(operand) {
                    *target = combined(*target, operand);
                }
                member.write(into, &target);
            }
        }
        self.members[rank].at += 1;
        true
    }

    fn deliver(&mut self, rank: usize) -> bool {
        for from in 0..self.members.len() {
            let Some(pieces) = self.members[rank].posted.get_mut(&from).and_then(|posted| {
                let sent = self
                    .network
                    .get(&(from, rank))
                    .is_some_and(|sent| !sent.is_empty());
                sent.then(|| posted.pop_front()).flatten()
            }) else {
                continue;
            };
            let sent = self
                .network
                .get_mut(&(from, rank))
                .unwrap()
                .pop_front()
                .unwrap();
            let sender = &mut self.members[from];
            let mut elements = sender.read(sent[0]);
            elements.extend(sender.read(sent[1]));
            sender.under_way -= 1;
            let receiver = &mut self.members[rank];
            receiver.write_pieces(&pieces, &elements);
            receiver.under_way -= 1;
            return true;
        }
        false
    }

    /// Runs all members to their ends, in an order that `seed` decides.
    fn run(&mut self, mut seed: u64) {
        let mut idle = 0;
        let mut order: Vec<usize> = (0..self.members.len()).collect();
        while idle < 2 {
            for at in (1..order.len()).rev() {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                order.swap(at, (seed >> 33) as usize % (at + 1));
            }
            let mut moved = false;
            for rank in order.clone() {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                for _ in 0..(seed >> 60) {
                    moved |= self.step(rank);
                }
            }
            idle = if moved {
                0
            } else {
                idle + usize::from(self.is_stuck())
            };
        }
        for (rank, member) in self.members.iter().enumerate() {
            assert_eq!(member.at, member.program.steps.len(), "rank {rank} is done");
            assert_eq!(member.under_way, 0, "nothing of rank {rank} is under way");
        }
        assert!(self.network.values().all(VecDeque::is_empty));
    }

    fn is_stuck(&mut self) -> bool {
        (0..self.members.len()).all(|rank| !self.step(rank))
    }
}

/// Returns distinct numbers.
fn content(rank: usize, len: usize) -> Vec<u64> {
    (0..len)
        .map(|at| (rank as u64 + 1) * 0x1_0000_0001 + (at as u64) * 0x1f35_7919)
        .collect()
}

/// Runs the operation with this many members, and compares each output.
fn check(kind: Kind, members: usize, count: usize, size: usize, seed: u64) {
    let place = |rank| MemberView {
        rank,
        members,
        count,
        size,
    };
    let inputs: Vec<Vec<u64>> = (0..members)
        .map(|rank| content(rank, extents(kind, &place(rank)).unwrap().0))
        .collect();
    let outputs: Vec<Vec<u64>> = match kind {
        Kind::Broadcast { root } => (0..members)
            .map(|rank| match rank == root {
                true => content(root, count),
                false => vec![0xbad; count],
            })
            .collect(),
        _ => Vec::new(),
    };
    let mut group = Group::new(kind, count, size, &inputs, &outputs);
    group.run(seed);
    let block = |of: usize, index: usize| &inputs[of][index * count..(index + 1) * count];
    let sum = |len: usize| {
        let mut sum = inputs[0][..len].to_vec();
        for input in &inputs[1..] {
            for (sum, element) in sum.iter_mut().zip(input) {
                *sum = combined(*sum, *element);
            }
        }
        sum
    };
    for (rank, member) in group.members.iter().enumerate() {
        let expected: Vec<u64> = match kind {
            Kind::Barrier => Vec::new(),
            Kind::Broadcast { root } => content(root, count),
            Kind::AllToAll => (0..members)
                .flat_map(|from| block(from, rank).to_vec())
                .collect(),
            Kind::AllReduce => sum(count),
            Kind::AllGather => inputs.concat(),
            Kind::ReduceScatter => sum(count * members)[rank * count..(rank + 1) * count].to_vec(),
            Kind::Reduce { root } if root == rank => sum(count),
            Kind::Scatter { root } => block(root, rank).to_vec(),
            Kind::Gather { root } if root == rank => inputs.concat(),
            Kind::Reduce { .. } | Kind::Gather { .. } => Vec::new(),
        };
        assert_eq!(
            member.memory[1], expected,
            "{kind:?} of {members}, {count}: rank {rank}"
        );
        // One round for each doubling of the group, and as many again for the second half of
        // operations of two parts.
        let rounds = members.next_power_of_two().ilog2() as usize;
        let most = match kind {
            Kind::AllToAll if count * size > FORWARDED_LIMIT => members - 1,
            _ => 2 * rounds + 1,
        };
        assert!(
            member.sent <= most,
            "{kind:?}: {} messages of {members} members",
            member.sent
        );
    }
}

fn kinds(root: usize) -> [Kind; 9] {
    [
        Kind::Barrier,
        Kind::Broadcast { root },
        Kind::AllToAll,
        Kind::AllReduce,
        Kind::AllGather,
        Kind::ReduceScatter,
        Kind::Reduce { root },
        Kind::Scatter { root },
        Kind::Gather { root },
    ]
}

/// Sizes of elements for which operations are short, and long. Miri is slow: groups are small
/// there.
const SIZES: [usize; 2] = [1, WHOLE_LIMIT + 1];

#[test]
fn every_operation_has_the_result_that_it_means_in_groups_of_every_size() {
    for members in 1..=if cfg!(miri) { 3 } else { 13 } {
        for kind in kinds(members / 2) {
            for size in SIZES {
                for count in [0, 1, members + 1] {
                    check(kind, members, count, size, 1);
                }
            }
        }
    }
}

#[test]
fn no_member_is_done_with_a_barrier_before_all_have_begun() {
    for members in 2..=if cfg!(miri) { 3 } else { 17 } {
        for late in 0..members {
            let inputs = vec![Vec::new(); members];
            let mut group = Group::new(Kind::Barrier, 0, 1, &inputs, &[]);
            loop {
                let others = (0..members).filter(|rank| *rank != late);
                if others.filter(|rank| group.step(*rank)).count() == 0 {
                    break;
                }
            }
            for (rank, member) in group.members.iter().enumerate() {
                assert!(
                    member.at < member.program.steps.len(),
                    "{rank} waits for {late}"
                );
            }
            group.run(3);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 64 }))]

    #[test]
    fn the_order_in_which_members_move_changes_nothing(
        members in 1..if cfg!(miri) { 5usize } else { 65 },
        root: prop::sample::Index,
        which in 0usize..9,
        count in 0usize..70,
        long: bool,
        seed: u64,
    ) {
        let kind = kinds(root.index(members))[which];
        check(kind, members, count, SIZES[usize::from(long)], seed);
    }
}
