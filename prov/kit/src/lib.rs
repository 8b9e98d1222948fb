//! A conformance kit: what every provider's endpoints do, each behaviour written once, as a test that a
//! provider runs on endpoints of its own, without the C interface.
//!
//! A provider that is built on `prov_message` implements [`Bench`] in its tests and names it to
//! [`conformance!`]. Each behaviour is a function of this crate that makes a [`World`] of endpoints,
//! posts operations, drives all endpoints until these are complete, and looks at the outcome. What a
//! provider lacks is said by [`Bench::LACKS`]; the behaviours that need it are then skipped, with a
//! line on the standard error output.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "the whole crate is tests, which end with a panic"
)]

mod behaviours;
mod connecting;
mod place;
mod side;
mod world;

pub use behaviours::{
    atomics, cancelling, connections, ending, matching, messages, one_sided, peeking, queues,
    sources, strangers, unread,
};
pub use connecting::{Connecting, ConnectionEvent, connect};
pub use place::Place;
pub use side::{Message, Objects, Opened, RECEIVED, SENT, Side};
pub use world::World;

use prov_message::{Core, EpKey, StrangersLimits};
use prov_util::av::{self, Insertion};
use prov_util::cq::CqConfig;

/// Something that not all providers have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Property {
    /// Reads and writes of a peer's memory.
    OneSided,
    /// Atomic operations on a peer's memory.
    Atomics,
    /// A transmit queue of the size that was asked for: with other sizes, it is never seen full.
    FullQueue,
    /// Receives that messages are matched with, by tags, and that can be cancelled; unexpected messages
    /// that can be looked for: devices have neither.
    Matching,
    /// Operations that fail alone: the failure of one ends no connection.
    Recovery,
    /// Messages that are delivered, or received, although their connection has ended meanwhile.
    Lingering,
    /// Errors of receives that name what has ended their connection.
    Causes,
    /// Immediate data of 64 bits, for which a write with data takes no receive.
    WideData,
    /// Operations of peers that wait while the completion queue is full.
    Waiting,
    /// Messages for which there is no room and that wait, with those behind them, where they are.
    HoldingBack,
    /// Room in the completion queue that peers have in turn; otherwise what has arrived first has it.
    Turns,
    /// Several peers, and itself as one of them: a connected endpoint has one other.
    Peers,
}

/// What the endpoints of a world are opened with.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Operations that an endpoint may have in progress.
    pub tx_size: usize,
    /// Whether receives are matched by their source (`FI_DIRECTED_RECV`).
    pub directed: bool,
    /// Entries of a completion queue from which on it takes none that no receive of the application asks
    /// for ([`CqConfig::unasked`]).
    pub unasked: usize,
    /// Limits of what strangers leave, if they are not those of the process.
    pub strangers: Option<StrangersLimits>,
}

impl Default for Setting {
    fn default() -> Self {
        Setting {
            tx_size: 1024,
            directed: false,
            unasked: CqConfig::default().unasked,
            strangers: None,
        }
    }
}

/// How a provider's endpoints are opened for tests.
pub trait Bench: Sized {
    /// Its engine.
    type Core: Core;
    /// What its endpoints cannot do.
    const LACKS: &'static [Property] = &[];
    /// Lengths in bytes at which it begins to send messages in another way.
    const STEPS: &'static [usize];

    /// Prepares for endpoints with this setting.
    fn new(setting: Setting) -> Self;

    /// The format of its addresses.
    fn vector(&self) -> av::Config<'static>;

    /// How the name of an endpoint is inserted in an address vector.
    fn insertion(name: &[u8]) -> Insertion<'_> {
        Insertion::from(name)
    }

    /// Opens an endpoint that is bound to these objects and has a name of its own.
    fn open(&mut self, objects: &Objects) -> Opened<Self::Core>;

    /// The number of an endpoint's links, if those that have ended are gone at once.
    fn links(_: &Self::Core, _: EpKey) -> Option<usize> {
        None
    }

    /// Has endpoints know one another: each calls another one, and itself, by its position.
    fn introduce(&mut self, sides: &[&Side<Self>]) {
        for side in sides {
            for (position, other) in sides.iter().enumerate() {
                assert_eq!(side.insert(other), position as u64);
            }
        }
    }
}

/// Runs a behaviour that needs some properties.
pub fn run<B: Bench>(name: &str, needs: &[Property], behaviour: fn()) {
    match needs.iter().find(|property| B::LACKS.contains(property)) {
        Some(property) => eprintln!("skipped: {name} needs {property:?}"),
        None => behaviour(),
    }
}

/// Makes a test of each behaviour, for endpoints of a [`Bench`]; after `messages` or `strangers`, of
/// those of single messages or of strangers alone, for one that differs from another one in that; after `connecting`, of those
/// of the connection manager, for one that is [`Connecting`].
#[macro_export]
macro_rules! conformance {
    (connecting $bench:ty) => {
        $crate::conformance! { @ $bench:
            connections (&[]) {
                data_comes_with_a_request_and_with_its_acceptance,
                a_rejected_request_fails_with_the_data_of_the_refusal,
                where_nobody_listens_a_connection_fails,
                messages_follow_the_acceptance_at_once,
                a_request_is_withdrawn,
                what_has_arrived_is_received_although_answers_cannot_be_sent,
                ends_and_listeners_close_in_any_order,
            }
            connections (&[$crate::Property::Lingering]) {
                an_end_that_is_shut_down_is_reported_to_the_other,
                receives_end_with_their_connection_and_name_its_end_as_the_cause,
            }
            connections (&[$crate::Property::Matching]) {
                a_receive_that_is_taken_back_has_no_other_cause,
            }
        }
    };
    (strangers $bench:ty) => {
        $crate::conformance! { @ $bench:
            strangers (&[
                $crate::Property::Matching,
                $crate::Property::HoldingBack,
                $crate::Property::Peers,
            ]) {
                a_stranger_that_floods_is_held_back_and_loses_nothing,
                a_receive_takes_the_message_that_a_stranger_is_held_back_with,
                a_stranger_resumes_when_it_is_inserted,
            }
        }
    };
    (messages $bench:ty) => {
        $crate::conformance! { @ $bench:
            messages (&[]) {
                messages_of_all_lengths_arrive_expected_or_not,
                injected_memory_is_free_at_once,
                messages_from_both_sides_cross,
                empty_messages_have_completions,
                pieces_are_gathered_and_scattered,
            }
            messages (&[$crate::Property::WideData]) {
                data_comes_with_messages,
            }
            messages (&[$crate::Property::Peers]) {
                an_endpoint_sends_to_itself,
            }
        }
    };
    ($bench:ty) => {
        $crate::conformance!(messages $bench);
        $crate::conformance!(strangers $bench);
        $crate::conformance! { @ $bench:
            matching (&[]) {
                messages_of_a_sender_are_matched_in_order,
            }
            matching (&[$crate::Property::Recovery]) {
                a_short_receive_is_truncated_and_the_next_is_whole,
            }
            matching (&[$crate::Property::Matching]) {
                the_oldest_message_that_matches_is_received,
                ignored_bits_are_not_compared,
                tagged_and_untagged_messages_are_apart,
                a_buffer_takes_several_messages,
            }
            sources (&[$crate::Property::Peers]) {
                a_completion_names_the_source,
                a_directed_receive_takes_its_source,
                a_stranger_has_no_number_until_it_is_inserted,
                a_message_has_the_number_that_its_peer_has_when_it_is_received,
            }
            queues (&[$crate::Property::Matching]) {
                many_unexpected_messages_are_received_in_reverse,
            }
            queues (&[$crate::Property::Peers]) {
                a_third_endpoint_is_not_held_up,
            }
            queues (&[$crate::Property::FullQueue]) {
                a_full_queue_has_room_again,
            }
            cancelling (&[$crate::Property::Matching]) {
                a_cancelled_receive_takes_nothing,
                nothing_is_cancelled_twice,
            }
            peeking (&[$crate::Property::Matching]) {
                a_peek_without_a_message_is_an_error,
                a_message_is_seen_claimed_and_received,
                a_message_is_discarded,
            }
            one_sided (&[$crate::Property::OneSided]) {
                memory_of_all_lengths_is_written_and_read,
                a_key_that_is_used_again_leads_to_the_new_region,
            }
            one_sided (&[$crate::Property::OneSided, $crate::Property::Recovery]) {
                a_wrong_key_is_refused_and_concerns_nothing_else,
                an_access_beyond_the_region_is_refused,
                an_access_without_the_right_to_it_is_refused,
                a_closed_region_is_refused,
            }
            one_sided (&[$crate::Property::OneSided, $crate::Property::WideData]) {
                a_write_with_data_is_reported_to_the_target,
            }
            one_sided (&[$crate::Property::OneSided, $crate::Property::Peers]) {
                writes_to_a_cell_take_effect_in_order,
            }
            unread (&[$crate::Property::OneSided, $crate::Property::WideData, $crate::Property::Waiting]) {
                writers_wait_for_room_and_nothing_is_lost,
                an_endpoint_closes_while_writers_wait,
                what_a_writer_that_has_closed_had_completed_is_reported,
            }
            unread (&[
                $crate::Property::OneSided,
                $crate::Property::WideData,
                $crate::Property::Waiting,
                $crate::Property::Turns,
                $crate::Property::Peers,
            ]) {
                writers_that_wait_share_the_room,
            }
            atomics (&[$crate::Property::Atomics]) {
                values_are_compared_and_swapped,
            }
            atomics (&[$crate::Property::Atomics, $crate::Property::Peers]) {
                sums_are_added_and_fetched,
            }
            ending (&[$crate::Property::Peers]) {
                an_endpoint_closes_with_everything_under_way,
                what_was_received_from_an_endpoint_that_closed_is_there,
            }
        }
    };
    (@ $bench:ty: $($room:ident ($needs:expr) { $($name:ident,)* })*) => {
        $($(
            #[test]
            fn $name() {
                $crate::run::<$bench>(stringify!($name), $needs, $crate::$room::$name::<$bench>);
            }
        )*)*
    };
}
