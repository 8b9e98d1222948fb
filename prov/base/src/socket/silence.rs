//! Detects whether the host at the other end of a TCP connection has failed.
//!
//! TCP itself would retransmit for a quarter of an hour. While no data is in flight, keep-alive
//! probes ([`probe`]) detect a failure sooner; while data is in flight, periodic checks of the
//! connection do ([`Watch`]). (TCP_USER_TIMEOUT would also end connections with peers that are only
//! busy and do not read.)

use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::net::sockopt;

use crate::errno::Result;

/// The least such time: a lost packet is retransmitted after a fifth of a second, then after twice
/// that.
const LEAST: Duration = Duration::from_secs(2);

/// Returns how long a host may be silent, for a given time limit of connection attempts.
pub fn patience(to_connect: Duration) -> Duration {
    to_connect.max(LEAST)
}

/// Makes the kernel probe the other host while no data is in flight, so that a failure is detected
/// within that time (in whole seconds).
///
/// # Errors
/// Those of setsockopt(2).
pub fn probe(socket: BorrowedFd<'_>, patience: Duration) -> Result {
    let patience = patience.as_secs();
    let interval = (patience / 8).max(1);
    let idle = patience / 2;
    let probes = (patience - idle) / interval;
    sockopt::set_tcp_keepidle(socket, Duration::from_secs(idle))?;
    sockopt::set_tcp_keepintvl(socket, Duration::from_secs(interval))?;
    sockopt::set_tcp_keepcnt(socket, u32::try_from(probes).unwrap_or(u32::MAX))?;
    Ok(sockopt::set_socket_keepalive(socket, true)?)
}

/// The findings of the periodic checks of a connection.
#[derive(Default)]
pub struct Watch {
    /// The number of the next message at the last check.
    sequence: u8,
    /// The time of the check since which the host has had something to acknowledge and has not
    /// acknowledged anything.
    silent_since: Option<Instant>,
}

/// The kernel's knowledge of the other host.
pub struct Signs {
    /// Whether it has something to acknowledge.
    pub is_expected: bool,
    /// Time since its last acknowledgment.
    pub heard: Duration,
    /// Time since data was last received or sent.
    pub moved: Duration,
}

/// Returns the kernel's knowledge of the host at the other end.
///
/// # Errors
/// Those of getsockopt(2).
pub fn signs(socket: BorrowedFd<'_>) -> Result<Signs> {
    // SAFETY: the structure consists of integers, for which zero is a valid value.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut len = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the kernel writes up to `len` bytes, the size of `info`, which consists of integers.
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
        moved: Duration::from_millis(
            info.tcpi_last_data_recv
                .min(info.tcpi_last_data_sent)
                .into(),
        ),
    })
}

impl Watch {
    /// Whether the kernel has to be asked, given that the next message is number `sequence`:
    /// whether data may be in flight.
    pub fn is_due(&mut self, sequence: u8) -> bool {
        let sent = std::mem::replace(&mut self.sequence, sequence) != sequence;
        sent || self.silent_since.is_some()
    }

    /// Notes the kernel's answer; returns how long the host has been silent.
    pub fn note(&mut self, signs: &Signs, now: Instant) -> Duration {
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

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn note(watch: &mut Watch, now: Instant, is_expected: bool, heard: Duration) -> Duration {
        let signs = Signs {
            is_expected,
            heard,
            moved: heard,
        };
        watch.note(&signs, now)
    }

    #[test]
    fn silence_counts_from_the_first_look_that_missed_an_answer() {
        let start = Instant::now();
        let mut watch = Watch::default();
        assert!(!watch.is_due(0) && watch.is_due(1) && !watch.is_due(1));
        // Nothing was received for an hour, because there was nothing to send.
        let hour = SECOND * 3600;
        assert_eq!(note(&mut watch, start, true, hour), Duration::ZERO);
        assert!(watch.is_due(1));
        assert_eq!(note(&mut watch, start + SECOND, true, hour), SECOND);
        let later = start + SECOND * 2;
        assert_eq!(note(&mut watch, later, true, SECOND * 3), SECOND * 2);
        // Something is acknowledged.
        let later = start + SECOND * 5;
        assert_eq!(note(&mut watch, later, true, SECOND), Duration::ZERO);
        let later = start + SECOND * 6;
        assert_eq!(note(&mut watch, later, true, SECOND * 2), SECOND);
        // Everything is acknowledged.
        assert_eq!(note(&mut watch, later, false, SECOND), Duration::ZERO);
        assert!(!watch.is_due(1));
    }
}
