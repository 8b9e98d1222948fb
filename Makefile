# Build, checks and installation. `cargo build --release` alone gives the library.

CARGO ?= cargo

.PHONY: all
all:
	$(CARGO) build --release

# The providers as separate libraries, for FI_PROVIDER_PATH=target/providers of any libfabric.so.1.
PROVIDERS = rxd rxm shm tcp udp verbs
.PHONY: providers
providers:
	$(CARGO) build --release $(PROVIDERS:%=-p %-fi)
	@mkdir -p target/providers
	@for name in $(PROVIDERS); do \
		ln -sf ../release/lib$${name}_fi.so target/providers/lib$$name-fi.so || exit 1; \
	done

# Generates include/rdma from the abi crate.
.PHONY: headers
headers:
	$(CARGO) run -q -p fabric-headers -- abi include

# Compares the interface with the published facts: Rust types, headers, and the library if it is built.
.PHONY: check-abi
check-abi:
	$(CARGO) test -q -p fabric-abi -p fabric-headers
	$(CARGO) run -q -p fabric-headers -- --check abi include
	abi/check include $(wildcard target/release/libfabric.so)
	abi/imports $(wildcard target/release/libfabric.so)

# fi_info, fi_pingpong and fi_strerror. They find the library in ../lib, next to their own folder.
.PHONY: tools
tools: library-folder
	$(CARGO) build --release -p fabric-tools

# Compares the tools with Debian's on one library, and runs fi_pingpong with Debian's as the peer.
.PHONY: check-tools
check-tools: tools
	util/check target/release target/lib $(REFERENCE)

include install.mk pkg/pkg.mk dev/dev.mk fabtests/fabtests.mk bench/bench.mk fuzz/fuzz.mk
