//! What a peer costs in an address vector: bytes of memory, and nanoseconds to
//! insert it and to find it again, at a number of peers given as the first
//! argument (a million by default).
//!
//!     cargo run --release -p prov-objects --example av_scale

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::unreachable,
    reason = "what goes wrong ends the example"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use prov_objects::av::format::{Address, Format};
use prov_objects::av::{Av, Config, Insertion};

/// Counts the bytes that are allocated.
struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is forwarded to the system's allocator, which keeps the contract of the trait.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of this function, which is that of the system's
        // allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of this function, which is that of the system's
        // allocator.
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
    println!("format  peers      bytes/peer  insert ns  find ns  lookup ns");
    measure("IPv4", peers, Format::IP, |n, use_it| {
        let ip = Ipv4Addr::from_bits(0x0a00_0001 + n / 8);
        use_it(SocketAddr::new(ip.into(), 7000 + (n % 8) as u16).into())
    });
    measure("IPv6", peers, Format::IP, |n, use_it| {
        let ip = Ipv6Addr::from_bits((0xfd << 120) + u128::from(n / 8) + 1);
        use_it(SocketAddr::new(ip.into(), 7000 + (n % 8) as u16).into())
    });
    measure("GID", peers, Format::fixed(0, 16), |n, use_it| {
        use_it(Address::Bytes(&u128::from(n).to_be_bytes()))
    });
    measure("text", peers, Format::text(64), |n, use_it| {
        use_it(Address::Bytes(format!("fi_shm://{n}:1000:0").as_bytes()))
    });
}

/// `addr` passes the address of a number on.
fn measure(
    name: &str,
    peers: u32,
    format: Format,
    addr: impl Fn(u32, &mut dyn FnMut(Address<'_>)),
) {
    let open = || {
        let config = Config {
            format,
            ..Config::default()
        };
        Av::open(&config).expect("a private vector always opens")
    };
    let per_peer = |start: Instant| start.elapsed().as_nanos() as f64 / f64::from(peers);
    let before = LIVE.load(Ordering::Relaxed);
    let av = open();
    let start = Instant::now();
    for n in 0..peers {
        addr(n, &mut |addr| {
            av.insert([Insertion::from(addr)], |_, _| ())
                .expect("a private vector takes addresses");
        });
    }
    let insert = per_peer(start);
    let bytes = (LIVE.load(Ordering::Relaxed) - before) as f64 / f64::from(peers);
    assert_eq!(av.len(), peers as usize);

    let start = Instant::now();
    let mut found = 0;
    for n in 0..peers {
        addr(n, &mut |addr| {
            found += u32::from(match addr {
                Address::Internet(addr) => av.find(&addr) == Some(n.into()),
                Address::Bytes(_) => av.find_address(addr) == Some(n.into()),
            });
        });
    }
    let find = per_peer(start);
    assert_eq!(found, peers);

    let start = Instant::now();
    let known = (0..peers)
        .filter(|&n| av.with_address(n.into(), |_| ()).is_some())
        .count();
    let lookup = per_peer(start);
    assert_eq!(known, peers as usize);
    println!("{name:<7} {peers:<10} {bytes:<11.1} {insert:<10.0} {find:<8.0} {lookup:.0}");
}
