//! The functions in table slots that an object does not offer: they return `-FI_ENOSYS`, so that no
//! slot is ever NULL; and the return values of those that it does ([`status`]).

use std::ffi::c_int;

use fabric_abi::*;
use prov_base::errno::Result;

/// Returns the function for a slot that is not offered, by the type of the slot.
pub const fn slot<S: Slot>() -> S {
    S::MISSING
}

/// A slot of a table of functions.
pub trait Slot {
    /// A function of its type that returns `-FI_ENOSYS`.
    const MISSING: Self;
}

/// A return type of the C interface: `int` or `ssize_t`.
pub trait Status {
    /// `-FI_ENOSYS`
    const ENOSYS: Self;
}

impl Status for c_int {
    const ENOSYS: c_int = -libc::ENOSYS;
}

impl Status for isize {
    const ENOSYS: isize = -libc::ENOSYS as isize;
}

/// Implements [`Slot`] for functions with each number of arguments, by a list of type names.
macro_rules! slots {
    ($($argument:ident $($rest:ident)*)?) => {
        $(
            impl<S: Status, $argument, $($rest),*> Slot
                for Option<unsafe extern "C" fn($argument, $($rest),*) -> S>
            {
                const MISSING: Self = {
                    extern "C" fn missing<S: Status, $argument, $($rest),*>(
                        _: $argument,
                        $(_: $rest),*
                    ) -> S {
                        S::ENOSYS
                    }
                    Some(missing::<S, $argument, $($rest),*>)
                };
            }

            slots!($($rest)*);
        )?
    };
}

slots!(A B C D E F G H I J K L M N O P);

/// Function tables in which no function is offered.
macro_rules! tables {
    ($($name:ident: $table:ident { $($function:ident),* $(,)? })*) => {
        $(
            #[doc = concat!("A `", stringify!($table), "` without a function.")]
            pub static $name: $table = $table {
                size: size_of::<$table>(),
                $($function: slot()),*
            };
        )*
    };
}

tables! {
    EP: fi_ops_ep {
        cancel, getopt, setopt, tx_ctx, rx_ctx, rx_size_left, tx_size_left, export_xpu,
    }
    CM: fi_ops_cm {
        setname, getname, getpeer, connect, listen, accept, reject, shutdown, join,
    }
    MSG: fi_ops_msg {
        recv, recvv, recvmsg, send, sendv, sendmsg, inject, senddata, injectdata,
    }
    TAGGED: fi_ops_tagged {
        recv, recvv, recvmsg, send, sendv, sendmsg, inject, senddata, injectdata,
    }
    RMA: fi_ops_rma {
        read, readv, readmsg, write, writev, writemsg, inject, writedata, injectdata,
    }
    ATOMIC: fi_ops_atomic {
        write, writev, writemsg, inject, readwrite, readwritev, readwritemsg, compwrite,
        compwritev, compwritemsg, writevalid, readwritevalid, compwritevalid,
    }
    COLLECTIVE: fi_ops_collective {
        barrier, broadcast, alltoall, allreduce, allgather, reduce_scatter, reduce, scatter,
        gather, msg, barrier2,
    }
}

/// The return value of a C function that returns 0 for success.
#[inline(always)]
pub fn status(outcome: Result) -> c_int {
    match outcome {
        Ok(()) => 0,
        Err(error) => error.to_c(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::null_mut;

    #[test]
    fn a_missing_function_returns_enosys_in_its_own_type() {
        // SAFETY: the functions use none of their arguments.
        unsafe {
            let listen = CM.listen.unwrap()(null_mut());
            assert_eq!(listen, -libc::ENOSYS);
            let recv = MSG.recv.unwrap()(null_mut(), null_mut(), 8, null_mut(), 0, null_mut());
            assert_eq!(recv, -libc::ENOSYS as isize);
        }
    }
}
