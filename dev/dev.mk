# SPDX-License-Identifier: BSD-2-Clause OR MIT
# Set-up, demonstration and checks. Included by the Makefile of the tree.
#
#   make demo                    other people's programs on this library
#   make check                   every check, with a summary
#   make check STEPS="lint abi"  some of them (dev/check --list names them)
#   make clients LIB=<dir>       the real programs, on another libfabric.so.1
#   make interop                 this library against the C library's wire
#   make interop FABTESTS=<dir> WITH=<dir>   also with upstream's programs

#   make check-rdma              the verbs provider, in an emulated machine with RDMA devices

# A build tree has only libfabric.so; programs ask for libfabric.so.1.
LIBRARY_FOLDER = target/lib

.PHONY: demo check clients interop library-folder check-rdma

library-folder:
	cargo build --release
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

clients: $(if $(LIB),,library-folder)
	fabtests/clients/run $(or $(LIB),$(LIBRARY_FOLDER))

interop: library-folder
	fabtests/clients/interop $(LIBRARY_FOLDER) $(if $(WITH),--with $(WITH)) \
		$(if $(FABTESTS),--fabtests $(FABTESTS))

check-rdma: tools providers
	fabtests/rdma/run --build
	dev/rdma-machine setup
	dev/rdma-machine run fabtests/rdma/run $(LIBRARY_FOLDER) target/providers
