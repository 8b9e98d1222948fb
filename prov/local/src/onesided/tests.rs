//! An owner and an initiator, in one process and in two.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use fabric_abi::{FI_REMOTE_READ, FI_REMOTE_WRITE};
use prov_base::buffer::AppIov;
use prov_base::errno::Errno;
use prov_base::process_memory::{OtherIov, Seal};
use prov_util::mr::publish::{Published, Publisher};
use prov_util::request::{Access, RemoteIov, RemotePiece};

use super::protocol::Flights;
use super::table::{ENTRIES, PROBES, RegionTable, Watching};
use super::window::{Found, Window};
use crate::channel::Channel;
use crate::process::OtherProcess;
use crate::process::child::Child;

const BOTH: u64 = FI_REMOTE_READ | FI_REMOTE_WRITE;

/// A table, and a link over which an initiator in the process `pid` may use it.
struct Owner {
    table: Arc<RegionTable>,
    watching: Option<Watching>,
    here: Channel,
    there: Channel,
}

impl Owner {
    fn new(pid: u32) -> Owner {
        let mut owner = Owner::unwatched();
        let watching = owner.table.watch(owner.here.flights_of_peer(), pid);
        owner.watching = Some(watching.unwrap());
        owner
    }

    fn unwatched() -> Owner {
        let (here, fd) = Channel::create().unwrap();
        Owner {
            table: RegionTable::new("test").unwrap(),
            watching: None,
            there: Channel::attach(fd.as_fd()).unwrap(),
            here,
        }
    }

    /// Returns the initiator's window, for an owner whose memory is that of the process `pid` with
    /// this seal.
    fn window(&self, pid: u32, seal: &Seal) -> Window {
        let (memory, _) = OtherProcess::find(pid, seal.token()).unwrap();
        Window::attach(self.table.descriptor(), self.there.flights(), memory).unwrap()
    }
}

/// Publishes bytes.
fn region(key: u64, bytes: &[u8], access: u64) -> Published {
    Published {
        key,
        base: 0,
        len: bytes.len() as u64,
        addr: bytes.as_ptr().expose_provenance() as u64,
        access,
        counted: 0,
    }
}

fn piece(key: u64, addr: u64, len: u64) -> RemoteIov {
    RemotePiece { addr, len, key }.into()
}

fn write(window: &mut Window, key: u64, bytes: &[u8]) -> Option<Result<(), Errno>> {
    let (socket, _far) = UnixStream::pair().unwrap();
    match window.find(Access::Write, &piece(key, 0, bytes.len() as u64), false) {
        Found::Granted(granted) => Some(granted.write_bytes(bytes, socket.as_fd())),
        Found::Refused(error) => Some(Err(error)),
        Found::Unknown => None,
    }
}

fn refusal(found: &Found<'_>) -> Option<Errno> {
    match found {
        Found::Refused(error) => Some(*error),
        Found::Granted(_) | Found::Unknown => None,
    }
}

#[test]
fn published_regions_are_written_and_read_by_their_keys_only() {
    let (owner, seal) = (Owner::new(std::process::id()), Seal::new().unwrap());
    let mut window = owner.window(std::process::id(), &seal);
    let (first, second) = ([1; 8], [2; 16]);
    let published = [
        region(1, &first, BOTH),
        Published {
            base: 0x1000,
            ..region(2, &second, FI_REMOTE_READ)
        },
    ];
    for region in &published {
        assert!(owner.table.publish(Some(region)).is_some());
    }
    let mut both = piece(1, 2, 4);
    both.push(RemotePiece {
        addr: 0x1008,
        len: 8,
        key: 2,
    });
    let mut to = [0; 12];
    // SAFETY: `to` is borrowed by nothing else, and lives until the copy is made.
    let place = unsafe { AppIov::from_raw(to.as_mut_ptr(), 12) };
    match window.find(Access::Read, &both, false) {
        Found::Granted(granted) => granted.read(&place).unwrap(),
        _ => panic!("refused"),
    }
    assert_eq!(to, [1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2]);
    assert_eq!(write(&mut window, 1, &[7; 8]), Some(Ok(())));
    assert_eq!(write(&mut window, 1, &[7; 9]), Some(Err(Errno::EACCES)));
    for (kind, list, error) in [
        (Access::Write, both, Errno::EACCES),
        (Access::Read, piece(2, 0, 1), Errno::EACCES),
        (Access::Read, piece(2, 0x1008, 9), Errno::EACCES),
        (Access::Read, piece(2, u64::MAX, 9), Errno::EACCES),
        (Access::Read, piece(1, 0, u64::MAX), Errno::EACCES),
        (Access::Read, piece(3, 0, 1), Errno::EACCES),
    ] {
        assert_eq!(refusal(&window.find(kind, &list, false)), Some(error));
    }
    // An empty access is harmless.
    assert!(matches!(
        window.find(Access::Write, &piece(3, 0, 0), false),
        Found::Granted(granted) if !granted.is_counted
    ));
    for list in [piece(3, 0, 0), RemoteIov::default()] {
        let found = window.find(Access::Write, &list, true);
        assert_eq!(refusal(&found), Some(Errno::EACCES));
    }
}

#[test]
fn where_a_region_has_no_place_its_owner_is_asked() {
    let (owner, seal) = (Owner::new(std::process::id()), Seal::new().unwrap());
    let mut window = owner.window(std::process::id(), &seal);
    let bytes = [0u8; 8];
    // All keys have the same first entry, more than are searched for a key.
    let step = ENTRIES as u64;
    let near = |key: &u64| {
        let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        hash >> (64 - step.ilog2()) == 5
    };
    let keys: Vec<u64> = (0..).filter(near).take(PROBES + 2).collect();
    let place = |key: &u64| owner.table.publish(Some(&region(*key, &bytes, BOTH)));
    let places: Vec<_> = keys.iter().map(place).collect();
    assert!(places[..PROBES].iter().all(Option::is_some));
    assert_eq!(places[PROBES..], [None, None]);
    assert_eq!(write(&mut window, keys[0], &bytes), Some(Ok(())));
    assert_eq!(write(&mut window, keys[PROBES], &bytes), None);
    // Any of the unlisted regions may have the key.
    assert_eq!(write(&mut window, u64::MAX - 1, &bytes), None);
    owner.table.withdraw(places[PROBES]);
    assert_eq!(write(&mut window, keys[PROBES], &bytes), None);
    owner.table.withdraw(places[PROBES + 1]);
    let refused = Some(Err(Errno::EACCES));
    assert_eq!(write(&mut window, keys[PROBES], &bytes), refused);
    // A free entry is used again.
    owner.table.withdraw(places[3]);
    assert_eq!(write(&mut window, keys[3], &bytes), refused);
    assert_eq!(place(&keys[PROBES]), places[3]);
    assert_eq!(write(&mut window, keys[PROBES], &bytes), Some(Ok(())));
}

#[test]
fn accesses_that_are_counted_are_reported() {
    let (owner, seal) = (Owner::new(std::process::id()), Seal::new().unwrap());
    let mut window = owner.window(std::process::id(), &seal);
    let bytes = [0u8; 8];
    let place = owner.table.publish(Some(&region(1, &bytes, BOTH))).unwrap();
    let mut is_counted = |kind| match window.find(kind, &piece(1, 0, 8), false) {
        Found::Granted(granted) => granted.is_counted,
        _ => panic!("refused"),
    };
    assert!(!is_counted(Access::Read) && !is_counted(Access::Write));
    owner.table.count(place, FI_REMOTE_READ);
    assert!(is_counted(Access::Read) && !is_counted(Access::Write));
    owner.table.count_all(FI_REMOTE_WRITE);
    assert!(is_counted(Access::Read) && is_counted(Access::Write));
}

#[test]
fn a_link_that_has_ended_begins_no_flights() {
    let (mut owner, seal) = (Owner::new(std::process::id()), Seal::new().unwrap());
    let mut window = owner.window(std::process::id(), &seal);
    let bytes = [0u8; 8];
    owner.table.publish(Some(&region(1, &bytes, BOTH)));
    assert_eq!(write(&mut window, 1, &bytes), Some(Ok(())));
    owner.watching = None;
    assert_eq!(write(&mut window, 1, &bytes), None);
}

/// Returns the contents of another process's memory at the address of this process's `bytes`.
fn bytes_of(process: &OtherProcess, bytes: &mut [u8]) -> Vec<u8> {
    let mut copy = vec![0; bytes.len()];
    // SAFETY: `bytes` is valid for its length; the value is used only to describe the memory's
    // location.
    let place = unsafe { AppIov::from_raw(bytes.as_mut_ptr(), bytes.len()) };
    let mut from = OtherIov::default();
    assert!(from.push_own(&place, None));
    process.copy_out(&from, &mut copy).unwrap();
    copy
}

#[test]
fn a_process_that_sleeps_for_good_is_written_to_until_it_is_killed() {
    // The child has a copy of this process's memory: its regions have the same addresses.
    let (owner, seal) = (Owner::new(std::process::id()), Seal::new().unwrap());
    let mut bytes = *b"before";
    owner.table.publish(Some(&region(1, &bytes, BOTH)));
    let child = Child::new(|| {});
    let pid = child.pid().unsigned_abs();
    let mut window = owner.window(pid, &seal);
    let (process, _) = OtherProcess::find(pid, seal.token()).unwrap();
    for round in 0..5000u64 {
        let mut text = *b"behind";
        text[0] = round as u8;
        assert_eq!(write(&mut window, 1, &text), Some(Ok(())));
        if round % 1000 == 0 {
            assert_eq!(bytes_of(&process, &mut bytes), text);
        }
    }
    assert_eq!(bytes, *b"before", "that of the child is another");
    child.end();
    let ended = Some(Err(Errno::ESHUTDOWN));
    assert_eq!(write(&mut window, 1, b"ending"), ended);
    drop(child);
    assert_eq!(write(&mut window, 1, b"ending"), ended);
}

#[test]
fn no_long_copy_is_written_to_a_process_that_has_closed_the_socket() {
    // Short copies are written to the program that was executed when the link was made, and to no
    // other.
    const LEN: usize = 64 << 10;
    let (owner, seal) = (Owner::new(std::process::id()), Seal::new().unwrap());
    let mut window = owner.window(std::process::id(), &seal);
    let bytes = vec![1; LEN];
    owner.table.publish(Some(&region(1, &bytes, BOTH)));
    let (socket, far) = UnixStream::pair().unwrap();
    drop(far);
    match window.find(Access::Write, &piece(1, 0, LEN as u64), false) {
        Found::Granted(granted) => {
            let written = granted.write_bytes(&[2; LEN], socket.as_fd());
            assert_eq!(written, Err(Errno::ESHUTDOWN));
        }
        _ => panic!("refused"),
    }
    assert!(bytes.iter().all(|byte| *byte == 1));
}

/// Returns a word that threads or processes share.
fn shared_word() -> &'static AtomicU64 {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the system chooses the address of the new mapping, which is never unmapped, has 4096
    // zero bytes and is aligned as pages are; it is accessed atomically only.
    unsafe {
        let page = mmap_anonymous(std::ptr::null_mut(), 4096, access, MapFlags::SHARED).unwrap();
        AtomicU64::from_ptr(page.cast())
    }
}

/// What has been logged.
static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Listens;

impl log::Log for Listens {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        SAID.lock().unwrap().push(record.args().to_string());
    }

    fn flush(&self) {}
}

#[test]
fn closing_a_region_waits_for_an_initiator_in_flight_until_its_process_ends() {
    let _ = log::set_logger(&Listens);
    log::set_max_level(log::LevelFilter::Warn);
    let mut owner = Owner::unwatched();
    let bytes = [0u8; 8];
    let place = owner.table.publish(Some(&region(1, &bytes, BOTH)));
    let taken_off = shared_word();
    let words = owner.there.flights();
    let mut flights = Flights::new(words);
    let child = Child::new(|| {
        std::mem::forget(flights.begin());
        taken_off.store(1, Ordering::Release);
    });
    let pid = child.pid().unsigned_abs();
    // That process is watched.
    let watching = owner.table.watch(owner.here.flights_of_peer(), pid);
    owner.watching = Some(watching.unwrap());
    while taken_off.load(Ordering::Acquire) == 0 {
        std::thread::yield_now();
    }
    let table = owner.table.clone();
    let is_closed = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            table.withdraw(place);
            is_closed.store(true, Ordering::Release);
        });
        (0..1000).for_each(|_| std::thread::yield_now());
        assert!(!is_closed.load(Ordering::Acquire));
        // After a second, the log says so.
        let process = format!("waits for process {pid},");
        let is_said = || {
            SAID.lock()
                .unwrap()
                .iter()
                .any(|line| line.contains(&process))
        };
        while !is_said() {
            std::thread::yield_now();
        }
        child.end();
    });
    assert!(is_closed.load(Ordering::Acquire));
    // It is not waited for again.
    owner.watching = None;
    let place = owner.table.publish(Some(&region(1, &bytes, BOTH)));
    owner.table.withdraw(place);
}

#[test]
fn closing_a_region_does_not_wait_for_another_program_in_the_initiators_process() {
    let mut owner = Owner::unwatched();
    let bytes = [0u8; 8];
    let place = owner.table.publish(Some(&region(1, &bytes, BOTH)));
    let turn = shared_word();
    let mut flights = Flights::new(owner.there.flights());
    let (mut end, ends) = std::io::pipe().unwrap();
    let child = Child::new(|| {
        std::mem::forget(flights.begin());
        turn.store(1, Ordering::Release);
        while turn.load(Ordering::Acquire) == 1 {
            std::thread::yield_now();
        }
        let arguments = [c"sleep".as_ptr(), c"1000".as_ptr(), std::ptr::null()];
        // SAFETY: execvp(3) may be called after fork(2) here, since the child allocates nothing;
        // the arguments are terminated strings in a terminated array.
        unsafe { libc::execvp(arguments[0], arguments.as_ptr()) };
    });
    drop(ends);
    let pid = child.pid().unsigned_abs();
    let watching = owner.table.watch(owner.here.flights_of_peer(), pid);
    owner.watching = Some(watching.unwrap());
    while turn.load(Ordering::Acquire) == 0 {
        std::thread::yield_now();
    }
    turn.store(2, Ordering::Release);
    // The child's end is closed when the other program is executed.
    assert_eq!(std::io::Read::read(&mut end, &mut [0]).unwrap(), 0);
    owner.table.withdraw(place);
    // It is not watched for ever either.
    owner.watching = None;
    let place = owner.table.publish(Some(&region(1, &bytes, BOTH)));
    owner.table.withdraw(place);
}

#[test]
fn a_link_that_ends_in_flight_is_waited_for() {
    let mut owner = Owner::new(std::process::id());
    let bytes = [0u8; 8];
    let place = owner.table.publish(Some(&region(1, &bytes, BOTH)));
    let mut flights = Flights::new(owner.there.flights());
    let flight = flights.begin().unwrap();
    owner.watching = None;
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            owner.table.withdraw(place);
            assert!(is_over.load(Ordering::Acquire));
        });
        (0..1000).for_each(|_| std::thread::yield_now());
        is_over.store(true, Ordering::Release);
        drop(flight);
    });
}

#[test]
fn memory_may_be_unmapped_when_its_region_is_closed_while_others_copy() {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

    const LEN: usize = 64 << 10;
    let (owner, seal) = (Owner::new(std::process::id()), Seal::new().unwrap());
    let mut window = owner.window(std::process::id(), &seal);
    let is_over = AtomicBool::new(false);
    let written = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let bytes = vec![7; LEN];
            while !is_over.load(Ordering::Acquire) {
                match write(&mut window, 1, &bytes) {
                    Some(Ok(())) => _ = written.fetch_add(1, Ordering::Relaxed),
                    other => assert_eq!(other, Some(Err(Errno::EACCES))),
                }
            }
        });
        let access = ProtFlags::READ | ProtFlags::WRITE;
        for round in 0..300u64 {
            // SAFETY: the mapping is new, `LEN` bytes long and used by this loop and by the copies
            // only; it is unmapped after its last use.
            unsafe {
                let null = std::ptr::null_mut();
                let base = mmap_anonymous(null, LEN, access, MapFlags::PRIVATE).unwrap();
                let bytes = std::slice::from_raw_parts(base.cast::<u8>(), LEN);
                let before = written.load(Ordering::Relaxed);
                let place = owner.table.publish(Some(&region(1, bytes, BOTH)));
                while written.load(Ordering::Relaxed) == before {
                    std::thread::yield_now();
                }
                owner.table.withdraw(place);
                // From this line on the memory is not registered, and must not be written to. A
                // copy in progress would be an error of the check below.
                base.write_bytes(round as u8, LEN);
                let mut same = (0..LEN).map(|at| base.cast::<u8>().add(at).read_volatile());
                assert!(same.all(|byte| byte == round as u8));
                munmap(base, LEN).unwrap();
            }
        }
        is_over.store(true, Ordering::Release);
    });
}

#[test]
fn a_forked_child_touches_nothing_that_it_inherited() {
    let mut owner = Owner::new(std::process::id());
    let (bytes, seal) = ([0u8; 8], Seal::new().unwrap());
    let place = owner.table.publish(Some(&region(1, &bytes, BOTH)));
    let done = shared_word();
    let child = Child::new(|| {
        owner.table.withdraw(place);
        let again = owner.table.publish(Some(&region(2, &bytes, BOTH)));
        owner.watching = None;
        let code = if again.is_none() { 1 } else { 2 };
        done.store(code, Ordering::Release);
    });
    while done.load(Ordering::Acquire) == 0 {
        std::thread::yield_now();
    }
    assert_eq!(done.load(Ordering::Acquire), 1);
    drop(child);
    let words = owner.there.flights();
    assert_eq!(words.revoked().load(Ordering::Relaxed), 0);
    let mut window = owner.window(std::process::id(), &seal);
    assert_eq!(write(&mut window, 1, &bytes), Some(Ok(())));
    assert_eq!(write(&mut window, 2, &bytes), Some(Err(Errno::EACCES)));
}

#[test]
fn a_file_that_is_not_a_table_is_not_mapped() {
    let owner = Owner::new(std::process::id());
    let seal = Seal::new().unwrap();
    let attach = |fd| {
        let (memory, _) = OtherProcess::find(std::process::id(), seal.token()).unwrap();
        let window = Window::attach(fd, owner.there.flights(), memory);
        window.err()
    };
    let (_segment, other) = crate::segment::Segment::create(4096, &[]).unwrap();
    assert_eq!(attach(other.as_fd()), Some(Errno::EPROTO));
    let (_segment, blank) =
        crate::segment::Segment::create_for_readers(super::table::TABLE).unwrap();
    assert_eq!(attach(blank.as_fd()), Some(Errno::EPROTO));
    assert_eq!(attach(owner.table.descriptor()), None);
}

/// An owner that writes arbitrary data into its table.
#[test]
fn whatever_an_owner_writes_an_initiator_fails_at_most() {
    use proptest::test_runner::{Config, TestRunner};

    let (owner, seal) = (Owner::new(std::process::id()), Seal::new().unwrap());
    let window = std::cell::RefCell::new(owner.window(std::process::id(), &seal));
    let numbers = proptest::array::uniform5(proptest::prelude::any::<u64>());
    let mut runner = TestRunner::new(Config::with_cases(2000));
    let run = runner.run(&numbers, |[key, base, len, addr, access]| {
        // Nothing is mapped at any of these addresses.
        let addr = addr | 1 << 63;
        let place = owner.table.publish(Some(&Published {
            key,
            base,
            len,
            addr,
            access,
            counted: access,
        }));
        let list = RemotePiece {
            addr: base,
            len: 8,
            key,
        };
        let window = &mut *window.borrow_mut();
        for kind in [Access::Write, Access::Read] {
            if let Found::Granted(granted) = window.find(kind, &list.into(), false) {
                let (socket, _far) = UnixStream::pair().unwrap();
                let copied = granted.write_bytes(&[1; 8], socket.as_fd());
                assert_eq!(copied, Err(Errno::EFAULT));
            }
        }
        owner.table.withdraw(place);
        Ok(())
    });
    run.unwrap();
}
