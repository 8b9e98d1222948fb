//! Blocking calls as cancellation points (pthread_cancel(3)).
//!
//! The C library ends a cancelled thread by unwinding its stack from within the system call in
//! which it sleeps. Rust frames must not be unwound in that way: their destructors would be
//! skipped, and `extern "C"` functions abort. So no Rust frame is on the stack while a thread
//! sleeps: the entry points of blocking calls ([`cancellation_point`]) are assembly loops. Each
//! iteration calls a *round*, a Rust function that checks the queue and returns either the result
//! of the call or what to sleep for; the loop then calls `ppoll` itself. State that rounds keep is
//! in the [`Call`], which is the loop's stack frame; it has no destructor.
//!
//! A sleeping thread is counted among the sleepers of its wait object. When it is cancelled, the
//! unwinder calls the frame's personality routine, which undoes that.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ops::ControlFlow;

use prov_base::arch::FRAME_REST;

use prov_objects::wait::{Pause, Sleeper, Wake};

/// Number of 64-bit words of state for rounds: the largest state is that of a blocking read.
const KEPT_WORDS: usize = 8;

/// The stack frame of a blocking call.
#[repr(C)]
pub(super) struct Call {
    /// The application's arguments; the upper half of an `int` is undefined.
    arguments: [*mut c_void; 6],
    fd: libc::pollfd,
    time: libc::timespec,
    /// Null, or the address of `time`.
    limit: *const libc::timespec,
    /// The result of `ppoll`.
    found: c_int,
    stage: Stage,
    /// How the last pause ended, except after [`Stage::Sleeping`].
    woke: Wake,
    /// Valid in [`Stage::Sleeping`].
    sleeper: MaybeUninit<Sleeper<'static>>,
    /// Valid after [`Stage::New`].
    kept: MaybeUninit<[u64; KEPT_WORDS]>,
    result: isize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
enum Stage {
    /// No round has run. The loop writes this value by its number.
    New = 0,
    /// Rounds are running.
    Awake = 1,
    /// The thread is counted as a sleeper and calls `ppoll`.
    Sleeping = 2,
}

/// The loop's action after a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Next {
    /// Return the result.
    Return = 0,
    /// Call `ppoll`, a cancellation point, and then the next round.
    Sleep = 1,
    /// End a cancelled thread, or call the next round.
    Test = 2,
}

impl Call {
    /// Runs one round of the call. The first one creates the state with `start`, which may instead
    /// return the result of the call. Each round ends with `step`, which gets how the last pause
    /// ended, and at first [`Wake::Ready`]; it returns the result, or what to do until the next
    /// round.
    ///
    /// # Safety
    /// `call` is the argument of a round of a [`cancellation_point`] all of whose rounds
    /// have the same `S`. What `S` borrows lives until the call returns.
    pub(super) unsafe fn round<S: Copy>(
        call: *mut Self,
        start: impl FnOnce(&[*mut c_void; 6]) -> Result<S, isize>,
        step: impl for<'s> FnOnce(&'s S, &[*mut c_void; 6], Wake) -> ControlFlow<isize, Pause<'s>>,
    ) -> Next {
        const {
            assert!(size_of::<S>() <= size_of::<[u64; KEPT_WORDS]>());
            assert!(align_of::<S>() <= align_of::<u64>());
        }
        // SAFETY: the loop calls a round with its own frame, which has no other users during the
        // round. The loop has set the arguments and the stage, and `found` before a round after a
        // sleep; earlier rounds have set the other members that the stage implies.
        unsafe {
            let arguments = &(*call).arguments;
            let kept = (&raw mut (*call).kept).cast::<S>();
            let woke = match (*call).stage {
                Stage::New => {
                    match start(arguments) {
                        Ok(state) => kept.write(state),
                        Err(result) => {
                            (*call).result = result;
                            return Next::Return;
                        }
                    }
                    Wake::Ready
                }
                Stage::Awake => (*call).woke,
                Stage::Sleeping => {
                    let woke = after_poll((*call).found);
                    (*call).sleeper.assume_init().leave();
                    woke
                }
            };
            (*call).stage = Stage::Awake;
            match step(&*kept, arguments, woke) {
                ControlFlow::Break(result) => {
                    (*call).result = result;
                    Next::Return
                }
                ControlFlow::Continue(Pause::Over(woke)) => {
                    (*call).woke = woke;
                    Next::Test
                }
                ControlFlow::Continue(Pause::Yield) => {
                    std::thread::yield_now();
                    (*call).woke = Wake::Ready;
                    Next::Test
                }
                ControlFlow::Continue(Pause::Sleep(sleeper)) => {
                    Self::fall_asleep(call, sleeper);
                    Next::Sleep
                }
            }
        }
    }

    /// Prepares the arguments of `ppoll`.
    ///
    /// # Safety
    /// `call` is the argument of a round, and `sleeper` borrows from what lives until the
    /// call returns.
    unsafe fn fall_asleep(call: *mut Self, sleeper: Sleeper<'_>) {
        // SAFETY: the frame belongs to the calling loop and has no other users during the round,
        // which has set the members that the stage implies.
        unsafe {
            (*call).fd = libc::pollfd {
                fd: sleeper.fd(),
                events: libc::POLLIN,
                revents: 0,
            };
            (*call).limit = std::ptr::null();
            if let Some(timeout) = sleeper.timeout() {
                (*call).time = libc::timespec {
                    tv_sec: timeout.tv_sec,
                    tv_nsec: timeout.tv_nsec,
                };
                (*call).limit = &raw const (*call).time;
            }
            (&raw mut (*call).sleeper)
                .cast::<Sleeper<'_>>()
                .write(sleeper);
            (*call).stage = Stage::Sleeping;
        }
    }

    /// Makes a call that does not block a cancellation point: its only round returns the result of
    /// `body`, after a cancelled thread has been ended.
    ///
    /// # Safety
    /// `call` is the argument of a round of a [`cancellation_point`].
    pub(super) unsafe fn test_and(
        call: *mut Self,
        body: impl FnOnce(&[*mut c_void; 6]) -> isize,
    ) -> Next {
        // SAFETY: the frame belongs to the calling loop and has no other users during the round,
        // which has set the members that the stage implies.
        unsafe {
            if (*call).stage == Stage::New {
                (*call).stage = Stage::Awake;
                return Next::Test;
            }
            (*call).result = body(&(*call).arguments);
        }
        Next::Return
    }
}

/// Determines how a sleep ended in which `ppoll` returned `found`. To be called before anything that
/// may set `errno`.
fn after_poll(found: c_int) -> Wake {
    match found {
        0 => Wake::TimedOut,
        1.. => Wake::Ready,
        _ => match std::io::Error::last_os_error().raw_os_error() {
            Some(libc::EINTR) => Wake::Interrupted,
            _ => Wake::Ready,
        },
    }
}

/// Stack frame size of the loop in bytes: the [`Call`], and what the architecture adds.
pub(super) const FRAME: usize = size_of::<Call>().next_multiple_of(16) + FRAME_REST;

/// Member offsets for the loop.
pub(super) mod offsets {
    use super::Call;
    use std::mem::offset_of;

    pub const FD: usize = offset_of!(Call, fd);
    pub const LIMIT: usize = offset_of!(Call, limit);
    pub const FOUND: usize = offset_of!(Call, found);
    pub const STAGE: usize = offset_of!(Call, stage);
    pub const RESULT: usize = offset_of!(Call, result);
}

unsafe extern "C" {
    pub(super) fn ppoll(
        fds: *mut libc::pollfd,
        count: libc::nfds_t,
        timeout: *const libc::timespec,
        signals: *const libc::sigset_t,
    ) -> c_int;
    pub(super) fn pthread_testcancel();
    fn _Unwind_GetCFA(context: *mut c_void) -> *mut c_void;
}

/// Defines an entry point which is a cancellation point: a function of up to six integer
/// or pointer arguments that calls the round until that returns [`Next::Return`].
///
/// The call frame information lets the unwinder pass the frame, and names
/// [`personality`], which it calls on the way (0x1b: a 32-bit offset from its own place).
macro_rules! cancellation_point {
    ($(#[$attribute:meta])* fn $name:ident($($type:ty),*) -> $result:ty = $round:path) => {
        $(#[$attribute])*
        #[unsafe(naked)]
        unsafe extern "C" fn $name($(_: $type),*) -> $result {
            const _: unsafe extern "C" fn(*mut $crate::ffi::cancel::Call)
                -> $crate::ffi::cancel::Next = $round;
            prov_base::sleep_in_rounds!(
                frame: $crate::ffi::cancel::FRAME,
                fd: $crate::ffi::cancel::offsets::FD,
                limit: $crate::ffi::cancel::offsets::LIMIT,
                found: $crate::ffi::cancel::offsets::FOUND,
                stage: $crate::ffi::cancel::offsets::STAGE,
                result: $crate::ffi::cancel::offsets::RESULT,
                personality: $crate::ffi::cancel::personality,
                round: $round,
                ppoll: $crate::ffi::cancel::ppoll,
                testcancel: $crate::ffi::cancel::pthread_testcancel,
            )
        }
    };
}

pub(super) use cancellation_point;

/// Called by the unwinder for the frame of a [`cancellation_point`] that it is about to
/// remove: a thread that slept leaves its wait object.
///
/// # Safety
/// `context` is that of such a frame.
pub(super) unsafe extern "C" fn personality(
    _version: c_int,
    actions: c_int,
    _class: u64,
    _exception: *mut c_void,
    context: *mut c_void,
) -> c_int {
    /// `_UA_CLEANUP_PHASE` and `_URC_CONTINUE_UNWIND` of the Itanium C++ ABI.
    const CLEANUP_PHASE: c_int = 2;
    const CONTINUE_UNWIND: c_int = 8;

    if actions & CLEANUP_PHASE != 0 {
        // SAFETY: the canonical frame address of the frame that is unwound is the frame's stack
        // pointer, which points to the `Call`. Only the stage `Sleeping` has something to undo.
        unsafe {
            let call = _Unwind_GetCFA(context).cast::<Call>();
            if (*call).stage == Stage::Sleeping {
                (*call).stage = Stage::Awake;
                (*call).sleeper.assume_init().leave();
            }
        }
    }
    CONTINUE_UNWIND
}
