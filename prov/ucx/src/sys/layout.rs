//! Compares the declarations with those of UCX's headers, where these are installed: the compiler of
//! a small C program compares sizes, offsets and numbers.

use std::io::Write;
use std::mem::{offset_of, size_of};
use std::process::{Command, Stdio};

use super::*;

/// Lines of C that assert the values of the Rust declarations.
macro_rules! same {
    ($lines:ident; $($name:ident { $($field:ident $(as $c_field:literal)?),* };)*) => {
        $(
            let c_name = stringify!($name);
            $(
                let c_field = [$($c_field,)? stringify!($field)];
                let offset = offset_of!($name, $field);
                $lines.push(format!(
                    "_Static_assert(offsetof({c_name}, {}) == {offset}, \"{c_name}\");", c_field[0],
                ));
            )*
            let size = size_of::<$name>();
            $lines.push(format!("_Static_assert(sizeof({c_name}) >= {size}, \"{c_name}\");"));
        )*
    };
}

macro_rules! same_numbers {
    ($lines:ident; $($name:ident),* $(,)?) => {
        $($lines.push(format!(
            "_Static_assert({} == {}, \"{}\");", stringify!($name), $name, stringify!($name),
        ));)*
    };
}

fn assertions() -> Vec<String> {
    let mut lines = vec![
        "_Static_assert(sizeof(ucs_status_t) == 1, \"ucs_status_t\");".to_owned(),
        "_Static_assert(sizeof(ucp_dt_iov_t) == 16, \"ucp_dt_iov_t\");".to_owned(),
        "_Static_assert(offsetof(ucp_dt_iov_t, length) == 8, \"ucp_dt_iov_t\");".to_owned(),
        format!("_Static_assert(ucp_dt_make_iov() == {UCP_DATATYPE_IOV}, \"iov\");"),
    ];
    same! { lines;
        ucp_params_t {
            field_mask, features, request_size, request_init, request_cleanup, tag_sender_mask,
            mt_workers_shared, estimated_num_eps, estimated_num_ppn, name
        };
        ucp_worker_params_t {
            field_mask, thread_mode, cpu_mask, events, user_data, event_fd, flags, name,
            am_alignment, client_id
        };
        ucp_ep_params_t {
            field_mask, address, err_mode, err_handler, user_data, flags, sockaddr, conn_request,
            name, local_sockaddr
        };
        ucs_sock_addr_t { addr, addrlen };
        ucp_mem_map_params_t { field_mask, address, length, flags, prot, memory_type };
        ucp_tag_recv_info_t { sender_tag, length };
        ucp_request_param_t {
            op_attr_mask, flags, request, cb, datatype, user_data, reply_buffer, memory_type,
            recv_info, memh
        };
    }
    same_numbers! { lines;
        UCS_OK, UCS_INPROGRESS, UCS_ERR_CANCELED, UCS_ERR_LAST,
        UCP_PARAM_FIELD_FEATURES, UCP_PARAM_FIELD_MT_WORKERS_SHARED,
        UCP_PARAM_FIELD_ESTIMATED_NUM_EPS, UCP_FEATURE_TAG, UCP_FEATURE_RMA,
        UCP_WORKER_PARAM_FIELD_THREAD_MODE, UCP_WORKER_PARAM_FIELD_FLAGS,
        UCP_WORKER_FLAG_IGNORE_REQUEST_LEAK, UCS_THREAD_MODE_SERIALIZED,
        UCP_EP_PARAM_FIELD_REMOTE_ADDRESS, UCP_MEM_MAP_PARAM_FIELD_ADDRESS,
        UCP_MEM_MAP_PARAM_FIELD_LENGTH, UCP_OP_ATTR_FIELD_CALLBACK, UCP_OP_ATTR_FIELD_USER_DATA,
        UCP_OP_ATTR_FIELD_DATATYPE, UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
    }
    lines
}

/// Compiles a C program; `None` if there is no compiler.
fn compiles(program: &str) -> Option<bool> {
    let compiler = Command::new("cc")
        .args(["-x", "c", "-fsyntax-only", "-"])
        .stdin(Stdio::piped())
        .spawn();
    let mut compiler = compiler.ok()?;
    compiler
        .stdin
        .take()
        .unwrap()
        .write_all(program.as_bytes())
        .unwrap();
    Some(compiler.wait().unwrap().success())
}

#[test]
fn declarations_are_those_of_the_headers() {
    let headers = "#include <stddef.h>\n#include <ucp/api/ucp.h>\n";
    if compiles(headers) != Some(true) {
        println!("not compared: no C compiler, or no headers of UCX");
        return;
    }
    let program = headers.to_owned() + &assertions().join("\n") + "\n";
    assert_eq!(compiles(&program), Some(true));
}

#[test]
fn the_library_has_all_functions_if_it_is_there() {
    match Libucp::get() {
        Ok(ucp) => {
            // SAFETY: the function takes nothing.
            assert!(!unsafe { (ucp.functions().ucp_get_version_string)() }.is_null());
        }
        Err(reason) => println!("not loaded: {reason}"),
    }
}
