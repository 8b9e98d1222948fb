//! What a peer costs in an address vector: bytes of memory, and nanoseconds to
//! insert it and to find it again, at a number of peers given as the first
//! argument (a million by default).
//!
//!     cargo run --release -p prov-util --example av_scale

use std::alloc::{GlobalAlloc, Layout, System};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use prov_util::av::{Av, Config, Insertion};

/// Counts the bytes that are allocated.
struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() {
    let peers: u32 = std::env::args()
        .nth(1)
        .and_then(|count| count.parse().ok())
        .unwrap_or(1_000_000);
    println!("family  peers      bytes/peer  insert ns  insert-by-8 ns  find ns  lookup ns");
    measure("IPv4", peers, |n| {
        SocketAddr::new(
            Ipv4Addr::from_bits(0x0a00_0001 + n / 8).into(),
            7000 + (n % 8) as u16,
        )
    });
    measure("IPv6", peers, |n| {
        let ip = Ipv6Addr::from_bits((0xfd << 120) + u128::from(n / 8) + 1);
        SocketAddr::new(ip.into(), 7000 + (n % 8) as u16)
    });
}

fn measure(family: &str, peers: u32, addr: impl Fn(u32) -> SocketAddr) {
    let per_peer = |start: Instant| start.elapsed().as_nanos() as f64 / f64::from(peers);
    let before = LIVE.load(Ordering::Relaxed);
    let av = Av::open(&Config::default()).expect("a private vector always opens");
    let start = Instant::now();
    for n in 0..peers {
        av.insert([Insertion::from(addr(n))], |_, _| ())
            .expect("a private vector takes addresses");
    }
    let insert = per_peer(start);
    let bytes = (LIVE.load(Ordering::Relaxed) - before) as f64 / f64::from(peers);
    assert_eq!(av.len(), peers as usize);

    let start = Instant::now();
    let found = (0..peers)
        .filter(|&n| av.find(&addr(n)) == Some(n.into()))
        .count();
    let find = per_peer(start);
    assert_eq!(found, peers as usize);

    let start = Instant::now();
    let known = (0..peers)
        .filter(|&n| av.lookup(n.into()).is_some())
        .count();
    let lookup = per_peer(start);
    assert_eq!(known, peers as usize);
    drop(av);

    let av = Av::open(&Config::default()).expect("a private vector always opens");
    let start = Instant::now();
    for n in (0..peers).step_by(8) {
        let several = (n..n + 8).map(|n| Insertion::from(addr(n)));
        av.insert(several, |_, _| ())
            .expect("a private vector takes addresses");
    }
    let several = per_peer(start);
    println!(
        "{family}    {peers:<10} {bytes:<11.1} {insert:<10.0} {several:<15.0} {find:<8.0} {lookup:.0}"
    );
}
