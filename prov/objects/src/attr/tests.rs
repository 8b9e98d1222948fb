//! Hints against a provider like tcp: what fits, what does not, and what comes
//! back.

mod capabilities;
mod ip;
mod mismatch;
mod named;
mod registration;

use super::*;
use prov_base::errno::Errno;

const CAPS: u64 = FI_MSG
    | FI_RMA
    | FI_TAGGED
    | FI_SEND
    | FI_RECV
    | FI_READ
    | FI_WRITE
    | FI_REMOTE_READ
    | FI_REMOTE_WRITE
    | FI_SOURCE
    | FI_DIRECTED_RECV
    | FI_MULTI_RECV
    | FI_RMA_EVENT
    | FI_LOCAL_COMM
    | FI_REMOTE_COMM;

const NOW: u32 = version(2, 7);

fn base() -> Info {
    Info {
        caps: CAPS,
        addr_format: FI_SOCKADDR_IP,
        tx: TxAttr {
            caps: CAPS & TX_CAPS,
            op_flags: FI_INJECT | FI_COMPLETION | FI_DELIVERY_COMPLETE,
            msg_order: FI_ORDER_SAS | FI_ORDER_WAW,
            inject_size: 128,
            size: 65536,
            iov_limit: 4,
            rma_iov_limit: 4,
            ..TxAttr::default()
        },
        rx: RxAttr {
            caps: CAPS & RX_CAPS,
            op_flags: FI_MULTI_RECV | FI_COMPLETION,
            msg_order: FI_ORDER_SAS | FI_ORDER_WAW,
            size: 65536,
            iov_limit: 4,
            ..RxAttr::default()
        },
        ep: EpAttr {
            ep_type: FI_EP_RDM,
            protocol: FI_PROTO_XNET,
            protocol_version: 1,
            max_msg_size: 1 << 40,
            max_order_raw_size: 1 << 40,
            mem_tag_format: 0xaaaa_aaaa_aaaa_aaaa,
            tx_ctx_cnt: 1,
            rx_ctx_cnt: 1,
            ..EpAttr::default()
        },
        domain: DomainAttr {
            name: Some("tcp".into()),
            threading: FI_THREAD_SAFE,
            control_progress: FI_PROGRESS_AUTO,
            data_progress: FI_PROGRESS_AUTO,
            resource_mgmt: FI_RM_ENABLED,
            mr_mode: MR_BASIC | MR_SCALABLE,
            mr_key_size: 8,
            cq_data_size: 8,
            cntr_cnt: 100,
            mr_cnt: 100,
            mr_iov_limit: 1,
            max_ep_tx_ctx: 1,
            max_ep_rx_ctx: 1,
            max_ep_srx_ctx: 100,
            caps: FI_LOCAL_COMM | FI_REMOTE_COMM,
            ..DomainAttr::default()
        },
        fabric: FabricAttr {
            name: Some("tcp".into()),
            prov_name: Some("tcp".into()),
            prov_version: version(207, 0),
            ..FabricAttr::default()
        },
        ..Info::default()
    }
}

/// All substructures present, as `fi_allocinfo` leaves them.
fn hints() -> Hints {
    Info::default().into()
}

fn mismatch(base: &Info, version: u32, hints: &Hints) -> Option<&'static str> {
    check(base, version, hints).err().map(|m| m.attribute)
}

type Change = fn(&mut Hints);

/// What one changed hint leads to: `None`, or the attribute to blame.
fn expect(version: u32, cases: &[(Change, Option<&'static str>)]) {
    for (row, (change, expected)) in cases.iter().enumerate() {
        let mut hints = hints();
        change(&mut hints);
        assert_eq!(mismatch(&base(), version, &hints), *expected, "row {row}");
    }
}

fn tx(hints: &mut Hints) -> &mut TxAttr {
    hints.tx.as_mut().unwrap()
}

fn rx(hints: &mut Hints) -> &mut RxAttr {
    hints.rx.as_mut().unwrap()
}

fn ep(hints: &mut Hints) -> &mut EpAttr {
    hints.ep.as_mut().unwrap()
}

fn domain(hints: &mut Hints) -> &mut DomainAttr {
    hints.domain.as_mut().unwrap()
}

fn fabric(hints: &mut Hints) -> &mut FabricAttr {
    hints.fabric.as_mut().unwrap()
}

#[test]
fn capabilities_and_formats_are_checked() {
    expect(
        NOW,
        &[
            (|_| {}, None),
            (|h| h.caps = FI_MSG | FI_RMA, None),
            (|h| h.caps = FI_ATOMIC, Some("caps")),
            (|h| h.caps = FI_MSG | FI_HMEM, Some("caps")),
            (|h| h.mode = u64::MAX, None),
            (|h| h.addr_format = FI_SOCKADDR, None),
            (|h| h.addr_format = FI_SOCKADDR_IN6, None),
            (|h| h.addr_format = FI_SOCKADDR_IB, Some("addr_format")),
            (|h| h.addr_format = FI_ADDR_STR, Some("addr_format")),
            (|h| ep(h).ep_type = FI_EP_RDM, None),
            (|h| ep(h).ep_type = FI_EP_MSG, Some("ep_attr->type")),
        ],
    );
}

#[test]
fn fabric_attributes_are_checked() {
    expect(
        NOW,
        &[
            (|h| fabric(h).prov_name = Some("tcp".into()), None),
            (|h| fabric(h).prov_name = Some("TCP;ofi_rxm".into()), None),
            (|h| fabric(h).prov_name = Some("tcp;^ofi_rxm".into()), None),
            (|h| fabric(h).prov_name = Some("^ofi_rxm".into()), None),
            (
                |h| fabric(h).prov_name = Some("udp".into()),
                Some("fabric_attr->prov_name"),
            ),
            (
                |h| fabric(h).prov_name = Some("^tcp".into()),
                Some("fabric_attr->prov_name"),
            ),
            (|h| fabric(h).prov_version = version(207, 0), None),
            (
                |h| fabric(h).prov_version = version(207, 1),
                Some("fabric_attr->prov_version"),
            ),
        ],
    );
}

#[test]
fn domain_attributes_are_checked() {
    expect(
        NOW,
        &[
            (|h| domain(h).threading = FI_THREAD_SAFE, None),
            (|h| domain(h).threading = FI_THREAD_DOMAIN, None),
            (|h| domain(h).threading = FI_THREAD_ENDPOINT, None),
            (|h| domain(h).threading = 77, Some("domain_attr->threading")),
            (|h| domain(h).data_progress = FI_PROGRESS_MANUAL, None),
            (
                |h| domain(h).data_progress = FI_PROGRESS_CONTROL_UNIFIED,
                None,
            ),
            (
                |h| domain(h).data_progress = 77,
                Some("domain_attr->data_progress"),
            ),
            (|h| domain(h).resource_mgmt = FI_RM_DISABLED, None),
            (
                |h| domain(h).resource_mgmt = 77,
                Some("domain_attr->resource_mgmt"),
            ),
            (|h| domain(h).av_type = FI_AV_TABLE, None),
            (|h| domain(h).cq_data_size = 8, None),
            (
                |h| domain(h).cq_data_size = 9,
                Some("domain_attr->cq_data_size"),
            ),
            (|h| domain(h).mr_key_size = 9, None),
            (|h| domain(h).cntr_cnt = 101, Some("domain_attr->cntr_cnt")),
            // Counts and outputs are no filters.
            (|h| domain(h).cq_cnt = 1, None),
            (|h| domain(h).ep_cnt = 1, None),
            (|h| domain(h).tx_ctx_cnt = 1, None),
            (|h| domain(h).rx_ctx_cnt = 1, None),
            (|h| domain(h).max_ep_tx_ctx = usize::MAX, None),
            (|h| domain(h).max_ep_rx_ctx = usize::MAX, None),
            (|h| domain(h).max_ep_stx_ctx = 1, None),
            (|h| domain(h).max_ep_srx_ctx = usize::MAX, None),
            (|h| domain(h).control_progress = 77, None),
            (|h| domain(h).av_type = 77, None),
            (|h| domain(h).mr_cnt = 101, Some("domain_attr->mr_cnt")),
            (
                |h| domain(h).mr_iov_limit = 2,
                Some("domain_attr->mr_iov_limit"),
            ),
            (|h| domain(h).caps = FI_SHARED_AV, Some("domain_attr->caps")),
            (
                |h| domain(h).max_err_data = 1,
                Some("domain_attr->max_err_data"),
            ),
            (
                |h| domain(h).auth_key_size = 4,
                Some("domain_attr->auth_key_size"),
            ),
            (
                |h| domain(h).auth_key_size = FI_AV_AUTH_KEY,
                Some("domain_attr->auth_key_size"),
            ),
            (
                |h| domain(h).max_ep_auth_key = 1,
                Some("domain_attr->max_ep_auth_key"),
            ),
            (|h| domain(h).max_group_id = 1, None),
            (|h| domain(h).max_cntr_value = u64::MAX, None),
        ],
    );
    // What interfaces before 1.5 could not mean.
    expect(
        version(1, 4),
        &[
            (|h| domain(h).mr_cnt = 101, None),
            (
                |h| domain(h).cq_data_size = 9,
                Some("domain_attr->cq_data_size"),
            ),
        ],
    );
}

#[test]
fn a_provider_with_weaker_guarantees_refuses_stronger_requests() {
    let mut base = base();
    base.domain.threading = FI_THREAD_DOMAIN;
    base.domain.data_progress = FI_PROGRESS_MANUAL;
    base.domain.control_progress = FI_PROGRESS_MANUAL;
    base.domain.resource_mgmt = FI_RM_DISABLED;
    let cases: [(Change, u32, Option<&str>); 7] = [
        (|_| {}, NOW, None),
        (|h| domain(h).threading = FI_THREAD_DOMAIN, NOW, None),
        (
            |h| domain(h).threading = FI_THREAD_COMPLETION,
            NOW,
            Some("domain_attr->threading"),
        ),
        (
            |h| domain(h).data_progress = FI_PROGRESS_AUTO,
            NOW,
            Some("domain_attr->data_progress"),
        ),
        (|h| domain(h).control_progress = FI_PROGRESS_AUTO, NOW, None),
        (
            |h| domain(h).control_progress = FI_PROGRESS_AUTO,
            version(1, 17),
            None,
        ),
        (
            |h| domain(h).resource_mgmt = FI_RM_ENABLED,
            NOW,
            Some("domain_attr->resource_mgmt"),
        ),
    ];
    for (row, (change, version, expected)) in cases.into_iter().enumerate() {
        let mut hints = hints();
        change(&mut hints);
        assert_eq!(mismatch(&base, version, &hints), expected, "row {row}");
    }
}

#[test]
fn endpoint_attributes_are_checked() {
    let shared = |h: &mut Hints| ep(h).tx_ctx_cnt = FI_SHARED_CONTEXT;
    expect(
        NOW,
        &[
            (|h| ep(h).protocol = FI_PROTO_XNET, None),
            (|h| ep(h).protocol = FI_PROTO_RXM, Some("ep_attr->protocol")),
            (
                |h| ep(h).protocol_version = 2,
                Some("ep_attr->protocol_version"),
            ),
            (|h| ep(h).max_msg_size = 1 << 40, None),
            (|h| ep(h).msg_prefix_size = usize::MAX, None),
            (
                |h| ep(h).max_msg_size = usize::MAX,
                Some("ep_attr->max_msg_size"),
            ),
            (|h| ep(h).tx_ctx_cnt = 1, None),
            (|h| ep(h).tx_ctx_cnt = 2, Some("ep_attr->tx_ctx_cnt")),
            (shared, Some("ep_attr->tx_ctx_cnt")),
            (|h| ep(h).rx_ctx_cnt = FI_SHARED_CONTEXT, None),
            // Order sizes only concern remote access.
            (|h| ep(h).max_order_war_size = 1, None),
            (
                |h| {
                    h.caps = FI_RMA;
                    ep(h).max_order_war_size = 1;
                },
                Some("ep_attr->max_order_war_size"),
            ),
            (
                |h| {
                    h.caps = FI_TAGGED;
                    ep(h).mem_tag_format = u64::MAX >> 1;
                },
                None,
            ),
            (
                |h| {
                    h.caps = FI_TAGGED;
                    ep(h).mem_tag_format = FI_TAG_MPI;
                },
                None,
            ),
            (|h| ep(h).auth_key_size = 1, Some("ep_attr->auth_key_size")),
        ],
    );

    let mut any_key = base();
    any_key.ep.auth_key_size = ANY_KEY_SIZE;
    any_key.domain.auth_key_size = ANY_KEY_SIZE;
    let mut keys = hints();
    ep(&mut keys).auth_key_size = 100;
    domain(&mut keys).auth_key_size = 1;
    assert_eq!(check(&any_key, version(2, 0), &keys), Ok(()));
    domain(&mut keys).auth_key_size = FI_AV_AUTH_KEY;
    assert!(check(&any_key, version(2, 0), &keys).is_err());
    ep(&mut keys).auth_key_size = 0;
    assert!(check(&any_key, version(2, 0), &keys).is_err());
    assert!(check(&any_key, version(1, 19), &keys).is_err());

    let mut narrow = base();
    narrow.ep.mem_tag_format = 0xffff_ffff;
    let mut wide_tags = hints();
    wide_tags.caps = FI_TAGGED;
    ep(&mut wide_tags).mem_tag_format = 1 << 32;
    assert_eq!(
        mismatch(&narrow, NOW, &wide_tags),
        Some("ep_attr->mem_tag_format")
    );
}

#[test]
fn an_entry_for_shared_contexts_serves_only_requests_for_sharing() {
    let mut base = base();
    base.ep.rx_ctx_cnt = FI_SHARED_CONTEXT;
    assert_eq!(mismatch(&base, NOW, &hints()), Some("ep_attr->rx_ctx_cnt"));
    let mut sharing = hints();
    ep(&mut sharing).rx_ctx_cnt = FI_SHARED_CONTEXT;
    assert_eq!(mismatch(&base, NOW, &sharing), None);
}

#[test]
fn context_attributes_are_checked() {
    expect(
        NOW,
        &[
            (|h| tx(h).caps = FI_MSG | FI_SEND, None),
            // Receive capabilities in transmit attributes mean nothing.
            (
                |h| tx(h).caps = FI_MSG | FI_RECV | FI_REMOTE_READ | FI_SOURCE,
                None,
            ),
            (|h| tx(h).caps = FI_ATOMIC, Some("tx_attr->caps")),
            (|h| tx(h).op_flags = FI_INJECT, None),
            (
                |h| tx(h).op_flags = FI_COMMIT_COMPLETE,
                Some("tx_attr->op_flags"),
            ),
            (|h| tx(h).msg_order = FI_ORDER_SAS, None),
            (
                |h| tx(h).msg_order = FI_ORDER_WAR,
                Some("tx_attr->msg_order"),
            ),
            (|h| tx(h).inject_size = 128, None),
            (|h| tx(h).inject_size = 129, Some("tx_attr->inject_size")),
            (|h| tx(h).size = 65537, Some("tx_attr->size")),
            (|h| tx(h).iov_limit = 5, Some("tx_attr->iov_limit")),
            (|h| tx(h).rma_iov_limit = 5, Some("tx_attr->rma_iov_limit")),
            (|h| rx(h).caps = FI_MSG | FI_SEND | FI_FENCE, None),
            (|h| rx(h).caps = FI_TRIGGER, Some("rx_attr->caps")),
            (|h| rx(h).op_flags = FI_INJECT, Some("rx_attr->op_flags")),
            (
                |h| rx(h).msg_order = FI_ORDER_WAR,
                Some("rx_attr->msg_order"),
            ),
            (
                |h| rx(h).total_buffered_recv = 1,
                Some("rx_attr->total_buffered_recv"),
            ),
            (|h| rx(h).size = 65537, Some("rx_attr->size")),
            (|h| rx(h).iov_limit = 5, Some("rx_attr->iov_limit")),
        ],
    );
}

#[test]
fn required_modes_must_be_offered() {
    let mut base = base();
    base.mode = FI_CONTEXT;
    base.tx.mode = FI_CONTEXT;
    base.rx.mode = FI_CONTEXT;
    assert_eq!(mismatch(&base, NOW, &hints()), Some("mode"));
    let mut offering = hints();
    offering.mode = FI_CONTEXT | FI_CONTEXT2;
    assert_eq!(mismatch(&base, NOW, &offering), None);
    tx(&mut offering).mode = FI_CONTEXT2;
    assert_eq!(mismatch(&base, NOW, &offering), Some("tx_attr->mode"));
    tx(&mut offering).mode = FI_CONTEXT;
    base.domain.mode = FI_RX_CQ_DATA;
    assert_eq!(mismatch(&base, NOW, &offering), Some("domain_attr->mode"));
}

#[test]
fn requested_values_are_returned_and_others_have_their_defaults() {
    let base = Base {
        limits: base(),
        tx_size: 256,
        rx_size: 512,
        inject_size: 32,
        progress: FI_PROGRESS_MANUAL,
    };
    let mut hints = hints();
    let info = fit(&base, NOW, Some(&hints));
    assert_eq!((info.tx.size, info.rx.size), (256, 512));
    assert_eq!((info.tx.inject_size, info.tx.op_flags), (32, 0));
    assert_eq!(info.domain.threading, FI_THREAD_SAFE);
    assert_eq!(info.domain.max_cntr_value, u64::MAX);
    assert_eq!(info.domain.data_progress, FI_PROGRESS_MANUAL);
    assert_eq!(info.domain.control_progress, FI_PROGRESS_MANUAL);

    tx(&mut hints).size = 10;
    tx(&mut hints).inject_size = 8;
    tx(&mut hints).op_flags = FI_COMPLETION;
    rx(&mut hints).iov_limit = 2;
    domain(&mut hints).threading = FI_THREAD_DOMAIN;
    domain(&mut hints).data_progress = FI_PROGRESS_AUTO;
    domain(&mut hints).av_type = FI_AV_TABLE;
    hints.handle = Opaque(std::ptr::dangling_mut());
    let info = fit(&base, NOW, Some(&hints));
    assert_eq!(
        (info.tx.size, info.tx.inject_size, info.tx.op_flags),
        (10, 8, FI_COMPLETION)
    );
    assert_eq!(info.rx.iov_limit, 2);
    assert_eq!(info.domain.threading, FI_THREAD_DOMAIN);
    assert_eq!(info.domain.data_progress, FI_PROGRESS_AUTO);
    assert_eq!(info.domain.control_progress, FI_PROGRESS_AUTO);
    assert_eq!(info.domain.av_type, FI_AV_TABLE);
    assert_eq!(info.handle, hints.handle);
}
