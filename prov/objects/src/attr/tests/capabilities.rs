//! Which capabilities are offered: what was asked for, and what costs nothing.

use super::*;

#[test]
fn primary_capabilities_are_offered_only_if_requested_and_free_ones_always() {
    let mut hints = hints();
    hints.caps = FI_TAGGED;
    let info = fit(&base().into(), NOW, Some(&hints));
    assert_eq!(
        info.caps,
        FI_TAGGED
            | FI_SEND
            | FI_RECV
            | FI_MULTI_RECV
            | FI_RMA_EVENT
            | FI_LOCAL_COMM
            | FI_REMOTE_COMM
    );
    assert_eq!(info.tx.caps, FI_TAGGED | FI_SEND);
    assert_eq!(
        info.rx.caps,
        FI_TAGGED | FI_RECV | FI_MULTI_RECV | FI_RMA_EVENT
    );

    hints.caps = FI_MSG | FI_SEND | FI_SOURCE;
    let info = fit(&base().into(), NOW, Some(&hints));
    assert_eq!(
        info.caps & (FI_SEND | FI_RECV | FI_SOURCE),
        FI_SEND | FI_SOURCE
    );

    hints.caps = FI_RMA | FI_WRITE;
    let info = fit(&base().into(), NOW, Some(&hints));
    assert_eq!(info.caps & RMA_DIRECTIONS, FI_WRITE);

    assert_eq!(fit(&base().into(), NOW, None).caps, CAPS);
    assert_eq!(fit(&base().into(), NOW, Some(&Hints::default())).caps, CAPS);
}

#[test]
fn refinements_of_a_capability_are_offered_only_if_requested() {
    let finer = FI_TAGGED_DIRECTED_RECV | FI_TAGGED_MULTI_RECV;
    let mut base = base();
    base.caps |= finer;
    base.rx.caps |= finer;
    let base = Base::from(base);
    let caps = |hints: Option<&Hints>| {
        let info = fit(&base, NOW, hints);
        (info.caps & finer, info.rx.caps & finer)
    };
    let mut hints = hints();
    assert_eq!(caps(None), (0, 0));
    assert_eq!(caps(Some(&hints)), (0, 0));
    hints.caps = FI_TAGGED;
    assert_eq!(caps(Some(&hints)), (0, 0));
    hints.caps = FI_TAGGED | finer;
    assert_eq!(caps(Some(&hints)), (finer, finer));
}
