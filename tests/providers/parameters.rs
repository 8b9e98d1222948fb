//! Parameters of providers.

use super::*;

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
