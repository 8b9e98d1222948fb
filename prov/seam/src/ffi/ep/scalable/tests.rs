use std::os::fd::RawFd;
use std::ptr::null_mut;
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;

use super::*;
use crate::endpoint::{Bindings, NoSharedReceive};
use crate::ffi::test_domain::TestDomain;
use crate::trigger::Triggers;
use prov_base::atomic_ops::Offered;
use prov_objects::av::Config;
use prov_objects::cq::CqConfig;
use prov_objects::progress::Progress;
use prov_objects::request::{Receive, Transmit};

/// What has been done to the endpoint of an index.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Done {
    /// With a queue for transmits, and for receives.
    Enabled(bool, bool),
    Rebound(bool, bool),
    SideClosed(Side, bool, bool),
    Closed,
}

/// An endpoint of a provider, which notes what is done to it and is driven by its queues.
struct Noting {
    index: u8,
    done: Arc<Mutex<Vec<(u8, Done)>>>,
    progress: Arc<Counted>,
}

#[derive(Default)]
struct Counted(AtomicUsize);

impl Progress for Counted {
    fn progress(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn wait_fd(&self) -> Option<RawFd> {
        None
    }

    fn prepare_wait(&self) -> bool {
        true
    }
}

impl Noting {
    fn note(&self, done: Done) {
        self.done.lock().unwrap().push((self.index, done));
    }
}

fn queues(bindings: &Bindings<NoSharedReceive>) -> (bool, bool) {
    (bindings.tx_cq.is_some(), bindings.rx_cq.is_some())
}

impl Endpoint for Noting {
    type SharedReceive = NoSharedReceive;

    fn enable(
        this: &Handle<EndpointObject<Self>>,
        bindings: &Bindings<NoSharedReceive>,
    ) -> Result<Arc<dyn Progress>> {
        bindings.av.as_ref().ok_or(Errno::ENOAV)?;
        let (tx, rx) = queues(bindings);
        this.note(Done::Enabled(tx, rx));
        Ok(this.progress.clone())
    }

    fn rebind(this: &Handle<EndpointObject<Self>>, bindings: &Bindings<NoSharedReceive>) -> Result {
        let (tx, rx) = queues(bindings);
        this.note(Done::Rebound(tx, rx));
        Ok(())
    }

    fn close_side(
        this: &Handle<EndpointObject<Self>>,
        side: Side,
        bindings: &Bindings<NoSharedReceive>,
    ) -> Result {
        let (tx, rx) = queues(bindings);
        this.note(Done::SideClosed(side, tx, rx));
        Ok(())
    }

    fn receive_limit(&self) -> usize {
        4
    }

    fn close(this: &Handle<EndpointObject<Self>>) -> Result {
        this.note(Done::Closed);
        Ok(())
    }

    fn transmit(&self, _: &mut Transmit) -> Result {
        Ok(())
    }

    fn receive(&self, _: &mut Receive) -> Result {
        Ok(())
    }

    fn cancel(&self, _: *mut c_void) -> Result {
        Ok(())
    }

    fn name(&self) -> Result<Vec<u8>> {
        Ok(vec![self.index])
    }
}

struct Opened {
    sep: Handle<ScalableObject<Noting>>,
    done: Arc<Mutex<Vec<(u8, Done)>>>,
    progress: Vec<Arc<Counted>>,
    av: Handle<Av>,
}

impl Opened {
    /// With as many transmit and receive contexts.
    fn new(tx: usize, rx: usize) -> Self {
        let done = Arc::<Mutex<Vec<_>>>::default();
        let pairs = [tx, rx]
            .into_iter()
            .filter(|&count| count != FI_SHARED_CONTEXT);
        let pairs = pairs.max().unwrap_or(1);
        let progress: Vec<_> = (0..pairs).map(|_| Arc::<Counted>::default()).collect();
        let endpoints = progress.iter().zip(0..).map(|(progress, index)| Noting {
            index,
            done: done.clone(),
            progress: progress.clone(),
        });
        let mut info = Info::default();
        (info.ep.ep_type, info.ep.tx_ctx_cnt, info.ep.rx_ctx_cnt) = (FI_EP_RDM, tx, rx);
        info.caps = FI_MSG;
        assert_eq!(pairs_of(&info, "test"), Ok(pairs));
        let offers = Arc::new(Offers::default());
        let limits = Limits::of(&offers, &info, Offered::NONE);
        let domain = Use::of(&TestDomain::open(FI_SOCKADDR_IN, 0)).any();
        let triggers = Triggers::new(false);
        let endpoints = endpoints.collect();
        let open = ScalableObject::open;
        let sep = open(endpoints, info, null_mut(), limits, offers, domain, || {
            triggers.clone().into()
        });
        let av = Av::open(&Config::default()).unwrap();
        let av = Handle::new(av, null_mut(), Vec::new());
        Opened {
            sep,
            done,
            progress,
            av,
        }
    }

    fn open(&self, side: Side, index: c_int) -> Result<Handle<EndpointObject<Noting>>> {
        let opening = Opening::of(&self.sep.pairs.info, 0);
        ScalableObject::open_context(&self.sep, side, index, &opening, null_mut())
    }

    fn bind_av(&self) -> Result {
        ScalableObject::bind(&self.sep, any(&self.av), 0)
    }

    fn done(&self) -> Vec<(u8, Done)> {
        std::mem::take(&mut *self.done.lock().unwrap())
    }
}

fn any<T: Class>(object: &Handle<T>) -> AnyFid<'_> {
    // SAFETY: the object is open as long as its handle is borrowed.
    unsafe { AnyFid::new(object.fid()) }.unwrap()
}

fn queue() -> Handle<Cq> {
    let cq = Cq::new(CqConfig::default()).unwrap();
    Handle::new(cq, null_mut(), Vec::new())
}

type Context = Handle<EndpointObject<Noting>>;

fn bind(context: &Context, cq: &Handle<Cq>, flags: u64) -> Result {
    EndpointObject::bind(context, any(cq), flags)
}

#[test]
fn contexts_of_an_index_are_the_sides_of_one_endpoint() {
    let opened = Opened::new(2, 2);
    opened.bind_av().unwrap();
    let (tx, rx) = (
        opened.open(Side::Transmit, 1).unwrap(),
        opened.open(Side::Receive, 1).unwrap(),
    );
    assert_eq!((tx.class(), rx.class()), (FI_CLASS_TX_CTX, FI_CLASS_RX_CTX));
    let (sent, received) = (queue(), queue());
    // The other direction's flag means nothing.
    bind(&tx, &sent, FI_TRANSMIT | FI_RECV).unwrap();
    EndpointObject::enable(&tx).unwrap();
    assert_eq!(opened.done(), [(1, Done::Enabled(true, false))]);
    assert_eq!(EndpointObject::enable(&rx), Err(Errno::ENOCQ));
    bind(&rx, &received, FI_RECV).unwrap();
    EndpointObject::enable(&rx).unwrap();
    assert_eq!(opened.done(), [(1, Done::Rebound(true, true))]);
    sent.drive();
    received.drive();
    let driven: Vec<_> = opened
        .progress
        .iter()
        .map(|it| it.0.load(Ordering::Relaxed))
        .collect();
    assert_eq!(driven, [0, 2]);
    assert_eq!(tx.own_name(), Ok(vec![0]));
}

#[test]
fn an_index_is_within_the_contexts_of_its_direction_and_open_once() {
    let opened = Opened::new(1, 2);
    for (side, index) in [(Side::Transmit, 1), (Side::Receive, 2), (Side::Receive, -1)] {
        assert_eq!(opened.open(side, index).err(), Some(Errno::EINVAL));
    }
    let first = opened.open(Side::Receive, 1).unwrap();
    assert_eq!(opened.open(Side::Receive, 1).err(), Some(Errno::EBUSY));
    first.close().unwrap();
    opened.open(Side::Receive, 1).unwrap().close().unwrap();
}

#[test]
fn a_context_that_is_closed_leaves_the_other_one_with_its_queue() {
    for closed in [Side::Transmit, Side::Receive] {
        let opened = Opened::new(1, 1);
        opened.bind_av().unwrap();
        let contexts = [Side::Transmit, Side::Receive].map(|side| opened.open(side, 0).unwrap());
        let queues = [queue(), queue()];
        for ((context, cq), flag) in contexts.iter().zip(&queues).zip([FI_TRANSMIT, FI_RECV]) {
            bind(context, cq, flag).unwrap();
            EndpointObject::enable(context).unwrap();
        }
        opened.done();
        let at = usize::from(closed == Side::Receive);
        assert_eq!(queues[at].close(), Err(Errno::EBUSY));
        contexts[at].close().unwrap();
        let left = (closed == Side::Receive, closed == Side::Transmit);
        assert_eq!(
            opened.done(),
            [(0, Done::SideClosed(closed, left.0, left.1))]
        );
        queues[at].close().unwrap();
        queues[1 - at].drive();
        assert_eq!(opened.progress[0].0.load(Ordering::Relaxed), 1);
        assert_eq!(opened.sep.close(), Err(Errno::EBUSY));
        contexts[1 - at].close().unwrap();
        opened.done();
        assert_eq!(opened.av.close(), Err(Errno::EBUSY));
        opened.sep.close().unwrap();
        assert_eq!(opened.done(), [(0, Done::Closed)]);
        opened.av.close().unwrap();
    }
}

#[test]
fn the_address_vector_is_the_scalable_endpoints() {
    let opened = Opened::new(1, 1);
    let tx = opened.open(Side::Transmit, 0).unwrap();
    let cq = queue();
    bind(&tx, &cq, FI_TRANSMIT).unwrap();
    assert_eq!(EndpointObject::enable(&tx), Err(Errno::ENOAV));
    assert_eq!(
        EndpointObject::bind(&tx, any(&opened.av), 0),
        Err(Errno::EINVAL)
    );
    opened.bind_av().unwrap();
    assert_eq!(opened.bind_av(), Err(Errno::EINVAL));
    EndpointObject::enable(&tx).unwrap();
    tx.close().unwrap();
    opened.sep.close().unwrap();
}

#[test]
fn one_context_of_a_direction_uses_a_shared_one() {
    let opened = Opened::new(2, FI_SHARED_CONTEXT);
    opened.bind_av().unwrap();
    assert_eq!(opened.open(Side::Receive, 1).err(), Some(Errno::EINVAL));
    let cq = queue();
    let enabled = [0, 1].map(|index| {
        let tx = opened.open(Side::Transmit, index).unwrap();
        bind(&tx, &cq, FI_TRANSMIT).unwrap();
        let enabled = EndpointObject::enable(&tx);
        tx.close().unwrap();
        enabled
    });
    // Only the pair that receives waits for the shared context.
    assert_eq!(enabled, [Err(Errno::EOPBADSTATE), Ok(())]);
    opened.sep.close().unwrap();
}

#[test]
fn what_is_no_scalable_endpoint_is_refused() {
    let with = |change: fn(&mut Info)| {
        let mut info = Info::default();
        (info.ep.ep_type, info.ep.tx_ctx_cnt, info.ep.rx_ctx_cnt) = (FI_EP_RDM, 2, 3);
        change(&mut info);
        pairs_of(&info, "test")
    };
    assert_eq!(with(|_| ()), Ok(3));
    assert_eq!(
        with(|info| (info.ep.tx_ctx_cnt, info.ep.rx_ctx_cnt) = (0, 0)),
        Ok(1)
    );
    assert_eq!(with(|info| info.ep.rx_ctx_cnt = FI_SHARED_CONTEXT), Ok(2));
    assert_eq!(with(|info| info.ep.tx_ctx_cnt = FI_SHARED_CONTEXT), Ok(3));
    for refused in [
        with(|info| info.ep.ep_type = FI_EP_MSG),
        with(|info| info.caps = FI_COLLECTIVE),
    ] {
        assert_eq!(refused, Err(Errno::EINVAL));
    }
}

#[test]
fn an_alias_keeps_the_scalable_endpoint_open_and_opens_its_contexts() {
    let opened = Opened::new(1, 1);
    let alias = ScalableObject::alias(&opened.sep, FI_TRANSMIT).unwrap();
    assert_eq!(alias.class(), FI_CLASS_SEP);
    let opening = Opening::of(&alias.pairs.info, 0);
    let open = || ScalableObject::open_context(&alias, Side::Transmit, 0, &opening, null_mut());
    let context = open().unwrap();
    assert_eq!(opened.open(Side::Transmit, 0).err(), Some(Errno::EBUSY));
    assert_eq!(alias.close(), Err(Errno::EBUSY));
    context.close().unwrap();
    assert_eq!(opened.sep.close(), Err(Errno::EBUSY));
    alias.close().unwrap();
    opened.sep.close().unwrap();
}
