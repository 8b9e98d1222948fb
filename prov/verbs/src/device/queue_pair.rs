//! Queue pairs.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use prov_base::errno::{Errno, Result};
use prov_base::process::Process;

use super::work::{receive_request, send_request};
use super::{
    CompletionQueue, ProtectionDomain, Rdma, ReceiveRequest, SendRequest, SharedQueue, numbered,
};
use crate::sys::ibverbs::*;
use crate::sys::xrc::IBV_QPT_XRC_SEND;

/// The kind of communication of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pairing {
    /// Connected and reliable (RC).
    Connected,
    /// By datagrams (UD).
    Datagrams,
    /// Connected and reliable, to many receive queues, and only sending (XRC).
    Initiator,
}

/// The parameters of a new queue pair.
pub struct PairConfig<'a> {
    /// The kind of communication.
    pub pairing: Pairing,
    /// The queue of send completions.
    pub send_queue: &'a Arc<CompletionQueue>,
    /// The queue of receive completions.
    pub receive_queue: &'a Arc<CompletionQueue>,
    /// The shared receive queue, if receives are not posted to the pair itself.
    pub shared: Option<&'a Arc<SharedQueue>>,
    /// Largest number of outstanding send requests.
    pub sends: usize,
    /// Largest number of outstanding receive requests.
    pub receives: usize,
    /// Largest number of segments of a send request.
    pub send_pieces: usize,
    /// Largest number of segments of a receive request.
    pub receive_pieces: usize,
    /// Largest number of bytes of an inline request.
    pub inline: usize,
}

/// A queue pair.
pub struct QueuePair {
    qp: NonNull<ibv_qp>,
    number: u32,
    inline: usize,
    post_send: unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int,
    post_receive:
        unsafe extern "C" fn(*mut ibv_qp, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int,
    pd: Arc<ProtectionDomain>,
    /// Only the process that created the object destroys it.
    process: Process,
    kind: QueuePairKind,
}

/// The kind of a queue pair, and the objects that must exist as long as it does.
enum QueuePairKind {
    /// A queue pair of the device.
    Own {
        pairing: Pairing,
        _queues: [Arc<CompletionQueue>; 2],
        _shared: Option<Arc<SharedQueue>>,
        has_failed: AtomicBool,
    },
    /// A path over an initiator that others use, too.
    Path(NonNull<XrcPath>),
}

/// Replaces a queue pair whose requests are posted by [`post_on_path`].
#[derive(Default)]
struct XrcPath {
    /// The initiator and the number of the peer's receive queue, once the initiator is connected.
    to: OnceLock<(Arc<QueuePair>, u32)>,
}

/// An object with the states of a queue pair.
pub trait States {
    /// Changes attributes.
    fn modify(&self, attr: &mut ibv_qp_attr, mask: c_int) -> Result;

    /// Returns the bits of the attributes that it does not have.
    fn lacks(&self) -> c_int;
}

impl States for QueuePair {
    fn modify(&self, attr: &mut ibv_qp_attr, mask: c_int) -> Result {
        let QueuePairKind::Own { .. } = self.kind else {
            return Err(Errno::EINVAL);
        };
        let verbs = self.pd.context().libraries.verbs();
        // SAFETY: the queue pair is open until it is dropped, and the attributes are a valid
        // structure, which is used only during the call.
        numbered(unsafe { (verbs.ibv_modify_qp)(self.qp.as_ptr(), attr, mask) })
    }

    fn lacks(&self) -> c_int {
        match self.kind {
            QueuePairKind::Own {
                pairing: Pairing::Initiator,
                ..
            } => IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
            _ => 0,
        }
    }
}

// SAFETY: libibverbs and librdmacm permit calls for one object from several threads.
unsafe impl Send for QueuePair {}
// SAFETY: a shared reference permits the same calls, from several threads.
unsafe impl Sync for QueuePair {}

impl QueuePair {
    /// Creates a queue pair in its initial state.
    pub fn new(pd: &Arc<ProtectionDomain>, config: &PairConfig<'_>) -> Result<Self> {
        let number = |value: usize| u32::try_from(value).map_err(|_| Errno::EINVAL);
        let receives = |value: usize| match config.pairing {
            Pairing::Initiator => Ok(0),
            _ => number(value),
        };
        let ops = pd.context().ops();
        let mut attr = ibv_qp_init_attr {
            qp_context: null_mut(),
            send_cq: config.send_queue.as_ptr(),
            recv_cq: match config.pairing {
                Pairing::Initiator => null_mut(),
                _ => config.receive_queue.as_ptr(),
            },
            srq: config.shared.map_or(null_mut(), |shared| shared.as_ptr()),
            cap: ibv_qp_cap {
                max_send_wr: number(config.sends)?,
                max_recv_wr: receives(config.receives)?,
                max_send_sge: number(config.send_pieces)?,
                max_recv_sge: receives(config.receive_pieces)?,
                max_inline_data: number(config.inline)?,
            },
            qp_type: match config.pairing {
                Pairing::Connected => IBV_QPT_RC,
                Pairing::Datagrams => IBV_QPT_UD,
                Pairing::Initiator => IBV_QPT_XRC_SEND,
            },
            sq_sig_all: 0,
        };
        // SAFETY: the objects in the attributes are open, and the result keeps them open.
        let qp = unsafe { (pd.context().libraries.verbs().ibv_create_qp)(pd.as_ptr(), &mut attr) };
        let qp = NonNull::new(qp).ok_or_else(Errno::last_os_error)?;
        Ok(QueuePair {
            qp,
            // SAFETY: the queue pair was just created, and its number does not change.
            number: unsafe { (*qp.as_ptr()).qp_num },
            inline: attr.cap.max_inline_data as usize,
            post_send: ops.post_send.ok_or(Errno::ENOSYS)?,
            post_receive: ops.post_recv.ok_or(Errno::ENOSYS)?,
            pd: pd.clone(),
            process: Process::current(),
            kind: QueuePairKind::Own {
                pairing: config.pairing,
                _queues: [config.send_queue.clone(), config.receive_queue.clone()],
                _shared: config.shared.cloned(),
                has_failed: AtomicBool::new(false),
            },
        })
    }

    /// Creates the representation of a queue pair that is shared with others, and is not known
    /// before [`QueuePair::lead`] names it. Requests have at most `inline` inline bytes.
    pub fn path(pd: &Arc<ProtectionDomain>, inline: usize) -> Self {
        let path = NonNull::from(Box::leak(Box::<XrcPath>::default()));
        QueuePair {
            qp: path.cast(),
            number: 0,
            inline,
            post_send: post_on_path,
            post_receive: refuse_receive,
            pd: pd.clone(),
            process: Process::current(),
            kind: QueuePairKind::Path(path),
        }
    }

    fn as_path(&self) -> Option<&XrcPath> {
        match &self.kind {
            QueuePairKind::Own { .. } => None,
            // SAFETY: the path is freed by the drop of this queue pair, and is only borrowed as
            // shared.
            QueuePairKind::Path(path) => Some(unsafe { path.as_ref() }),
        }
    }

    /// Makes requests go over `initiator` to the receive queue with this number. `-FI_EOPBADSTATE`
    /// if that is set already, or if this is not such a representation.
    pub fn lead(&self, initiator: Arc<QueuePair>, queue: u32) -> Result {
        let path = self.as_path().ok_or(Errno::EOPBADSTATE)?;
        let set = path.to.set((initiator, queue));
        set.map_err(|_| Errno::EOPBADSTATE)
    }

    /// Returns the initiator that requests go over, if it is shared.
    pub fn initiator(&self) -> Option<Weak<QueuePair>> {
        let (pair, _) = self.as_path()?.to.get()?;
        Some(Arc::downgrade(pair))
    }

    /// Returns the device's queue pair for requests; `None` if there is none yet.
    fn real(&self) -> Option<&QueuePair> {
        match self.as_path() {
            None => Some(self),
            Some(path) => path.to.get().map(|(pair, _)| &**pair),
        }
    }

    /// Whether it is known to have failed.
    pub fn has_failed(&self) -> bool {
        match &self.kind {
            QueuePairKind::Own { has_failed, .. } => has_failed.load(Ordering::Relaxed),
            QueuePairKind::Path(_) => false,
        }
    }

    /// Whether its requests go to the device's queue pair with this number.
    pub fn is_numbered(&self, number: u32) -> bool {
        self.real().is_some_and(|pair| pair.number == number)
    }

    /// Returns the largest number of bytes of an inline request, which is at least the number
    /// requested.
    pub fn inline(&self) -> usize {
        self.inline
    }

    /// Makes a pair that will be connected accept receive requests.
    pub fn prepare(&self, port: u8) -> Result {
        let mut attr = attributes(IBV_QPS_INIT);
        attr.port_num = port;
        let mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
        self.modify(&mut attr, mask)
    }

    /// Makes a pair for datagrams send and receive. Only datagrams with this `key` are received.
    pub fn open_for_datagrams(&self, port: u8, key: u32) -> Result {
        let mut attr = attributes(IBV_QPS_INIT);
        attr.port_num = port;
        attr.qkey = key;
        let mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
        self.modify(&mut attr, mask)?;
        self.modify(&mut attributes(IBV_QPS_RTR), IBV_QP_STATE)?;
        self.modify(&mut attributes(IBV_QPS_RTS), IBV_QP_STATE | IBV_QP_SQ_PSN)
    }

    /// Ends all its outstanding requests, which complete as flushed, and later ones. Requests over
    /// a shared initiator complete by themselves.
    pub fn end(&self) -> Result {
        if !self.process.is_current() {
            return Ok(());
        }
        match self.kind {
            QueuePairKind::Own { .. } => self.modify(&mut attributes(IBV_QPS_ERR), IBV_QP_STATE),
            QueuePairKind::Path(_) => Ok(()),
        }
    }

    /// The same for all users of an initiator: its device has failed.
    pub fn end_for_all(&self) -> Result {
        self.real().map_or(Ok(()), QueuePair::end)
    }
}

impl prov_device::QueuePair<Rdma> for QueuePair {
    fn number(&self) -> u32 {
        self.number
    }

    #[cold]
    fn note_failure(&self) {
        if let Some(QueuePair {
            kind: QueuePairKind::Own { has_failed, .. },
            ..
        }) = self.real()
        {
            has_failed.store(true, Ordering::Relaxed);
        }
    }

    #[inline(always)]
    fn post_send(&self, request: SendRequest<'_>) -> Result {
        let mut request = send_request(&request);
        let mut refused = MaybeUninit::uninit();
        // SAFETY: the queue pair is open. The request is read during the call only, and the memory
        // that it describes is valid until the operation completes (`AppIov`).
        let outcome =
            unsafe { (self.post_send)(self.qp.as_ptr(), &mut request, refused.as_mut_ptr()) };
        posted(outcome)
    }

    #[inline(always)]
    fn post_receive(&self, request: ReceiveRequest<'_>) -> Result {
        let mut request = receive_request(&request);
        let mut refused = MaybeUninit::uninit();
        // SAFETY: the queue pair is open. The request is read during the call only, and the memory
        // that it describes is valid until the operation completes.
        let outcome =
            unsafe { (self.post_receive)(self.qp.as_ptr(), &mut request, refused.as_mut_ptr()) };
        posted(outcome)
    }
}

/// Posts to an initiator for one of its users.
unsafe extern "C" fn post_on_path(
    path: *mut ibv_qp,
    request: *mut ibv_send_wr,
    refused: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: this function is called only with the path of a `QueuePairKind::Path`, which exists
    // during the call.
    let path = unsafe { &*path.cast::<XrcPath>() };
    let Some((pair, queue)) = path.to.get() else {
        return libc::ENOTCONN;
    };
    // SAFETY: the callers pass a valid request, which they do not use until this function returns.
    unsafe {
        (*request).qp_type_xrc_remote_srqn.write(*queue);
        (pair.post_send)(pair.qp.as_ptr(), request, refused)
    }
}

/// Refuses receives: the queue pair only sends.
unsafe extern "C" fn refuse_receive(
    _: *mut ibv_qp,
    _: *mut ibv_recv_wr,
    _: *mut *mut ibv_recv_wr,
) -> c_int {
    libc::EINVAL
}

/// Converts the result of posting.
#[inline(always)]
pub(super) fn posted(outcome: c_int) -> Result {
    match outcome {
        0 => Ok(()),
        _ => Err(refusal(outcome)),
    }
}

#[cold]
#[inline(never)]
fn refusal(outcome: c_int) -> Errno {
    match numbered(outcome) {
        Err(Errno::ENOMEM) | Ok(()) => Errno::EAGAIN,
        Err(error) => error,
    }
}

/// Returns attributes in which only the state is set.
pub(super) fn attributes(state: u32) -> ibv_qp_attr {
    // SAFETY: the structure consists of integers, unions of these and pointers, for which zero is a
    // valid value.
    let mut attr: ibv_qp_attr = unsafe { MaybeUninit::zeroed().assume_init() };
    attr.qp_state = state;
    attr
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        if let QueuePairKind::Path(path) = self.kind {
            // SAFETY: the path is a Box from `QueuePair::path`, and is freed once.
            drop(unsafe { Box::from_raw(path.as_ptr()) });
            return;
        }
        if !self.process.is_current() {
            return;
        }
        let verbs = self.pd.context().libraries.verbs();
        // SAFETY: the queue pair is open, and is destroyed once, by its owner.
        let outcome = unsafe { (verbs.ibv_destroy_qp)(self.qp.as_ptr()) };
        if let Err(error) = numbered(outcome) {
            log::warn!(target: crate::LOG.ep_ctrl, "ibv_destroy_qp: {error}");
        }
    }
}
