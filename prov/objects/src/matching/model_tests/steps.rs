//! Random calls, of which some kinds are frequent in a run and others rare.

use super::*;

/// Messages come on so many links in turn.
pub const LINKS: u32 = 3;

#[derive(Clone, Debug)]
pub enum Step {
    Post {
        context: usize,
        src: u64,
        tag: u64,
        ignore: u64,
        len: usize,
        multi: bool,
    },
    Arrive {
        src: u64,
        tag: u64,
        len: usize,
        keep: bool,
    },
    Peek(Filter),
    PeekClaim(Filter, usize),
    PeekDiscard(Filter),
    Claim(usize),
    Cancel(usize),
    CancelAll,
    FinishOldest,
    FinishNewest,
    Withdraw(usize),
    LosePeer(u64),
    Learn(u64),
    Forget(u64),
    LearnLink(u32, u64),
    EndLink(u32),
    SetMinimum(usize),
}

fn source() -> impl Strategy<Value = u64> {
    prop_oneof![3 => 0u64..5, 1 => Just(ANY_SOURCE)]
}

/// `spread`: how many tags there are.
fn filter(tagged: bool, spread: u64) -> impl Strategy<Value = Filter> {
    let ignore = prop_oneof![
        6 => Just(0),
        6 => Just(1 << 63),
        2 => Just(u64::MAX),
        2 => Just(3),
        1 => any::<u8>().prop_map(|bits| bits as u64),
    ];
    (source(), tag(tagged, spread), ignore).prop_map(move |(src, tag, ignore)| Filter {
        src,
        tag,
        ignore: if tagged { ignore } else { u64::MAX },
    })
}

fn tag(tagged: bool, spread: u64) -> impl Strategy<Value = u64> {
    (0..spread, any::<bool>()).prop_map(move |(low, high)| match tagged {
        true => low | (high as u64) << 63,
        false => 0,
    })
}

/// Bound of the number of steps. Miri is slow.
const LONGEST: usize = if cfg!(miri) { 60 } else { 800 };

pub fn steps() -> impl Strategy<Value = (bool, Vec<Step>)> {
    let shape = (
        any::<bool>(),
        prop_oneof![Just(4u64), Just(1000)],
        1u32..20,
        1u32..20,
        any::<bool>(),
    );
    shape.prop_flat_map(|(tagged, spread, posts, arrivals, calm)| {
        let len = 0usize..40;
        let rare = if calm { 1 } else { 20 };
        let post = (
            0usize..40,
            filter(tagged, spread),
            0usize..200,
            prop::bool::weighted(0.1),
        )
            .prop_map(|(context, filter, len, multi)| Step::Post {
                context,
                src: filter.src,
                tag: filter.tag,
                ignore: filter.ignore,
                len,
                multi,
            });
        let arrive = (
            source(),
            tag(tagged, spread),
            len,
            prop::bool::weighted(0.95),
        )
            .prop_map(|(src, tag, len, keep)| Step::Arrive {
                src,
                tag,
                len,
                keep,
            });
        let step = prop_oneof![
            posts * 80 => post,
            arrivals * 80 => arrive,
            80 => filter(tagged, spread).prop_map(Step::Peek),
            40 => (filter(tagged, spread), 0usize..5).prop_map(|(f, c)| Step::PeekClaim(f, c)),
            2 * rare => filter(tagged, spread).prop_map(Step::PeekDiscard),
            40 => (0usize..5).prop_map(Step::Claim),
            40 => (0usize..40).prop_map(Step::Cancel),
            rare => prop::bool::weighted(0.1).prop_map(|all| match all {
                true => Step::CancelAll,
                false => Step::Cancel(0),
            }),
            80 => Just(Step::FinishOldest),
            80 => Just(Step::FinishNewest),
            rare => any::<usize>().prop_map(Step::Withdraw),
            rare => (0u64..5).prop_map(Step::LosePeer),
            rare => (0u64..5).prop_map(Step::Learn),
            rare => (0u64..5).prop_map(Step::Forget),
            rare => (0..LINKS, source()).prop_map(|(link, src)| Step::LearnLink(link, src)),
            rare => (0..LINKS).prop_map(Step::EndLink),
            rare => (0usize..30).prop_map(Step::SetMinimum),
        ];
        (Just(tagged), prop::collection::vec(step, 0..LONGEST))
    })
}
