# SPDX-License-Identifier: BSD-2-Clause OR MIT
# Set-up, demonstration and checks. Included by the Makefile of the tree.
#
#   make demo                    unmodified programs on this library
#   make check                   every check, with a summary
#   make check STEPS="lint abi"  some of them (dev/check --list names them)
#   make check-fast              the fast half of it, for what has changed: at most five minutes
#   make nightly                 what takes hours (dev/nightly --list), with a summary
#   make clients LIB=<dir>       the real programs, on another libfabric.so.1
#   make interop                 this library with peers on the C library
#   make interop FABTESTS=<dir> WITH=<dir>   also with upstream's programs
#   make soak                    each provider for SECONDS (60): random operations, flat usage
#   make check-rdma              the verbs provider, in an emulated machine with RDMA devices
#   make check-aarch64           the library and the tools for aarch64, and their tests in an emulator
#   make check-rdma-sanitizer    its registration cache there, under the address sanitizer

# A build tree has only libfabric.so; programs ask for libfabric.so.1.
LIBRARY_FOLDER = $(BUILT)/lib

.PHONY: demo check check-fast nightly clients interop soak library-folder check-aarch64 check-rdma check-rdma-sanitizer

library-folder:
	$(BUILD)
	@mkdir -p $(LIBRARY_FOLDER)
	@ln -sf ../release/libfabric.so $(LIBRARY_FOLDER)/libfabric.so.1
	@ln -sf libfabric.so.1 $(LIBRARY_FOLDER)/libfabric.so

demo:
	dev/setup demo
	$(MAKE) library-folder
	dev/demo $(LIBRARY_FOLDER)

check:
	dev/setup check
	dev/check $(STEPS)

check-fast:
	dev/check --fast

nightly:
	dev/setup nightly
	dev/nightly $(STEPS)

clients: $(if $(LIB),,library-folder)
	fabtests/clients/run $(or $(LIB),$(LIBRARY_FOLDER))

interop: library-folder
	fabtests/clients/interop $(LIBRARY_FOLDER) $(if $(WITH),--with $(WITH)) \
		$(if $(FABTESTS),--fabtests $(FABTESTS))

check-aarch64:
	dev/aarch64 setup
	dev/aarch64 check

soak:
	dev/soak $(if $(SECONDS),-s $(SECONDS)) $(CONFIGURATIONS)

check-rdma: tools providers
	fabtests/rdma/run --build
	dev/rdma-machine setup
	dev/rdma-machine run fabtests/rdma/run $(LIBRARY_FOLDER) $(BUILT)/providers

# The same options as in step_sanitizer of dev/check. The test's name is that of
# fabtests/rdma/verbs.c. The list of devices is never freed, which would be reported as a leak.
SANITIZED = target/asan/rdma
check-rdma-sanitizer: library-folder
	host=$$(rustc -vV | sed -n 's/^host: //p') && \
	RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Zsanitizer=address CARGO_PROFILE_DEV_OPT_LEVEL=1 CARGO_PROFILE_DEV_PANIC=unwind \
		$(CARGO) build --locked --target $$host --target-dir target/asan -p libfabric -p verbs-fi && \
	mkdir -p $(SANITIZED) && \
	ln -sf ../$$host/debug/libfabric.so $(SANITIZED)/libfabric.so.1 && \
	ln -sf ../$$host/debug/libverbs_fi.so $(SANITIZED)/libverbs-fi.so
	BIN=fabtests/bin/rdma-asan CC=dev/sanitizing-cc fabtests/rdma/run --build
	dev/rdma-machine setup
	BIN=fabtests/bin/rdma-asan ASAN_OPTIONS=detect_leaks=0 dev/rdma-machine run fabtests/rdma/run $(SANITIZED) $(SANITIZED) \
		mapped-again
