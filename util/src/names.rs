//! Names of capabilities, modes, endpoint types and address formats, in any case.

use fabric_abi::*;

/// A list of names and values.
macro_rules! named {
    ($name:ident -> $type:ty: $($item:ident)*) => {
        #[doc = concat!("The ", stringify!($name), " of this name.")]
        pub fn $name(text: &str) -> Option<$type> {
            const VALUES: &[(&str, $type)] = &[$((stringify!($item), $item)),*];
            let found = VALUES.iter().find(|(name, _)| name.eq_ignore_ascii_case(text));
            found.map(|(_, value)| *value)
        }
    };
}

named! { capability -> u64:
    FI_MSG FI_RMA FI_TAGGED FI_ATOMIC FI_MULTICAST FI_COLLECTIVE
    FI_READ FI_WRITE FI_RECV FI_SEND FI_REMOTE_READ FI_REMOTE_WRITE
    FI_MULTI_RECV FI_REMOTE_CQ_DATA FI_MORE FI_PEEK FI_TRIGGER FI_FENCE
    FI_XPU FI_TAGGED_DIRECTED_RECV FI_TAGGED_MULTI_RECV FI_HMEM FI_EXACT_DIRECTED_RECV
    FI_RMA_PMEM FI_SOURCE_ERR FI_LOCAL_COMM FI_REMOTE_COMM FI_SHARED_AV
    FI_RMA_EVENT FI_SOURCE FI_NAMED_RX_CTX FI_DIRECTED_RECV
}

named! { mode -> u64:
    FI_CONTEXT FI_MSG_PREFIX FI_ASYNC_IOV FI_RX_CQ_DATA FI_CONTEXT2
}

named! { endpoint_type -> fi_ep_type:
    FI_EP_UNSPEC FI_EP_MSG FI_EP_DGRAM FI_EP_RDM
}

named! { address_format -> u32:
    FI_FORMAT_UNSPEC FI_SOCKADDR FI_SOCKADDR_IN FI_SOCKADDR_IN6 FI_SOCKADDR_IB FI_SOCKADDR_IP
    FI_ADDR_PSMX FI_ADDR_GNI FI_ADDR_BGQ FI_ADDR_MLX FI_ADDR_STR FI_ADDR_PSMX2 FI_ADDR_IB_UD
    FI_ADDR_EFA FI_ADDR_PSMX3 FI_ADDR_OPX FI_ADDR_CXI FI_ADDR_UCX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_known_in_any_case() {
        assert_eq!(capability("fi_tagged"), Some(FI_TAGGED));
        assert_eq!(mode("FI_CONTEXT"), Some(FI_CONTEXT));
        assert_eq!(endpoint_type("Fi_Ep_Rdm"), Some(FI_EP_RDM));
        assert_eq!(address_format("FI_SOCKADDR_IN6"), Some(FI_SOCKADDR_IN6));
        assert_eq!(capability("FI_NOTHING"), None);
    }
}
