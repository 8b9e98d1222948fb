//! What a peer's access to registered memory costs at its target: finding the
//! region, writing 8 bytes, telling the counters; and what closing a region
//! costs that others are accessing.
//!
//!     cargo run --release -p prov-objects --example mr_access [ACCESSES [THREADS]]

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::unreachable,
    reason = "what goes wrong ends the example"
)]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use fabric_abi::{FI_REMOTE_READ, FI_REMOTE_WRITE};
use prov_objects::mr::{Accessor, Config, Grants, Job, Memory, MrTable, Request};

const REMOTE: u64 = FI_REMOTE_READ | FI_REMOTE_WRITE;

fn main() {
    let number = |position, default| {
        let argument = std::env::args().nth(position);
        argument.map_or(default, |text| text.parse().expect("a number"))
    };
    let (accesses, threads) = (number(1, 10_000_000), number(2, 1));
    let table = MrTable::new(&Config::default());
    let mut memory = vec![0u8; 4096];
    for key in 0..1000 {
        register(&table, &mut memory, key);
    }
    let begin = Instant::now();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..threads)
            .map(|_| scope.spawn(|| write(&mut table.accessor(), accesses)))
            .collect();
        if std::env::args().nth(3).is_some() {
            scope.spawn(|| register_and_close(&table, &done));
        }
        for writer in writers {
            writer.join().expect("no panic");
        }
        let each = begin.elapsed().as_nanos() as f64 / accesses as f64;
        println!("{each:.1} ns per write of {threads} thread(s)");
        done.store(true, Ordering::Relaxed);
    });
}

fn register(
    table: &MrTable,
    memory: &mut [u8],
    key: u64,
) -> std::sync::Arc<prov_objects::mr::Region> {
    let iov = libc::iovec {
        iov_base: memory.as_mut_ptr().cast(),
        iov_len: memory.len(),
    };
    // SAFETY: the memory lives as long as the table that refers to it.
    let memory = unsafe { Memory::new(&[iov]) }.expect("one piece");
    let region = table.register(Request::new(memory, REMOTE, key));
    region.expect("a key of its own")
}

fn write(accessor: &mut Accessor, accesses: usize) {
    for access in 0..accesses {
        let mut grants = Grants::default();
        let key = (access % 1000) as u64;
        let grant = accessor.resolve(key, 64, 8, FI_REMOTE_WRITE, Job::NONE);
        grants.push(grant.expect("registered"));
        grants.write_at(accessor, 0, &access.to_ne_bytes());
        grants.complete(accessor);
    }
}

fn register_and_close(table: &MrTable, done: &AtomicBool) {
    let mut memory = vec![0u8; 64];
    let (begin, mut count) = (Instant::now(), 0);
    while !done.load(Ordering::Relaxed) {
        let region = register(table, &mut memory, 5000);
        table.close(&region).expect("no device objects");
        count += 1;
    }
    let each = begin.elapsed().as_nanos() as f64 / f64::from(count);
    println!("{each:.0} ns per registration and closing");
}
