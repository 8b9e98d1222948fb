//! The tables of wrapped objects, and their functions: one for each function of the interface,
//! written by the build script from the text of the interface's tables. Most are made by `plain`,
//! those in which a thread may sleep by [`blocking`], a few are
//! [`special`].

use std::ffi::{c_char, c_int, c_void};
use std::mem::offset_of;

use fabric_abi::*;
use libc::{iovec, ssize_t};
use prov_base::uncancelled::Uncancelled;

use super::argument::Argument;
use super::call::Call;
use super::operation::Operation;
use super::slot::slot;
use super::value::Shown;
use super::{Wrapped, special};

/// A type of results.
pub(super) trait Answer: Copy {
    /// That of a function that the object below lacks, and of a call that is not carried out.
    const MISSING: Self;

    /// The result as a hook sees it.
    fn shown(self) -> i64;

    /// Takes the result out of a register, whose upper half is undefined if it is an `int`.
    fn from_register(register: usize) -> Self;

    /// The opposite.
    fn to_register(self) -> usize;
}

macro_rules! numbers {
    ($($type:ty: $missing:expr;)*) => {
        $(
            impl Answer for $type {
                const MISSING: Self = $missing;

                fn shown(self) -> i64 {
                    self as i64
                }

                fn from_register(register: usize) -> Self {
                    register as $type
                }

                fn to_register(self) -> usize {
                    self as usize
                }
            }
        )*
    };
}

numbers! {
    c_int: -libc::ENOSYS;
    isize: -libc::ENOSYS as isize;
    u64: 0;
}

impl Answer for *const c_char {
    const MISSING: Self = std::ptr::null();

    fn shown(self) -> i64 {
        self.addr() as i64
    }

    fn from_register(register: usize) -> Self {
        std::ptr::with_exposed_provenance(register)
    }

    fn to_register(self) -> usize {
        self.expose_provenance()
    }
}

/// A function that shows its call to the hook and passes it to the object below.
macro_rules! plain {
    (
        $table:ident, $offset:expr, $slot:ident, $operation:ident,
        ($first:ident: $first_type:ty $(, $argument:ident: $type:ty)*) -> $result:ty
    ) => {
        pub(in super::super) unsafe extern "C" fn $slot(
            $first: $first_type,
            $($argument: $type,)*
        ) -> $result {
            // The hook, and providers of others, may be in cancellation points.
            let _uncancelled = Uncancelled::begin();
            let object = $first as *mut fid;
            // SAFETY: the application has this function from a wrapped object, and its
            // arguments are as the interface asks, which is what the object below asks, too.
            unsafe {
                let core = Wrapped::of(object);
                let values = [$($argument.value(),)*];
                let call = Call::new(Operation::$operation, object.addr(), core, &values);
                let Some(before) = core.enter(&call) else {
                    return <$result>::MISSING;
                };
                special::prepare(&call);
                let result = match slot!(core.below, $offset, $table, $slot) {
                    Some(function) => {
                        with_rooms!(
                            function, core, (core.below.cast()), $result;
                            $($argument: $type),*
                        )
                    }
                    None => <$result>::MISSING,
                };
                special::settle(&call, object, result.shown());
                core.leave(&call, before, result.shown());
                result
            }
        }
    };
}

/// Calls a function with the arguments lowered, each with room of its own, and finishes them.
macro_rules! with_rooms {
    ($function:ident, $core:ident, ($below:expr), $result:ty; $($argument:ident: $type:ty),*) => {{
        #[allow(unused_mut, unused_variables, clippy::let_unit_value)]
        {
            let mut rooms = ($(<$type as Argument>::Room::default(),)*);
            let result: $result = call_with!($function, $below, rooms; $($argument),*);
            finish_with!($core, rooms, result.shown() == 0; $($argument),*);
            result
        }
    }};
}

/// The places of a tuple, for as many arguments as a function has.
macro_rules! call_with {
    ($f:ident, $b:expr, $r:ident; $($a:ident),*) => {
        call_with!(@ $f, $b, $r, []; [$($a),*] [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15])
    };
    (@ $f:ident, $b:expr, $r:ident, [$($done:expr),*]; [] [$($rest:tt)*]) => {
        $f($b $(, $done)*)
    };
    (
        @ $f:ident, $b:expr, $r:ident, [$($done:expr),*];
        [$a:ident $(, $more:ident)*] [$place:tt $($rest:tt)*]
    ) => {
        call_with!(
            @ $f, $b, $r, [$($done,)* $a.lowered(&mut $r.$place)];
            [$($more),*] [$($rest)*]
        )
    };
}

macro_rules! finish_with {
    ($core:ident, $r:ident, $succeeded:expr; $($a:ident),*) => {
        finish_with!(
            @ $core, $r, $succeeded; [$($a),*] [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15]
        )
    };
    (@ $core:ident, $r:ident, $succeeded:expr; [] [$($rest:tt)*]) => {};
    (
        @ $core:ident, $r:ident, $succeeded:expr;
        [$a:ident $(, $more:ident)*] [$place:tt $($rest:tt)*]
    ) => {
        $a.finish(&$r.$place, $core, $succeeded);
        finish_with!(@ $core, $r, $succeeded; [$($more),*] [$($rest)*]);
    };
}

/// A table of the interface.
macro_rules! table {
    (
        $name:ident $module:ident $table:ident $offset:expr;
        plain {
            $($plain:ident($($plain_arguments:tt)*) -> $plain_result:ty = $plain_operation:ident;)*
        }
        blocking {
            $($sleeper:ident($($sleeper_arguments:tt)*) -> $sleeper_result:ty
                = $sleeper_operation:ident;)*
        }
        special {
            $($special:ident($($special_arguments:tt)*) -> $special_result:ty
                = $special_operation:ident;)*
        }
    ) => {
        pub(super) static $name: $table = $table {
            size: size_of::<$table>(),
            $($plain: Some($module::$plain),)*
            $($sleeper: Some($module::$sleeper),)*
            $($special: Some(special::$module::$special),)*
        };

        mod $module {
            #[allow(unused_imports, reason = "not every table has all types")]
            use super::*;

            $(plain! {
                $table, $offset, $plain, $plain_operation,
                ($($plain_arguments)*) -> $plain_result
            })*
            $(blocking! {
                $table, $offset, $sleeper, $sleeper_operation,
                ($($sleeper_arguments)*) -> $sleeper_result
            })*
        }
    };
}

include!(concat!(env!("OUT_DIR"), "/tables.rs"));

// A passive endpoint and a shared transmit context have the same tables at the same offsets as an
// endpoint.
const _: () = {
    assert!(offset_of!(fid_pep, ops) == offset_of!(fid_ep, ops));
    assert!(offset_of!(fid_pep, cm) == offset_of!(fid_ep, cm));
    assert!(offset_of!(fid_stx, ops) == offset_of!(fid_ep, ops));
};
