//! Command lines parsed like getopt does: options at any place, the last one wins, long names may
//! be abbreviated.

use clap::{ArgMatches, Command};

/// The request of the command line.
pub enum Request {
    Run(ArgMatches),
    /// Print the usage, and exit with this status.
    Usage(i32),
}

/// Configures a command to be parsed like getopt does.
pub fn like_getopt(command: Command) -> Command {
    command
        .disable_help_flag(true)
        .disable_version_flag(true)
        .infer_long_args(true)
        .args_override_self(true)
        .no_binary_name(true)
}

/// Parses the arguments after the program's name; reports an error on stderr.
pub fn read(command: Command, arguments: impl Iterator<Item = String>) -> Request {
    match command.try_get_matches_from(arguments) {
        Ok(matches) => Request::Run(matches),
        Err(error) => {
            // The first line describes the error; the caller prints the usage.
            let text = error.to_string();
            eprintln!("{}", text.lines().next().unwrap_or_default());
            Request::Usage(1)
        }
    }
}

/// Returns the value of the option that came last, of two that set the same thing.
pub fn last<'a>(matches: &'a ArgMatches, options: &[&str]) -> Option<(String, &'a str)> {
    options
        .iter()
        .filter_map(|option| {
            let index = matches.indices_of(option)?.next_back()?;
            let value = matches.get_one::<String>(option)?;
            Some((index, (*option).to_owned(), value.as_str()))
        })
        .max_by_key(|(index, ..)| *index)
        .map(|(_, option, value)| (option, value))
}
