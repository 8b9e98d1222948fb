//! The limits of operations, and their default flags.

use std::sync::atomic::{AtomicU64, Ordering};

use fabric_abi::*;

use prov_base::atomic_ops::Offered;
use prov_base::errno::{Errno, Result};
use prov_objects::attr::{Info, Offers};

/// A provider's limits of operations.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The supported atomic operations.
    pub(super) atomic: Offered,
    /// The capabilities of endpoints of its type. An endpoint has the calls of all of them,
    /// whatever it was opened with: key, range and access rights of a region decide about access.
    pub(super) caps: u64,
    /// The allowed default flags of transmits.
    pub(super) tx_flags: u64,
    /// The allowed default flags of receives.
    pub(super) rx_flags: u64,
    /// See [`Domain::needs_queues`](crate::domain::Domain::needs_queues).
    pub(super) needs_queues: bool,
}

impl Limits {
    /// Returns the limits of an endpoint with these attributes, in a domain with these atomic
    /// operations.
    pub(in crate::ffi) fn of(offers: &Offers, info: &Info, atomic: Offered) -> Self {
        let (tx_flags, rx_flags) = offers.op_flags(info.ep.ep_type);
        let caps = offers.caps_of(info.ep.ep_type);
        Limits {
            atomic,
            caps,
            tx_flags: tx_flags | caps & FI_TRIGGER,
            rx_flags: rx_flags | caps & FI_TRIGGER,
            needs_queues: true,
        }
    }

    /// The same, in a domain with or without [`Limits::needs_queues`].
    #[must_use]
    pub(in crate::ffi) fn with_queues(self, needs_queues: bool) -> Self {
        Limits {
            needs_queues,
            ..self
        }
    }

    /// Returns `-FI_EINVAL` for flags that have no meaning for operations in this direction
    /// (`FI_TRANSMIT`, `FI_RECV`).
    pub(super) fn check_flags(&self, direction: u64, flags: u64) -> Result {
        let known = match direction {
            FI_RECV => self.rx_flags,
            _ => self.tx_flags,
        };
        match flags & !known {
            0 => Ok(()),
            _ => Err(Errno::EINVAL),
        }
    }
}

/// The flags that are added to those of operations in one direction.
pub(in crate::ffi) struct OperationFlags {
    /// The default flags that the object was opened with.
    opened_with: u64,
    /// For calls without a flags argument: the default flags, and `FI_COMPLETION` if every
    /// operation is reported.
    plain: AtomicU64,
    /// For calls with a flags argument: `FI_COMPLETION` if every operation is reported, otherwise
    /// 0.
    msg: AtomicU64,
}

impl OperationFlags {
    /// Creates flags with these defaults, where every operation is reported.
    pub(super) fn new(default: u64) -> Self {
        OperationFlags {
            opened_with: default,
            plain: AtomicU64::new(default | FI_COMPLETION),
            msg: AtomicU64::new(FI_COMPLETION),
        }
    }

    /// The same, with the reporting mode of `of`.
    pub(super) fn alias(of: &Self, default: u64) -> Self {
        let completion = of.msg.load(Ordering::Relaxed);
        OperationFlags {
            opened_with: default,
            plain: AtomicU64::new(default | completion),
            msg: AtomicU64::new(completion),
        }
    }

    /// Restricts reporting to operations with `FI_COMPLETION`; calls without a flags argument are
    /// reported if the default flags contain it.
    pub(super) fn select(&self) {
        self.plain.store(self.opened_with, Ordering::Relaxed);
        self.msg.store(0, Ordering::Relaxed);
    }

    pub(super) fn set_default(&self, default: u64) {
        let completion = self.msg.load(Ordering::Relaxed);
        self.plain.store(default | completion, Ordering::Relaxed);
    }

    pub(super) fn default(&self) -> u64 {
        self.plain.load(Ordering::Relaxed)
    }

    /// Returns the flags of a call without a flags argument.
    #[inline(always)]
    pub(in crate::ffi) fn plain(&self) -> u64 {
        self.plain.load(Ordering::Relaxed)
    }

    /// Returns the flags of a call with the argument `flags`.
    #[inline(always)]
    pub(in crate::ffi) fn with(&self, flags: u64) -> u64 {
        self.msg.load(Ordering::Relaxed) | flags
    }

    /// Returns the flags of an inject call, which is never reported.
    #[inline(always)]
    pub(in crate::ffi) fn inject(&self) -> u64 {
        (self.plain.load(Ordering::Relaxed) & !FI_COMPLETION) | FI_INJECT
    }
}

/// Splits operation flags into the direction, `FI_TRANSMIT` or `FI_RECV`, and the rest;
/// `-FI_EINVAL` for none and for both.
pub(super) fn split_direction(flags: u64) -> Result<(u64, u64)> {
    const BOTH: u64 = FI_TRANSMIT | FI_RECV;
    match flags & BOTH {
        direction @ (FI_TRANSMIT | FI_RECV) => Ok((direction, flags & !BOTH)),
        _ => Err(Errno::EINVAL),
    }
}
