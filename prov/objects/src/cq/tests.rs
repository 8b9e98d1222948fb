use super::*;
use std::ffi::c_void;
use std::ptr;

use crate::drive::{READS_WITHOUT_PROGRESS, Signals};

fn open(format: CqFormat, size: usize) -> Cq {
    Cq::new(CqConfig {
        format,
        size,
        lock: LockKind::Elided,
        ..CqConfig::default()
    })
    .unwrap()
}

fn context(number: u64) -> *mut c_void {
    ptr::without_provenance_mut(number as usize)
}

fn numbered(number: u64) -> Completion {
    Completion {
        context: context(number),
        flags: number + 1,
        len: number as usize + 2,
        buf: context(number + 3),
        data: number + 4,
        tag: number + 5,
        src: number + 6,
    }
}

/// Up to `count` completions.
fn read_all(cq: &Cq, count: usize) -> Result<Vec<Completion>> {
    let mut completions = Vec::new();
    let taken = cq.read(count, |completion| completions.push(*completion))?;
    assert_eq!(taken, completions.len());
    Ok(completions)
}

/// The contexts of up to `count` completions.
fn read(cq: &Cq, count: usize) -> Result<Vec<usize>> {
    let completions = read_all(cq, count)?;
    Ok(completions.iter().map(|one| one.context.addr()).collect())
}

#[test]
fn an_empty_queue_has_nothing_to_read() {
    let cq = open(CqFormat::Context, 0);
    assert_eq!(read(&cq, 1), Err(Errno::EAGAIN));
    assert_eq!(read(&cq, 0), Err(Errno::EAGAIN));
    assert_eq!(cq.read_error().unwrap_err(), Errno::EAGAIN);
}

#[test]
fn completions_are_read_in_order_and_at_most_as_many_as_requested() {
    let cq = open(CqFormat::Context, 8);
    cq.write_batch(&[numbered(1), numbered(2), numbered(3)]);
    assert_eq!(read(&cq, 0).unwrap(), [0; 0]);
    assert_eq!(read(&cq, 2).unwrap(), [1, 2]);
    assert_eq!(read(&cq, 2).unwrap(), [3]);
    assert_eq!(read(&cq, 2), Err(Errno::EAGAIN));
}

#[test]
fn a_full_queue_grows_and_loses_nothing() {
    let cq = open(CqFormat::Tagged, 4);
    // Starting in the middle of the ring, so that growing has to unwrap it.
    for number in 0..3 {
        cq.write(&numbered(number));
        read(&cq, 1).unwrap();
    }
    for number in 0..1000 {
        cq.write(&numbered(number));
    }
    let mut expected = 0;
    while let Ok(completions) = read_all(&cq, 7) {
        for completion in completions {
            let wanted = numbered(expected);
            assert_eq!(completion.context, wanted.context);
            assert_eq!(
                (completion.flags, completion.len),
                (wanted.flags, wanted.len)
            );
            assert_eq!((completion.buf, completion.data), (wanted.buf, wanted.data));
            assert_eq!((completion.tag, completion.src), (wanted.tag, wanted.src));
            expected += 1;
        }
    }
    assert_eq!(expected, 1000);
    // It has gone back to its size, and still works.
    cq.write(&numbered(5));
    assert_eq!(read(&cq, 1).unwrap()[0], 5);
}

#[test]
fn an_error_stops_reading_until_it_is_read_itself() {
    let cq = open(CqFormat::Context, 4);
    cq.write(&numbered(1));
    let mut error = ErrorCompletion::truncated(numbered(2), 77);
    error.err_data = Box::from(&b"why"[..]);
    cq.write_error(error);
    cq.write(&numbered(3));

    assert_eq!(cq.read_error().unwrap_err(), Errno::EAGAIN);
    assert_eq!(read(&cq, 8).unwrap(), [1]);
    assert_eq!(read(&cq, 8), Err(Errno::EAVAIL));
    assert_eq!(read(&cq, 0), Err(Errno::EAVAIL));
    let error = cq.read_error().unwrap();
    assert_eq!(error.completion.context, context(2));
    assert_eq!((error.err, error.olen), (Errno::ETRUNC, 77));
    assert_eq!(&*error.err_data, b"why");
    assert_eq!(read(&cq, 8).unwrap(), [3]);
    assert_eq!(cq.read_error().unwrap_err(), Errno::EAGAIN);
}

#[test]
fn consecutive_errors_are_read_one_by_one() {
    let cq = open(CqFormat::Context, 2);
    for number in 1..=3 {
        cq.write_error(ErrorCompletion::new(numbered(number), Errno::ECANCELED));
    }
    for number in 1..=3 {
        assert_eq!(read(&cq, 1), Err(Errno::EAVAIL));
        let error = cq.read_error().unwrap();
        assert_eq!(error.completion.context, context(number));
    }
    assert_eq!(read(&cq, 1), Err(Errno::EAGAIN));
}

#[test]
fn lent_error_data_stays_until_the_next_error_is_read() {
    let cq = open(CqFormat::Context, 2);
    let lent = cq.lend(Box::from(&b"abc"[..]));
    cq.write(&numbered(1));
    read(&cq, 1).unwrap();
    // SAFETY: the data is valid until the next error is read, and none was read.
    assert_eq!(unsafe { &*lent }, b"abc");
}

#[test]
fn a_peer_queue_passes_everything_to_its_owner() {
    struct Owner(Arc<Cq>);
    impl CqOwner for Owner {
        fn write(&self, completion: &Completion) -> Result {
            self.0.write(completion);
            Ok(())
        }
        fn write_error(&self, error: &ErrorCompletion) -> Result {
            self.0.write_error(error.clone());
            Ok(())
        }
    }
    let owner = Arc::new(open(CqFormat::Context, 4));
    let peer = Cq::new(CqConfig {
        format: CqFormat::Context,
        with_sources: false,
        lock: LockKind::Elided,
        owner: Some(Box::new(Owner(owner.clone()))),
        ..CqConfig::default()
    })
    .unwrap();
    peer.write(&numbered(1));
    peer.write_error(ErrorCompletion::new(numbered(2), Errno::EIO));
    assert!(peer.is_peer());
    assert_eq!(read(&owner, 4).unwrap(), [1]);
    assert_eq!(owner.read_error().unwrap().err, Errno::EIO);
}

/// Counts how often it is driven.
#[derive(Default)]
struct Transport {
    driven: AtomicUsize,
    signals: Arc<Signals>,
}

impl Progress for Transport {
    fn progress(&self) {
        self.driven.fetch_add(1, Ordering::Relaxed);
        self.signals.driven();
    }
    fn signals(&self) -> Arc<Signals> {
        self.signals.clone()
    }
    fn wait_fd(&self) -> Option<std::os::fd::RawFd> {
        None
    }
    fn prepare_wait(&self) -> bool {
        true
    }
}

#[test]
fn transports_are_driven_when_the_queue_has_nothing() {
    let cq = open(CqFormat::Context, 64);
    let transport = Arc::new(Transport::default());
    let driven = || transport.driven.swap(0, Ordering::Relaxed);
    let source: Arc<dyn Progress> = transport.clone();
    cq.add_source(source.clone()).unwrap();
    cq.add_source(source.clone()).unwrap();

    let _ = read(&cq, 1);
    assert_eq!(driven(), 1, "bound twice, driven once");
    cq.write_batch(&[numbered(1); 4]);
    let _ = read(&cq, 3);
    assert_eq!(driven(), 0);
    let _ = read(&cq, 0);
    assert_eq!(driven(), 1);
    let _ = read(&cq, 8);
    assert_eq!(driven(), 0, "there is one, though not eight");
    cq.write_batch(&[numbered(1); 2]);
    transport.signals.burst_begins();
    let _ = read(&cq, 2);
    assert_eq!(driven(), 1);

    transport.signals.burst_ends();
    // Driving counts as a read, too.
    for _ in 0..5 * (READS_WITHOUT_PROGRESS - 1) {
        cq.write(&numbered(1));
        let _ = read(&cq, 1);
    }
    assert_eq!(driven(), 5, "a queue that is never empty starves nobody");

    cq.remove_source(&source);
    let _ = read(&cq, 0);
    assert_eq!(driven(), 1, "still bound once");
    cq.remove_source(&source);
    let _ = read(&cq, 0);
    assert_eq!(driven(), 0);
}

#[test]
fn transports_of_one_queue_take_one_turn_together() {
    let cq = open(CqFormat::Context, 64);
    let transports: Vec<_> = (0..16).map(|_| Arc::new(Transport::default())).collect();
    for (phase, transport) in transports.iter().enumerate() {
        // Other queues of theirs were read.
        (0..phase).for_each(|_| _ = transport.signals.read());
        cq.add_source(transport.clone()).unwrap();
    }
    for _ in 0..=10 * (READS_WITHOUT_PROGRESS - 1) {
        cq.write(&numbered(1));
        let _ = read(&cq, 1);
    }
    for transport in &transports {
        assert_eq!(transport.driven.swap(0, Ordering::Relaxed), 10);
    }
    transports[5].signals.drive_next();
    cq.write(&numbered(1));
    let _ = read(&cq, 1);
    assert_eq!(transports[0].driven.load(Ordering::Relaxed), 1);
    cq.shut();
}

#[test]
fn an_overrun_queue_returns_its_entries_and_then_only_the_error() {
    let cq = open(CqFormat::Context, 4);
    cq.write(&numbered(1));
    cq.write_error(ErrorCompletion::new(numbered(2), Errno::EIO));
    cq.write(&numbered(3));
    // What running out of memory leads to.
    let mut state = cq.state.lock();
    let more = state.overrun();
    cq.publish(&mut state, more);
    drop(state);
    cq.write(&numbered(4));
    cq.write_error(ErrorCompletion::new(numbered(5), Errno::EIO));

    assert_eq!(read(&cq, 8).unwrap(), [1]);
    assert_eq!(read(&cq, 8), Err(Errno::EAVAIL));
    assert_eq!(cq.read_error().unwrap().err, Errno::EIO);
    assert_eq!(read(&cq, 8).unwrap(), [3]);
    for _ in 0..3 {
        assert_eq!(read(&cq, 8), Err(Errno::EAVAIL));
        assert_eq!(cq.read_error().unwrap().err, Errno::EOVERRUN);
    }
}

#[test]
fn queues_share_no_cache_line() {
    let lines = |cq: &Arc<Cq>| {
        let start = Arc::as_ptr(cq).addr();
        (start / 128, (start + size_of::<Cq>() - 1) / 128)
    };
    let queues: Vec<_> = (0..8)
        .map(|_| Arc::new(open(CqFormat::Context, 2)))
        .collect();
    let mut used: Vec<_> = queues.iter().map(lines).collect();
    used.sort_unstable();
    assert!(used.windows(2).all(|pair| pair[0].1 < pair[1].0));
}
