//! Shared tables: between openers, between processes, under hostile changes.

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Command, Stdio};

use super::super::entry::{AddressSlot, V4Entry};
use super::*;

/// A name that no other test and no earlier run uses.
fn fresh() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("test/{}:{n}", std::process::id())
}

fn name(name: &str, read_only: bool) -> Name<'_> {
    Name {
        name,
        domain: "lo",
        read_only,
        count: 0,
    }
}

fn records() -> Records {
    Records {
        size: V4Entry::SIZE,
        format: fabric_abi::FI_SOCKADDR_IN,
        ignored: 0..0,
    }
}

fn open(called: &str) -> Shared {
    Shared::open(&name(called, false), records()).unwrap()
}

fn addr(n: u32) -> SocketAddr {
    SocketAddr::new(Ipv4Addr::from_bits(0x0a00_0001 + n).into(), 7)
}

fn record(n: u32) -> Vec<u8> {
    let mut record = vec![0; V4Entry::SIZE];
    V4Entry::pack(&addr(n)).unwrap().encode(&mut record);
    record
}

fn insert(table: &Shared, numbers: impl Iterator<Item = u32>) -> Vec<Result<u32>> {
    let mut indices = Vec::new();
    table
        .insert(numbers.map(|n| Ok(record(n))), |index| indices.push(index))
        .unwrap();
    indices
}

fn address_at(table: &Shared, index: u32) -> Option<SocketAddr> {
    V4Entry::decode(&table.get(index)?)?.unpack()
}

#[test]
fn an_entry_that_one_process_inserts_is_found_by_the_other() {
    let called = fresh();
    let (a, b) = (open(&called), open(&called));
    assert_eq!(insert(&a, 0..3), [Ok(0), Ok(1), Ok(2)]);
    assert_eq!(insert(&b, 2..5), [Ok(2), Ok(3), Ok(4)]);
    assert_eq!((a.len(), b.len()), (5, 5));
    for n in 0..5 {
        assert_eq!(a.find(&record(n)), Some(n));
        assert_eq!(address_at(&b, n), Some(addr(n)));
    }
    assert_eq!(a.find(&record(9)), None);
    assert_eq!(address_at(&a, 5), None);
}

#[test]
fn an_entry_that_one_removes_is_not_found_by_the_other() {
    let called = fresh();
    let (a, b) = (open(&called), open(&called));
    insert(&a, 0..10);
    assert_eq!(b.find(&record(4)), Some(4));
    a.remove(4).unwrap();
    assert_eq!(a.remove(4), Err(Errno::EINVAL));
    assert_eq!(b.remove(10), Err(Errno::EINVAL));
    assert_eq!(b.find(&record(4)), None);
    assert_eq!(address_at(&b, 4), None);
    assert_eq!(insert(&b, 50..52), [Ok(4), Ok(10)]);
    assert_eq!(a.find(&record(50)), Some(4));
    assert_eq!(a.len(), 11);
}

#[test]
fn a_table_grows_beyond_the_size_of_one_read() {
    let called = fresh();
    let (a, b) = (open(&called), open(&called));
    let count = 3 * CHUNK as u32 / 8 + 5;
    insert(&a, 0..count);
    assert_eq!(b.len(), count as usize);
    assert_eq!(b.find(&record(count - 1)), Some(count - 1));
}

#[test]
fn readers_need_a_table_and_cannot_write() {
    let called = fresh();
    let missing = Shared::open(&name(&called, true), records());
    assert_eq!(missing.err(), Some(Errno::ENOENT));
    let writer = open(&called);
    insert(&writer, 0..2);
    let reader = Shared::open(&name(&called, true), records()).unwrap();
    assert_eq!(reader.find(&record(1)), Some(1));
    assert_eq!(
        reader.insert(std::iter::empty(), |_| ()),
        Err(Errno::EACCES)
    );
    assert_eq!(reader.remove(0), Err(Errno::EACCES));
}

#[test]
fn the_last_one_out_removes_the_files() {
    let called = fresh();
    let path = path_of(&name(&called, false)).unwrap();
    let a = open(&called);
    let b = open(&called);
    drop(a);
    assert!(path.exists() && map_path(&path).exists());
    drop(b);
    assert!(!path.exists() && !map_path(&path).exists());
}

/// Runs `child` in a forked child, and `parent` while that is there.
fn forked(child: impl FnOnce(), parent: impl FnOnce()) {
    // Other children have these pipes, too: bytes say what the end would not.
    let (mut far, mut near) = std::io::pipe().unwrap();
    let (mut done, mut is_done) = std::io::pipe().unwrap();
    // SAFETY: the child runs the test's closure, which takes no lock that another thread may hold,
    // and ends without unwinding.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: alarm(2) accepts any number, and ends the child if the parent fails.
        unsafe { libc::alarm(60) };
        child();
        let told = is_done.write(&[0]).is_ok() && far.read_exact(&mut [0]).is_ok();
        // SAFETY: _exit(2) accepts any status, and ends the child only.
        unsafe { libc::_exit(i32::from(!told)) };
    }
    done.read_exact(&mut [0]).unwrap();
    parent();
    near.write_all(&[0]).unwrap();
    let mut status = 0;
    // SAFETY: the process is the child that was created above, and `status` is writable.
    assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
    assert_eq!(status, 0);
}

#[test]
fn a_forked_child_does_not_keep_the_files() {
    let called = fresh();
    let path = path_of(&name(&called, false)).unwrap();
    let (a, b) = (open(&called), open(&called));
    forked(
        || {},
        || {
            drop(a);
            assert!(path.exists());
            drop(b);
            assert!(!path.exists() && !map_path(&path).exists());
        },
    );
}

#[test]
fn a_forked_child_that_closes_its_vectors_leaves_the_files_to_its_parent() {
    let called = fresh();
    let path = path_of(&name(&called, false)).unwrap();
    let a = open(&called);
    forked(
        || drop(a),
        || assert!(path.exists() && map_path(&path).exists()),
    );
}

#[test]
fn a_file_that_others_have_planted_under_the_name_is_refused() {
    let refused = |called: &str| {
        for read_only in [true, false] {
            let opened = Shared::open(&name(called, read_only), records());
            assert_eq!(opened.err(), Some(Errno::EACCES));
        }
    };
    let called = fresh();
    let path = path_of(&name(&called, false)).unwrap();
    // It must not wait for the other end.
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, &path, kind, 0o600.into(), 0).unwrap();
    refused(&called);
    std::fs::remove_file(&path).unwrap();
    // A whole table, but of another user.
    let table = open(&called);
    insert(&table, 0..3);
    if std::os::unix::fs::chown(&path, Some(65534), None).is_ok() {
        refused(&called);
    } else {
        println!("skipped: only root can give files away");
    }
}

#[test]
fn a_writer_that_was_stopped_does_not_hold_up_others_for_ever() {
    let called = fresh();
    let (a, b) = (open(&called), open(&called));
    insert(&a, 0..3);
    let stopped = WriteLock::take(&a.file).unwrap();
    let inserted = b.insert([Ok(record(9))].into_iter(), |_| {});
    assert_eq!(inserted.err(), Some(Errno::EAGAIN));
    assert_eq!((b.len(), b.find(&record(2))), (3, Some(2)));
    drop(stopped);
    assert_eq!(insert(&b, 9..10), [Ok(3)]);
}

#[test]
fn each_table_has_an_array_of_its_own() {
    let (called, other) = (fresh(), fresh());
    let (a, b) = (open(&called), open(&other));
    insert(&a, 0..3);
    let arrays = [&called, &other].map(|of| map_path(&path_of(&name(of, false)).unwrap()));
    assert_ne!(arrays[0], arrays[1]);
    drop(b);
    assert!(arrays[0].exists() && !arrays[1].exists());
}

#[test]
fn domains_have_tables_of_their_own() {
    let called = fresh();
    let a = open(&called);
    let other = Name {
        domain: "eth0",
        ..name(&called, false)
    };
    let b = Shared::open(&other, records()).unwrap();
    insert(&a, 0..3);
    assert_eq!(b.len(), 0);
}

#[test]
fn names_are_no_paths() {
    let path = path_of(&name("../../etc/passwd", false)).unwrap();
    assert_eq!(path.parent(), Some(Path::new("/dev/shm")));
    let long = "x".repeat(300);
    assert_eq!(path_of(&name(&long, false)), Err(Errno::EINVAL));
    assert_eq!(path_of(&name("", false)), Err(Errno::EINVAL));
}

#[test]
fn a_table_of_another_kind_is_refused() {
    let called = fresh();
    let _v4 = open(&called);
    for other in [
        Records {
            size: 28,
            ..records()
        },
        Records {
            format: fabric_abi::FI_ADDR_OPX,
            ..records()
        },
    ] {
        let opened = Shared::open(&name(&called, false), other);
        assert_eq!(opened.err(), Some(Errno::EINVAL));
    }
}

#[test]
fn bytes_that_are_ignored_make_no_other_peer() {
    let called = fresh();
    let records = Records {
        size: 6,
        format: 0,
        ignored: 2..4,
    };
    let table = Shared::open(&name(&called, false), records).unwrap();
    let mut indices = Vec::new();
    let inserted = [b"1a__b2", b"1axxb2", b"1a__c2"].map(|record| Ok(record.to_vec()));
    table
        .insert(inserted.into_iter(), |index| indices.push(index))
        .unwrap();
    assert_eq!(indices, [Ok(0), Ok(0), Ok(1)]);
    assert_eq!(table.get(0).as_deref(), Some(&b"1a__b2"[..]));
}

#[test]
fn whatever_stands_in_the_file_is_no_reason_to_fault() {
    let called = fresh();
    let table = open(&called);
    insert(&table, 0..100);
    let path = path_of(&name(&called, false)).unwrap();
    let file = OpenOptions::new().write(true).open(&path).unwrap();

    let huge = Header {
        slots: u64::MAX,
        epoch: 77,
    };
    file.write_all_at(&huge.encode(&records()), 0).unwrap();
    assert_eq!(address_at(&table, CAPACITY as u32 - 1), None);
    assert_eq!(table.find(&record(5)), None);
    assert!(
        table
            .insert(std::iter::once(Ok(record(5))), |_| ())
            .is_err()
    );

    file.write_all_at(&[0xff; 4096], 0).unwrap();
    assert_eq!(table.get(0).map(|_| ()), None);
    assert_eq!(table.len(), 0);
    file.set_len(0).unwrap();
    assert_eq!(table.get(0).map(|_| ()), None);
    assert!(table.remove(0).is_err());

    let other = Shared::open(&name(&called, true), records());
    assert!(other.is_err());
}

#[test]
fn random_slots_are_addresses_or_free() {
    let called = fresh();
    let table = open(&called);
    insert(&table, 0..100);
    let path = path_of(&name(&called, false)).unwrap();
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    let noise: Vec<u8> = (0..800u32)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect();
    file.write_all_at(&noise, FIRST_SLOT).unwrap();
    let late = open(&called);
    for index in 0..100 {
        let _ = address_at(&late, index);
    }
    let fresh_index = insert(&late, 1000..1001)[0].unwrap();
    assert_eq!(late.find(&record(1000)), Some(fresh_index));
}

#[test]
fn the_array_maps_insertion_order_to_numbers() {
    let called = fresh();
    let table = open(&called);
    insert(&table, 0..70);
    let reader = Shared::open(&name(&called, true), records()).unwrap();
    for at in [table.map_addr(), reader.map_addr()] {
        assert_ne!(at, 0);
        let array = at as *const u64;
        for n in 0..70usize {
            // SAFETY: the array is mapped as long as its table is open, and has 65536 entries.
            assert_eq!(unsafe { array.add(n).read() }, n as u64);
        }
    }
}

/// What the child process of the next test runs: inserts until it is killed.
#[test]
fn inserting_child() {
    let Ok(called) = std::env::var("TEST_SHARED_AV") else {
        return;
    };
    let table = open(&called);
    let start: u32 = std::env::var("TEST_SHARED_AV_START")
        .unwrap()
        .parse()
        .unwrap();
    for n in (start..start + 0x10_0000).step_by(3) {
        insert(&table, n..n + 3);
    }
}

#[test]
fn a_writer_killed_at_any_moment_leaves_a_whole_table() {
    let called = fresh();
    let table = open(&called);
    for round in 0..10 {
        let before = table.len();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "av::shared::tests::inserting_child"])
            .env("TEST_SHARED_AV", &called)
            .env("TEST_SHARED_AV_START", (round * 0x10_0000).to_string())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        while table.len() < before + 50 && child.try_wait().unwrap().is_none() {
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();

        let len = table.len() as u32;
        for index in 0..len {
            let found = table.get(index).unwrap();
            assert_eq!(table.find(&found), Some(index));
        }
        let own = 0x5000_0000 + round;
        assert_eq!(insert(&table, own..own + 1), [Ok(len)]);
    }
}

#[test]
fn a_table_whose_users_were_all_killed_is_begun_anew() {
    let called = fresh();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "av::shared::tests::inserting_child"])
        .env("TEST_SHARED_AV", &called)
        .env("TEST_SHARED_AV_START", "0")
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let path = path_of(&name(&called, false)).unwrap();
    let enough = || std::fs::metadata(&path).is_ok_and(|file| file.len() > FIRST_SLOT);
    while !enough() && child.try_wait().unwrap().is_none() {
        std::thread::yield_now();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(path.exists());
    let table = open(&called);
    assert_eq!(table.len(), 0);
    assert_eq!(insert(&table, 0..1), [Ok(0)]);
}
