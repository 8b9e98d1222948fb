//! Models of relocated payloads: RUSTFLAGS="--cfg loom" cargo test -p prov-local --lib loom_tests

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

use super::*;

/// A table, and the memory of a sender: that of the application for two messages, and of copies. It is
/// copied by the kernel, concurrently with any access: plain memory is words that are accessed
/// without any order.
struct Shared {
    table: Table,
    memory: [AtomicU64; 4],
}

/// Addresses of the two copies; those of the application's memory are 0 and 1.
const COPIES: [u64; 2] = [2, 3];

fn shared() -> Arc<Shared> {
    Arc::new(Shared {
        table: Table::empty(),
        memory: std::array::from_fn(|_| AtomicU64::new(0)),
    })
}

impl Shared {
    fn write(&self, addr: u64, value: u64) {
        self.memory[addr as usize].store(value, Ordering::Relaxed);
    }

    fn read(&self, addr: u64) -> u64 {
        self.memory[addr as usize].load(Ordering::Relaxed)
    }

    /// Fetches a payload as the receiver does.
    fn fetch(&self, name: u64, offered: u64) -> u64 {
        if let Some(addr) = self.table.find(name) {
            return self.read(addr);
        }
        let value = self.read(offered);
        match self.table.find(name) {
            Some(addr) => self.read(addr),
            None => value,
        }
    }
}

fn model(run: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(run);
}

#[test]
fn the_receiver_gets_the_payload_whenever_it_is_relocated() {
    model(|| {
        let shared = shared();
        shared.write(0, 11);
        let there = shared.clone();
        let receiver = thread::spawn(move || assert_eq!(there.fetch(1, 0), 11));
        let mut entries = Entries::default();
        shared.write(COPIES[0], shared.read(0));
        assert!(entries.publish(&shared.table, 1, COPIES[0]));
        // The application writes its next message.
        shared.write(0, 99);
        receiver.join().unwrap();
    });
}

#[test]
fn entries_that_come_and_go_do_not_hide_another_one() {
    model(|| {
        let shared = shared();
        shared.write(0, 11);
        shared.write(1, 22);
        let mut entries = Entries::default();
        shared.write(COPIES[0], 11);
        assert!(entries.publish(&shared.table, 1, COPIES[0]));
        shared.write(0, 99);
        let there = shared.clone();
        let receiver = thread::spawn(move || assert_eq!(there.fetch(2, 1), 22));
        // The receiver had the first payload before, and the second one is relocated.
        entries.withdraw(&shared.table, 1);
        shared.write(COPIES[1], 22);
        assert!(entries.publish(&shared.table, 2, COPIES[1]));
        shared.write(1, 99);
        assert!(entries.publish(&shared.table, 3, COPIES[0]));
        receiver.join().unwrap();
        entries.withdraw(&shared.table, 2);
    });
}
