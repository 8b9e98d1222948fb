//! Structures as indented `name: value` lines.

use std::fmt::{self, Write};

use fabric_abi::*;
use prov_base::address_text;

use super::names::{self, Names};
use super::object;
use crate::deep::Deep;

/// Text under construction, with the indentation of the current structure.
pub struct Lines {
    text: String,
    depth: usize,
}

impl Lines {
    /// Creates an empty text, at the left margin.
    pub fn new() -> Self {
        Lines {
            text: String::new(),
            depth: 0,
        }
    }

    /// Returns the text.
    pub fn finish(self) -> String {
        self.text
    }

    fn heading(&mut self, name: &str) {
        self.indent();
        self.text.push_str(name);
        self.text.push_str(":\n");
    }

    fn value(&mut self, name: &str, value: impl fmt::Display) {
        self.indent();
        // Writing to a String cannot fail.
        let _ = writeln!(self.text, "{name}: {value}");
    }

    fn enumerator(&mut self, name: &str, names: Names, value: impl Into<u64>) {
        self.value(name, names::enumerator(names, value.into()));
    }

    fn flags(&mut self, name: &str, names: Names, value: u64) {
        self.value(name, format_args!("[ {} ]", names::flags(names, value)));
    }

    fn pointer<T>(&mut self, name: &str, value: *const T) {
        self.value(name, Pointer(value.cast()));
    }

    fn indent(&mut self) {
        for _ in 0..self.depth {
            self.text.push_str("    ");
        }
    }

    /// Adds one structure: its heading and, indented, its lines; a line "(null)" for a missing one.
    fn structure<T>(&mut self, name: &str, attr: Option<T>, lines: impl FnOnce(&mut Self, T)) {
        let Some(attr) = attr else {
            self.value(name, "(null)");
            return;
        };
        self.heading(name);
        self.depth += 1;
        lines(self, attr);
        self.depth -= 1;
    }

    /// `struct fi_info` with everything below it.
    pub fn info(&mut self, info: Deep<fi_info>) {
        self.structure("fi_info", Some(info), |out, info| {
            out.flags("caps", names::CAPABILITIES, info.caps);
            out.flags("mode", names::MODES, info.mode);
            out.enumerator("addr_format", names::ADDRESS_FORMATS, info.addr_format);
            out.value("src_addrlen", info.src_addrlen);
            out.value("dest_addrlen", info.dest_addrlen);
            out.address("src_addr", info.addr_format, info.src_addr());
            out.address("dest_addr", info.addr_format, info.dest_addr());
            out.object("handle", info.handle());
            out.tx_attr(info.tx_attr());
            out.rx_attr(info.rx_attr());
            out.ep_attr(info.ep_attr());
            out.domain_attr(info.domain_attr());
            out.fabric_attr(info.fabric_attr());
            out.object("nic", info.nic());
        });
    }

    /// `struct fi_tx_attr`.
    pub fn tx_attr(&mut self, attr: Option<&fi_tx_attr>) {
        self.structure("fi_tx_attr", attr, |out, attr| {
            out.flags("caps", names::CAPABILITIES, attr.caps);
            out.flags("mode", names::MODES, attr.mode);
            out.flags("op_flags", names::OP_FLAGS, attr.op_flags);
            out.flags("msg_order", names::MESSAGE_ORDER, attr.msg_order);
            out.value("inject_size", attr.inject_size);
            out.value("size", attr.size);
            out.value("iov_limit", attr.iov_limit);
            out.value("rma_iov_limit", attr.rma_iov_limit);
            out.value("tclass", format_args!("0x{:x}", attr.tclass));
        });
    }

    /// `struct fi_rx_attr`.
    pub fn rx_attr(&mut self, attr: Option<&fi_rx_attr>) {
        self.structure("fi_rx_attr", attr, |out, attr| {
            out.flags("caps", names::CAPABILITIES, attr.caps);
            out.flags("mode", names::MODES, attr.mode);
            out.flags("op_flags", names::OP_FLAGS, attr.op_flags);
            out.flags("msg_order", names::MESSAGE_ORDER, attr.msg_order);
            out.value("size", attr.size);
            out.value("iov_limit", attr.iov_limit);
        });
    }

    /// `struct fi_ep_attr`.
    pub fn ep_attr(&mut self, attr: Option<Deep<fi_ep_attr>>) {
        self.structure("fi_ep_attr", attr, |out, attr| {
            out.enumerator("type", names::EP_TYPES, attr.type_);
            out.enumerator("protocol", names::PROTOCOLS, attr.protocol);
            // A version is printed like C's %d.
            out.value("protocol_version", attr.protocol_version as i32);
            out.value("max_msg_size", attr.max_msg_size);
            out.value("msg_prefix_size", attr.msg_prefix_size);
            out.value("max_order_raw_size", attr.max_order_raw_size);
            out.value("max_order_war_size", attr.max_order_war_size);
            out.value("max_order_waw_size", attr.max_order_waw_size);
            out.value(
                "mem_tag_format",
                format_args!("0x{:016x}", attr.mem_tag_format),
            );
            out.context_count("tx_ctx_cnt", attr.tx_ctx_cnt);
            out.context_count("rx_ctx_cnt", attr.rx_ctx_cnt);
            out.value("auth_key_size", attr.auth_key_size);
            out.pointer("xpu_ctx", attr.xpu_ctx);
        });
    }

    /// `struct fi_domain_attr`.
    pub fn domain_attr(&mut self, attr: Option<Deep<fi_domain_attr>>) {
        self.structure("fi_domain_attr", attr, |out, attr| {
            out.pointer("domain", attr.domain);
            out.value("name", attr.name_text());
            out.enumerator("threading", names::THREADING, attr.threading);
            out.enumerator("progress", names::PROGRESS, attr.progress);
            out.enumerator(
                "resource_mgmt",
                names::RESOURCE_MANAGEMENT,
                attr.resource_mgmt,
            );
            out.enumerator("av_type", names::AV_TYPES, attr.av_type);
            out.flags("mr_mode", names::MR_MODES, u64::from(attr.mr_mode as u32));
            out.value("mr_key_size", attr.mr_key_size);
            out.value("cq_data_size", attr.cq_data_size);
            out.value("cq_cnt", attr.cq_cnt);
            out.value("ep_cnt", attr.ep_cnt);
            out.value("tx_ctx_cnt", attr.tx_ctx_cnt);
            out.value("rx_ctx_cnt", attr.rx_ctx_cnt);
            out.value("max_ep_tx_ctx", attr.max_ep_tx_ctx);
            out.value("max_ep_rx_ctx", attr.max_ep_rx_ctx);
            out.value("max_ep_stx_ctx", attr.max_ep_stx_ctx);
            out.value("max_ep_srx_ctx", attr.max_ep_srx_ctx);
            out.value("cntr_cnt", attr.cntr_cnt);
            out.value("mr_iov_limit", attr.mr_iov_limit);
            out.flags("caps", names::CAPABILITIES, attr.caps);
            out.flags("mode", names::MODES, attr.mode);
            out.value("auth_key_size", attr.auth_key_size);
            out.value("max_err_data", attr.max_err_data);
            out.value("mr_cnt", attr.mr_cnt);
            out.value("tclass", format_args!("0x{:x}", attr.tclass));
            out.value("max_ep_auth_key", attr.max_ep_auth_key);
            out.value("max_group_id", attr.max_group_id);
            out.value("max_cntr_value", attr.max_cntr_value);
            out.value("max_err_cntr_value", attr.max_err_cntr_value);
            out.value("max_xpu_ctx_cnt", attr.max_xpu_ctx_cnt);
        });
    }

    /// `struct fi_fabric_attr`.
    pub fn fabric_attr(&mut self, attr: Option<Deep<fi_fabric_attr>>) {
        self.structure("fi_fabric_attr", attr, |out, attr| {
            out.value("name", attr.name_text());
            out.value("prov_name", attr.prov_name_text());
            out.version("prov_version", attr.prov_version);
            out.version("api_version", attr.api_version);
        });
    }

    /// `struct fi_av_attr`.
    pub fn av_attr(&mut self, attr: Deep<fi_av_attr>) {
        self.structure("fi_av_attr", Some(attr), |out, attr| {
            out.enumerator("type", names::AV_TYPES, attr.type_);
            out.value("count", attr.count);
            out.value("ep_per_node", attr.ep_per_node);
            out.value("name", attr.name_text());
            out.flags("flags", names::AV_FLAGS, attr.flags);
        });
    }

    /// `struct fi_cq_attr`.
    pub fn cq_attr(&mut self, attr: &fi_cq_attr) {
        self.structure("fi_cq_attr", Some(attr), |out, attr| {
            out.value("size", attr.size);
            out.flags("flags", names::CQ_FLAGS, attr.flags);
            out.enumerator("format", names::CQ_FORMATS, attr.format);
            out.enumerator("wait_obj", names::WAIT_OBJECTS, attr.wait_obj);
            out.value("signaling_vector", attr.signaling_vector);
            out.enumerator("wait_cond", names::CQ_WAIT_CONDITIONS, attr.wait_cond);
            out.pointer("xpu_ctx", attr.xpu_ctx);
        });
    }

    /// `struct fi_mr_attr`.
    pub fn mr_attr(&mut self, attr: Deep<fi_mr_attr>) {
        self.structure("fi_mr_attr", Some(attr), |out, attr| {
            out.pointer("mr_iov", attr.regions());
            out.value("iov_count", attr.iov_count);
            out.flags("access", names::MR_ACCESS, attr.access);
            out.value("offset", format_args!("0x{:x}", attr.offset));
            out.value("requested_key", format_args!("0x{:x}", attr.requested_key));
            out.pointer("context", attr.context);
            out.value("auth_key_size", attr.auth_key_size);
            out.enumerator("iface", names::HMEM_INTERFACES, attr.iface);
        });
    }

    /// `struct fi_cntr_attr`.
    pub fn cntr_attr(&mut self, attr: &fi_cntr_attr) {
        self.structure("fi_cntr_attr", Some(attr), |out, attr| {
            out.enumerator("events", names::CNTR_EVENTS, attr.events);
            out.enumerator("wait_obj", names::WAIT_OBJECTS, attr.wait_obj);
            out.value("flags", format_args!("0x{:x}", attr.flags));
            out.pointer("xpu_ctx", attr.xpu_ctx);
        });
    }

    /// `struct fi_cq_err_entry`.
    pub fn cq_err_entry(&mut self, entry: &fi_cq_err_entry) {
        self.structure("fi_cq_err_entry", Some(entry), |out, entry| {
            out.pointer("op_context", entry.op_context);
            out.value("flags", format_args!("0x{:x}", entry.flags));
            out.value("len", entry.len);
            out.pointer("buf", entry.buf);
            out.value("data", entry.data);
            out.value("tag", format_args!("0x{:x}", entry.tag));
            out.value("olen", entry.olen);
            out.value("err", entry.err);
            out.value("prov_errno", entry.prov_errno);
            out.pointer("err_data", entry.err_data);
            out.value("err_data_size", entry.err_data_size);
        });
    }

    /// Adds a fabric object: the text of its provider, or else its address.
    pub fn object(&mut self, name: &str, fid: Option<Deep<fid>>) {
        match fid.map(|fid| (fid, object::text(fid))) {
            None => self.pointer::<fid>(name, std::ptr::null()),
            Some((fid, None)) => self.pointer(name, fid.as_ptr()),
            Some((_, Some(text))) => self.text.push_str(&text),
        }
    }

    fn address(&mut self, name: &str, format: u32, bytes: Option<&[u8]>) {
        match bytes {
            None => self.value(name, "(null)"),
            Some(bytes) => self.value(name, address_text::text(format, bytes).unwrap_or_default()),
        }
    }

    fn context_count(&mut self, name: &str, count: usize) {
        // FI_SHARED_CONTEXT is the largest count in C.
        if count == usize::MAX {
            self.value(name, "FI_SHARED_CONTEXT");
        } else {
            self.value(name, count);
        }
    }

    fn version(&mut self, name: &str, version: u32) {
        self.value(name, crate::version::Version::new(version));
    }
}

/// An address in the format of C's `%p`.
struct Pointer(*const ());

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        if self.0.is_null() {
            f.write_str("(nil)")
        } else {
            write!(f, "{:p}", self.0)
        }
    }
}
