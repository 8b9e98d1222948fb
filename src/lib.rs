//! libfabric.so.1: exported symbols, provider registry, fi_getinfo, parameters, logging.
