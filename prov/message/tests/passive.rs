//! The behaviour of passive endpoints that is the same for all providers. These are integration
//! tests because event queues need a function of the framework, and the crate has no unsafe code.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::unreachable,
    reason = "what does not hold fails the test"
)]

use std::ffi::{c_char, c_int};
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, MutexGuard};

use prov_base::errno::{Errno, Result};
use prov_message::objects::{Listening, RequestReporter, Requests, SoftPassive, Unanswered};
use prov_util::attr::{Info, Opaque, version};
use prov_util::endpoint::PassiveEndpoint as _;
use prov_util::eq::Eq;
use prov_util::ffi::pep::PassiveObject;
use prov_util::ffi::{Handle, Use};
use prov_util::progress::Progress;
use prov_util::wait::{Attachment, WaitKind};

#[unsafe(no_mangle)]
extern "C" fn fi_strerror(_: c_int) -> *const c_char {
    c"an error".as_ptr()
}

/// A provider that does not really listen.
#[derive(Clone, Default)]
struct Nowhere(Arc<Mutex<Seen>>);

#[derive(Default)]
struct Seen {
    reporter: Option<RequestReporter<&'static str>>,
    backlog: c_int,
    refused: Vec<(&'static str, Vec<u8>)>,
}

impl Nowhere {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap()
    }
}

impl Progress for Nowhere {
    fn progress(&self) {}

    fn wait_fd(&self) -> Option<RawFd> {
        None
    }

    fn prepare_wait(&self) -> bool {
        true
    }
}

impl Listening for Nowhere {
    type Incomer = &'static str;
    type Setup = Option<Vec<u8>>;
    type Listener = Vec<u8>;

    const LOG_TARGET: &'static str = "nowhere::ep_ctrl";
    const BACKLOG: c_int = 16;
    const DATA_LIMIT: usize = 4;

    fn progress(&self) -> Arc<dyn Progress> {
        Arc::new(self.clone())
    }

    fn listen(
        &self,
        setup: &mut Option<Vec<u8>>,
        reporter: RequestReporter<&'static str>,
        backlog: c_int,
    ) -> Result<Vec<u8>> {
        let name = setup.take().ok_or(Errno::EOPBADSTATE)?;
        let mut seen = self.seen();
        seen.backlog = backlog;
        seen.reporter = Some(reporter);
        Ok(name)
    }

    fn close(&self, setup: &mut Option<Vec<u8>>, _: Option<Vec<u8>>) {
        *setup = None;
    }

    fn name(&self, setup: &Option<Vec<u8>>, listener: Option<&Vec<u8>>) -> Result<Vec<u8>> {
        let name = setup.as_ref().or(listener);
        name.cloned().ok_or(Errno::EADDRNOTAVAIL)
    }

    fn set_name(&self, setup: &mut Option<Vec<u8>>, name: &[u8]) -> Result<Vec<u8>> {
        *setup = Some(name.to_vec());
        Ok(name.to_vec())
    }

    fn refuse(&self, incomer: &'static str, data: &[u8]) {
        self.seen().refused.push((incomer, data.to_vec()));
    }
}

type Endpoint = SoftPassive<Nowhere>;

struct Setting {
    own: Nowhere,
    requests: Arc<Requests<&'static str>>,
    eq: Handle<Eq>,
    ep: Handle<PassiveObject<Endpoint>>,
}

fn set_up() -> Setting {
    let own = Nowhere::default();
    let requests = Arc::<Requests<_>>::default();
    let ep = SoftPassive::new(own.clone(), None, requests.clone(), &Info::default());
    let attachment = Attachment::open(WaitKind::None, None).unwrap();
    let eq = Eq::new(attachment, version(2, 0));
    Setting {
        own,
        requests,
        eq: Handle::new(eq, std::ptr::null_mut(), Vec::new()),
        ep: Handle::new(PassiveObject(ep), std::ptr::null_mut(), Vec::new()),
    }
}

impl Setting {
    /// An endpoint with a queue and a name, which listens.
    fn listening() -> Self {
        let setting = set_up();
        setting.ep.bind(Use::of(&setting.eq)).unwrap();
        setting.ep.set_name(b"here").unwrap();
        Endpoint::listen(&setting.ep).unwrap();
        setting
    }

    fn ask(&self, peer: &'static str) {
        let seen = self.own.seen();
        seen.reporter
            .as_ref()
            .unwrap()
            .request(peer, b"there", b"data");
    }

    fn has_room(&self) -> bool {
        self.own.seen().reporter.as_ref().unwrap().has_room()
    }

    /// Whether an event is reported.
    fn told(&self) -> bool {
        self.eq.read(1 << 10, false, |_| {}).is_ok()
    }
}

#[test]
fn listening_takes_an_event_queue_and_a_name_and_happens_once() {
    let Setting { own, eq, ep, .. } = set_up();
    assert_eq!(Endpoint::listen(&ep), Err(Errno::ENOEQ));
    ep.bind(Use::of(&eq)).unwrap();
    ep.bind(Use::of(&eq)).unwrap();
    assert_eq!(Endpoint::listen(&ep), Err(Errno::EOPBADSTATE));
    assert_eq!(ep.name(), Err(Errno::EADDRNOTAVAIL));
    ep.set_name(b"here").unwrap();
    Endpoint::listen(&ep).unwrap();
    assert_eq!(own.seen().backlog, Nowhere::BACKLOG);
    assert_eq!(Endpoint::listen(&ep), Err(Errno::EINVAL));
    assert_eq!(ep.set_name(b"there"), Err(Errno::EOPBADSTATE));
    assert_eq!(ep.name().as_deref(), Ok(&b"here"[..]));
}

#[test]
fn requests_are_reported_to_the_queue_that_was_bound_last() {
    let setting = Setting::listening();
    setting.ask("one");
    let other = Eq::new(
        Attachment::open(WaitKind::None, None).unwrap(),
        version(2, 0),
    );
    let other = Handle::new(other, std::ptr::null_mut(), Vec::new());
    setting.ep.bind(Use::of(&other)).unwrap();
    setting.ask("other");
    assert!(setting.told() && !setting.told());
    assert!(other.read(1 << 10, false, |_| {}).is_ok());
}

#[test]
fn the_backlog_is_the_applications_and_never_negative() {
    let Setting { own, eq, ep, .. } = set_up();
    ep.bind(Use::of(&eq)).unwrap();
    ep.set_name(b"here").unwrap();
    assert_eq!(ep.set_backlog(-1), Err(Errno::EINVAL));
    ep.set_backlog(3).unwrap();
    Endpoint::listen(&ep).unwrap();
    assert_eq!(own.seen().backlog, 3);
}

#[test]
fn each_request_is_reported() {
    let setting = Setting::listening();
    assert!(!setting.told());
    setting.ask("one");
    setting.ask("other");
    assert!(setting.told() && setting.told() && !setting.told());
}

/// Sends requests until the queue of the reporter is full.
fn ask_often(setting: &Setting) -> usize {
    let mut asked = 0;
    while setting.has_room() {
        setting.ask("peer");
        asked += 1;
    }
    asked
}

#[test]
fn unread_requests_end_with_the_endpoint() {
    let setting = Setting::listening();
    assert_eq!(ask_often(&setting), 256);
    Endpoint::close(&setting.ep).unwrap();
    assert!(setting.has_room());
}

#[test]
fn requests_that_were_read_stay_open_until_they_are_answered() {
    let setting = Setting::listening();
    for _ in 0..ask_often(&setting) {
        assert!(setting.told());
    }
    Endpoint::close(&setting.ep).unwrap();
    assert!(!setting.has_room());
}

#[test]
fn a_rejected_peer_is_informed_though_an_endpoint_might_accept() {
    let Setting {
        own, requests, ep, ..
    } = set_up();
    let unanswered = Unanswered::default();
    let one = requests.add("one", &unanswered);
    let other = requests.add("other", &unanswered);
    let third = requests.add("third", &unanswered);
    ep.reject(Opaque(one), b"no").unwrap();
    assert_eq!(ep.reject(Opaque(one), b"no"), Err(Errno::EINVAL));
    let claimed = requests.claim(other).unwrap();
    ep.reject(Opaque(other), b"no").unwrap();
    assert_eq!(claimed.take(), None);
    // Connection data that is too long is truncated without an error (fi_cm(3)).
    ep.reject(Opaque(third), b"too much").unwrap();
    let refused = [
        ("one", &b"no"[..]),
        ("other", &b"no"[..]),
        ("third", &b"too "[..]),
    ];
    assert_eq!(
        own.seen().refused,
        refused.map(|(who, data)| (who, data.to_vec()))
    );
}
