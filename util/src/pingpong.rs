//! fi_pingpong(1).
//!
//! Two processes agree over a TCP connection of their own (`control`), then bounce messages
//! over the fabric (`session`, `rally`). What they say to each other is what fi_pingpong of the
//! C library says, so that either program may stand at the other end.

/// Prints a line about what happens, where the options want to see it.
macro_rules! debug {
    ($options:expr, $($text:tt)*) => {
        if $options.debug {
            eprintln!("[debug] {}", format_args!($($text)*));
        }
    };
}
mod control;
mod options;
mod patience;
mod pattern;
mod problem;
mod rally;
mod report;
mod session;
mod sizes;

pub use options::{Options, command, print_usage};
pub use problem::Problem;

/// Runs the test that the options describe.
pub fn run(options: &Options) -> Result<(), Problem> {
    options.announce();
    let session = session::Session::open(options)?;
    session.announce();
    let sizes = sizes::to_test(options.size, session.largest_message());
    let mut rally = rally::Rally::new(options);
    for size in sizes {
        rally.play(&session, size)?;
    }
    rally.finish(&session)?;
    session.close();
    Ok(())
}
