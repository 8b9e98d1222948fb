//! External providers in whole processes: a program in C asks the library about providers that are
//! compiled here.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "what does not hold fails the test"
)]

#[path = "../library/mod.rs"]
mod library;
mod loading;
mod log;
mod parameters;
mod reasons;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// The C programs and providers of these tests, by name.
struct Built {
    query: PathBuf,
    providers: PathBuf,
}

fn built() -> &'static Built {
    static BUILT: OnceLock<Built> = OnceLock::new();
    BUILT.get_or_init(|| {
        let directory = library::scratch("providers");
        let query = directory.join("query");
        library::compile("query.c", &query, &["-lfabric"]);
        for (place, name, version, more) in [
            ("one", "alpha", "FI_VERSION(1, 0)", ""),
            ("one", "beta", "FI_VERSION(3, 0)", ""),
            ("one", "ofi_layer", "FI_VERSION(1, 0)", ""),
            ("two", "alpha", "FI_VERSION(2, 0)", ""),
            (
                "old",
                "gamma",
                "FI_VERSION(1, 0)",
                "-DWRITTEN_FOR=FI_VERSION(1,2)",
            ),
            (
                "early",
                "delta",
                "FI_VERSION(1, 0)",
                "-DWRITTEN_FOR=FI_VERSION(1,9)",
            ),
        ] {
            let place = directory.join(place);
            std::fs::create_dir_all(&place).unwrap();
            let name_definition = format!("-DNAME=\"{name}\"");
            let version_definition = format!("-DVERSION={}", version.replace(' ', ""));
            let mut arguments = vec!["-shared", "-fPIC", &name_definition, &version_definition];
            arguments.extend((!more.is_empty()).then_some(more));
            arguments.push("-lfabric");
            library::compile(
                "fake_provider.c",
                &place.join(format!("lib{name}-fi.so")),
                &arguments,
            );
        }
        std::fs::create_dir_all(directory.join("hooks")).unwrap();
        library::compile(
            "fake_hook.c",
            &directory.join("hooks/libouter-fi.so"),
            &["-shared", "-fPIC", "-lfabric"],
        );
        std::fs::create_dir_all(directory.join("junk")).unwrap();
        std::fs::write(directory.join("junk/libjunk-fi.so"), "no library").unwrap();
        Built {
            query,
            providers: directory,
        }
    })
}

/// The path of a directory of providers.
fn at(place: &str) -> String {
    built().providers.join(place).display().to_string()
}

fn query(arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(&built().query);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("FI_")) {
        command.env_remove(name);
    }
    command
        .args(arguments)
        .env("LD_LIBRARY_PATH", library::directory())
        .envs(environment.iter().copied())
        .output()
        .expect("the program runs")
}

/// The lines that a query prints.
fn lines(arguments: &[&str], environment: &[(&str, &str)]) -> Vec<String> {
    let output = query(arguments, environment);
    String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect()
}

/// Returns the lines about the providers of this file.
fn fakes(lines: Vec<String>) -> Vec<String> {
    let ours = [
        "alpha",
        "beta",
        "gamma",
        "delta",
        "tcp;ofi_layer",
        "ofi_layer",
    ];
    lines
        .into_iter()
        .filter(|line| {
            line.split(' ')
                .next()
                .is_some_and(|name| ours.contains(&name))
        })
        .collect()
}

fn log(environment: &[(&str, &str)]) -> String {
    let output = query(&["info", "prov=alpha"], environment);
    String::from_utf8(output.stderr).unwrap()
}

/// Returns the log of a process that requests endpoints of a type that does not exist, or anything
/// else.
fn log_of(arguments: &[&str], environment: &[(&str, &str)]) -> String {
    String::from_utf8(query(arguments, environment).stderr).unwrap()
}
