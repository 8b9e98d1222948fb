//! What a lane sees of a device: work completions and the errors in them.

use std::ffi::CStr;

use prov_base::errno::Errno;
use prov_base::logging::Targets;
use prov_device::{Completion, Device, Failure};

use super::{
    AddressHandle, CompletionQueue, Gather, QueuePair, SharedQueue, WorkCompletion, status_text,
};
use crate::sys::ibverbs::{
    IBV_WC_LOC_LEN_ERR, IBV_WC_RECV_RDMA_WITH_IMM, IBV_WC_SUCCESS, IBV_WC_WITH_IMM,
    IBV_WC_WR_FLUSH_ERR,
};

/// The devices of libibverbs.
pub enum Rdma {}

impl Device for Rdma {
    type Completion = WorkCompletion;
    type Queue = CompletionQueue;
    type Pair = QueuePair;
    type Shared = SharedQueue;
    type Local = Gather;
    type Destination = AddressHandle;

    const LOG: Targets = crate::LOG;
    const FLUSHED: Failure = Failure {
        error: Errno::ECANCELED,
        status: IBV_WC_WR_FLUSH_ERR as i32,
        vendor: 0,
    };

    /// Returns the library's text (`fi_cq_strerror`).
    fn error_text(status: i32) -> Option<&'static CStr> {
        status_text(u32::try_from(status).ok()?)
    }
}

impl Completion for WorkCompletion {
    #[inline(always)]
    fn id(&self) -> u64 {
        self.wr_id
    }

    #[inline(always)]
    fn pair(&self) -> u32 {
        self.qp_num
    }

    #[inline(always)]
    fn failure(&self) -> Option<Failure> {
        match self.status {
            IBV_WC_SUCCESS => None,
            _ => Some(failure(self, Errno::EIO)),
        }
    }

    #[inline(always)]
    fn receive_failure(&self) -> Option<Failure> {
        match self.status {
            IBV_WC_SUCCESS => None,
            IBV_WC_LOC_LEN_ERR => Some(failure(self, Errno::ETRUNC)),
            _ => Some(failure(self, Errno::EIO)),
        }
    }

    #[inline(always)]
    fn received(&self) -> usize {
        self.byte_len as usize
    }

    #[inline(always)]
    fn is_write(&self) -> bool {
        self.opcode == IBV_WC_RECV_RDMA_WITH_IMM
    }

    #[inline(always)]
    fn immediate(&self) -> Option<u32> {
        (self.wc_flags & IBV_WC_WITH_IMM != 0).then_some(u32::from_be(self.imm_data))
    }
}

#[cold]
fn failure(completion: &WorkCompletion, error: Errno) -> Failure {
    Failure {
        error: match completion.status {
            IBV_WC_WR_FLUSH_ERR => Errno::ECANCELED,
            _ => error,
        },
        status: i32::try_from(completion.status).unwrap_or(i32::MAX),
        vendor: completion.vendor_err,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completion(status: u32) -> WorkCompletion {
        WorkCompletion {
            status,
            vendor_err: 0x81,
            ..WorkCompletion::default()
        }
    }

    #[test]
    fn success_is_no_failure() {
        assert_eq!(completion(IBV_WC_SUCCESS).failure(), None);
        assert_eq!(completion(IBV_WC_SUCCESS).receive_failure(), None);
    }

    #[test]
    fn flushed_requests_are_cancelled_and_others_failed() {
        let flushed = completion(IBV_WC_WR_FLUSH_ERR).failure().unwrap();
        assert_eq!((flushed.error, flushed.status), (Errno::ECANCELED, 5));
        assert!(flushed.is_flush());
        let long = completion(IBV_WC_LOC_LEN_ERR).receive_failure().unwrap();
        assert_eq!(long.error, Errno::ETRUNC);
        let failed = completion(12).failure().unwrap();
        assert_eq!((failed.error, failed.status), (Errno::EIO, 12));
        assert_eq!(*failed.vendor_data(), 0x81u32.to_ne_bytes());
    }
}
