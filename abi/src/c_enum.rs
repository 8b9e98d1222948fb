//! C enumerations as integers with constants.

/// Declares a C enumeration.
///
/// `c_enum! { pub enum name: type { A, B = 4, C } }` gives `pub type name = type` and one
/// constant per enumerator; without a name it gives the constants only. Enumerators without a
/// value follow their predecessor, as in C. The header generator reads the same lines and
/// writes a real C enumeration.
macro_rules! c_enum {
    ($(#[$meta:meta])* pub enum $name:ident: $repr:ty { $($body:tt)* }) => {
        $(#[$meta])*
        pub type $name = $repr;
        c_enum!(@items $name, 0; $($body)*);
    };
    ($(#[$meta:meta])* enum : $repr:ty { $($body:tt)* }) => {
        c_enum!(@items $repr, 0; $($body)*);
    };
    (@items $repr:ty, $next:expr;) => {};
    (@items $repr:ty, $next:expr; $(#[$meta:meta])* $item:ident = $value:expr, $($rest:tt)*) => {
        $(#[$meta])*
        pub const $item: $repr = $value;
        c_enum!(@items $repr, $item + 1; $($rest)*);
    };
    (@items $repr:ty, $next:expr; $(#[$meta:meta])* $item:ident, $($rest:tt)*) => {
        $(#[$meta])*
        pub const $item: $repr = $next;
        c_enum!(@items $repr, $item + 1; $($rest)*);
    };
}
