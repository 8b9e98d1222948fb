//! The log: its format, its settings, and an application that takes it over.

use super::*;

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
