//! `fi_info` structures: read from the caller, and created for it.
//!
//! Structures that are read have the layout of the library that loaded the provider, which may be
//! an older one: its structures end earlier, whatever interface the application was written for.
//!
//! Structures that are created are allocated with malloc(3), in the pieces that `fi_freeinfo`
//! expects, since this library and the one that loaded an external provider may free what the other
//! has allocated.

use std::ffi::{CStr, c_char, c_void};

use fabric_abi::*;

use prov_base::errno::{Errno, Result};
use prov_objects::attr::{
    DomainAttr, EpAttr, FabricAttr, Hints, Info, Opaque, RxAttr, TxAttr, version,
};

use super::allocated::{copy, zeroed};
use super::layout::{self, Layout, widen};
use super::nic;

/// Reads hints, or an `fi_info` for opening an object; `None` for a null pointer.
///
/// # Safety
/// A pointer that is not null leads to an `fi_info` of the library's layout.
pub unsafe fn hints(info: *const fi_info) -> Option<Hints> {
    // SAFETY: the caller guarantees that the structure has the library's layout.
    unsafe { hints_in(layout::of_library(), info) }
}

/// # Safety
/// As for [`hints`], of the given layout.
unsafe fn hints_in(layout: &Layout, info: *const fi_info) -> Option<Hints> {
    // SAFETY: the caller guarantees that the structure is NULL or valid in this layout, and so are
    // the structures to which it points.
    unsafe {
        let info = widen(info, layout.info)?;
        Some(Hints {
            caps: info.caps,
            mode: info.mode,
            addr_format: info.addr_format,
            src_addr: address(info.addr_format, info.src_addr, info.src_addrlen),
            dest_addr: address(info.addr_format, info.dest_addr, info.dest_addrlen),
            handle: Opaque(info.handle.cast()),
            tx: widen(info.tx_attr, layout.tx_attr).map(|attr| tx_attr(&attr)),
            rx: info.rx_attr.as_ref().map(rx_attr),
            ep: widen(info.ep_attr, layout.ep_attr).map(|attr| ep_attr(&attr)),
            domain: widen(info.domain_attr, layout.domain_attr).map(|attr| domain_attr(&attr)),
            fabric: fabric(info.fabric_attr).ok(),
        })
    }
}

/// Reads an `fi_info` for opening an object of a fabric of interface `api`; missing parts are zero.
/// `-FI_EINVAL` for a null pointer.
///
/// # Safety
/// As for [`hints`].
pub unsafe fn info(info: *const fi_info, api: u32) -> Result<Info> {
    // SAFETY: the caller guarantees that the pointer is NULL or valid.
    let mut info = unsafe { hints(info) }
        .map(Info::from)
        .ok_or(Errno::EINVAL)?;
    if api < version(1, 5) {
        // That interface had no authorization keys, so the members are undefined.
        info.ep.auth_key_size = 0;
        info.domain.auth_key_size = 0;
    }
    Ok(info)
}

/// Reads the fabric attributes for opening a fabric.
///
/// # Safety
/// A pointer that is not null leads to a `fi_fabric_attr`, whose layout is the same in all
/// libraries that may load a provider.
pub unsafe fn fabric(attr: *const fi_fabric_attr) -> Result<FabricAttr> {
    // SAFETY: the caller guarantees that the pointer is NULL or valid.
    unsafe { attr.as_ref().map(|attr| fabric_attr(attr)) }.ok_or(Errno::EINVAL)
}

/// # Safety
/// An address that is not null has `len` bytes, or is a C string where the
/// format is `FI_ADDR_STR`.
unsafe fn address(format: u32, addr: *const c_void, len: usize) -> Vec<u8> {
    if addr.is_null() {
        Vec::new()
    } else if format == FI_ADDR_STR {
        // SAFETY: the caller guarantees that an address in this format is a terminated text.
        unsafe { CStr::from_ptr(addr.cast()) }
            .to_bytes_with_nul()
            .to_vec()
    } else {
        // SAFETY: the caller guarantees that the address has `len` bytes.
        unsafe { super::bytes(addr, len) }.to_vec()
    }
}

/// # Safety
/// A pointer that is not null leads to a C string.
unsafe fn text(text: *const c_char) -> Option<String> {
    // SAFETY: the caller guarantees that the pointer is NULL or valid.
    unsafe { super::string(text) }.map(|text| text.to_string_lossy().into_owned())
}

/// # Safety
/// A key that is not null has `len` bytes.
unsafe fn key(key: *const u8, len: usize) -> Option<Vec<u8>> {
    // With the length `FI_AV_AUTH_KEY` there must be no key; only its presence matters then.
    let len = if len == FI_AV_AUTH_KEY { 0 } else { len };
    // SAFETY: the caller guarantees that the pointer is NULL or valid.
    (!key.is_null()).then(|| unsafe { super::bytes(key.cast(), len) }.to_vec())
}

/// Reads the attributes of a transmit context.
pub fn tx_attr(attr: &fi_tx_attr) -> TxAttr {
    TxAttr {
        caps: attr.caps,
        mode: attr.mode,
        op_flags: attr.op_flags,
        msg_order: attr.msg_order,
        comp_order: attr.comp_order,
        inject_size: attr.inject_size,
        size: attr.size,
        iov_limit: attr.iov_limit,
        rma_iov_limit: attr.rma_iov_limit,
        tclass: attr.tclass,
    }
}

/// Reads the attributes of a receive context.
pub fn rx_attr(attr: &fi_rx_attr) -> RxAttr {
    RxAttr {
        caps: attr.caps,
        mode: attr.mode,
        op_flags: attr.op_flags,
        msg_order: attr.msg_order,
        comp_order: attr.comp_order,
        total_buffered_recv: attr.total_buffered_recv,
        size: attr.size,
        iov_limit: attr.iov_limit,
    }
}

/// # Safety
/// The key is valid.
unsafe fn ep_attr(attr: &fi_ep_attr) -> EpAttr {
    EpAttr {
        ep_type: attr.type_,
        protocol: attr.protocol,
        protocol_version: attr.protocol_version,
        max_msg_size: attr.max_msg_size,
        msg_prefix_size: attr.msg_prefix_size,
        max_order_raw_size: attr.max_order_raw_size,
        max_order_war_size: attr.max_order_war_size,
        max_order_waw_size: attr.max_order_waw_size,
        mem_tag_format: attr.mem_tag_format,
        tx_ctx_cnt: attr.tx_ctx_cnt,
        rx_ctx_cnt: attr.rx_ctx_cnt,
        auth_key_size: attr.auth_key_size,
        // SAFETY: the caller guarantees that the key is NULL or has this length.
        auth_key: unsafe { key(attr.auth_key, attr.auth_key_size) },
    }
}

/// # Safety
/// Name and key are valid.
unsafe fn domain_attr(attr: &fi_domain_attr) -> DomainAttr {
    DomainAttr {
        domain: Opaque(attr.domain.cast()),
        // SAFETY: the caller guarantees that the name is NULL or terminated.
        name: unsafe { text(attr.name) },
        threading: attr.threading,
        control_progress: attr.control_progress,
        data_progress: attr.progress,
        resource_mgmt: attr.resource_mgmt,
        av_type: attr.av_type,
        mr_mode: attr.mr_mode,
        mr_key_size: attr.mr_key_size,
        cq_data_size: attr.cq_data_size,
        cq_cnt: attr.cq_cnt,
        ep_cnt: attr.ep_cnt,
        tx_ctx_cnt: attr.tx_ctx_cnt,
        rx_ctx_cnt: attr.rx_ctx_cnt,
        max_ep_tx_ctx: attr.max_ep_tx_ctx,
        max_ep_rx_ctx: attr.max_ep_rx_ctx,
        max_ep_stx_ctx: attr.max_ep_stx_ctx,
        max_ep_srx_ctx: attr.max_ep_srx_ctx,
        cntr_cnt: attr.cntr_cnt,
        mr_iov_limit: attr.mr_iov_limit,
        caps: attr.caps,
        mode: attr.mode,
        auth_key_size: attr.auth_key_size,
        // SAFETY: the caller guarantees that the key is NULL or has this length.
        auth_key: unsafe { key(attr.auth_key, attr.auth_key_size) },
        max_err_data: attr.max_err_data,
        mr_cnt: attr.mr_cnt,
        tclass: attr.tclass,
        max_ep_auth_key: attr.max_ep_auth_key,
        max_group_id: attr.max_group_id,
        max_cntr_value: attr.max_cntr_value,
        max_err_cntr_value: attr.max_err_cntr_value,
        max_xpu_ctx_cnt: attr.max_xpu_ctx_cnt,
    }
}

/// # Safety
/// The names are valid.
unsafe fn fabric_attr(attr: &fi_fabric_attr) -> FabricAttr {
    FabricAttr {
        fabric: Opaque(attr.fabric.cast()),
        // SAFETY: the caller guarantees that the names are NULL or terminated.
        name: unsafe { text(attr.name) },
        // SAFETY: the caller guarantees that the names are NULL or terminated.
        prov_name: unsafe { text(attr.prov_name) },
        prov_version: attr.prov_version,
        api_version: attr.api_version,
    }
}

/// Creates a list of `fi_info` structures, which the caller frees with `fi_freeinfo`; null for no
/// entries. `-FI_ENOMEM` if memory is exhausted.
pub fn to_c(infos: &[Info]) -> Result<*mut fi_info> {
    let mut first = std::ptr::null_mut();
    for info in infos.iter().rev() {
        match List::new(info) {
            Ok(made) => {
                let entry = made.into_raw();
                // SAFETY: `entry` was allocated by `List::new`, and has no other users.
                unsafe { (*entry).next = first };
                first = entry;
            }
            Err(error) => {
                drop(List(first));
                return Err(error);
            }
        }
    }
    Ok(first)
}

/// Frees a list that [`to_c`] created and that was not passed on.
///
/// # Safety
/// The list is `to_c`'s, and nothing uses it any more.
pub unsafe fn free(list: *mut fi_info) {
    drop(List(list));
}

/// A list under construction, freed when it cannot be completed.
struct List(*mut fi_info);

impl List {
    fn new(info: &Info) -> Result<List> {
        // SAFETY: zero is a valid value of all structures that are allocated here, and each was
        // just allocated.
        unsafe {
            let list = List(zeroed()?);
            let entry = &mut *list.0;
            entry.caps = info.caps;
            entry.mode = info.mode;
            entry.addr_format = info.addr_format;
            entry.src_addr = copy(&info.src_addr)?.cast();
            entry.src_addrlen = info.src_addr.len();
            entry.dest_addr = copy(&info.dest_addr)?.cast();
            entry.dest_addrlen = info.dest_addr.len();
            entry.handle = info.handle.0.cast();
            entry.tx_attr = zeroed()?;
            fill_tx(&mut *entry.tx_attr, &info.tx);
            entry.rx_attr = zeroed()?;
            fill_rx(&mut *entry.rx_attr, &info.rx);
            entry.ep_attr = zeroed()?;
            fill_ep(&mut *entry.ep_attr, &info.ep)?;
            entry.domain_attr = zeroed()?;
            fill_domain(&mut *entry.domain_attr, &info.domain)?;
            entry.fabric_attr = zeroed()?;
            fill_fabric(&mut *entry.fabric_attr, &info.fabric)?;
            if let Some(of) = &info.nic {
                entry.nic = nic::to_c(of)?;
            }
            Ok(list)
        }
    }

    fn into_raw(self) -> *mut fi_info {
        std::mem::ManuallyDrop::new(self).0
    }
}

impl Drop for List {
    fn drop(&mut self) {
        let mut next = self.0;
        while !next.is_null() {
            // SAFETY: all pointers in a list that is not complete are null or were allocated by
            // this module.
            unsafe {
                let entry = next;
                next = (*entry).next;
                libc::free((*entry).src_addr.cast());
                libc::free((*entry).dest_addr.cast());
                libc::free((*entry).tx_attr.cast());
                libc::free((*entry).rx_attr.cast());
                if let Some(ep) = (*entry).ep_attr.as_ref() {
                    libc::free(ep.auth_key.cast());
                }
                libc::free((*entry).ep_attr.cast());
                if let Some(domain) = (*entry).domain_attr.as_ref() {
                    libc::free(domain.name.cast());
                    libc::free(domain.auth_key.cast());
                }
                libc::free((*entry).domain_attr.cast());
                if let Some(fabric) = (*entry).fabric_attr.as_ref() {
                    libc::free(fabric.name.cast());
                    libc::free(fabric.prov_name.cast());
                }
                libc::free((*entry).fabric_attr.cast());
                if !(*entry).nic.is_null() {
                    nic::close((*entry).nic.cast());
                }
                libc::free(entry.cast());
            }
        }
    }
}

/// Returns an allocated C string; null for `None`. The text is truncated at a NUL.
fn c_text(text: &Option<String>) -> Result<*mut c_char> {
    let Some(text) = text else {
        return Ok(std::ptr::null_mut());
    };
    let mut bytes: Vec<u8> = text.bytes().take_while(|&byte| byte != 0).collect();
    bytes.push(0);
    Ok(copy(&bytes)?.cast())
}

/// Writes the attributes of a transmit context.
pub fn fill_tx(to: &mut fi_tx_attr, from: &TxAttr) {
    to.caps = from.caps;
    to.mode = from.mode;
    to.op_flags = from.op_flags;
    to.msg_order = from.msg_order;
    to.comp_order = from.comp_order;
    to.inject_size = from.inject_size;
    to.size = from.size;
    to.iov_limit = from.iov_limit;
    to.rma_iov_limit = from.rma_iov_limit;
    to.tclass = from.tclass;
}

/// Writes the attributes of a receive context.
pub fn fill_rx(to: &mut fi_rx_attr, from: &RxAttr) {
    to.caps = from.caps;
    to.mode = from.mode;
    to.op_flags = from.op_flags;
    to.msg_order = from.msg_order;
    to.comp_order = from.comp_order;
    to.total_buffered_recv = from.total_buffered_recv;
    to.size = from.size;
    to.iov_limit = from.iov_limit;
}

fn fill_ep(to: &mut fi_ep_attr, from: &EpAttr) -> Result {
    to.type_ = from.ep_type as _;
    to.protocol = from.protocol;
    to.protocol_version = from.protocol_version;
    to.max_msg_size = from.max_msg_size;
    to.msg_prefix_size = from.msg_prefix_size;
    to.max_order_raw_size = from.max_order_raw_size;
    to.max_order_war_size = from.max_order_war_size;
    to.max_order_waw_size = from.max_order_waw_size;
    to.mem_tag_format = from.mem_tag_format;
    to.tx_ctx_cnt = from.tx_ctx_cnt;
    to.rx_ctx_cnt = from.rx_ctx_cnt;
    to.auth_key_size = from.auth_key_size;
    to.auth_key = copy(from.auth_key.as_deref().unwrap_or_default())?;
    Ok(())
}

fn fill_domain(to: &mut fi_domain_attr, from: &DomainAttr) -> Result {
    to.domain = from.domain.0.cast();
    to.name = c_text(&from.name)?;
    to.threading = from.threading as _;
    to.control_progress = from.control_progress as _;
    to.progress = from.data_progress as _;
    to.resource_mgmt = from.resource_mgmt as _;
    to.av_type = from.av_type as _;
    to.mr_mode = from.mr_mode;
    to.mr_key_size = from.mr_key_size;
    to.cq_data_size = from.cq_data_size;
    to.cq_cnt = from.cq_cnt;
    to.ep_cnt = from.ep_cnt;
    to.tx_ctx_cnt = from.tx_ctx_cnt;
    to.rx_ctx_cnt = from.rx_ctx_cnt;
    to.max_ep_tx_ctx = from.max_ep_tx_ctx;
    to.max_ep_rx_ctx = from.max_ep_rx_ctx;
    to.max_ep_stx_ctx = from.max_ep_stx_ctx;
    to.max_ep_srx_ctx = from.max_ep_srx_ctx;
    to.cntr_cnt = from.cntr_cnt;
    to.mr_iov_limit = from.mr_iov_limit;
    to.caps = from.caps;
    to.mode = from.mode;
    to.auth_key_size = from.auth_key_size;
    to.auth_key = copy(from.auth_key.as_deref().unwrap_or_default())?;
    to.max_err_data = from.max_err_data;
    to.mr_cnt = from.mr_cnt;
    to.tclass = from.tclass;
    to.max_ep_auth_key = from.max_ep_auth_key;
    to.max_group_id = from.max_group_id;
    to.max_cntr_value = from.max_cntr_value;
    to.max_err_cntr_value = from.max_err_cntr_value;
    to.max_xpu_ctx_cnt = from.max_xpu_ctx_cnt;
    Ok(())
}

fn fill_fabric(to: &mut fi_fabric_attr, from: &FabricAttr) -> Result {
    to.fabric = from.fabric.0.cast();
    to.name = c_text(&from.name)?;
    to.prov_name = c_text(&from.prov_name)?;
    to.prov_version = from.prov_version;
    to.api_version = from.api_version;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Info {
        Info {
            caps: FI_MSG,
            addr_format: FI_SOCKADDR_IN,
            src_addr: vec![2, 0, 0, 80, 127, 0, 0, 1],
            ep: EpAttr {
                ep_type: FI_EP_RDM,
                auth_key_size: 3,
                auth_key: Some(b"key".to_vec()),
                ..EpAttr::default()
            },
            domain: DomainAttr {
                name: Some("eth0".into()),
                data_progress: FI_PROGRESS_AUTO,
                ..DomainAttr::default()
            },
            fabric: FabricAttr {
                prov_name: Some("tcp".into()),
                ..FabricAttr::default()
            },
            ..Info::default()
        }
    }

    #[test]
    fn an_encoded_info_is_decoded_unchanged() {
        let second = Info {
            caps: FI_TAGGED,
            ..sample()
        };
        let list = to_c(&[sample(), second.clone()]).unwrap();
        // SAFETY: the list was just made by `to_c`, and is freed at the end only.
        unsafe {
            assert_eq!(info(list, version(2, 0)).unwrap(), sample());
            assert_eq!(info((*list).next, version(2, 0)).unwrap(), second);
            assert!((*(*list).next).next.is_null());
        }
        // SAFETY: the list was made by `to_c`, and is freed once.
        unsafe { free(list) };
    }

    #[test]
    fn a_structure_of_an_older_library_is_read_up_to_its_end() {
        let current = Info {
            domain: DomainAttr {
                tclass: 7,
                max_ep_auth_key: 8,
                max_cntr_value: 9,
                max_xpu_ctx_cnt: 10,
                ..DomainAttr::default()
            },
            ..sample()
        };
        let list = to_c(&[current]).unwrap();
        let read = |layout| {
            // SAFETY: the list has the current layout, of which each older one is the beginning.
            let read = unsafe { hints_in(layout, list) }.unwrap();
            let domain = read.domain.unwrap();
            let later = [domain.max_ep_auth_key, domain.max_xpu_ctx_cnt];
            (domain.tclass, later, domain.max_cntr_value)
        };
        assert_eq!(read(&layout::ABI_1_3), (7, [0, 0], 0));
        assert_eq!(read(&layout::ABI_1_7), (7, [8, 0], 0));
        assert_eq!(read(&layout::ABI_1_9), (7, [8, 0], 9));
        assert_eq!(read(&layout::CURRENT), (7, [8, 10], 9));
        // SAFETY: the list was made by `to_c`, and is freed once.
        unsafe { free(list) };
    }

    #[test]
    fn no_entries_are_a_null_list_and_no_info_is_refused() {
        assert!(to_c(&[]).unwrap().is_null());
        // SAFETY: `info` accepts a null pointer.
        let none = unsafe { info(std::ptr::null(), version(2, 0)) };
        assert_eq!(none, Err(Errno::EINVAL));
    }
}
