//! A cache of registrations that count themselves.

use std::os::fd::AsRawFd;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::*;
use prov_base::errno::Errno;

/// A multiple of the page size of every kernel.
const PAGE: usize = 64 << 10;
const LEN: usize = 16 * PAGE;
const READ: u64 = 1;
const WRITE: u64 = 2;

/// A mapping of the test's own.
struct Mapping(usize);

impl Mapping {
    /// Anywhere, or at a place where there is nothing.
    fn new(at: Option<usize>) -> Self {
        Self::try_new(at).unwrap()
    }

    fn try_new(at: Option<usize>) -> Result<Self> {
        let (hint, fixed) = match at {
            None => (null_mut(), 0),
            Some(at) => (
                std::ptr::without_provenance_mut(at),
                libc::MAP_FIXED_NOREPLACE,
            ),
        };
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | fixed;
        let mapping = Self::map(hint, flags, -1)?;
        assert!(at.is_none_or(|at| mapping.0 == at));
        Ok(mapping)
    }

    /// The beginning of a file.
    fn of_file(file: &std::fs::File, flags: libc::c_int) -> Self {
        Self::map(null_mut(), flags, file.as_raw_fd()).unwrap()
    }

    fn map(hint: *mut libc::c_void, flags: libc::c_int, file: libc::c_int) -> Result<Self> {
        // SAFETY: the mapping is new, and replaces none, since the flags contain no MAP_FIXED.
        let memory = unsafe {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(hint, LEN, protection, flags, file, 0)
        };
        if memory == libc::MAP_FAILED {
            return Err(Errno::last_os_error());
        }
        let mapping = Mapping(memory.expose_provenance());
        mapping.write();
        Ok(mapping)
    }

    fn write(&self) {
        let first = std::ptr::with_exposed_provenance_mut::<u8>(self.0);
        // SAFETY: the byte is the first one of the mapping, to which there are no references.
        unsafe { first.write(1) };
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `map`, and there are no references to it.
        let outcome = unsafe { libc::munmap(std::ptr::with_exposed_provenance_mut(self.0), LEN) };
        assert_eq!(outcome, 0);
    }
}

/// A cache with limits, and how often something was registered.
struct World {
    cache: Cache<usize>,
    made: AtomicUsize,
}

impl World {
    /// None where the system does not let memory be watched.
    fn new(count: usize, bytes: usize) -> Option<Self> {
        let Some(cache) = Cache::new(CacheLimits { count, bytes }) else {
            println!("no userfaultfd(2) here: nothing is kept");
            return None;
        };
        let made = AtomicUsize::new(0);
        Some(World { cache, made })
    }

    fn get(&self, address: usize, len: usize, access: u64) -> Registered<usize> {
        let register = || Ok(self.made.fetch_add(1, Ordering::Relaxed));
        self.cache.get(address, len, access, register).unwrap()
    }

    fn made(&self) -> usize {
        self.made.load(Ordering::Relaxed)
    }
}

#[test]
fn a_closed_registration_is_kept_for_the_next_one() {
    let Some(world) = World::new(8, usize::MAX) else {
        return;
    };
    let memory = Mapping::new(None);
    drop(world.get(memory.0, LEN, READ | WRITE));
    drop(world.get(memory.0, LEN, READ | WRITE));
    // A part, with fewer permissions.
    drop(world.get(memory.0 + PAGE, PAGE, READ));
    assert_eq!(world.made(), 1);
    assert_eq!(world.cache.len(), 1);
}

#[test]
fn a_registration_with_fewer_permissions_or_bytes_is_not_reused() {
    let Some(world) = World::new(8, usize::MAX) else {
        return;
    };
    let memory = Mapping::new(None);
    drop(world.get(memory.0, LEN - PAGE, READ));
    drop(world.get(memory.0, LEN - PAGE, READ | WRITE));
    drop(world.get(memory.0 + PAGE, LEN - PAGE, READ));
    assert_eq!((world.made(), world.cache.len()), (3, 3));
}

#[test]
fn other_memory_at_the_same_address_is_registered_anew() {
    let Some(world) = World::new(8, usize::MAX) else {
        return;
    };
    let mut memory = Mapping::new(None);
    for round in 0..200 {
        let first = *world.get(memory.0, LEN, READ);
        assert_eq!(*world.get(memory.0, LEN, READ), first);
        assert_eq!(world.made(), round + 1);
        let at = memory.0;
        drop(memory);
        memory = Mapping::new(Some(at));
    }
}

#[test]
fn other_memory_is_registered_anew_before_another_thread_has_returned_from_unmapping() {
    let Some(world) = World::new(8, usize::MAX) else {
        return;
    };
    let (unmapped, to_unmap) = mpsc::channel::<Mapping>();
    let unmapping = std::thread::spawn(move || to_unmap.into_iter().for_each(drop));
    // Far from where other threads' stacks, for one, would take the place, and from what
    // the address sanitizer keeps for itself.
    let mut memory = Mapping::new(Some(0x2000_0000_0000));
    for round in 0..5000 {
        assert_eq!(*world.get(memory.0, LEN, READ), round);
        let at = memory.0;
        unmapped.send(memory).unwrap();
        memory = loop {
            match Mapping::try_new(Some(at)) {
                Ok(memory) => break memory,
                Err(error) => assert_eq!(error, Errno::EEXIST),
            }
        };
    }
    drop(unmapped);
    unmapping.join().unwrap();
}

/// A registration that takes a lock to be closed, as those of a device do.
struct Locking(Arc<Mutex<()>>);

impl Drop for Locking {
    fn drop(&mut self) {
        drop(self.0.lock());
    }
}

#[test]
fn a_thread_that_holds_the_lock_of_closing_registrations_may_unmap() {
    let Some(cache) = Cache::new(CacheLimits {
        count: 8,
        bytes: usize::MAX,
    }) else {
        return;
    };
    let lock = Arc::new(Mutex::new(()));
    let memory = [(); 3].map(|()| Mapping::new(None));
    for Mapping(address) in &memory {
        let register = || Ok(Locking(lock.clone()));
        drop(cache.get(*address, LEN, READ, register).unwrap());
    }
    assert_eq!(cache.len(), 3);
    let (done, is_done) = mpsc::channel();
    let unmapping = std::thread::spawn({
        let lock = lock.clone();
        move || {
            let held = lock.lock();
            drop(memory);
            drop(held);
            done.send(()).unwrap();
        }
    });
    let outcome = is_done.recv_timeout(Duration::from_secs(20));
    assert_eq!(outcome, Ok(()), "it waits for who waits for the lock");
    unmapping.join().unwrap();
    // What was unmapped is known of in time.
    let deadline = Instant::now() + Duration::from_secs(20);
    while !cache.is_empty() {
        assert!(Instant::now() < deadline, "it is kept");
        std::thread::yield_now();
    }
}

#[test]
fn a_file_that_becomes_shorter_is_registered_anew() {
    let Some(world) = World::new(8, usize::MAX) else {
        return;
    };
    let file = rustix::fs::memfd_create("fi_test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let file = std::fs::File::from(file);
    for flags in [libc::MAP_SHARED, libc::MAP_PRIVATE] {
        file.set_len(LEN as u64).unwrap();
        let memory = Mapping::of_file(&file, flags);
        let first = *world.get(memory.0, LEN, READ);
        file.set_len(0).unwrap();
        file.set_len(LEN as u64).unwrap();
        memory.write();
        assert_ne!(*world.get(memory.0, LEN, READ), first, "{flags:#x}");
    }
}

#[test]
fn signals_are_for_the_applications_threads() {
    let Some(_world) = World::new(8, usize::MAX) else {
        return;
    };
    let named = |task: &std::path::Path| {
        let name = std::fs::read_to_string(task.join("comm"));
        name.is_ok_and(|name| name == "fi-memory\n")
    };
    // A thread names itself.
    let status = loop {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let mut tasks = tasks.map(|task| task.unwrap().path());
        if let Some(task) = tasks.find(|task| named(task)) {
            break std::fs::read_to_string(task.join("status")).unwrap();
        }
        std::thread::yield_now();
    };
    let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:"));
    let blocked = u64::from_str_radix(blocked.unwrap().trim(), 16).unwrap();
    for signal in [libc::SIGUSR1, libc::SIGTERM, libc::SIGPROF] {
        assert_ne!(blocked & (1 << (signal - 1)), 0, "{signal}");
    }
}

#[test]
fn memory_that_is_returned_to_the_system_is_not_kept_registered() {
    let Some(world) = World::new(8, usize::MAX) else {
        return;
    };
    let memory = Mapping::new(None);
    drop(world.get(memory.0, LEN, READ));
    let last = std::ptr::with_exposed_provenance_mut(memory.0 + LEN - PAGE);
    // SAFETY: the page is part of the test's mapping, to which there are no references.
    assert_eq!(unsafe { libc::madvise(last, PAGE, libc::MADV_DONTNEED) }, 0);
    drop(world.get(memory.0, LEN, READ));
    assert_eq!(world.made(), 2);
}

#[test]
fn a_registration_in_use_outlives_its_memory() {
    let Some(world) = World::new(8, usize::MAX) else {
        return;
    };
    let memory = Mapping::new(None);
    let used = world.get(memory.0, LEN, READ);
    drop(memory);
    assert!(world.cache.monitor.settle());
    assert!(world.cache.is_empty());
    assert_eq!(*used, 0);
}

#[test]
fn no_more_is_kept_than_the_limits_say() {
    let Some(world) = World::new(2, LEN) else {
        return;
    };
    let memory = Mapping::new(None);
    let page = |number| memory.0 + number * PAGE;
    for number in 0..3 {
        drop(world.get(page(number), PAGE, READ));
    }
    assert_eq!(world.cache.len(), 2);
    // The first one went.
    drop(world.get(page(2), PAGE, READ));
    assert_eq!(world.made(), 3);
    drop(world.get(page(0), PAGE, READ));
    assert_eq!(world.made(), 4);
    let used = world.get(memory.0, LEN, READ);
    assert_eq!(world.cache.len(), 1, "all bytes are used");
    // What is in use stays, and others are not kept.
    drop(world.get(page(0), PAGE, WRITE));
    assert_eq!(world.cache.len(), 1);
    drop(used);
    drop(world.get(page(0), PAGE, WRITE));
    assert_eq!((world.made(), world.cache.len()), (7, 1));
}

#[test]
fn an_error_is_the_registrations_and_nothing_is_kept() {
    let Some(world) = World::new(2, LEN) else {
        return;
    };
    let memory = Mapping::new(None);
    let refuse = || Err(Errno::ENOMEM);
    let refused = world.cache.get(memory.0, LEN, READ, refuse);
    assert_eq!(refused.err(), Some(Errno::ENOMEM));
    assert!(world.cache.is_empty());
}

#[test]
fn where_more_has_changed_than_is_remembered_nothing_is_trusted() {
    let Some(world) = World::new(8, usize::MAX) else {
        return;
    };
    let memory = Mapping::new(None);
    drop(world.get(memory.0, LEN, READ));
    for _ in 0..2000 {
        let other = Mapping::new(None);
        assert!(world.cache.monitor.watch(Interval::new(other.0, LEN)));
    }
    drop(world.get(memory.0, LEN, READ));
    drop(world.get(memory.0, LEN, READ));
    assert_eq!((world.made(), world.cache.len()), (2, 1));
}

#[test]
fn a_child_whose_memory_is_not_watched_keeps_nothing() {
    let limits = CacheLimits {
        count: 8,
        bytes: usize::MAX,
    };
    let Some(_ours) = Cache::<usize>::new(limits) else {
        return;
    };
    // SAFETY: the child uses nothing that another thread of the parent may have had locked, and
    // ends by _exit(2).
    let child = unsafe { libc::fork() };
    if child == 0 {
        let has_one = Cache::<usize>::new(limits).is_some();
        // SAFETY: _exit(2) accepts any status, and ends the child only.
        unsafe { libc::_exit(has_one.into()) };
    }
    let mut status = -1;
    // SAFETY: `status` is writable.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0);
}
