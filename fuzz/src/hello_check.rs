//! The properties of reading what connects XRC endpoints of verbs, for arbitrary bytes of a peer.
//! Shared by the fuzz target and the provider's tests, which have the structure in scope.

use super::{DATA_LIMIT, Hello, SIZE};

pub fn check(message: &[u8]) {
    let Ok((hello, data)) = Hello::of(message) else {
        return;
    };
    assert!(data.len() <= message.len() - SIZE);
    assert!(hello.target < 1 << 24 && hello.queue < 1 << 24);
    let again = hello.with(data);
    let (same, rest) = Hello::of(&again).expect("what was written is read");
    assert_eq!(same, hello);
    if !hello.is_reciprocal {
        assert_eq!(rest, &data[..data.len().min(DATA_LIMIT)]);
    }
}
