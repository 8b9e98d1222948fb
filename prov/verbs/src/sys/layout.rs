//! Compares the declarations with those of the system's headers, where these are installed: the
//! compiler of a small C program compares sizes, offsets and numbers.

use std::io::Write;
use std::mem::{offset_of, size_of};
use std::process::{Command, Stdio};

use super::ibverbs::*;
use super::rdmacm::*;
use super::xrc::*;

/// Lines of C that assert the values of the Rust declarations.
macro_rules! same {
    ($lines:ident; $($name:ident $(($c_name:literal))? { $($field:ident $(as $c_field:literal)?),* $(,)? } $($whole:ident)?;)*) => {
        $(
            let c_name = same!(@name $name $($c_name)?);
            $(
                $lines.push(format!(
                    "_Static_assert(offsetof({c_name}, {}) == {}, \"{c_name}\");",
                    same!(@field $field $($c_field)?),
                    offset_of!($name, $field),
                ));
            )*
            $(
                let _ = stringify!($whole);
                $lines.push(format!(
                    "_Static_assert(sizeof({c_name}) == {}, \"{c_name}\");",
                    size_of::<$name>(),
                ));
            )?
        )*
    };
    (@name $name:ident) => { concat!("struct ", stringify!($name)) };
    (@name $name:ident $c_name:literal) => { $c_name };
    (@field $field:ident) => { stringify!($field) };
    (@field $field:ident $c_field:literal) => { $c_field };
}

macro_rules! same_numbers {
    ($lines:ident; $($name:ident),* $(,)?) => {
        $($lines.push(format!(
            "_Static_assert({} == {}, \"{}\");", stringify!($name), $name, stringify!($name),
        ));)*
    };
}

fn assertions() -> Vec<String> {
    let mut lines = Vec::new();
    same! { lines;
        ibv_device { node_type, transport_type, name, dev_name };
        ibv_context { device, ops, cmd_fd, async_fd, num_comp_vectors, abi_compat } whole;
        ibv_context_ops { poll_cq, req_notify_cq, post_srq_recv, post_send, post_recv } whole;
        ibv_pd { context, handle } whole;
        ibv_mr { context, pd, addr, length, handle, lkey, rkey } whole;
        ibv_comp_channel { context, fd, refcnt } whole;
        ibv_cq { context, channel, cq_context, handle, cqe };
        ibv_srq { context, srq_context, pd, handle };
        ibv_qp { context, qp_context, pd, send_cq, recv_cq, srq, handle, qp_num, state, qp_type };
        ibv_ah { context, pd, handle } whole;
        ibv_device_attr {
            fw_ver, vendor_id, vendor_part_id, hw_ver, max_qp, max_qp_wr, device_cap_flags, max_sge, max_sge_rd, max_cq, max_cqe, max_mr, max_qp_rd_atom,
            max_qp_init_rd_atom, atomic_cap, max_srq, max_srq_wr, max_srq_sge, phys_port_cnt,
        } whole;
        ibv_port_attr {
            state, active_mtu, max_msg_sz, lid, sm_sl, active_width, active_speed, link_layer,
        } whole;
        ibv_gid ("union ibv_gid") { raw } whole;
        ibv_global_route { dgid, flow_label, sgid_index, hop_limit, traffic_class } whole;
        ibv_ah_attr {
            grh, dlid, sl, src_path_bits, static_rate, is_global, port_num,
        } whole;
        ibv_srq_init_attr {
            srq_context, max_wr as "attr.max_wr", max_sge as "attr.max_sge",
            srq_limit as "attr.srq_limit",
        } whole;
        ibv_qp_cap {
            max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data,
        } whole;
        ibv_qp_init_attr { qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all } whole;
        ibv_qp_attr {
            qp_state, qkey, qp_access_flags, cap, ah_attr, alt_ah_attr, pkey_index,
            max_rd_atomic, max_dest_rd_atomic, min_rnr_timer, port_num, timeout, rate_limit,
        } whole;
        ibv_sge { addr, length, lkey } whole;
        ibv_send_wr {
            wr_id, next, sg_list, num_sge, opcode, send_flags, imm_data, wr,
            qp_type_xrc_remote_srqn as "qp_type.xrc.remote_srqn", _bind_mw as "bind_mw",
        } whole;
        send_wr_rdma ("__typeof__(((struct ibv_send_wr *)0)->wr.rdma)") { remote_addr, rkey } whole;
        send_wr_atomic ("__typeof__(((struct ibv_send_wr *)0)->wr.atomic)") {
            remote_addr, compare_add, swap, rkey,
        } whole;
        send_wr_ud ("__typeof__(((struct ibv_send_wr *)0)->wr.ud)") {
            ah, remote_qpn, remote_qkey,
        } whole;
        ibv_recv_wr { wr_id, next, sg_list, num_sge } whole;
        ibv_wc {
            wr_id, status, opcode, vendor_err, byte_len, imm_data, qp_num, src_qp, wc_flags,
            pkey_index, slid, sl, dlid_path_bits,
        } whole;
        ibv_xrcd { context } whole;
        ibv_xrcd_init_attr { comp_mask, fd, oflags } whole;
        ibv_qp_open_attr { comp_mask, qp_num, xrcd, qp_context, qp_type } whole;
        ibv_qp_init_attr_ex {
            qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all, comp_mask, pd, xrcd,
            _others as "create_flags",
        } whole;
        ibv_srq_init_attr_ex {
            srq_context, max_wr as "attr.max_wr", max_sge as "attr.max_sge",
            srq_limit as "attr.srq_limit", comp_mask, srq_type, pd, xrcd, cq, tm_cap,
        } whole;
        ibv_async_event { element, event_type } whole;
        rdma_event_channel { fd } whole;
        rdma_addr {
            src as "src_storage", dst as "dst_storage", sgid as "addr.ibaddr.sgid",
            dgid as "addr.ibaddr.dgid", pkey as "addr.ibaddr.pkey",
        } whole;
        rdma_route { addr, path_rec, num_paths } whole;
        rdma_cm_id { verbs, channel, context, qp, route, ps, port_num };
        rdma_conn_param {
            private_data, private_data_len, responder_resources, initiator_depth, flow_control,
            retry_count, rnr_retry_count, srq, qp_num,
        } whole;
        rdma_cm_event { id, listen_id, event, status, conn as "param.conn" };
    }
    same_numbers! { lines;
        IBV_TRANSPORT_IWARP, IBV_PORT_DOWN, IBV_PORT_ACTIVE, IBV_ATOMIC_NONE, IBV_WC_SUCCESS,
        IBV_WC_LOC_LEN_ERR, IBV_WC_WR_FLUSH_ERR, IBV_WC_RECV_RDMA_WITH_IMM, IBV_WC_WITH_IMM,
        IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_READ,
        IBV_ACCESS_REMOTE_ATOMIC, IBV_QPT_RC, IBV_QPT_UD, IBV_QP_STATE, IBV_QP_ACCESS_FLAGS,
        IBV_QP_PKEY_INDEX, IBV_QP_PORT, IBV_QP_QKEY, IBV_QP_MAX_QP_RD_ATOMIC,
        IBV_QP_MIN_RNR_TIMER, IBV_QP_SQ_PSN, IBV_QP_MAX_DEST_RD_ATOMIC, IBV_QPS_INIT,
        IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_ERR, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM,
        IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_CMP_AND_SWP,
        IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_SEND_SIGNALED, IBV_SEND_INLINE, RDMA_PS_TCP,
        IBV_EVENT_QP_FATAL, IBV_EVENT_QP_REQ_ERR, IBV_EVENT_QP_ACCESS_ERR,
        IBV_EVENT_DEVICE_FATAL, IBV_EVENT_PORT_ACTIVE, IBV_EVENT_PORT_ERR,
        IBV_DEVICE_XRC, IBV_QPT_XRC_SEND, IBV_QPT_XRC_RECV, IBV_SRQT_XRC,
        IBV_XRCD_INIT_ATTR_FD, IBV_XRCD_INIT_ATTR_OFLAGS, IBV_QP_INIT_ATTR_PD,
        IBV_QP_INIT_ATTR_XRCD, IBV_QP_OPEN_ATTR_NUM, IBV_QP_OPEN_ATTR_XRCD,
        IBV_QP_OPEN_ATTR_TYPE, IBV_SRQ_INIT_ATTR_TYPE, IBV_SRQ_INIT_ATTR_PD,
        IBV_SRQ_INIT_ATTR_XRCD, IBV_SRQ_INIT_ATTR_CQ, IBV_QP_RETRY_CNT, IBV_QP_RNR_RETRY,
        RDMA_PS_UDP, RDMA_PS_IB, RDMA_CM_EVENT_ADDR_RESOLVED, RDMA_CM_EVENT_ADDR_ERROR,
        RDMA_CM_EVENT_ROUTE_RESOLVED, RDMA_CM_EVENT_ROUTE_ERROR,
        RDMA_CM_EVENT_CONNECT_REQUEST, RDMA_CM_EVENT_CONNECT_RESPONSE,
        RDMA_CM_EVENT_CONNECT_ERROR, RDMA_CM_EVENT_UNREACHABLE, RDMA_CM_EVENT_REJECTED,
        RDMA_CM_EVENT_ESTABLISHED, RDMA_CM_EVENT_DISCONNECTED, RDMA_CM_EVENT_DEVICE_REMOVAL,
    }
    // The library's table begins before the context.
    macro_rules! before_context {
        ($($field:ident),*) => {
            $(lines.push(format!(
                "_Static_assert(offsetof(struct verbs_context, context) - \
                 offsetof(struct verbs_context, {0}) == {1}, \"{0}\");",
                stringify!($field),
                offset_of!(verbs_context, context) - offset_of!(verbs_context, $field),
            ));)*
        };
    }
    before_context!(
        open_qp,
        create_qp_ex,
        get_srq_num,
        create_srq_ex,
        open_xrcd,
        close_xrcd,
        sz
    );
    lines
}

/// Whether C compiles a program of these lines after the headers.
fn compiles(lines: &[String]) -> bool {
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let child = Command::new(compiler)
        .args(["-fsyntax-only", "-x", "c", "-"])
        .stdin(Stdio::piped())
        .spawn();
    let mut child = child.expect("a C compiler, which Rust links with, too");
    let program = format!(
        "#include <stddef.h>\n#include <rdma/rdma_cma.h>\n{}\n",
        lines.join("\n")
    );
    let mut input = child.stdin.take().unwrap();
    input.write_all(program.as_bytes()).unwrap();
    drop(input);
    child.wait().unwrap().success()
}

#[test]
fn declarations_are_those_of_the_headers_where_there_are_any() {
    let lines = assertions();
    if !compiles(&[]) {
        println!("librdmacm-dev is not installed: nothing to compare with");
        return;
    }
    assert!(compiles(&lines));
    assert!(!compiles(&["_Static_assert(0, \"\");".to_owned()]));
}
