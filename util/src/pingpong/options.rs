//! Command line of fi_pingpong(1).

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command};
use fabric_abi::{FI_EP_DGRAM, FI_EP_MSG, FI_EP_RDM, fi_ep_type};

use crate::arguments;

/// Default port of the control connection.
pub const DEFAULT_PORT: u16 = 47592;

/// Default number of messages of one size in a stream: enough for its beginning and end to be
/// negligible.
const RATE_ITERATIONS: u32 = 10_000;

/// What to test.
pub struct Options {
    /// The server to connect to; `None`: be the server.
    pub server: Option<String>,
    /// Own port of the control connection; 0: the default of a server, any of a client.
    pub source_port: u16,
    /// The server's port of the control connection.
    pub server_port: u16,
    pub domain: Option<String>,
    pub fabric: Option<String>,
    pub provider: Option<String>,
    /// Local address of the fabric endpoint.
    pub source: Option<String>,
    pub endpoint_type: fi_ep_type,
    pub iterations: u32,
    pub size: Size,
    pub verify: bool,
    pub tagged: bool,
    /// The control connection uses IPv6.
    pub ipv6: bool,
    pub debug: bool,
    /// Whether to measure streams instead of single messages: one way, then both ways.
    pub rates: bool,
    /// The results as comma separated values.
    pub csv: bool,
    /// Whether to print the distribution of the latency.
    pub percentiles: bool,
    /// The file for a drawing of the results: SVG if its name ends so, otherwise text.
    pub plot: Option<PathBuf>,
}

/// Which message sizes to test, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// Several sizes from small to large.
    Usual,
    /// Every power of two and the values halfway to the next.
    All,
    One(usize),
}

/// Option: letter, argument, help. In the order in which the usage lists them.
const OPTIONS: [(&str, &str, &str); 14] = [
    (
        "B",
        "src_port",
        "own port of the control connection (server: 47592, client: any)",
    ),
    (
        "P",
        "dst_port",
        "the server's port of the control connection (47592)",
    ),
    ("d", "domain", "domain name"),
    ("f", "fabric", "fabric name"),
    ("s", "source address", "local address of the domain"),
    ("p", "provider", "provider name, as tcp"),
    ("e", "ep_type", "endpoint type: msg|rdm|dgram (dgram)"),
    ("I", "number", "number of iterations (10)"),
    ("S", "size", "message size in bytes, or 'all'"),
    ("c", "", "check the data"),
    ("m", "transmit mode", "kind of messages: msg|tagged (msg)"),
    ("h", "", "show this text"),
    ("v", "", "say what happens"),
    ("6", "", "control connection over IPv6"),
];

/// Long options, which the C library's fi_pingpong does not have.
const LONG_OPTIONS: [(&str, &str, &str); 4] = [
    (
        "rates",
        "",
        "messages one after another, client to server, then both ways; both sides need it",
    ),
    ("csv", "", "print comma separated values"),
    ("percentiles", "", "print how latencies are distributed"),
    (
        "plot",
        "file",
        "draw the results: as SVG where the name ends in .svg, else as text",
    ),
];

/// The options, for [`arguments::read`].
pub fn command() -> Command {
    let mut command = arguments::like_getopt(Command::new("fi_pingpong"));
    for (letter, argument, _) in OPTIONS {
        let arg = Arg::new(letter).short(letter.chars().next());
        command = command.arg(if argument.is_empty() {
            arg.action(ArgAction::SetTrue)
        } else {
            arg.action(ArgAction::Set).allow_hyphen_values(true)
        });
    }
    for (name, argument, _) in LONG_OPTIONS {
        let arg = Arg::new(name).long(name);
        command = command.arg(match argument {
            "" => arg.action(ArgAction::SetTrue),
            _ => arg.action(ArgAction::Set),
        });
    }
    command.arg(Arg::new("server").num_args(0..))
}

pub fn print_usage(program: &str) {
    eprintln!("Usage:");
    eprintln!("  {program} [OPTIONS]\t\tstart server");
    eprintln!("  {program} [OPTIONS] <srv_addr>\tconnect to server");
    eprintln!("\nOptions:");
    for (letter, argument, help) in OPTIONS {
        let option = match argument {
            "" => format!("-{letter}"),
            argument => format!("-{letter} <{argument}>"),
        };
        eprintln!(" {option:<20} {help}");
    }
    for (name, argument, help) in LONG_OPTIONS {
        let option = match argument {
            "" => format!("--{name}"),
            argument => format!("--{name} <{argument}>"),
        };
        eprintln!(" {option:<20} {help}");
    }
}

impl Options {
    /// Returns the options of the command line; the error is a description.
    pub fn from_matches(matches: &ArgMatches) -> Result<Options, String> {
        let text = |letter: &str| matches.get_one::<String>(letter).cloned();
        let flag = |letter: &str| matches.get_flag(letter);
        let server = matches
            .get_many::<String>("server")
            .and_then(|mut all| all.next().cloned());
        let rates = flag("rates");
        let endpoint_type = endpoint_type(text("e"))?;
        if rates && endpoint_type == FI_EP_DGRAM {
            return Err("--rates needs an endpoint that loses nothing: -e msg or -e rdm".into());
        }
        Ok(Options {
            server,
            source_port: number(text("B"), 0)?,
            server_port: number(text("P"), DEFAULT_PORT)?,
            domain: text("d"),
            fabric: text("f"),
            provider: text("p"),
            source: text("s"),
            endpoint_type,
            iterations: number(text("I"), if rates { RATE_ITERATIONS } else { 10 })?,
            size: size(text("S"))?,
            verify: flag("c"),
            tagged: text("m").is_some_and(|mode| !mode.eq_ignore_ascii_case("msg")),
            ipv6: flag("6"),
            debug: flag("v"),
            rates,
            csv: flag("csv"),
            percentiles: flag("percentiles"),
            plot: text("plot").map(PathBuf::from),
        })
    }

    /// Whether the time of each round trip is measured.
    pub fn wants_latencies(&self) -> bool {
        self.percentiles || self.csv
    }

    /// Returns a description of the test, for a drawing.
    pub fn title(&self) -> String {
        let kind = match self.endpoint_type {
            FI_EP_MSG => "msg",
            FI_EP_RDM => "rdm",
            _ => "dgram",
        };
        let provider = self.provider.as_deref().unwrap_or("any provider");
        let mode = if self.tagged { "tagged" } else { "msg" };
        format!("fi_pingpong: {provider}, {kind} endpoints, {mode} messages")
    }

    /// Whether this process waits for the other.
    pub fn is_server(&self) -> bool {
        self.server.is_none()
    }

    /// Prints the options.
    pub fn announce(&self) {
        debug!(
            self,
            "server: {}",
            self.server.as_deref().unwrap_or("this process")
        );
        debug!(
            self,
            "ports: own {}, server's {}", self.source_port, self.server_port
        );
        debug!(
            self,
            "sizes: {:?}, iterations: {}", self.size, self.iterations
        );
        for (what, name) in [
            ("provider", &self.provider),
            ("fabric", &self.fabric),
            ("domain", &self.domain),
            ("source", &self.source),
        ] {
            if let Some(name) = name {
                debug!(self, "{what}: {name}");
            }
        }
    }
}

fn number<T: std::str::FromStr>(text: Option<String>, default: T) -> Result<T, String> {
    match text {
        None => Ok(default),
        Some(text) => text
            .parse()
            .map_err(|_| format!("Error parsing \"{text}\"")),
    }
}

fn endpoint_type(text: Option<String>) -> Result<fi_ep_type, String> {
    match text.as_deref().map(str::to_ascii_lowercase).as_deref() {
        None | Some("dgram") => Ok(FI_EP_DGRAM),
        Some("msg") => Ok(FI_EP_MSG),
        Some("rdm") => Ok(FI_EP_RDM),
        Some(other) => Err(format!("Unknown endpoint : {other}")),
    }
}

fn size(text: Option<String>) -> Result<Size, String> {
    match text {
        None => Ok(Size::Usual),
        Some(text) if text.eq_ignore_ascii_case("all") => Ok(Size::All),
        text => {
            let size: u32 = number(text, 0)?;
            // An int in the C library's program.
            if size > i32::MAX as u32 {
                return Err(format!("Error parsing \"{size}\""));
            }
            Ok(Size::One(size as usize))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, String> {
        let words = line.split_whitespace();
        let matches = command()
            .try_get_matches_from(words)
            .map_err(|error| error.to_string())?;
        Options::from_matches(&matches)
    }

    #[test]
    fn a_lone_address_makes_a_client() {
        let options = parse("-p tcp -e rdm 127.0.0.1 -I 5").unwrap();
        assert_eq!(options.server.as_deref(), Some("127.0.0.1"));
        assert_eq!(options.endpoint_type, FI_EP_RDM);
        assert_eq!(options.iterations, 5);
        assert_eq!(options.server_port, DEFAULT_PORT);
        assert!(!options.is_server());
    }

    #[test]
    fn values_may_follow_their_letter_directly_and_the_last_counts() {
        let options = parse("-S1024 -Sall -B4000 -cv").unwrap();
        assert_eq!(options.size, Size::All);
        assert_eq!(options.source_port, 4000);
        assert!(options.verify && options.debug && options.is_server());
    }

    #[test]
    fn options_that_the_c_tool_lacks_have_long_names() {
        let options = parse("-e rdm --csv --percentiles --plot=out.svg").unwrap();
        assert!(options.csv && options.percentiles && !options.rates);
        assert_eq!(options.plot, Some(PathBuf::from("out.svg")));
        assert_eq!(options.iterations, 10);
        let rates = parse("-e msg --rates").unwrap();
        assert!(rates.rates);
        assert_eq!(rates.iterations, RATE_ITERATIONS);
    }

    #[test]
    fn nonsense_is_refused() {
        for line in [
            "-e stream",
            "-I x",
            "-S -1",
            "-B 70000",
            "-S 3000000000",
            "-x",
            "--rates",
            "--plot",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
