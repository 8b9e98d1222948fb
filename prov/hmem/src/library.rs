//! Libraries of drivers, opened at run time.

use libloading::os::unix::{Library, RTLD_NOW};

/// Defines a table of a library's functions. It is not loaded if one of them is missing.
macro_rules! library {
    ($(#[$attr:meta])* $name:ident in $file:literal {
        $($function:ident as $symbol:literal($($arg:ty),*);)*
    } -> $result:ty) => {
        $(#[$attr])*
        pub struct $name {
            $(pub $function: unsafe extern "C" fn($($arg),*) -> $result,)*
        }

        impl $name {
            pub fn load() -> std::result::Result<Self, libloading::Error> {
                let library = $crate::library::open($file)?;
                let functions = $name {
                    $($function: {
                        let symbol = concat!($symbol, "\0").as_bytes();
                        // SAFETY: the function has this signature in every version of the library
                        // that exports this name.
                        *unsafe { library.get(symbol) }?
                    },)*
                };
                // The functions are used as long as the process lives.
                std::mem::forget(library);
                Ok(functions)
            }
        }
    };
}

pub(crate) use library;

/// Opens a library of the system's.
pub fn open(file: &str) -> Result<Library, libloading::Error> {
    // SAFETY: the library is a driver's, whose initializers may run in any process.
    unsafe { Library::open(Some(file), RTLD_NOW) }
}
