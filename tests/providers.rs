//! External providers, the settings that select them, and their parameters and messages: tests with
//! whole processes.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "what does not hold fails the test"
)]

mod library;

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

#[test]
fn a_directory_of_providers_is_loaded() {
    let providers = fakes(lines(&["providers"], &[("FI_PROVIDER_PATH", &at("one"))]));
    assert_eq!(providers, ["ofi_layer 1.0", "beta 3.0", "alpha 1.0"]);
}

#[test]
fn an_empty_list_of_providers_is_as_none_and_the_log_says_so() {
    const SAID: &str = "FI_PROVIDER names no provider";
    let path = at("one");
    let with = |more: &[(&str, &str)]| {
        let mut environment = vec![
            ("FI_PROVIDER_PATH", path.as_str()),
            ("FI_LOG_LEVEL", "warn"),
        ];
        environment.extend_from_slice(more);
        let output = query(&["info", "type=rdm"], &environment);
        let [out, log] =
            [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        (fakes(out.lines().map(str::to_owned).collect()), log)
    };
    let (unset, log) = with(&[]);
    assert!(!unset.is_empty());
    assert!(!log.contains(SAID), "{log}");
    for nothing in ["", ","] {
        let (found, log) = with(&[("FI_PROVIDER", nothing)]);
        assert_eq!(found, unset, "FI_PROVIDER={nothing:?}");
        assert!(log.contains(SAID), "FI_PROVIDER={nothing:?}: {log}");
    }
    let (found, log) = with(&[("FI_PROVIDER", "alpha")]);
    assert_ne!(found, unset);
    assert!(!log.contains(SAID), "{log}");
}

#[test]
fn the_highest_version_of_a_name_is_used() {
    let path = format!("{}:{}", at("one"), at("two"));
    let providers = fakes(lines(&["providers"], &[("FI_PROVIDER_PATH", &path)]));
    assert_eq!(
        providers,
        ["ofi_layer 1.0", "beta 3.0", "alpha 2.0", "alpha 1.0"]
    );
    let results = lines(
        &["info", "prov=alpha"],
        &[("FI_PROVIDER_PATH", &path), ("FI_PROVIDER", "alpha")],
    );
    let layered = "alpha;ofi_rxm alpha-domain alpha-fabric";
    assert_eq!(
        results,
        [layered, "alpha alpha-domain alpha-fabric"],
        "one of the two answers, and the layer over it"
    );
}

#[test]
fn with_an_at_sign_the_first_one_of_a_name_is_used() {
    let path = format!("@{}:{}", at("one"), at("two"));
    let providers = fakes(lines(&["providers"], &[("FI_PROVIDER_PATH", &path)]));
    assert_eq!(
        providers,
        ["ofi_layer 1.0", "beta 3.0", "alpha 1.0", "alpha 2.0"]
    );
}

#[test]
fn a_preferred_library_is_used_whatever_its_version() {
    let path = format!("{}:+{}/libalpha-fi.so", at("two"), at("one"));
    let providers = fakes(lines(&["providers"], &[("FI_PROVIDER_PATH", &path)]));
    assert_eq!(providers, ["alpha 1.0", "alpha 2.0"]);
}

#[test]
fn a_file_that_is_not_a_provider_is_skipped_with_a_message() {
    let path = format!("{}:{}:{}", at("junk"), at("old"), at("one"));
    let environment = [
        ("FI_PROVIDER_PATH", path.as_str()),
        ("FI_LOG_LEVEL", "warn"),
    ];
    let output = query(&["providers"], &environment);
    let providers = String::from_utf8(output.stdout).unwrap();
    assert!(
        providers.contains("alpha") && !providers.contains("gamma"),
        "{providers}"
    );
    let log = String::from_utf8(output.stderr).unwrap();
    assert!(log.contains("libjunk-fi.so"), "{log}");
    assert!(log.contains("gamma") && log.contains("1.2"), "{log}");
}

#[test]
fn a_provider_is_not_asked_for_an_interface_that_it_does_not_know() {
    let environment = [("FI_PROVIDER_PATH", at("early"))];
    let environment = [(environment[0].0, environment[0].1.as_str())];
    let asks = |version: &str| fakes(lines(&["info", "prov=delta", version], &environment));
    assert_eq!(asks("version=0x10009").len(), 1);
    assert_eq!(asks("version=0x1000a").len(), 0);
}

#[test]
fn an_interface_from_the_future_is_not_supported() {
    let output = lines(&["info", "version=0x30000"], &[]);
    assert_eq!(output, ["fi_getinfo: Function not implemented"]);
}

#[test]
fn fi_provider_includes_and_excludes() {
    let path = at("one");
    let results = |list: &str, arguments: &[&str]| {
        let mut all = vec!["info"];
        all.extend(arguments);
        fakes(lines(
            &all,
            &[("FI_PROVIDER_PATH", path.as_str()), ("FI_PROVIDER", list)],
        ))
    };
    assert_eq!(results("ALPHA", &[]), ["alpha alpha-domain alpha-fabric"]);
    assert_eq!(
        results("^alpha", &[]),
        [
            "tcp;ofi_layer ofi_layer-domain ofi_layer-fabric",
            "beta beta-domain beta-fabric"
        ]
    );
    assert_eq!(
        results("tcp;ofi_layer", &[]),
        ["tcp;ofi_layer ofi_layer-domain ofi_layer-fabric"]
    );
    assert_eq!(
        results("tcp", &["prov=ofi_layer"]),
        ["tcp;ofi_layer ofi_layer-domain ofi_layer-fabric"]
    );
    assert!(results("alpha", &["prov=beta"]).is_empty());
}

#[test]
fn names_in_the_hints_choose_results() {
    let environment = [("FI_PROVIDER_PATH", at("one"))];
    let environment = [(environment[0].0, environment[0].1.as_str())];
    let results = |arguments: &[&str]| {
        let mut all = vec!["info"];
        all.extend(arguments);
        fakes(lines(&all, &environment))
    };
    assert_eq!(
        results(&["domain=BETA-domain"]),
        ["beta beta-domain beta-fabric"]
    );
    assert_eq!(
        results(&["fabric=alpha-fabric"]),
        ["alpha alpha-domain alpha-fabric"]
    );
    assert!(results(&["domain=beta"]).is_empty());
    assert!(results(&["type=dgram"]).is_empty());
    assert_eq!(
        results(&["prov=beta"]).len(),
        2,
        "beta and the layer over it"
    );
    assert_eq!(
        results(&["prov=ofi_layer;beta"]),
        ["tcp;ofi_layer ofi_layer-domain ofi_layer-fabric"]
    );
}

#[test]
fn an_address_format_can_be_enforced() {
    let path = at("one");
    let results = |format: &str| {
        let environment = [
            ("FI_PROVIDER_PATH", path.as_str()),
            ("FI_ADDR_FORMAT", format),
        ];
        fakes(lines(&["info"], &environment)).len()
    };
    assert_eq!(results("fi_sockaddr_in"), 3);
    assert_eq!(results("FI_SOCKADDR_IN6"), 0);
    assert_eq!(results("nonsense"), 3);
}

#[test]
fn a_fabric_of_an_external_provider_opens() {
    let environment = [("FI_PROVIDER_PATH", at("one"))];
    let environment = [(environment[0].0, environment[0].1.as_str())];
    assert_eq!(
        lines(&["open", "beta"], &environment),
        ["context kept, interface 1.18"]
    );
    assert_eq!(
        lines(&["open", "tcp;ofi_layer"], &environment),
        ["context kept, interface 1.18"]
    );
    assert_eq!(
        lines(&["open", "nobody"], &environment),
        ["fi_fabric: No such device"]
    );
}

#[test]
fn hooks_of_this_library_and_of_others_are_over_an_external_provider() {
    let path = format!("{}:{}", at("one"), at("hooks"));
    for (hooks, order) in [
        ("trace;outer;noop", ["outer closes: 0", "fi_close(0x"]),
        (
            "noop;outer;ofi_hook_trace",
            ["fi_close(0x", "outer closes: 0"],
        ),
    ] {
        let environment = [
            ("FI_PROVIDER_PATH", path.as_str()),
            ("FI_HOOK", hooks),
            ("FI_LOG_LEVEL", "trace"),
        ];
        let opened = query(&["open", "alpha"], &environment);
        let said = String::from_utf8(opened.stdout).unwrap();
        assert_eq!(said.trim(), "context kept, interface 1.18");
        let log = String::from_utf8(opened.stderr).unwrap();
        assert!(log.contains("outer is over alpha"), "{log}");
        // Whoever is further out says later what became of the call.
        let [outer, inner] = order.map(|words| log.find(words));
        assert!(outer.is_some() && inner.is_some() && outer > inner, "{log}");
    }
}

#[test]
fn parameters_are_read_from_the_environment_and_listed() {
    let path = at("one");
    let environment = [
        ("FI_PROVIDER_PATH", path.as_str()),
        ("FI_ALPHA_NUMBER", "0x11"),
        ("FI_LOG_LEVEL", "info"),
    ];
    let output = query(&["params"], &environment);
    let listed = String::from_utf8(output.stdout).unwrap();
    assert!(
        listed.contains("\nFI_ALPHA_NUMBER=0x11: alpha: a number, 7 or so\n"),
        "{listed}"
    );
    assert!(
        listed.contains("\nFI_BETA_SIZE=: beta: a size\n"),
        "{listed}"
    );
    assert!(listed.contains("\nFI_PROVIDER=: "), "{listed}");
    let log = String::from_utf8(output.stderr).unwrap();
    assert!(
        log.contains("<info> number 17 size 8 truth 9 ratio 0.25\n"),
        "{log}"
    );
}

#[test]
fn an_unusable_value_is_reported_once_by_name_and_the_default_stays() {
    let path = at("one");
    let environment = [
        ("FI_PROVIDER_PATH", path.as_str()),
        ("FI_ALPHA_NUMBER", "seven"),
        ("FI_ALPHA_SIZE", "-1"),
        ("FI_ALPHA_TRUTH", "perhaps"),
    ];
    let quiet = log(&environment);
    assert_eq!(quiet.matches("FI_ALPHA_NUMBER=seven").count(), 1, "{quiet}");
    assert_eq!(
        quiet.matches("FI_ALPHA_TRUTH=perhaps").count(),
        1,
        "{quiet}"
    );
    assert_eq!(quiet.lines().count(), 2, "{quiet}");
    let mut loud = environment.to_vec();
    loud.push(("FI_LOG_LEVEL", "info"));
    let loud = log(&loud);
    let values = format!("number 7 size {} truth 9", usize::MAX);
    assert!(loud.contains(&values), "{loud}");
}

#[test]
fn messages_of_c_and_of_rust_code_have_one_format() {
    let path = at("one");
    let log = log(&[
        ("FI_PROVIDER_PATH", path.as_str()),
        ("FI_LOG_LEVEL", "info"),
    ]);
    for line in log.lines() {
        let mut parts = line.splitn(7, ':');
        assert_eq!(parts.next(), Some("libfabric"), "{line}");
        assert!(parts.next().unwrap().parse::<u32>().is_ok(), "{line}");
        assert!(parts.next().unwrap().parse::<u64>().is_ok(), "{line}");
        assert_eq!(parts.next(), Some(""), "{line}");
    }
    assert!(log.contains(":alpha:core:fi_prov_ini():"), "{log}");
    assert!(log.contains(":alpha:fabric:fake_cleanup():"), "{log}");
    assert!(log.contains("libfabric (Rust)"), "{log}");
}

#[test]
fn messages_are_chosen_by_level_provider_and_subsystem() {
    let path = at("one");
    let with = |more: &[(&str, &str)]| {
        let mut environment = vec![("FI_PROVIDER_PATH", path.as_str())];
        environment.extend(more);
        log(&environment)
    };
    assert_eq!(with(&[]), "");
    let warnings = with(&[("FI_LOG_LEVEL", "warn")]);
    assert!(
        warnings.contains("alpha is cleaned up") && !warnings.contains("<info>"),
        "{warnings}"
    );
    let alpha = with(&[("FI_LOG_LEVEL", "warn"), ("FI_LOG_PROV", "alpha")]);
    assert!(
        alpha.contains("alpha is") && !alpha.contains("beta is"),
        "{alpha}"
    );
    let others = with(&[("FI_LOG_LEVEL", "warn"), ("FI_LOG_PROV", "^alpha")]);
    assert!(
        !others.contains("alpha is") && others.contains("beta is"),
        "{others}"
    );
    let core = with(&[("FI_LOG_LEVEL", "info"), ("FI_LOG_SUBSYS", "core")]);
    assert!(
        core.contains("number 7") && !core.contains("cleaned up"),
        "{core}"
    );
}

#[test]
fn messages_go_where_they_are_sent() {
    let directory = library::scratch("log");
    let file = directory.join("messages");
    let path = at("one");
    let environment = |location: &Path| {
        [
            ("FI_PROVIDER_PATH", path.clone()),
            ("FI_LOG_LEVEL", "warn".into()),
            ("FI_LOG_LOCATION", location.display().to_string()),
        ]
    };
    let run = |location: &Path| {
        let environment = environment(location);
        let environment: Vec<_> = environment
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        log(&environment)
    };
    assert_eq!(run(&file), "");
    assert!(
        std::fs::read_to_string(&file)
            .unwrap()
            .contains("alpha is cleaned up")
    );
    let refused = run(&file);
    assert!(refused.contains("cannot create log file"), "{refused}");
    assert_eq!(run(&directory), "");
    let named_after_process = std::fs::read_dir(&directory)
        .unwrap()
        .flatten()
        .any(|entry| entry.file_name().to_string_lossy().starts_with("ofi_"));
    assert!(named_after_process);
}

#[test]
fn an_application_can_take_over_the_log_and_give_it_back() {
    let program = library::scratch("log-import").join("log_import");
    library::compile("log_import.c", &program, &["-lfabric"]);
    let output = Command::new(&program)
        .env_remove("FI_LOG_LEVEL")
        .env("LD_LIBRARY_PATH", library::directory())
        .output()
        .unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{:?}: {printed}", output.status);
    let (during, after) = printed.split_once("given back\n").unwrap();
    assert!(during.contains("mine core libfabric (Rust)"), "{during}");
    assert!(
        during.contains("mine someone says something 5\n"),
        "{during}"
    );
    assert!(
        during.lines().all(|line| line.starts_with("mine ")),
        "{during}"
    );
    assert_eq!(after, "");
    assert_eq!(output.stderr, b"");
}

/// Returns the log of a process that requests endpoints of a type that does not exist, or anything
/// else.
fn log_of(arguments: &[&str], environment: &[(&str, &str)]) -> String {
    String::from_utf8(query(arguments, environment).stderr).unwrap()
}

#[test]
fn a_process_that_finds_nothing_gets_the_reason_once() {
    let path = at("one");
    let environment = [
        ("FI_PROVIDER_PATH", path.as_str()),
        ("FI_LOG_LEVEL", "warn"),
    ];
    let nothing = ["info", "prov=tcp", "domain=no-such-domain", "times=3"];
    let log = log_of(&nothing, &environment);
    let reason = "not offered: domain_attr->name: asked for \"no-such-domain\", supported is ";
    let told: Vec<_> = log.lines().filter(|line| line.contains(reason)).collect();
    assert_eq!(told.len(), 1, "{log}");
    assert!(told[0].contains("tcp:core:fi_getinfo():"), "{log}");
    assert!(
        told[0].contains("<warn>") && told[0].contains("; ask for"),
        "{log}"
    );
    // External providers and those that the hints leave out have their reasons as well.
    assert!(log.contains(":alpha:core:fi_getinfo():"), "{log}");
    assert!(log.contains("not asked: the hints name tcp"), "{log}");
    // An application that has found something repeats the request on purpose.
    let found = ["info", "prov=tcp", "first=alpha", "domain=no-such-domain"];
    let log = log_of(&found, &environment);
    assert!(!log.contains(reason), "{log}");
    assert_eq!(log_of(&nothing, &environment[..1]), "");
}

#[test]
fn the_reasons_of_each_call_are_in_the_log_at_level_info() {
    let path = at("one");
    let environment = [
        ("FI_PROVIDER_PATH", path.as_str()),
        ("FI_PROVIDER", "^beta"),
        ("FI_LOG_LEVEL", "info"),
    ];
    let log = log_of(&["info", "type=dgram", "prov=tcp", "times=2"], &environment);
    for (provider, reason) in [
        (
            "tcp",
            "not offered: FI_EP_MSG: ep_attr->type: asked for FI_EP_DGRAM",
        ),
        ("beta", "not asked: FI_PROVIDER excludes it; remove beta"),
        (
            "shm",
            "not asked: the hints name tcp; name shm or none to get it",
        ),
    ] {
        let start = format!(":{provider}:core:fi_getinfo():");
        let lines = log.lines().filter(|line| line.contains(&start));
        let told = lines.filter(|line| line.contains(reason)).count();
        assert_eq!(told, 2, "{provider}: {log}");
    }
    let layered = log_of(
        &["info", "type=rdm", "prov=tcp;ofi_rxm", "domain=none"],
        &environment,
    );
    assert!(
        layered.contains(":ofi_rxm:core:fi_getinfo():")
            && layered.contains("not offered: over tcp: domain_attr->name"),
        "{layered}"
    );
    let unknown = log_of(&["info", "prov=psm9"], &environment);
    assert!(
        unknown.contains("the hints name psm9, and there is no such provider"),
        "{unknown}"
    );
    let junk = at("junk");
    let useless = log_of(
        &["info", "prov=psm9"],
        &[("FI_PROVIDER_PATH", &junk), environment[2]],
    );
    assert!(
        useless.contains("libjunk-fi.so is not used: it cannot be loaded"),
        "{useless}"
    );
}

#[test]
fn messages_of_an_external_provider_during_getinfo_are_its_reason() {
    let path = at("one");
    for level in ["warn", "info"] {
        let environment = [("FI_PROVIDER_PATH", path.as_str()), ("FI_LOG_LEVEL", level)];
        let log = log_of(&["info", "prov=alpha", "fabric=refuse"], &environment);
        let reason = "not offered: the fabric refuse is never there";
        let lines = log
            .lines()
            .filter(|line| line.contains(":alpha:core:fi_getinfo():"));
        let told = lines.filter(|line| line.contains(reason)).count();
        assert_eq!(told, 1, "{log}");
        // It says so at level info, which is written only if requested.
        let own = log.contains("fake_getinfo():");
        assert_eq!(own, level == "info", "{log}");
    }
}

#[test]
fn a_variable_that_is_close_to_a_known_one_is_named_once() {
    let environment = [
        ("FI_LOG_LEVEL", "warn"),
        ("FI_PROVIDR", "tcp"),
        ("FI_TCP_IFACES", "lo"),
        ("FI_SOMETHING_ELSE", "1"),
    ];
    let log = log_of(&["info", "times=2"], &environment);
    for (wrong, right) in [
        ("FI_PROVIDR", "FI_PROVIDER"),
        ("FI_TCP_IFACES", "FI_TCP_IFACE"),
    ] {
        let text = format!("{wrong} is set, which nothing knows; is it {right}?");
        let named = log.lines().filter(|line| line.contains(&text)).count();
        assert_eq!(named, 1, "{log}");
    }
    assert!(!log.contains("FI_SOMETHING_ELSE"), "{log}");
}
