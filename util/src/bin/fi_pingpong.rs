//! fi_pingpong(1): messages back and forth between two processes.

use std::env;
use std::process::ExitCode;

use fabric_tools::arguments::{self, Request};
use fabric_tools::pingpong::{self, Options};

fn main() -> ExitCode {
    let mut arguments = env::args();
    let program = arguments.next().unwrap_or_default();
    let matches = match arguments::read(pingpong::command(), arguments) {
        Request::Run(matches) if !matches.get_flag("h") => matches,
        _ => {
            pingpong::print_usage(&program);
            return ExitCode::FAILURE;
        }
    };
    let options = match Options::from_matches(&matches) {
        Ok(options) => options,
        Err(what) => {
            eprintln!("{what}");
            return ExitCode::FAILURE;
        }
    };
    match pingpong::run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("{problem}");
            // The system keeps the lower byte, as it does of the library's error numbers.
            ExitCode::from(problem.exit_status() as u8)
        }
    }
}
