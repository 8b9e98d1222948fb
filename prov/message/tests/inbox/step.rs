//! The steps of the model test.

use proptest::prelude::*;

/// Limits of what is kept.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    pub unexpected: usize,
    pub in_flight: usize,
}

pub fn setting() -> impl Strategy<Value = Setting> {
    let unexpected = prop_oneof![Just(0usize), 200..4000usize, Just(1 << 20)];
    let in_flight = prop_oneof![Just(0usize), 0..4000usize];
    (unexpected, in_flight).prop_map(|(unexpected, in_flight)| Setting {
        unexpected,
        in_flight,
    })
}

/// How a message arrives.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum ArrivalMode {
    /// On the fast path.
    Plain,
    /// In one piece.
    Whole,
    /// In several pieces.
    Pieces,
    /// Its payload arrives on request (rendezvous).
    Announced,
}

/// The filter of a receive or a peek.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    pub tagged: bool,
    pub tag: u64,
    pub ignore: u64,
    pub src: Option<u64>,
}

#[derive(Clone, Debug)]
pub enum Step {
    Send {
        link: usize,
        way: ArrivalMode,
        tagged: bool,
        tag: u64,
        len: usize,
        data: bool,
        ack: u32,
    },
    /// So many bytes of a message arrive, or another one begins.
    Move(usize, usize),
    /// All messages that were sent arrive, as far as the link is not held back.
    Rush(usize),
    Post {
        at: usize,
        wanted: Wanted,
        len: usize,
        multi: bool,
    },
    Peek(usize, Wanted),
    PeekDiscard(usize, Wanted),
    PeekClaim(usize, Wanted),
    /// Receives the claimed message in a buffer of so many bytes.
    Claim(usize, usize),
    DropClaimed(usize),
    Cancel(usize),
    CancelAll(usize),
    CancelFrom(usize, u64),
    /// The address vector learns and forgets peers.
    Relabel(Vec<(usize, Option<u64>)>),
    EndLink(usize),
    /// A link ends at the action with this number.
    EndAtAction(usize),
    Close(usize),
    /// An endpoint uses its own inbox instead of the shared one, or the shared one again.
    Switch(usize),
    /// A peer connects, possibly again.
    Connect(usize),
}

fn wanted() -> impl Strategy<Value = Wanted> {
    let ignore = prop_oneof![3 => Just(0u64), 1 => Just(1u64), 1 => Just(u64::MAX)];
    let src = prop::option::weighted(0.3, 0..3u64);
    (any::<bool>(), 0..3u64, ignore, src).prop_map(|(tagged, tag, ignore, src)| Wanted {
        tagged,
        tag,
        ignore,
        src,
    })
}

fn len() -> impl Strategy<Value = usize> {
    prop_oneof![Just(0usize), 1..64usize, 1..700usize, 1..3000usize]
}

fn way() -> impl Strategy<Value = ArrivalMode> {
    prop_oneof![
        1 => Just(ArrivalMode::Plain),
        1 => Just(ArrivalMode::Whole),
        2 => Just(ArrivalMode::Pieces),
        1 => Just(ArrivalMode::Announced),
    ]
}

pub fn step() -> impl Strategy<Value = Step> {
    let at = 0..5usize;
    let link = 0..8usize;
    let send = (
        link.clone(),
        way(),
        any::<bool>(),
        0..3u64,
        len(),
        any::<bool>(),
        0..3u32,
    )
        .prop_map(|(link, way, tagged, tag, len, data, ack)| Step::Send {
            link,
            way,
            tagged,
            tag,
            len,
            data,
            ack,
        });
    let post = (at.clone(), wanted(), len(), prop::bool::weighted(0.2)).prop_map(
        |(at, wanted, len, multi)| Step::Post {
            at,
            wanted,
            len,
            multi,
        },
    );
    prop_oneof![
        20 => send,
        12 => (link.clone(), 0..1500usize).prop_map(|(link, bytes)| Step::Move(link, bytes)),
        8 => link.clone().prop_map(Step::Rush),
        16 => post,
        1 => (at.clone(), wanted()).prop_map(|(at, wanted)| Step::Peek(at, wanted)),
        1 => (at.clone(), wanted()).prop_map(|(at, wanted)| Step::PeekDiscard(at, wanted)),
        2 => (at.clone(), wanted()).prop_map(|(at, wanted)| Step::PeekClaim(at, wanted)),
        2 => (0..4usize, len()).prop_map(|(which, len)| Step::Claim(which, len)),
        1 => (0..4usize).prop_map(Step::DropClaimed),
        2 => (0..100usize).prop_map(Step::Cancel),
        1 => at.clone().prop_map(Step::CancelAll),
        1 => (at.clone(), 0..3u64).prop_map(|(at, src)| Step::CancelFrom(at, src)),
        2 => prop::collection::vec((link.clone(), prop::option::of(0..3u64)), 1..4)
            .prop_map(Step::Relabel),
        2 => link.clone().prop_map(Step::EndLink),
        1 => (0..4usize).prop_map(Step::EndAtAction),
        1 => at.prop_map(Step::Close),
        3 => (0..4usize).prop_map(Step::Connect),
        3 => (2..4usize).prop_map(Step::Switch),
    ]
}
