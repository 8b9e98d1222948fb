//! fi_pingpong(1).
//!
//! Two processes coordinate over a TCP connection of their own (`control`), then exchange messages
//! over the fabric (`session`, `rally`). The protocol is that of the C library's fi_pingpong, so
//! that either program may be at the other end.

/// Prints a line about the progress, if the options enable it.
macro_rules! debug {
    ($options:expr, $($text:tt)*) => {
        if $options.debug {
            eprintln!("[debug] {}", format_args!($($text)*));
        }
    };
}
mod control;
mod options;
mod outcome;
mod patience;
mod pattern;
mod plot;
mod problem;
mod rally;
mod report;
mod session;
mod sizes;

pub use options::{Options, command, print_usage};
pub use problem::Problem;

use outcome::{Outcome, Pattern};

/// Runs the test that the options describe.
pub fn run(options: &Options) -> Result<(), Problem> {
    options.announce();
    let session = session::Session::open(options)?;
    session.announce();
    let sizes = sizes::to_test(options.size, session.largest_message());
    let mut rally = rally::Rally::new(options);
    let mut outcomes = Vec::new();
    for size in sizes {
        let tests: &[Pattern] = match options.rates {
            true => &[Pattern::OneWay, Pattern::BothWays],
            false => &[Pattern::BackAndForth],
        };
        for pattern in tests {
            let outcome = match pattern {
                Pattern::BackAndForth => rally.play(&session, size),
                stream => rally.stream(&session, size, *stream),
            }?;
            if outcome.sent > 0 {
                if outcomes.is_empty() {
                    println!("{}", report::head(options));
                }
                println!("{}", report::line(options, &outcome));
                outcomes.push(outcome);
            }
        }
    }
    rally.finish(&session)?;
    session.close();
    draw(options, &outcomes)
}

/// Draws the results, if the options request it.
fn draw(options: &Options, outcomes: &[Outcome]) -> Result<(), Problem> {
    let Some(file) = &options.plot else {
        return Ok(());
    };
    let is_svg = file
        .extension()
        .is_some_and(|extension| extension.eq_ignore_ascii_case("svg"));
    let drawing = match is_svg {
        true => plot::svg(outcomes, &options.title()),
        false => plot::text(outcomes),
    };
    std::fs::write(file, drawing).map_err(|error| Problem::Plot(file.clone(), error))
}
