//! Hosts that fall silent: they are down, or cut off.
//!
//! TCP would go on trying for a quarter of an hour. While nothing is on its way,
//! keep-alive probes find out sooner; while something is, a look at the
//! connections from time to time does. (TCP_USER_TIMEOUT would also end
//! connections with peers that are only busy and take nothing in.)

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

use prov_util::errno::{Errno, Result};

use crate::engine::Core;
use crate::engine::link::keys::ConnKey;
use crate::engine::link::keys::Due;
use crate::engine::link::watch::{Signs, patience};

/// Looks within the time that a host may be silent.
const LOOKS: u32 = 4;
impl Core {
    /// Looks after the connections from now on, as long as there are any.
    pub(crate) fn watch_for_silence(&mut self) {
        if !self.is_watching {
            self.is_watching = true;
            self.look_later();
        }
    }

    fn look_later(&mut self) {
        let next = Instant::now() + patience(&self.params) / LOOKS;
        self.timers.set(next, Due::Silence);
        self.poller.wake_at(next);
    }

    /// Ends the connections with hosts that have been silent for too long.
    pub(crate) fn look_for_silence(&mut self, now: Instant) {
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
                log::warn!(target: crate::LOG.ep_ctrl, "{} has fallen silent", conn.peer_text());
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
