//! fi_info(1): which ways to communicate the library offers.

use std::env;
use std::ffi::CStr;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, Command};
use fabric_abi::{
    FI_MAJOR, FI_MAJOR_VERSION, FI_MINOR, FI_MINOR_VERSION, FI_PARAM_BOOL, FI_PARAM_INT,
    FI_PARAM_SIZE_T, FI_PARAM_STRING, FI_PROV_ATTR_ONLY, FI_SOURCE,
};
use fabric_tools::arguments::{self, Request};
use fabric_tools::fabric::{self, Failure, Hints, Info, InfoList, Parameters};
use fabric_tools::names;

/// Where an invalid argument ends.
const INVALID: i32 = fabric_abi::FI_EINVAL;

/// Option: short name, long name, argument, help. In the order in which the usage lists them.
const OPTIONS: [(Option<char>, &str, &str, &str); 17] = [
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
    // The system keeps the lower byte, as it does of the library's error numbers.
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
    // Arguments that are no options mean nothing.
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
    )
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
    match InfoList::query(node, port, flags, hints.as_ref()).and_then(|list| show(matches, &list)) {
        Ok(()) => 0,
        Err(failure) => {
            eprintln!("{failure}");
            failure.exit_status()
        }
    }
}

enum Stop {
    Failure(Failure),
    /// What was not understood, and the word.
    Argument(String),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Stop {
        Stop::Failure(failure)
    }
}

/// Hints, where an option asks for something.
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

/// The flags named in a list with bars between.
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

/// Prints what the options ask for.
fn show(matches: &ArgMatches, list: &InfoList) -> Result<(), Failure> {
    let filter = arguments::last(matches, &["getenv", "info"]).map(|(_, text)| text);
    if matches.get_flag("env") || matches.contains_id("getenv") {
        report_output(show_parameters(&Parameters::query()?, filter));
    } else if matches.get_flag("verbose") || matches.contains_id("info") {
        report_output(show_all(list, filter));
    } else if matches.get_flag("list") {
        report_output(show_providers(list));
    } else {
        report_output(show_summary(list));
    }
    Ok(())
}

fn show_parameters(parameters: &Parameters, filter: Option<&str>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for parameter in parameters.iter() {
        if !contains(parameter.name, filter) {
            continue;
        }
        let kind = match parameter.kind {
            FI_PARAM_STRING => "String",
            FI_PARAM_INT => "Integer",
            FI_PARAM_SIZE_T => "size_t",
            FI_PARAM_BOOL => "Boolean (0/1, on/off, true/false, yes/no)",
            _ => "Unknown",
        };
        print(
            &mut out,
            &[b"# ", parameter.name, b": ", kind.as_bytes(), b"\n"],
        )?;
        print(&mut out, &[b"# ", parameter.help, b"\n"])?;
        if let Some(value) = parameter.value {
            let quote: &[u8] = if value.contains(&b' ') { b"\"" } else { b"" };
            print(
                &mut out,
                &[parameter.name, b"=", quote, value, quote, b"\n"],
            )?;
        }
        out.write_all(b"\n")?;
    }
    Ok(())
}

fn show_all(list: &InfoList, filter: Option<&str>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for text in list.iter().map(|info| info.text()) {
        if contains(&text, filter) {
            print(&mut out, &[b"---\n", &text])?;
        }
    }
    Ok(())
}

fn show_providers(list: &InfoList) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for info in list.iter() {
        print(&mut out, &[name(info.provider()), b":\n"])?;
        writeln!(out, "    version: {}", version(&info))?;
    }
    Ok(())
}

fn show_summary(list: &InfoList) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for info in list.iter() {
        print(&mut out, &[b"provider: ", name(info.provider()), b"\n"])?;
        print(&mut out, &[b"    fabric: ", name(info.fabric()), b"\n"])?;
        print(&mut out, &[b"    domain: ", name(info.domain()), b"\n"])?;
        writeln!(out, "    version: {}", version(&info))?;
        let (kind, protocol) = info.endpoint();
        print(
            &mut out,
            &[b"    type: ", &fabric::endpoint_type(kind), b"\n"],
        )?;
        print(
            &mut out,
            &[b"    protocol: ", &fabric::protocol(protocol), b"\n"],
        )?;
    }
    Ok(())
}

fn print(out: &mut impl Write, parts: &[&[u8]]) -> io::Result<()> {
    parts.iter().try_for_each(|part| out.write_all(part))
}

fn name(text: Option<&CStr>) -> &[u8] {
    text.map_or(b"(null)", CStr::to_bytes)
}

fn version(info: &Info) -> String {
    let version = info.provider_version();
    format!("{}.{}", FI_MAJOR(version), FI_MINOR(version))
}

/// Whether a text contains the filter, whatever the case.
fn contains(text: &[u8], filter: Option<&str>) -> bool {
    filter.is_none_or(|filter| {
        filter.is_empty()
            || text
                .windows(filter.len())
                .any(|part| part.eq_ignore_ascii_case(filter.as_bytes()))
    })
}

/// A reader that went away ends the output, quietly.
fn report_output(written: io::Result<()>) {
    if let Err(error) = written
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        eprintln!("fi_info: {error}");
    }
}
