//! What the log says about a hint that does not fit.

use super::*;

#[test]
fn a_mismatch_names_the_requested_and_supported_values_and_the_remedy() {
    let text = |base: &Info, change: Change| {
        let mut hints = hints();
        change(&mut hints);
        check(base, NOW, &hints).unwrap_err().to_string()
    };
    let base = base();
    let most = base.ep.max_msg_size;
    assert_eq!(
        text(&base, |h| ep(h).max_msg_size = usize::MAX),
        format!(
            "ep_attr->max_msg_size: asked for {}, supported is {most}; ask for {most} or less",
            usize::MAX
        )
    );
    for (change, end) in [
        (
            (|h| h.caps |= FI_HMEM) as Change,
            format!("; drop {}", names(FI_HMEM, FI_TYPE_CAPS)),
        ),
        (
            |h| ep(h).protocol = FI_PROTO_RXM,
            format!(
                "; ask for {} or leave it unset",
                names(FI_PROTO_XNET.into(), FI_TYPE_PROTOCOL)
            ),
        ),
        (
            |h| domain(h).max_err_data = 1,
            "supported is 0; leave it at 0".into(),
        ),
        // What has no name stands there as a number.
        (
            |h| tx(h).op_flags = 1 << 60,
            format!("; drop {:#x}", 1u64 << 60),
        ),
        (
            |h| domain(h).resource_mgmt = 7,
            "asked for 7, supported is FI_RM_ENABLED; ask for FI_RM_ENABLED or leave it unset"
                .into(),
        ),
    ] {
        let text = text(&base, change);
        assert!(text.ends_with(&end), "{text} does not end with {end}");
    }
    let mut demanding = base;
    demanding.mode = FI_CONTEXT | FI_CONTEXT2;
    let accepting = text(&demanding, |h| h.mode = FI_CONTEXT);
    let end = format!("; accept {}", names(FI_CONTEXT2, FI_TYPE_MODE));
    assert!(accepting.ends_with(&end), "{accepting}");
}

/// The names that a message has for these bits or this value.
fn names(value: u64, kind: fi_type) -> String {
    Value::Named(value, kind).to_string()
}

#[test]
fn an_endpoint_is_expected_to_match_its_directions() {
    for (caps, transmits, receives) in [
        (FI_MSG, true, true),
        (FI_TAGGED | FI_SEND, true, false),
        (FI_MSG | FI_RECV, false, true),
        (FI_RMA, true, false),
        (FI_RMA | FI_READ | FI_REMOTE_WRITE, true, false),
        (FI_ATOMIC | FI_REMOTE_READ, false, false),
        (FI_MSG | FI_RECV | FI_RMA, true, true),
        (FI_SEND | FI_RECV | FI_READ | FI_WRITE, false, false),
        (0, false, false),
    ] {
        assert_eq!(has_transmits(caps), transmits, "{caps:#x}");
        assert_eq!(has_receives(caps), receives, "{caps:#x}");
    }
}
