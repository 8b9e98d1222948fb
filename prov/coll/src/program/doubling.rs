//! Recursive doubling: partners exchange all that they have combined, at distances 1, 2, 4, ... If
//! the number of members is not a power of two, some send their input to a neighbour first and
//! receive the result from it at the end.

use super::{Builder, MemberView, Memory, Span};

/// All-reduction of short operands: log2(n) rounds, in each of which the whole is sent.
pub fn all_reduce(builder: &mut Builder, place: &MemberView) {
    let output = Span::new(Memory::Output, 0, place.count);
    let input = Span::new(Memory::Input, 0, place.count);
    let doubled = 1 << place.members.ilog2();
    let extra = place.members - doubled;
    // The first 2 * extra ranks form pairs; the odd member of each takes part.
    let is_paired = place.rank < 2 * extra;
    if is_paired && place.rank.is_multiple_of(2) {
        let neighbour = place.rank + 1;
        builder.send(neighbour, input.alone());
        builder.receive(neighbour, output.alone());
        builder.wait();
        return;
    }
    builder.copy(input, output);
    let arrived = builder.scratch(place.count);
    let number = match is_paired {
        true => place.rank / 2,
        false => place.rank - extra,
    };
    if is_paired {
        builder.receive(place.rank - 1, arrived.alone());
        builder.wait();
        builder.combine(output, arrived);
    }
    let mut distance = 1;
    while distance < doubled {
        let partner = number ^ distance;
        let rank = match partner < extra {
            true => 2 * partner + 1,
            false => partner + extra,
        };
        builder.receive(rank, arrived.alone());
        builder.send(rank, output.alone());
        builder.wait();
        // Both partners combine in the same order, so that rounding is the same for all members.
        if partner < number {
            builder.combine(arrived, output);
            builder.copy(arrived, output);
        } else {
            builder.combine(output, arrived);
        }
        distance *= 2;
    }
    if is_paired {
        builder.send(place.rank - 1, output.alone());
        builder.wait();
    }
}
