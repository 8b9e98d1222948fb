//! Hosts that fall silent: they are down, or cut off.
//!
//! TCP would go on trying for a quarter of an hour. While nothing is on its way,
//! keep-alive probes find out sooner; while something is, a look at the
//! connections from time to time does. (TCP_USER_TIMEOUT would also end
//! connections with peers that are only busy and take nothing in.)

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

use prov_util::errno::{Errno, Result};
use rustix::net::sockopt;

use super::Core;
use super::keys::ConnKey;
use super::socket::system;
use super::timers::Target;
use crate::params::Params;

/// Looks within the time that a host may be silent.
const LOOKS: u32 = 4;
/// The least such time: a packet that is lost is sent again after a fifth of a
/// second, then after twice that.
const LEAST: Duration = Duration::from_secs(2);

/// How long a host may be silent.
fn patience(params: &Params) -> Duration {
    params.connect_timeout().max(LEAST)
}

/// What the looks at a connection have found.
#[derive(Default)]
pub struct Watch {
    /// The number of the next message at the last look.
    sequence: u8,
    /// The look since which the host has had to acknowledge something and has
    /// not acknowledged anything.
    silent_since: Option<Instant>,
}

/// What the system knows about the other host.
struct Signs {
    /// Whether it has something to acknowledge.
    is_expected: bool,
    /// How long ago it acknowledged something last.
    heard: Duration,
}

impl Watch {
    /// Whether the system has to be asked, when the next message is number
    /// `sequence`: something may be on its way.
    fn is_due(&mut self, sequence: u8) -> bool {
        let sent = std::mem::replace(&mut self.sequence, sequence) != sequence;
        sent || self.silent_since.is_some()
    }

    /// Takes note of what the system says; how long the host has been silent.
    fn note(&mut self, signs: &Signs, now: Instant) -> Duration {
        if !signs.is_expected {
            self.silent_since = None;
            return Duration::ZERO;
        }
        let silent = match self.silent_since {
            Some(since) if signs.heard >= now - since => now - since,
            _ => Duration::ZERO,
        };
        self.silent_since = Some(now - silent);
        silent
    }
}

impl Core {
    /// Looks after the connections from now on, as long as there are any.
    pub(super) fn watch_for_silence(&mut self) {
        if !self.is_watching {
            self.is_watching = true;
            self.look_later();
        }
    }

    fn look_later(&mut self) {
        let next = Instant::now() + patience(&self.params) / LOOKS;
        self.timers.set(next, Target::Silence);
        self.poller.wake_at(next);
    }

    /// Ends the connections with hosts that have been silent for too long.
    pub(super) fn look_for_silence(&mut self, now: Instant) {
        // The rest of the time has passed before the first look.
        let limit = patience(&self.params) / LOOKS * (LOOKS - 1);
        let mut silent: Vec<ConnKey> = Vec::new();
        for (key, conn) in &mut self.conns {
            if !conn.is_open() || !(conn.watch.is_due(conn.sequence) | !conn.outbox.is_empty()) {
                continue;
            }
            if let Ok(signs) = signs(conn.socket.as_fd())
                && conn.watch.note(&signs, now) >= limit
            {
                log::warn!("{} has fallen silent", conn.peer_text());
                silent.push(key);
            }
        }
        for key in silent {
            self.break_connection(key, Errno::ETIMEDOUT);
        }
        self.is_watching = !self.conns.is_empty();
        if self.is_watching {
            self.look_later();
        }
    }
}

/// Has the system probe the other host while nothing is on its way, so that its
/// silence shows within the connection timeout (in whole seconds).
pub fn probe(socket: BorrowedFd<'_>, params: &Params) -> Result {
    let patience = patience(params).as_secs();
    let interval = (patience / 8).max(1);
    let idle = patience / 2;
    let probes = (patience - idle) / interval;
    sockopt::set_tcp_keepidle(socket, Duration::from_secs(idle)).map_err(system)?;
    sockopt::set_tcp_keepintvl(socket, Duration::from_secs(interval)).map_err(system)?;
    sockopt::set_tcp_keepcnt(socket, u32::try_from(probes).unwrap_or(u32::MAX)).map_err(system)?;
    sockopt::set_socket_keepalive(socket, true).map_err(system)
}

fn signs(socket: BorrowedFd<'_>) -> Result<Signs> {
    // SAFETY: every field of a `tcp_info` may be zero.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut len = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the option writes up to `len` bytes to `info`, which are that
    // many, and plain numbers.
    let status = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &mut len,
        )
    };
    if status != 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    Ok(Signs {
        is_expected: info.tcpi_unacked != 0 || info.tcpi_probes != 0 || info.tcpi_retransmits != 0,
        heard: Duration::from_millis(info.tcpi_last_ack_recv.into()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn note(watch: &mut Watch, now: Instant, is_expected: bool, heard: Duration) -> Duration {
        watch.note(&Signs { is_expected, heard }, now)
    }

    #[test]
    fn silence_counts_from_the_first_look_that_missed_an_answer() {
        let start = Instant::now();
        let mut watch = Watch::default();
        assert!(!watch.is_due(0) && watch.is_due(1) && !watch.is_due(1));
        // Nothing was heard for an hour, because there was nothing to say.
        let hour = SECOND * 3600;
        assert_eq!(note(&mut watch, start, true, hour), Duration::ZERO);
        assert!(watch.is_due(1));
        assert_eq!(note(&mut watch, start + SECOND, true, hour), SECOND);
        let later = start + SECOND * 2;
        assert_eq!(note(&mut watch, later, true, SECOND * 3), SECOND * 2);
        // An answer to something.
        let later = start + SECOND * 5;
        assert_eq!(note(&mut watch, later, true, SECOND), Duration::ZERO);
        let later = start + SECOND * 6;
        assert_eq!(note(&mut watch, later, true, SECOND * 2), SECOND);
        // All of it was acknowledged.
        assert_eq!(note(&mut watch, later, false, SECOND), Duration::ZERO);
        assert!(!watch.is_due(1));
    }
}
