//! The common parts of the framework's own objects.

use fabric_abi::fi_ops;
use prov_util::object::missing::slot;

/// Operations of an object that supports none.
pub const OPS_UNSUPPORTED: fi_ops = fi_ops {
    size: size_of::<fi_ops>(),
    close: slot(),
    bind: slot(),
    control: slot(),
    ops_open: slot(),
    tostr: slot(),
    ops_set: slot(),
};
