//! Memory of tests.

use std::sync::Mutex;
use std::sync::atomic::AtomicPtr;

use prov_base::buffer::AppIov;

/// The memory of all places, so that tools which look for leaks find it.
static KEPT: Mutex<Vec<AtomicPtr<u8>>> = Mutex::new(Vec::new());

/// Memory that operations use. It stays until the process ends, whatever becomes of the operations, so
/// that a test which fails in the middle of one leaves no endpoint with memory that is gone.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    first: *mut u8,
    len: usize,
}

impl Place {
    /// Memory with these bytes.
    pub fn of(bytes: &[u8]) -> Place {
        let bytes = Box::leak(Box::<[u8]>::from(bytes));
        let (first, len) = (bytes.as_mut_ptr(), bytes.len());
        KEPT.lock().unwrap().push(AtomicPtr::new(first));
        Place { first, len }
    }

    /// Memory of this length in bytes, with bytes that no [`Place::pattern`] begins with.
    pub fn empty(len: usize) -> Place {
        Place::of(&vec![0xee; len])
    }

    /// Memory with bytes that follow from a number.
    pub fn pattern(number: usize, len: usize) -> Place {
        let bytes: Vec<u8> = (0..len).map(|at| byte(number, at)).collect();
        Place::of(&bytes)
    }

    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// What it contains. No operation may be writing to it.
    pub fn bytes(&self) -> Vec<u8> {
        // SAFETY: the memory is never freed.
        (0..self.len)
            .map(|at| unsafe { self.first.add(at).read() })
            .collect()
    }

    /// Whether it begins with the first `len` bytes of a pattern.
    pub fn has(&self, number: usize, len: usize) -> bool {
        let bytes = self.bytes();
        bytes.len() >= len
            && bytes
                .iter()
                .take(len)
                .enumerate()
                .all(|(at, is)| *is == byte(number, at))
    }

    /// Overwrites it. No operation may be using it.
    pub fn fill(&self, with: u8) {
        // SAFETY: the memory is never freed.
        unsafe { self.first.write_bytes(with, self.len) };
    }

    /// The part from `offset` on, with this length.
    pub fn part(&self, offset: usize, len: usize) -> Place {
        assert!(offset + len <= self.len);
        Place {
            first: self.first.wrapping_add(offset),
            len,
        }
    }

    /// The memory for an operation.
    pub fn lend(&self) -> AppIov {
        // SAFETY: the memory is never freed, and references to it do not exist.
        unsafe { AppIov::from_raw(self.first, self.len) }
    }
}

fn byte(number: usize, at: usize) -> u8 {
    (number * 31 + at * 7 + at / 251) as u8
}
