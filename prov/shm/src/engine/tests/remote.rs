//! Reads and writes that are refused, or have to wait.

use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

use std::sync::Mutex;

use fabric_abi::FI_COMMIT_COMPLETE;
use prov_util::mr::RemoteEvents;

use super::*;

/// Returns the pieces of remote memory with these keys and lengths.
fn pieces(parts: &[(u64, u64)]) -> RemoteIov {
    let mut remote = RemoteIov::default();
    for &(key, len) in parts {
        remote.push(RemotePiece { addr: 0, len, key });
    }
    remote
}

fn with_data(remote: RemoteIov, access: RemoteAccess) -> RemoteAccess {
    RemoteAccess {
        remote,
        data: 7,
        flags: access.flags | FI_REMOTE_CQ_DATA,
        ..access
    }
}

/// Makes a write of which the first part is refused, and then another write: only that is reported.
fn refused_and_then_written(refused: &[(u64, u64)]) {
    let (mut a, mut b) = (Side::new(without_cma()), Side::new(without_cma()));
    let to = a.insert(&b.name);
    let mut region = vec![0; 64 << 10];
    b.register(3, &mut region);
    let len: u64 = refused.iter().map(|(_, len)| len).sum();
    let mut out = pattern(1, len as usize);
    let write = access(Access::Write, to, 0, &mut out, 1);
    let mut write = with_data(pieces(refused), write);
    a.core.access(a.ep, &mut write).unwrap();
    let mut told = Vec::new();
    let mut error = None;
    until(&mut [&mut a, &mut b], |sides| {
        error = error.or(sides[0].error());
        error.is_some()
    });
    let mut out = *b"whatever";
    let write = access(Access::Write, to, 3, &mut out, 2);
    let mut write = with_data(pieces(&[(3, 8)]), write);
    a.core.access(a.ep, &mut write).unwrap();
    assert_eq!(completed(&mut [&mut a, &mut b], 0, 1), [2]);
    until(&mut [&mut a, &mut b], |sides| {
        let note = |one: &Completion| told.push((one.len, one.data));
        let _ = sides[1].cq.read(1000, note);
        !told.is_empty()
    });
    assert_eq!(told, [(8, 7)]);
    assert_eq!(region[..8], out);
}

#[test]
fn a_write_of_which_a_part_is_refused_is_not_reported() {
    refused_and_then_written(&[(4, 8 << 10), (3, 16 << 10)]);
}

#[test]
fn a_write_that_ends_when_it_is_refused_adds_nothing_to_the_next() {
    refused_and_then_written(&[(4, 1 << 20)]);
}

/// Records the length of each access to a region.
#[derive(Default)]
struct Accesses(Mutex<Vec<usize>>);

impl RemoteEvents for Accesses {
    fn accessed(&self, bytes: usize) {
        self.0.lock().unwrap().push(bytes);
    }
}

#[test]
fn a_write_in_parts_is_one_access_to_each_region() {
    let (mut a, mut b) = (Side::new(without_cma()), Side::new(without_cma()));
    let to = a.insert(&b.name);
    let parts = [(3, 40 << 10), (4, 8), (5, 30 << 10)];
    let mut memory = parts.map(|(_, len)| vec![0; len as usize]);
    let mut counters = Vec::new();
    for ((key, _), memory) in parts.iter().zip(&mut memory) {
        let region = b.register(*key, memory);
        let accesses = Arc::new(Accesses::default());
        let counted = b.table.count_in(&region, FI_REMOTE_WRITE, accesses.clone());
        assert_eq!(counted, Ok(()));
        counters.push(accesses);
    }
    let mut out = pattern(1, memory.iter().map(Vec::len).sum());
    let write = access(Access::Write, to, 0, &mut out, 1);
    let mut write = with_data(pieces(&parts), write);
    a.core.access(a.ep, &mut write).unwrap();
    assert_eq!(completed(&mut [&mut a, &mut b], 0, 1), [1]);
    assert!(memory.concat() == out);
    for ((_, len), accesses) in parts.iter().zip(&counters) {
        assert_eq!(*accesses.0.lock().unwrap(), [*len as usize]);
    }
}

/// Number of requests that is larger than a link can have outstanding.
const MANY: usize = prov_local::link::pending::REQUESTS + 100;

#[test]
fn writes_do_not_wait_for_the_receives_of_messages() {
    let mut a = Side::new(Params::default());
    let late = fresh_name();
    let to = a.insert(&late);
    let (mut long, mut short) = (pattern(1, WIDE + 1), pattern(2, 8));
    for tag in 0..MANY {
        let (bytes, flags) = match tag % 2 {
            0 => (&mut long, 0),
            _ => (&mut short, FI_COMMIT_COMPLETE),
        };
        let mut sent = message(to, tag as u64, bytes, flags);
        a.core.transmit(a.ep, &mut sent).unwrap();
    }
    let mut out = *b"deferred";
    let mut write = access(Access::Write, to, 3, &mut out, MANY);
    a.core.access(a.ep, &mut write).unwrap();
    let mut b = Side::named(late, Params::default());
    let mut region = [0; 8];
    b.register(3, &mut region);
    assert_eq!(completed(&mut [&mut a, &mut b], 0, 1), [MANY]);
    assert_eq!(region, out);
    // The same on a link that is open.
    let mut out = *b"at once!";
    let mut write = access(Access::Write, to, 3, &mut out, MANY + 1);
    a.core.access(a.ep, &mut write).unwrap();
    assert_eq!(completed(&mut [&mut a, &mut b], 0, 1), [MANY + 1]);
    assert_eq!(region, out);
}

#[test]
fn requests_beyond_those_that_a_peer_has_to_answer_wait() {
    let mut a = Side::new(without_cma());
    let late = fresh_name();
    let to = a.insert(&late);
    let mut out = pattern(1, 8);
    for context in 0..MANY {
        let mut write = access(Access::Write, to, 3, &mut out, context);
        a.core.access(a.ep, &mut write).unwrap();
    }
    let mut b = Side::named(late, without_cma());
    let mut region = [0; 8];
    b.register(3, &mut region);
    // The first side sends, and receives no answers.
    a.core.endpoints().owner_leaves();
    until(&mut [&mut a, &mut b], |sides| {
        let mut links = sides[0].core.links.values();
        links.any(|link| link.is_open() && !link.may_request())
    });
    (0..100).for_each(|_| [&mut a, &mut b].into_iter().for_each(Side::drive));
    assert_eq!(a.error(), None);
    a.core.endpoints().owner_enters();
    let all: Vec<usize> = (0..MANY).collect();
    assert_eq!(completed(&mut [&mut a, &mut b], 0, MANY), all);
}

/// Memory that no other process can read (memfd_secret(2)).
struct Secret(*mut u8);

const SECRET: usize = 64 << 10;

impl Secret {
    /// Returns `None` if the system does not support it.
    fn new() -> Option<Secret> {
        // SAFETY: the call takes flags only, and accesses no memory.
        let fd = unsafe { libc::syscall(libc::SYS_memfd_secret, libc::O_CLOEXEC) };
        let fd = c_int::try_from(fd).ok().filter(|fd| *fd >= 0)?;
        // SAFETY: the descriptor is new, and has no other owner.
        let file = std::fs::File::from(unsafe { OwnedFd::from_raw_fd(fd) });
        file.set_len(SECRET as u64).unwrap();
        // SAFETY: the mapping is new, at an address that the system chooses, so it replaces none.
        let base = unsafe {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let fd = file.as_raw_fd();
            libc::mmap(null_mut(), SECRET, access, libc::MAP_SHARED, fd, 0)
        };
        (base != libc::MAP_FAILED).then(|| Secret(base.cast()))
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        // SAFETY: `new` has made the mapping, which nothing uses after the drop.
        unsafe { libc::munmap(self.0.cast(), SECRET) };
    }
}

#[test]
fn memory_that_no_other_process_can_read_is_written_and_sent_and_read() {
    let Some(secret) = Secret::new() else {
        eprintln!("skipped: no memory of this kind");
        return;
    };
    let (mut a, mut b) = (Side::new(Params::default()), Side::new(Params::default()));
    let (to, back) = (a.insert(&b.name), b.insert(&a.name));
    let bytes = pattern(6, SECRET);
    // SAFETY: `secret` lives until the operations are complete.
    let local = || unsafe { AppIov::from_raw(secret.0, SECRET) };
    local().write_at(0, &bytes);
    a.register_memory(4, &local());
    let mut region = vec![0; SECRET];
    b.register(3, &mut region);
    // In the second round, it is known that the peer has to copy.
    for context in 1..3 {
        region.fill(0);
        let write = access(Access::Write, to, 3, &mut [], context);
        let mut write = RemoteAccess {
            local: local(),
            remote: pieces(&[(3, SECRET as u64)]),
            ..write
        };
        a.core.access(a.ep, &mut write).unwrap();
        assert_eq!(completed(&mut [&mut a, &mut b], 0, 1), [context]);
        assert!(region == bytes);
    }
    let mut into = vec![0; SECRET];
    b.core.receive(b.ep, &mut buffer(1, &mut into, 5)).unwrap();
    let mut sent = Transmit {
        buffers: local(),
        ..message(to, 1, &mut [], 0)
    };
    a.core.transmit(a.ep, &mut sent).unwrap();
    assert_eq!(completed(&mut [&mut a, &mut b], 1, 1), [5]);
    assert_eq!(completed(&mut [&mut a, &mut b], 0, 1), [1]);
    assert!(into == bytes);
    into.fill(0);
    let mut read = access(Access::Read, back, 4, &mut into, 6);
    b.core.access(b.ep, &mut read).unwrap();
    assert_eq!(completed(&mut [&mut a, &mut b], 1, 1), [6]);
    assert!(into == bytes);
}
