//! Why fi_getinfo(3) offers nothing.

use super::*;

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
