//! Modes of memory registration (`mr_mode`): what of provider and caller comes back.

use super::*;

/// `mr_mode` of provider, caller and result, for callers who want remote
/// access.
#[test]
fn registration_modes_old_and_new_are_negotiated() {
    let old = version(1, 4);
    let bits = FI_MR_VIRT_ADDR | FI_MR_PROV_KEY;
    let local = FI_MR_LOCAL;
    let all = bits | local | FI_MR_ALLOCATED;
    let cases = [
        // A provider that does either old way and needs nothing, like tcp.
        (MR_BASIC | MR_SCALABLE, NOW, 0, Some(0)),
        (MR_BASIC | MR_SCALABLE, NOW, all, Some(0)),
        (MR_BASIC | MR_SCALABLE, NOW, MR_BASIC, Some(MR_BASIC)),
        (MR_BASIC | MR_SCALABLE, NOW, MR_SCALABLE, Some(MR_SCALABLE)),
        (MR_BASIC | MR_SCALABLE, NOW, MR_BASIC | local, None),
        (MR_BASIC | MR_SCALABLE, old, 0, Some(MR_BASIC)),
        (MR_BASIC | MR_SCALABLE, old, MR_SCALABLE, Some(MR_SCALABLE)),
        (MR_BASIC | MR_SCALABLE, old, all, None),
        (MR_SCALABLE, old, 0, Some(MR_SCALABLE)),
        (MR_SCALABLE, old, MR_BASIC, None),
        (MR_SCALABLE, NOW, MR_BASIC, None),
        // One that needs modes.
        (MR_BASIC | bits, NOW, bits, Some(bits)),
        (MR_BASIC | bits, NOW, all, Some(bits)),
        (MR_BASIC | bits, NOW, FI_MR_PROV_KEY, None),
        (MR_BASIC | bits, old, 0, Some(MR_BASIC)),
        (MR_BASIC | bits, old, MR_SCALABLE, None),
        (bits, old, 0, None),
    ];
    for (row, (supported, version, asked, expected)) in cases.into_iter().enumerate() {
        let mut base = base();
        base.domain.mr_mode = supported;
        let mut hints = hints();
        hints.caps = FI_MSG | FI_RMA;
        domain(&mut hints).mr_mode = asked;
        let expected_mismatch = expected.is_none().then_some("domain_attr->mr_mode");
        assert_eq!(
            mismatch(&base, version, &hints),
            expected_mismatch,
            "row {row}"
        );
        if let Some(mode) = expected {
            let info = fit(&base.into(), version, Some(&hints));
            assert_eq!(info.domain.mr_mode, mode, "row {row}");
        }
    }
}

#[test]
fn regions_have_virtual_addresses_with_collective_operations() {
    let all = MR_BASIC_BITS | FI_MR_LOCAL | FI_MR_ENDPOINT;
    let offsets = FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    let (both, group) = (MR_BASIC | MR_SCALABLE, FI_MSG | FI_COLLECTIVE);
    let cases = [
        (both, group | FI_RMA, MR_BASIC_BITS, MR_BASIC_BITS),
        (both, group | FI_ATOMIC, all, MR_BASIC_BITS),
        (MR_BASIC, group | FI_RMA, all, MR_BASIC_BITS),
        (both, group | FI_RMA, offsets, 0),
        (both, group | FI_RMA, 0, 0),
        (both, group | FI_RMA, MR_SCALABLE, MR_SCALABLE),
        (both, group | FI_RMA | FI_READ, all, 0),
        (both, group, all, 0),
        (both, FI_MSG | FI_RMA, all, 0),
        (MR_SCALABLE, group | FI_RMA, all, 0),
    ];
    for (row, (supported, caps, asked, expected)) in cases.into_iter().enumerate() {
        let mut base = base();
        base.caps |= FI_COLLECTIVE | FI_ATOMIC;
        base.domain.mr_mode = supported;
        let mut hints = hints();
        hints.caps = caps;
        domain(&mut hints).mr_mode = asked;
        let info = fit(&base.into(), NOW, Some(&hints));
        assert_eq!(info.domain.mr_mode, expected, "row {row}");
    }
}

#[test]
fn a_caller_unprepared_for_remote_keys_gets_no_remote_access() {
    let mut base = base();
    base.domain.mr_mode = FI_MR_PROV_KEY;
    let mut hints = hints();
    hints.caps = FI_MSG | FI_RMA | FI_READ | FI_WRITE | FI_SEND | FI_RECV;
    assert_eq!(mismatch(&base, NOW, &hints), None);
    hints.caps = FI_MSG;
    let info = fit(&base.clone().into(), NOW, Some(&hints));
    assert_eq!(info.domain.mr_mode, 0);
    let info = fit(&base.into(), NOW, Some(&Hints::default()));
    assert_eq!(info.caps & (FI_REMOTE_READ | FI_REMOTE_WRITE), 0);
}

#[test]
fn local_registration_is_asked_for_under_either_name() {
    let mut base = base();
    base.domain.mr_mode |= FI_MR_LOCAL;
    let mut hints = hints();
    assert_eq!(mismatch(&base, NOW, &hints), Some("mode"));
    hints.mode = MODE_LOCAL_MR;
    assert_eq!(mismatch(&base, version(1, 4), &hints), None);
    let info = fit(&base.clone().into(), version(1, 4), Some(&hints));
    assert_eq!(info.mode, MODE_LOCAL_MR);
    hints.mode = 0;
    domain(&mut hints).mr_mode = FI_MR_LOCAL;
    assert_eq!(mismatch(&base, NOW, &hints), None);
    let info = fit(&base.into(), NOW, Some(&hints));
    assert_eq!((info.mode, info.domain.mr_mode), (0, FI_MR_LOCAL));
}
