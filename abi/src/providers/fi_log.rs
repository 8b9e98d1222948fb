//! Declarations of `<rdma/providers/fi_log.h>`.

use core::ffi::c_uint;

c_enum! {
    /// Log levels, fi_provider(3).
    pub enum fi_log_level: c_uint {
        FI_LOG_WARN,
        FI_LOG_TRACE,
        FI_LOG_INFO,
        FI_LOG_DEBUG,
    }
}

c_enum! {
    /// Subsystems that log, fi_provider(3).
    pub enum fi_log_subsys: c_uint {
        FI_LOG_CORE,
        FI_LOG_FABRIC,
        FI_LOG_DOMAIN,
        FI_LOG_EP_CTRL,
        FI_LOG_EP_DATA,
        FI_LOG_AV,
        FI_LOG_CQ,
        FI_LOG_EQ,
        FI_LOG_MR,
        FI_LOG_CNTR,
    }
}
