//! The rxd provider as a library of its own (fi_provider(3)).

prov_util::external!(prov_rxd::Rxd);
