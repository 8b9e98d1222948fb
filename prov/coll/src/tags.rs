//! The tags of collective messages. The highest bit distinguishes them from the application's:
//! endpoints with `FI_COLLECTIVE` leave it out of `fi_ep_attr::mem_tag_format`.
//!
//! A message is identified by its group, by the number of its operation in the order of the group's
//! operations, and by its source, from which a directed receive takes it. Messages of an operation
//! between two members are received in the order in which they are sent (`FI_ORDER_SAS`).
//!
//! The layout is part of docs/collectives-wire.md.

use prov_util::collective::RESERVED_TAG;

/// Bits of a tag that number the operations of a group, modulo 65,536.
const NUMBER_BITS: u32 = 16;
/// Bits of a tag that identify a group: the others but the reserved one and the lowest one
/// ([`FAILURE`]).
const GROUP_BITS: u32 = 46;
const _: () = assert!(NUMBER_BITS + GROUP_BITS + 1 == 63);

/// Set in the tag of a failure notification.
const FAILURE: u64 = 1;

/// The number of a group in its tags.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct GroupId(u64);

impl GroupId {
    /// Returns the id under which the `instance`th group of these members is joined. Anybody who
    /// knows the members' addresses can compute it.
    pub fn of(identity: u64, instance: u64) -> Self {
        // An odd multiplier spreads the instances over all bits.
        let mixed = identity ^ instance.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        GroupId(mixed & ((1 << GROUP_BITS) - 1))
    }

    /// Returns the id of the group after its members have agreed on a random number.
    pub fn agreed(self, number: u64) -> Self {
        GroupId((self.0 ^ number) & ((1 << GROUP_BITS) - 1))
    }

    fn tag(self, number: u16) -> u64 {
        let group = self.0 << (NUMBER_BITS + 1);
        RESERVED_TAG | group | u64::from(number) << 1
    }

    /// Returns the tag of messages of the group's operation with this number.
    pub fn message(self, number: u16) -> u64 {
        self.tag(number)
    }

    /// Returns a tag, and the bits of it that a receive ignores, for all messages of the group.
    pub fn any_message(self) -> (u64, u64) {
        (self.tag(0), u64::from(u16::MAX) << 1 | FAILURE)
    }

    /// Returns the tag of the failure notification.
    pub fn failure(self) -> u64 {
        self.tag(0) | FAILURE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_differ_by_group_and_operation() {
        let (one, other) = (GroupId::of(7, 0), GroupId::of(7, 1));
        let tags = [
            one.message(0),
            one.message(1),
            one.message(u16::MAX),
            one.failure(),
            other.message(0),
            other.failure(),
        ];
        for (at, tag) in tags.iter().enumerate() {
            assert_ne!(tag & RESERVED_TAG, 0);
            assert!(!tags[..at].contains(tag), "{at}");
        }
    }

    #[test]
    fn the_id_that_members_agree_on_has_the_bits_of_the_number() {
        let public = GroupId::of(7, 3);
        let number = 0x3fff_1234_5678_9abc;
        let agreed = public.agreed(number);
        assert_ne!(agreed.message(0) >> 17, public.message(0) >> 17);
        assert_eq!(agreed.agreed(number), public);
        // The reserved bit and the number of the operation stay what they are.
        assert_eq!(
            agreed.message(5) & !(((1 << 46) - 1) << 17),
            public.message(5) & !(((1 << 46) - 1) << 17)
        );
    }

    #[test]
    fn a_receive_of_any_message_takes_those_of_its_group_alone() {
        let (one, other) = (GroupId::of(7, 0), GroupId::of(7, 1));
        let (tag, ignore) = one.any_message();
        let takes = |other: u64| (other ^ tag) & !ignore == 0;
        assert!(takes(one.message(0)) && takes(one.message(1)) && takes(one.message(u16::MAX)));
        assert!(takes(one.failure()));
        assert!(!takes(other.message(0)) && !takes(other.failure()));
    }
}
