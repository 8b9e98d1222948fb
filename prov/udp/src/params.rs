//! What users can set (fi_udp(7)).

use prov_base::param_table;

param_table! {
    /// The parameters of the provider.
    pub struct Params for "udp" {
        /// Network interface to use, by the name that the system gives it
        iface: Option<String> = None;
    }
}
