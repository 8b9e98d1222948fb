//! The members of a lane, by names that the ids of work requests contain.

use prov_base::errno::{Errno, Result};

/// Number of bits of a request's number within its member.
pub const NUMBER_BITS: u32 = 24;
/// Number of bits of a member's index.
const PLACE_BITS: u32 = 20;
/// Number of bits that distinguish a member from previous ones with the same index.
const GENERATION_BITS: u32 = 18;
/// Mask of the number of a request within its member.
pub const NUMBER_MASK: u32 = (1 << NUMBER_BITS) - 1;

/// Set in the id of a receive request.
pub const RECEIVE: u64 = 1 << 62;
/// Set in the id of a request in a shared queue.
pub const SHARED: u64 = 1 << 63;

const _: () = assert!(NUMBER_BITS + PLACE_BITS + GENERATION_BITS == 62);

/// Set in the id of a request in a shared queue with a number, which the id contains instead of a
/// member's name.
pub const NUMBERED: u64 = 1 << 61;

/// Names a member of a lane; not reused after it has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Name {
    place: u32,
    generation: u32,
}

impl Name {
    /// Returns the id of a request of the member.
    #[inline(always)]
    pub fn request(self, number: u32) -> u64 {
        let (place, generation) = (u64::from(self.place), u64::from(self.generation));
        let member = place | generation << PLACE_BITS;
        member << NUMBER_BITS | u64::from(number & NUMBER_MASK)
    }

    /// Returns the id of a receive request of the member.
    #[inline(always)]
    pub fn receive(self, number: u32) -> u64 {
        self.request(number) | RECEIVE
    }

    /// Returns the member of a request.
    #[inline(always)]
    pub fn of_request(id: u64) -> Self {
        let member = id >> NUMBER_BITS;
        Name {
            place: member as u32 & ((1 << PLACE_BITS) - 1),
            generation: (member >> PLACE_BITS) as u32 & ((1 << GENERATION_BITS) - 1),
        }
    }
}

/// Members of one kind.
pub struct Members<T> {
    places: Vec<MemberSlot<T>>,
    free: Vec<u32>,
}

struct MemberSlot<T> {
    generation: u32,
    member: Option<T>,
}

impl<T> Default for Members<T> {
    fn default() -> Self {
        Members {
            places: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T> Members<T> {
    /// Adds a member. `-FI_ENOSPC` if there are too many.
    pub fn add(&mut self, member: T) -> Result<Name> {
        let place = match self.free.pop() {
            Some(place) => place,
            None if self.places.len() >> PLACE_BITS == 0 => {
                self.places.push(MemberSlot {
                    generation: 0,
                    member: None,
                });
                self.places.len() as u32 - 1
            }
            None => return Err(Errno::ENOSPC),
        };
        let at = self.places.get_mut(place as usize).ok_or(Errno::ENOSPC)?;
        at.member = Some(member);
        Ok(Name {
            place,
            generation: at.generation,
        })
    }

    /// Returns the member with this name.
    #[inline(always)]
    pub fn get(&mut self, name: Name) -> Option<&mut T> {
        let place = self.places.get_mut(name.place as usize)?;
        match place.generation == name.generation {
            true => place.member.as_mut(),
            false => None,
        }
    }

    /// Removes a member.
    pub fn remove(&mut self, name: Name) -> Option<T> {
        let place = self.places.get_mut(name.place as usize)?;
        if place.generation != name.generation {
            return None;
        }
        let member = place.member.take()?;
        place.generation = (place.generation + 1) & ((1 << GENERATION_BITS) - 1);
        self.free.push(name.place);
        Some(member)
    }

    /// Returns all members.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        let places = self.places.iter_mut();
        places.filter_map(|place| place.member.as_mut())
    }

    /// Returns all members.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.places.iter().filter_map(|place| place.member.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_identifies_its_sender() {
        let mut members = Members::default();
        let names: Vec<_> = (0..300)
            .map(|number| members.add(number).unwrap())
            .collect();
        for (number, &name) in names.iter().enumerate() {
            for request in [0, 1, NUMBER_MASK] {
                let id = name.request(request);
                for flags in [0, RECEIVE, SHARED] {
                    assert_eq!(Name::of_request(id | flags), name);
                }
                assert_eq!(id as u32 & NUMBER_MASK, request);
            }
            assert_eq!(members.get(name), Some(&mut number.clone()));
        }
    }

    #[test]
    fn a_member_that_has_left_is_not_found_at_a_reused_index() {
        let mut members = Members::default();
        let first = members.add('a').unwrap();
        assert_eq!(members.remove(first), Some('a'));
        assert_eq!(members.remove(first), None);
        let second = members.add('b').unwrap();
        assert_eq!(members.get(first), None);
        assert_eq!(members.remove(first), None);
        assert_eq!(members.get(second), Some(&mut 'b'));
        assert_eq!(members.iter().collect::<Vec<_>>(), [&'b']);
    }
}
