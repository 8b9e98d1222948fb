//! Memory whose pages are missing until a thread provides them (userfaultfd(2)).

use std::os::fd::{AsRawFd as _, FromRawFd as _};

use super::*;

const PAGE: usize = 4096;
const LEN: usize = 16 * PAGE;

/// Creates two sides with a link, over which the first one announces all messages, whatever their
/// length.
fn announcing() -> (Side, Side, u64) {
    let (mut a, mut b) = (Side::new(Params::default()), Side::new(Params::default()));
    let to = a.insert(&b.name);
    let (mut out, mut into) = ([1; 8], [0; 8]);
    b.core.receive(b.ep, &mut buffer(1, &mut into, 1)).unwrap();
    a.core
        .transmit(a.ep, &mut message(to, 1, &mut out, 0))
        .unwrap();
    assert_eq!(completed(&mut [&mut a, &mut b], 1, 1), [1]);
    assert_eq!(completed(&mut [&mut a, &mut b], 0, 1), [1]);
    announce(&mut a, true);
    (a, b, to)
}

fn announce(side: &mut Side, all: bool) {
    let links = side.core.links.values_mut();
    links.for_each(|link| link.pending.offer_only(all));
}

const API: libc::c_ulong = 0xc018_aa3f;
const REGISTER: libc::c_ulong = 0xc020_aa00;
const COPY: libc::c_ulong = 0xc028_aa03;

/// Memory that was never touched.
struct Absent {
    fd: c_int,
    base: *mut u8,
}

// SAFETY: the value is a mapping and a descriptor, neither of which is bound to a thread.
unsafe impl Send for Absent {}

impl Absent {
    /// Returns `None` if the system does not permit this process to use userfaultfd(2).
    fn new() -> Option<Self> {
        // SAFETY: the call takes flags only, and accesses no memory.
        let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC) };
        let fd = c_int::try_from(fd).ok().filter(|fd| *fd >= 0)?;
        // SAFETY: the mapping is new, at an address that the system chooses, so it replaces none.
        let base = unsafe {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            libc::mmap(null_mut(), LEN, access, flags, -1, 0)
        };
        assert_ne!(base, libc::MAP_FAILED);
        let absent = Absent {
            fd,
            base: base.cast(),
        };
        absent.control(API, &mut [0xaa, 0, 0]);
        absent.control(REGISTER, &mut [base.addr() as u64, LEN as u64, 1, 0]);
        Some(absent)
    }

    fn control(&self, request: libc::c_ulong, words: &mut [u64]) {
        // SAFETY: each caller passes an array of the size that its request reads and writes.
        let done = unsafe { libc::ioctl(self.fd, request, words.as_mut_ptr()) };
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    }

    /// Provides all pages, with these bytes.
    fn bring(&self, bytes: &[u8]) {
        let (to, from) = (self.base.addr() as u64, bytes.as_ptr().addr() as u64);
        assert_eq!(bytes.len(), LEN);
        self.control(COPY, &mut [to, from, LEN as u64, 0, 0]);
    }

    /// Whether a thread waits for a page.
    fn is_missed(&self) -> bool {
        let mut polled = libc::pollfd {
            fd: self.fd,
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: `polled` is one valid pollfd, and the timeout of 0 makes the call return at once.
        unsafe { libc::poll(&mut polled, 1, 0) == 1 }
    }
}

impl Drop for Absent {
    fn drop(&mut self) {
        // SAFETY: `new` has made the mapping and the descriptor, which nothing uses after the drop.
        unsafe {
            libc::munmap(self.base.cast(), LEN);
            libc::close(self.fd);
        }
    }
}

#[test]
fn memory_that_cannot_be_had_delays_its_own_transfer_only() {
    let Some(absent) = Absent::new() else {
        return;
    };
    let (mut a, mut b, to) = announcing();
    // SAFETY: `absent` lives until the operation is complete.
    let buffers = unsafe { AppIov::from_raw(absent.base, LEN) };
    let mut sent = Transmit {
        buffers,
        ..message(to, 1, &mut [], 0)
    };
    let mut into = vec![0; LEN];
    b.core.receive(b.ep, &mut buffer(1, &mut into, 10)).unwrap();
    a.core.transmit(a.ep, &mut sent).unwrap();
    let mut errand = None;
    until(&mut [&mut a], |_| {
        b.core.progress();
        errand = errand.take().or_else(|| b.core.next_errand());
        errand.is_some()
    });
    // The thread that makes progress copies without the lane's lock.
    let mut errand = errand.unwrap();
    let copier = std::thread::spawn(move || {
        errand.run();
        errand
    });
    until(&mut [&mut a], |_| absent.is_missed());
    announce(&mut a, false);
    for tag in 100..200 {
        let (mut out, mut other) = (pattern(tag as usize, 64), vec![0; 64]);
        b.core
            .receive(b.ep, &mut buffer(tag, &mut other, tag as usize))
            .unwrap();
        a.core
            .transmit(a.ep, &mut message(to, tag, &mut out, 0))
            .unwrap();
        let here = [tag as usize];
        assert_eq!(completed(&mut [&mut a, &mut b], 0, 1), here);
        assert_eq!(completed(&mut [&mut a, &mut b], 1, 1), here);
        assert_eq!(other, out);
    }
    assert!(!copier.is_finished());
    let bytes = pattern(3, LEN);
    absent.bring(&bytes);
    b.core.errand_done(copier.join().unwrap());
    assert_eq!(completed(&mut [&mut a, &mut b], 1, 1), [10]);
    assert_eq!(completed(&mut [&mut a, &mut b], 0, 1), [1]);
    assert!(into == bytes);
}

/// A file that is shorter than its mapping.
struct Short {
    file: std::fs::File,
    base: *mut u8,
}

impl Short {
    fn new() -> Self {
        // SAFETY: the name is a terminated string, and the new descriptor has no other owner.
        let file = unsafe {
            let fd = libc::memfd_create(c"short".as_ptr(), libc::MFD_CLOEXEC);
            std::fs::File::from_raw_fd(fd)
        };
        // SAFETY: the mapping is new, at an address that the system chooses, so it replaces none.
        let base = unsafe {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(
                null_mut(),
                LEN,
                access,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        assert_ne!(base, libc::MAP_FAILED);
        Short {
            file,
            base: base.cast(),
        }
    }
}

impl Drop for Short {
    fn drop(&mut self) {
        // SAFETY: `new` has made the mapping, which nothing uses after the drop.
        unsafe { libc::munmap(self.base.cast(), LEN) };
    }
}

#[test]
fn memory_that_others_cannot_read_is_sent_by_its_owner() {
    let short = Short::new();
    let (mut a, mut b, to) = announcing();
    let (out, mut into) = (pattern(2, LEN), vec![0; LEN]);
    b.core.receive(b.ep, &mut buffer(1, &mut into, 10)).unwrap();
    let mut sent = message(to, 1, &mut [], 0);
    // SAFETY: `short` lives until the operation is complete.
    sent.buffers = unsafe { AppIov::from_raw(short.base, LEN) };
    a.core.transmit(a.ep, &mut sent).unwrap();
    let mut errand = None;
    until(&mut [&mut a], |_| {
        b.core.progress();
        errand = errand.take().or_else(|| b.core.next_errand());
        errand.is_some()
    });
    let mut errand = errand.unwrap();
    errand.run();
    b.core.errand_done(errand);
    assert_eq!(b.completions(), []);
    // With the file extended, the owner can read its memory.
    std::os::unix::fs::FileExt::write_all_at(&short.file, &out, 0).unwrap();
    assert_eq!(completed(&mut [&mut a, &mut b], 1, 1), [10]);
    assert_eq!(completed(&mut [&mut a, &mut b], 0, 1), [1]);
    assert!(into == out);
}
