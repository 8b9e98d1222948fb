# Build, checks and installation. `cargo build --release` alone gives the library.

CARGO ?= cargo

# With GLIBC=2.17, what is built runs on that version of the C library and newer ones, and with ARCH=aarch64
# besides, on that architecture (pkg/old-glibc).
ifdef GLIBC
ARCH := $(or $(ARCH),$(shell uname -m))
export GLIBC ARCH
BUILD = pkg/old-glibc $(GLIBC) $(ARCH)
BUILT = target/glibc-$(GLIBC)/$(ARCH)-unknown-linux-gnu
else
BUILD = $(CARGO) build --release
BUILT = target
endif

.PHONY: all
all:
	$(BUILD)

# The providers as separate libraries, for FI_PROVIDER_PATH=target/providers of any libfabric.so.1.
PROVIDERS = rxd rxm shm tcp udp verbs
.PHONY: providers
providers:
	$(BUILD) $(PROVIDERS:%=-p %-fi)
	@mkdir -p $(BUILT)/providers
	@for name in $(PROVIDERS); do \
		ln -sf ../release/lib$${name}_fi.so $(BUILT)/providers/lib$$name-fi.so || exit 1; \
	done

# Generates include/rdma from the abi crate.
.PHONY: headers
headers:
	$(CARGO) run -q -p fabric-headers -- abi include

# Compares the interface with the published facts: Rust types, headers, and the library if it is built.
.PHONY: check-abi check-headers
check-abi: check-headers
	$(CARGO) test -q -p fabric-abi -p fabric-headers

# The same without the Rust types, which are unit tests. The generator is built as for these, whose
# dependencies it then shares.
check-headers:
	CARGO_PROFILE_DEV_PANIC=unwind $(CARGO) run -q -p fabric-headers -- --check abi include
	abi/check include $(wildcard $(BUILT)/release/libfabric.so)
	abi/imports $(wildcard $(BUILT)/release/libfabric.so)

# fi_info, fi_pingpong and fi_strerror. They find the library in ../lib, next to their own folder.
.PHONY: tools
tools: library-folder
	$(BUILD) -p fabric-tools

# Compares the tools with Debian's on one library, and runs fi_pingpong with Debian's as the peer.
.PHONY: check-tools
check-tools: tools
	util/check $(BUILT)/release $(LIBRARY_FOLDER) $(REFERENCE)

include install.mk pkg/pkg.mk dev/dev.mk fabtests/fabtests.mk bench/bench.mk fuzz/fuzz.mk
