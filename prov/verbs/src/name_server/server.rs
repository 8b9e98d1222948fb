//! The thread of the name server. It waits for all callers at the same time, so that no caller can
//! block the others.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use prov_base::own_thread::OwnThread;
use prov_base::warn_again;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::time::Timespec;

use super::PATIENCE;
use super::message::{HEAD, Names, Question};

/// Largest number of callers at the same time. Another one replaces the oldest.
const MOST_CALLERS: usize = 64;

/// Largest number of callers accepted in one turn.
const MOST_NEW: usize = 8;

/// How long no caller is accepted after the system had no resources for one.
const PAUSE: Duration = Duration::from_millis(100);

/// Keeps the name server running, if this process has it.
pub struct NameServer {
    #[cfg(test)]
    pub(super) port: u16,
    /// An eventfd, which is readable once the server has to end.
    bell: Arc<OwnedFd>,
    thread: Option<OwnThread>,
    /// The process of the thread: forked children do not have it.
    process: u32,
}

impl NameServer {
    /// Starts the name server at this port, if it does not run in this process. `None` if another
    /// process has it, or it cannot run.
    pub fn start(port: u16) -> Option<Arc<Self>> {
        static RUNNING: Mutex<Weak<NameServer>> = Mutex::new(Weak::new());
        let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(server) = running.upgrade() {
            return Some(server);
        }
        let server = Arc::new(Self::listen(port)?);
        *running = Arc::downgrade(&server);
        Some(server)
    }

    pub(super) fn listen(port: u16) -> Option<Self> {
        match Self::try_listen(port) {
            Ok(server) => Some(server),
            Err(error) => {
                if error.kind() != ErrorKind::AddrInUse {
                    log::warn!(target: crate::LOG.fabric, "no name server at port {port}: {error}");
                }
                None
            }
        }
    }

    fn try_listen(port: u16) -> std::io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))?;
        listener.set_nonblocking(true)?;
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let bell = Arc::new(bell);
        #[cfg(test)]
        let port = listener.local_addr()?.port();
        let mut server = Server {
            listener,
            bell: bell.clone(),
            callers: VecDeque::new(),
            names: Names::default(),
            paused_until: None,
        };
        let thread = OwnThread::start("verbs-names", 256 * 1024, move || server.run())?;
        Ok(NameServer {
            #[cfg(test)]
            port,
            bell,
            thread: Some(thread),
            process: std::process::id(),
        })
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            return;
        }
        let told = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
        if told.is_ok()
            && let Some(thread) = self.thread.take()
        {
            thread.join();
        }
    }
}

struct Server {
    listener: TcpListener,
    bell: Arc<OwnedFd>,
    /// In the order of their arrival.
    callers: VecDeque<Caller>,
    names: Names,
    paused_until: Option<Instant>,
}

struct Caller {
    stream: TcpStream,
    /// Whether the caller is on this host.
    is_local: bool,
    /// When the connection is closed.
    until: Instant,
    /// The bytes received.
    said: Vec<u8>,
}

/// The descriptors of the server with events.
struct Ready {
    bell: bool,
    listener: bool,
    callers: Vec<bool>,
}

impl Server {
    fn run(&mut self) {
        loop {
            let ready = self.wait();
            if ready.bell {
                return;
            }
            let names = &mut self.names;
            let mut is_ready = ready.callers.into_iter();
            let now = Instant::now();
            self.callers.retain_mut(|caller| {
                let goes_on = !is_ready.next().unwrap_or(false) || caller.hear(names);
                goes_on && now < caller.until
            });
            if ready.listener {
                self.take_callers(now);
            }
        }
    }

    /// Waits until there is something to do.
    fn wait(&mut self) -> Ready {
        let now = Instant::now();
        self.paused_until = self.paused_until.filter(|until| now < *until);
        let listens = match self.paused_until {
            Some(_) => PollFlags::empty(),
            None => PollFlags::IN,
        };
        let fixed = [
            PollFd::from_borrowed_fd(self.bell.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.listener.as_fd(), listens),
        ];
        let callers = self.callers.iter();
        let callers = callers.map(|caller| PollFd::new(&caller.stream, PollFlags::IN));
        let mut fds: Vec<_> = fixed.into_iter().chain(callers).collect();
        let ends = self.callers.iter().map(|caller| caller.until);
        let until = ends.chain(self.paused_until).min();
        let left =
            until.and_then(|until| Timespec::try_from(until.saturating_duration_since(now)).ok());
        let found = poll(&mut fds, left.as_ref()).unwrap_or_else(|error| {
            warn_again!(target: crate::LOG.fabric, "name server: {error}");
            std::thread::sleep(PAUSE);
            0
        });
        let mut is_ready = fds.iter().map(|fd| found != 0 && !fd.revents().is_empty());
        Ready {
            bell: is_ready.next().unwrap_or(false),
            listener: is_ready.next().unwrap_or(false) && self.paused_until.is_none(),
            callers: is_ready.collect(),
        }
    }

    fn take_callers(&mut self, now: Instant) {
        for _ in 0..MOST_NEW {
            let caller = self.listener.accept();
            match caller.and_then(|(stream, _)| Caller::new(stream, now + PATIENCE)) {
                Ok(caller) => {
                    if self.callers.len() == MOST_CALLERS {
                        self.callers.pop_front();
                    }
                    self.callers.push_back(caller);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => {
                    warn_again!(target: crate::LOG.fabric, "name server: {error}");
                    self.paused_until = Some(now + PAUSE);
                    return;
                }
            }
        }
    }
}

impl Caller {
    fn new(stream: TcpStream, until: Instant) -> std::io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Caller {
            // A caller that has already gone belongs to no host.
            is_local: match (stream.peer_addr(), stream.local_addr()) {
                (Ok(peer), Ok(own)) => peer.ip() == own.ip(),
                _ => false,
            },
            stream,
            until,
            said: Vec::new(),
        })
    }

    /// Reads from the caller, and answers; returns whether more bytes are expected.
    fn hear(&mut self, names: &mut Names) -> bool {
        let mut piece = [0; 64];
        match self.stream.read(&mut piece) {
            Ok(len) if len != 0 => self.said.extend(piece.iter().take(len)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
            _ => return false,
        }
        let Some((head, rest)) = self.said.split_first_chunk::<HEAD>() else {
            return true;
        };
        let Some(len) = Question::rest(head) else {
            return false;
        };
        let Some(rest) = rest.get(..len) else {
            return true;
        };
        let question = Question::decode(head, rest);
        if let Some(answer) = question.and_then(|question| names.ask(&question, self.is_local)) {
            // The socket's buffer has space for it: nothing was sent before.
            let _ = self.stream.write_all(&answer.encode());
        }
        false
    }
}
