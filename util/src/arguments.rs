//! Command lines as getopt reads them: options anywhere, the last one wins, long names may be
//! cut short.

use clap::{ArgMatches, Command};

/// What the command line asks for.
pub enum Request {
    Run(ArgMatches),
    /// Print the usage, and end with this status.
    Usage(i32),
}

/// Sets a command up to be read like getopt.
pub fn like_getopt(command: Command) -> Command {
    command
        .disable_help_flag(true)
        .disable_version_flag(true)
        .infer_long_args(true)
        .args_override_self(true)
        .no_binary_name(true)
}

/// Reads the arguments behind the program's name; says what is wrong with them on stderr.
pub fn read(command: Command, arguments: impl Iterator<Item = String>) -> Request {
    match command.try_get_matches_from(arguments) {
        Ok(matches) => Request::Run(matches),
        Err(error) => {
            // The first line says what is wrong; the usage is the caller's.
            let text = error.to_string();
            eprintln!("{}", text.lines().next().unwrap_or_default());
            Request::Usage(1)
        }
    }
}

/// Of two options that set the same thing, the value of the one that came last.
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
