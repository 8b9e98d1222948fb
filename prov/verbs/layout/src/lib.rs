//! Compares the declarations of `prov-verbs` with those that `rdma-sys` makes of the system's headers,
//! in CI. See docs/dependencies.md.

#![cfg(test)]
#![allow(dead_code, missing_docs, non_camel_case_types)]

#[path = "../../src/sys/ibverbs.rs"]
mod ibverbs;
#[path = "../../src/sys/rdmacm.rs"]
mod rdmacm;

use std::mem::{offset_of, size_of};

macro_rules! same {
    ($($module:ident::$name:ident { $($field:ident),* $(,)? } $($whole:ident)?;)*) => {
        $(
            $(
                assert_eq!(
                    offset_of!($module::$name, $field),
                    offset_of!(rdma_sys::$name, $field),
                    "{}.{}", stringify!($name), stringify!($field),
                );
            )*
            $(
                let _ = stringify!($whole);
                assert_eq!(
                    size_of::<$module::$name>(), size_of::<rdma_sys::$name>(), stringify!($name),
                );
            )?
        )*
    };
}

#[test]
fn structures_are_laid_out_as_in_rdma_sys() {
    same! {
        ibverbs::ibv_device { node_type, transport_type, name, dev_name };
        ibverbs::ibv_context { device, ops, cmd_fd, async_fd, num_comp_vectors, abi_compat } whole;
        ibverbs::ibv_pd { context, handle } whole;
        ibverbs::ibv_mr { context, pd, addr, length, handle, lkey, rkey } whole;
        ibverbs::ibv_comp_channel { context, fd, refcnt } whole;
        ibverbs::ibv_cq { context, channel, cq_context, handle, cqe };
        ibverbs::ibv_srq { context, srq_context, pd, handle };
        ibverbs::ibv_qp {
            context, qp_context, pd, send_cq, recv_cq, srq, handle, qp_num, state, qp_type,
        };
        ibverbs::ibv_ah { context, pd, handle } whole;
        ibverbs::ibv_device_attr {
            fw_ver, vendor_id, vendor_part_id, hw_ver, max_qp, max_qp_wr, device_cap_flags,
            max_sge, max_sge_rd, max_cq, max_cqe, max_mr, max_qp_rd_atom, max_qp_init_rd_atom,
            atomic_cap, max_srq, max_srq_wr, max_srq_sge, phys_port_cnt,
        } whole;
        ibverbs::ibv_port_attr {
            state, active_mtu, max_msg_sz, lid, sm_sl, active_width, active_speed, link_layer,
        } whole;
        ibverbs::ibv_global_route { dgid, flow_label, sgid_index, hop_limit, traffic_class } whole;
        ibverbs::ibv_ah_attr {
            grh, dlid, sl, src_path_bits, static_rate, is_global, port_num,
        } whole;
        ibverbs::ibv_qp_cap {
            max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data,
        } whole;
        ibverbs::ibv_qp_init_attr {
            qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all,
        } whole;
        ibverbs::ibv_qp_attr {
            qp_state, qkey, qp_access_flags, cap, ah_attr, alt_ah_attr, pkey_index, max_rd_atomic,
            max_dest_rd_atomic, min_rnr_timer, port_num, timeout, rate_limit,
        } whole;
        ibverbs::ibv_sge { addr, length, lkey } whole;
        ibverbs::ibv_send_wr { wr_id, next, sg_list, num_sge, opcode, send_flags, wr } whole;
        ibverbs::ibv_recv_wr { wr_id, next, sg_list, num_sge } whole;
        rdmacm::rdma_event_channel { fd } whole;
        rdmacm::rdma_cm_id { verbs, channel, context, qp, route, ps, port_num };
        rdmacm::rdma_conn_param {
            private_data, private_data_len, responder_resources, initiator_depth, flow_control,
            retry_count, rnr_retry_count, srq, qp_num,
        } whole;
        rdmacm::rdma_cm_event { id, listen_id, event, status };
    }
}
