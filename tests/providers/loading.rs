//! Which providers are loaded, and which of them the settings and the hints select.

use super::*;

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
