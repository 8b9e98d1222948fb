//! Transfers between memory and the path of a connection, without an intermediate copy.

use prov_base::buffer::{Ahead, AppIov, Incoming, Iov, Outgoing};
use prov_base::errno::Result;
use prov_base::warn_again;
use prov_message::{PayloadBuffer, RmaTarget};
use prov_util::mr::Grant;

use super::Path;

impl Path<'_> {
    /// Receives up to `len` bytes for the offset `at` of a destination, and the bytes after these
    /// into `behind`. Returns how many bytes there was space for, how many of those at the
    /// destination, and how many were received.
    #[allow(clippy::indexing_slicing, reason = "limited to what is there")]
    pub fn receive_to(
        &mut self,
        to: &PayloadBuffer,
        registered: &mut Option<RmaTarget>,
        at: usize,
        len: usize,
        behind: &mut [u8],
    ) -> (usize, usize, Result<usize>) {
        let mut receive = |memory: &Iov<'_>, behind: &mut [u8]| {
            let mut transfer = Incoming::default();
            transfer.push_app(memory);
            transfer.push(behind);
            let room = transfer.len();
            let received = self.receive_in(transfer);
            (room, memory.len(), received)
        };
        if let PayloadBuffer::App(memory) = to {
            return receive(&memory.slice(at, len), behind);
        }
        let mut received = None;
        let part = to.part(registered, at, len, |memory| {
            // The destination may have another segment, which precedes `behind`: so `behind` is
            // used with the last one only.
            let behind = match memory.len() == len {
                true => &mut *behind,
                false => &mut [],
            };
            received = Some(receive(memory, behind));
        });
        // Closed: its bytes are read and dropped.
        received.unwrap_or_else(|| {
            let room = part.min(behind.len());
            receive(&AppIov::EMPTY, &mut behind[..room])
        })
    }

    /// Sends `out` and then registered memory, beginning at an offset; zeros instead of memory
    /// that is closed. Returns how many bytes were offered, and how many were sent.
    pub fn send_registered(
        &mut self,
        out: Outgoing<'_>,
        registered: Option<&mut RmaTarget>,
        (grant, from): (&Grant, usize),
        ahead: (u64, &mut Ahead),
    ) -> (usize, Result<usize>) {
        let held = registered.and_then(|target| target.memory.hold(grant));
        let mut out = out;
        let _ = match &held {
            Some(held) => out.push_app(&held.part(from, usize::MAX)),
            None => {
                warn_again!(
                    target: crate::LOG.ep_data,
                    "memory was closed while a peer read it: the rest is sent as zeros"
                );
                out.push(zeros(grant.len() - from))
            }
        };
        let offered = out.len();
        (offered, self.send_out(out, libc::MSG_DONTWAIT, ahead))
    }
}

/// Up to so many zeros as one call sends.
pub fn zeros(len: usize) -> &'static [u8] {
    static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
    ZEROS.get(..len).unwrap_or(&ZEROS)
}
