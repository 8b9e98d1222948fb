//! fi_info(1): lists the endpoints that the library offers.

mod json;
mod text;

use std::env;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, Command};
use fabric_abi::{FI_MAJOR_VERSION, FI_MINOR_VERSION, FI_PROV_ATTR_ONLY, FI_SOURCE};
use fabric_tools::arguments::{self, Request};
use fabric_tools::fabric::{self, Failure, Hints, Info, InfoList, Parameters};
use fabric_tools::names;
use fabric_tools::why;

/// Exit status for an invalid argument.
const INVALID: i32 = fabric_abi::FI_EINVAL;

/// Option: short name, long name, argument, help. In the order in which the usage lists them.
const OPTIONS: [(Option<char>, &str, &str, &str); 19] = [
    (Some('h'), "help", "", "show this text"),
    (
        Some('s'),
        "src_addr",
        "ADDR",
        "only from this local name or address",
    ),
    (Some('n'), "node", "NAME", "only to this name or address"),
    (Some('P'), "port", "PNUM", "only to this port or service"),
    (
        Some('c'),
        "caps",
        "CAP1|CAP2..",
        "only with these capabilities, as FI_MSG|FI_RMA",
    ),
    (
        Some('m'),
        "mode",
        "MOD1|MOD2..",
        "only with these modes (default: any)",
    ),
    (
        Some('t'),
        "ep_type",
        "EPTYPE",
        "only endpoints of this type, as FI_EP_RDM",
    ),
    (Some('d'), "domain", "DOMAIN", "only this domain"),
    (Some('f'), "fabric", "FABRIC", "only this fabric"),
    (
        Some('a'),
        "addr_format",
        "FMT",
        "only with addresses of this format, as FI_SOCKADDR_IN",
    ),
    (Some('p'), "provider", "PROV", "only of this provider"),
    (Some('e'), "env", "", "list what environment variables set"),
    (
        Some('g'),
        "getenv",
        "SUBSTR",
        "the same for names that contain this",
    ),
    (
        Some('i'),
        "info",
        "SUBSTR",
        "show everything about what contains this",
    ),
    (Some('l'), "list", "", "list the providers"),
    (Some('v'), "verbose", "", "show everything"),
    (None, "version", "", "show versions"),
    (
        None,
        "why",
        "",
        "for each provider, why it offers nothing, and what to change",
    ),
    (None, "json", "", "show as JSON, everything of each entry"),
];

fn main() -> ExitCode {
    let mut arguments = env::args();
    let program = arguments.next().unwrap_or_default();
    let status = match arguments::read(command(), arguments) {
        Request::Usage(status) => {
            print_usage(&program);
            status
        }
        Request::Run(matches) if matches.get_flag("help") => {
            print_usage(&program);
            1
        }
        Request::Run(matches) if matches.get_flag("version") => {
            report_output(print_versions(&program));
            0
        }
        Request::Run(matches) => run(&matches),
    };
    // The system keeps the lower byte, as of the library's error numbers.
    ExitCode::from(status as u8)
}

fn command() -> Command {
    let mut command = arguments::like_getopt(Command::new("fi_info"));
    for (short, long, argument, _) in OPTIONS {
        let mut arg = Arg::new(long).long(long);
        if let Some(short) = short {
            arg = arg.short(short);
        }
        command = command.arg(if argument.is_empty() {
            arg.action(ArgAction::SetTrue)
        } else {
            arg.action(ArgAction::Set).allow_hyphen_values(true)
        });
    }
    // Arguments that are not options are ignored.
    command.arg(Arg::new("rest").num_args(0..))
}

fn print_usage(program: &str) {
    println!("Usage: {program}");
    for (short, long, argument, help) in OPTIONS {
        let short = short.map_or(String::new(), |c| format!("-{c}, "));
        let equals = if argument.is_empty() { "" } else { "=" };
        println!(
            "  {:<29} {help}",
            format!("{short}--{long}{equals}{argument}")
        );
    }
}

fn print_versions(program: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{program}: {}", env!("CARGO_PKG_VERSION"))?;
    out.write_all(b"libfabric: ")?;
    out.write_all(&fabric::library_version())?;
    writeln!(
        out,
        "\nlibfabric api: {FI_MAJOR_VERSION}.{FI_MINOR_VERSION}"
    )?;
    writeln!(out, "implementation: {}", implementation())
}

/// Returns the library's description of itself, the first line of its log; for a library without
/// one, its file.
fn implementation() -> String {
    let start = || InfoList::query(None, None, FI_PROV_ATTR_ONLY, None);
    let heard = fabric::while_listening(start).map(|(_, messages)| messages);
    let said = heard.unwrap_or_default().into_iter();
    let mut names = said.filter(|message| message.text.starts_with("libfabric "));
    match (names.next(), fabric::library_file()) {
        (Some(message), _) => message.text,
        (None, Some(file)) => file,
        (None, None) => String::from("unknown"),
    }
}

/// The exit status.
fn run(matches: &ArgMatches) -> i32 {
    let hints = match hints(matches) {
        Ok(hints) => hints,
        Err(Stop::Argument(what)) => {
            eprintln!("error: Unrecognized {what}");
            return INVALID;
        }
        Err(Stop::Failure(failure)) => {
            eprintln!("{failure}");
            return failure.exit_status();
        }
    };
    let mut flags = 0;
    let node = arguments::last(matches, &["src_addr", "node"]).map(|(_, name)| name);
    if matches.contains_id("src_addr") {
        flags |= FI_SOURCE;
    }
    if matches.get_flag("list") {
        flags |= FI_PROV_ATTR_ONLY;
    }
    let port = matches.get_one::<String>("port").map(String::as_str);
    let query = || InfoList::query(node, port, flags, hints.as_ref());
    let shown = match matches.get_flag("why") {
        true => explain(matches, query),
        false => query().and_then(|list| show(matches, &list)),
    };
    match shown {
        Ok(()) => 0,
        Err(failure) => {
            eprintln!("{failure}");
            failure.exit_status()
        }
    }
}

/// Prints each provider's answer, and the reasons. Returns the result of the query.
fn explain(
    matches: &ArgMatches,
    query: impl FnOnce() -> Result<InfoList, Failure>,
) -> Result<(), Failure> {
    let name = |info: Info| String::from_utf8_lossy(text::name(info.provider())).into_owned();
    let names = |list: &InfoList| list.iter().map(name).collect::<Vec<_>>();
    let (answer, messages) = fabric::while_listening(query)?;
    let providers = InfoList::query(None, None, FI_PROV_ATTR_ONLY, None)?;
    let results = answer.as_ref().map(names).unwrap_or_default();
    let explanation = why::explain(&names(&providers), &messages, &results);
    report_output(match matches.get_flag("json") {
        true => print_json(&json::explanation(&explanation)),
        false => text::explanation(&explanation),
    });
    answer.map(|_| ())
}

enum Stop {
    Failure(Failure),
    /// An argument that was not understood.
    Argument(String),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Stop {
        Stop::Failure(failure)
    }
}

/// Returns hints, if an option requires them.
fn hints(matches: &ArgMatches) -> Result<Option<Hints>, Stop> {
    let mut hints = Hints::new()?;
    hints.accept_all_modes();
    let mut wanted = false;
    let mut option = |name| {
        let value = matches.get_one::<String>(name).map(String::as_str);
        wanted |= value.is_some();
        value
    };
    if let Some(text) = option("caps") {
        hints.set_caps(flags(text, names::capability, "capability")?);
    }
    if let Some(text) = option("mode") {
        hints.set_modes(flags(text, names::mode, "mode")?);
    }
    if let Some(text) = option("ep_type") {
        let kind = names::endpoint_type(text);
        hints.set_endpoint_type(kind.ok_or_else(|| unknown("endpoint type", text))?);
    }
    if let Some(text) = option("addr_format") {
        let format = names::address_format(text);
        hints.set_address_format(format.ok_or_else(|| unknown("address format", text))?);
    }
    if let Some(name) = option("provider") {
        hints.set_provider(name)?;
    }
    if let Some(name) = option("domain") {
        hints.set_domain(name)?;
    }
    if let Some(name) = option("fabric") {
        hints.set_fabric(name)?;
    }
    Ok(wanted.then_some(hints))
}

/// Returns the flags named in a list separated by bars.
fn flags(list: &str, named: fn(&str) -> Option<u64>, what: &str) -> Result<u64, Stop> {
    list.split('|')
        .filter(|word| !word.is_empty())
        .try_fold(0, |flags, word| {
            Ok(flags | named(word).ok_or_else(|| unknown(what, word))?)
        })
}

fn unknown(what: &str, word: &str) -> Stop {
    Stop::Argument(format!("{what}: {word}"))
}

/// Prints the output that the options select.
fn show(matches: &ArgMatches, list: &InfoList) -> Result<(), Failure> {
    let filter = arguments::last(matches, &["getenv", "info"]).map(|(_, text)| text);
    let json = matches.get_flag("json");
    report_output(
        if matches.get_flag("env") || matches.contains_id("getenv") {
            let parameters = Parameters::query()?;
            match json {
                true => print_json(&json::parameters(&parameters, filter)),
                false => text::parameters(&parameters, filter),
            }
        } else if json && matches.get_flag("list") {
            print_json(&json::providers(list))
        } else if json {
            print_json(&json::entries(list, filter))
        } else if matches.get_flag("verbose") || matches.contains_id("info") {
            text::all(list, filter)
        } else if matches.get_flag("list") {
            text::providers(list)
        } else {
            text::summary(list)
        },
    );
    Ok(())
}

fn print_json(value: &serde_json::Value) -> io::Result<()> {
    writeln!(io::stdout().lock(), "{value:#}")
}

/// Whether a text contains the filter, ignoring case.
fn contains(text: &[u8], filter: Option<&str>) -> bool {
    filter.is_none_or(|filter| {
        filter.is_empty()
            || text
                .windows(filter.len())
                .any(|part| part.eq_ignore_ascii_case(filter.as_bytes()))
    })
}

/// A closed pipe ends the output, without a message.
fn report_output(written: io::Result<()>) {
    if let Err(error) = written
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        eprintln!("fi_info: {error}");
    }
}
