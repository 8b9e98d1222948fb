//! What members agree on while they join a group: a random number, which outsiders do not know. Rank
//! 0 draws it, and the messages of the barrier by which a group is joined carry it to all members, as
//! immediate data: a member has heard from every other one when the barrier ends, directly or through
//! others. The layout is part of docs/collectives-wire.md.
//!
//! Members that send no such data, which are of releases before it, take part nevertheless: all
//! others learn of them, and the group keeps the id that follows from its members.

use prov_base::random;

/// Set in the immediate data of a member that can agree.
const AGREES: u64 = 1 << 63;
/// Set if the member has heard from one, directly or through others, that cannot agree.
const NOT_ALL: u64 = 1 << 62;
/// The random number, in the other bits; 0 if the member does not know it yet.
const NUMBER: u64 = NOT_ALL - 1;

/// What a member knows so far.
#[derive(Clone, Copy, Debug)]
pub struct Agreement {
    /// Rank 0's random number; 0 if it is not known.
    number: u64,
    /// Whether all members that were heard from can agree.
    all_agree: bool,
}

impl Agreement {
    /// Begins at the member with this rank. `can_send` tells whether its messages can carry 64 bits
    /// of immediate data.
    pub fn new(rank: usize, can_send: bool) -> Self {
        let number = match rank {
            0 => random::secret().map(|number| (number & NUMBER).max(1)),
            _ => Ok(0),
        };
        Agreement {
            number: number.unwrap_or(0),
            all_agree: can_send && number.is_ok(),
        }
    }

    /// Returns the immediate data of the next message.
    pub fn to_data(self) -> u64 {
        let not_all = if self.all_agree { 0 } else { NOT_ALL };
        AGREES | not_all | self.number
    }

    /// Takes in the immediate data of a member's message, if it had any.
    pub fn learn(&mut self, data: Option<u64>) {
        match data.filter(|data| data & AGREES != 0) {
            None => self.all_agree = false,
            Some(data) => {
                self.all_agree &= data & NOT_ALL == 0;
                if self.number == 0 {
                    self.number = data & NUMBER;
                }
            }
        }
    }

    /// Returns the number that all members know when the barrier has ended; `None` if not all can
    /// agree.
    pub fn number(self) -> Option<u64> {
        (self.all_agree && self.number != 0).then_some(self.number)
    }
}

#[cfg(test)]
mod tests {
    use prov_util::collective::{Kind, MemberView};

    use super::*;
    use crate::program::{Step, program};

    /// Executes the barrier of `members` ranks, of which those in `old` send no data and learn
    /// nothing, and returns what each knows at the end.
    fn barrier(members: usize, old: &[usize]) -> Vec<Agreement> {
        let steps: Vec<Vec<Step>> = (0..members)
            .map(|rank| {
                let place = MemberView {
                    rank,
                    members,
                    count: 0,
                    size: 0,
                };
                program(Kind::Barrier, &place).steps
            })
            .collect();
        let mut known: Vec<Agreement> = (0..members)
            .map(|rank| Agreement::new(rank, true))
            .collect();
        // All members are in the same round: what they send is what they know before it.
        let rounds = steps
            .iter()
            .map(|steps| steps.split(|step| *step == Step::Wait).collect());
        let rounds: Vec<Vec<&[Step]>> = rounds.collect();
        for round in 0..rounds.iter().map(Vec::len).max().unwrap_or(0) {
            let before = known.clone();
            for (rank, mine) in rounds.iter().enumerate() {
                for step in mine.get(round).copied().unwrap_or_default() {
                    if let Step::Receive { from, .. } = *step {
                        let data = (!old.contains(&from)).then(|| before[from].to_data());
                        known[rank].learn(data);
                    }
                }
            }
        }
        known
    }

    /// Groups have fewer members than this. Miri is slow.
    const MEMBERS: usize = if cfg!(miri) { 5 } else { 40 };

    #[test]
    fn all_members_know_one_number_which_is_another_one_each_time() {
        for members in 1..MEMBERS {
            let numbers: Vec<_> = barrier(members, &[])
                .iter()
                .map(|one| one.number())
                .collect();
            assert!(numbers[0].is_some());
            assert!(
                numbers.iter().all(|number| *number == numbers[0]),
                "{members}"
            );
            assert_ne!(barrier(members, &[])[0].number(), numbers[0]);
        }
    }

    #[test]
    fn nobody_agrees_if_one_member_cannot() {
        for members in 2..MEMBERS {
            for old in 0..members {
                let known = barrier(members, &[old]);
                for (rank, one) in known.iter().enumerate().filter(|(rank, _)| *rank != old) {
                    assert_eq!(
                        one.number(),
                        None,
                        "{members} members, {old} is old, at {rank}"
                    );
                }
            }
            let some = barrier(members, &[0, members / 2]);
            assert!(
                (1..members)
                    .filter(|rank| *rank != members / 2)
                    .all(|rank| some[rank].number().is_none())
            );
        }
    }

    #[test]
    fn a_member_that_cannot_send_data_says_so_to_all() {
        let mut other = Agreement::new(1, true);
        other.learn(Some(Agreement::new(0, false).to_data()));
        assert_eq!(other.number(), None);
        assert_ne!(other.to_data() & NOT_ALL, 0);
    }
}
