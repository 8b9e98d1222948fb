//! Proof of a shared key, in both directions, before a connection request.
//!
//! Each side sends a fresh random number and proves with a keyed hash (HMAC-SHA-256) of both
//! numbers and its own role that it has the key. This authenticates the beginning of the
//! connection: later data is neither encrypted nor protected against change on the way.

use std::sync::Arc;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::handshake::{Features, Kind, Message};

/// Size of a random number in bytes: that of the hash, so that guessing a number is as hard as
/// guessing a proof.
pub const NONCE: usize = 32;
/// Size of a proof in bytes, which is an HMAC-SHA-256.
pub const PROOF: usize = 32;

/// A fresh random number.
pub type Nonce = [u8; NONCE];

/// A shared secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(Arc<[u8]>);

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(..)")
    }
}

/// The side that proves.
#[derive(Clone, Copy)]
enum Role {
    Connecting,
    Listening,
}

impl Key {
    /// Creates a key of these bytes; `None` if there are none.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        (!bytes.is_empty()).then(|| Key(bytes.into()))
    }

    /// The secret itself.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn hash(&self, role: Role, connecting: &Nonce, listening: &Nonce) -> Option<Hmac<Sha256>> {
        // The hash accepts keys of any length.
        let mut hash = Hmac::<Sha256>::new_from_slice(&self.0).ok()?;
        hash.update(match role {
            Role::Connecting => b"fi_tcp connecting",
            Role::Listening => b"fi_tcp listening.",
        });
        hash.update(connecting);
        hash.update(listening);
        Some(hash)
    }

    fn prove(&self, role: Role, connecting: &Nonce, listening: &Nonce) -> Vec<u8> {
        self.hash(role, connecting, listening)
            .map(|hash| hash.finalize().into_bytes().to_vec())
            .unwrap_or_default()
    }

    fn verify(&self, role: Role, connecting: &Nonce, listening: &Nonce, proof: &[u8]) -> bool {
        self.hash(role, connecting, listening)
            .is_some_and(|hash| hash.verify_slice(proof).is_ok())
    }

    /// Returns the first message of the side that connects.
    pub fn hello(nonce: &Nonce) -> Message {
        Message::new(Kind::Hello, Features::default(), 0, nonce)
    }

    /// Returns the answer of the side that listens; `None` if the message is not a hello.
    pub fn challenge(&self, hello: &Message, nonce: &Nonce) -> Option<(Message, Nonce)> {
        let theirs: Nonce = hello.data.as_slice().try_into().ok()?;
        let mut data = nonce.to_vec();
        data.extend(self.prove(Role::Listening, &theirs, nonce));
        let message = Message::new(Kind::Challenge, Features::default(), 0, &data);
        Some((message, theirs))
    }

    /// Returns the proof of the side that connects; `None` if the other side did not prove that it
    /// has the key.
    pub fn proof(&self, challenge: &Message, nonce: &Nonce) -> Option<Message> {
        let (theirs, proof) = challenge.data.split_first_chunk::<NONCE>()?;
        if !self.verify(Role::Listening, nonce, theirs, proof) {
            return None;
        }
        let data = self.prove(Role::Connecting, nonce, theirs);
        Some(Message::new(Kind::Proof, Features::default(), 0, &data))
    }

    /// Whether the side that connects has proved that it has the key.
    pub fn accepts(&self, proof: &Message, theirs: &Nonce, ours: &Nonce) -> bool {
        self.verify(Role::Connecting, theirs, ours, &proof.data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Nonce = [1; NONCE];
    const B: Nonce = [2; NONCE];

    #[test]
    fn two_sides_with_one_key_convince_each_other() {
        let key = Key::new(b"secret").unwrap();
        let (challenge, theirs) = key.challenge(&Key::hello(&A), &B).unwrap();
        let proof = key.proof(&challenge, &A).unwrap();
        assert!(key.accepts(&proof, &theirs, &B));
    }

    #[test]
    fn another_key_convinces_neither_side() {
        let (key, other) = (Key::new(b"secret").unwrap(), Key::new(b"Secret").unwrap());
        let (challenge, theirs) = other.challenge(&Key::hello(&A), &B).unwrap();
        assert!(key.proof(&challenge, &A).is_none());
        let proof = other.proof(&challenge, &A).unwrap();
        assert!(!key.accepts(&proof, &theirs, &B));
    }

    #[test]
    fn a_proof_is_not_valid_for_another_connection() {
        let key = Key::new(b"secret").unwrap();
        let (challenge, _) = key.challenge(&Key::hello(&A), &B).unwrap();
        let proof = key.proof(&challenge, &A).unwrap();
        assert!(!key.accepts(&proof, &A, &[3; NONCE]));
        assert!(key.proof(&challenge, &[3; NONCE]).is_none());
        // A proof of the other side is not accepted when it is sent back either.
        let echo = Message::new(
            Kind::Proof,
            Features::default(),
            0,
            &challenge.data[NONCE..],
        );
        assert!(!key.accepts(&echo, &A, &B));
    }

    #[test]
    fn numbers_of_the_wrong_length_are_refused() {
        let key = Key::new(b"secret").unwrap();
        let hello = Message::new(Kind::Hello, Features::default(), 0, &[1; 31]);
        assert!(key.challenge(&hello, &B).is_none());
        let short = Message::new(Kind::Challenge, Features::default(), 0, &[1; 31]);
        assert!(key.proof(&short, &A).is_none());
    }
}
