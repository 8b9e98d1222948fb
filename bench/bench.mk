# SPDX-License-Identifier: BSD-2-Clause OR MIT
# Performance programs. Included by the Makefile of the tree.
#
#   make bench BASELINE=<dir>       beside the libfabric.so.1 in that folder
#   make bench-count BASELINE=<dir> instructions and system calls only
#   make bench-net BASELINE=<dir>   over a veth pair: plain, with delay, with loss
#   make bench-sweep BASELINE=<dir> latency over all sizes, with the worst ratios
#   make bench-mpi BASELINE=<dir>   MPI programs, of the MPI libraries of make check
#   make bench-scale BASELINE=<dir> up to a thousand processes of this host
#   ROUNDS=5  CASES='tagged|read'  FABTESTS=<bin dir> (upstream's programs too)

ROUNDS ?= 5
SELECT = $(if $(LIB),--lib $(LIB)) $(if $(BASELINE),--baseline $(BASELINE)) \
	$(if $(CASES),--only '$(CASES)')
BENCH = bench/run --rounds $(ROUNDS) $(SELECT)

.PHONY: bench
bench:
	$(BENCH) $(if $(FABTESTS),--fabtests $(FABTESTS))

.PHONY: bench-count
bench-count:
	bench/count $(SELECT)

.PHONY: bench-sweep
bench-sweep: $(if $(LIB),,library-folder)
	bench/sweep --rounds $(ROUNDS) $(SELECT) $(if $(OUT),--out $(OUT))

.PHONY: bench-net
bench-net:
	$(BENCH) --net
	$(BENCH) --net --delay 1ms
	$(BENCH) --net --delay 1ms --loss 0.1%

.PHONY: bench-mpi
bench-mpi: $(if $(LIB),,library-folder)
	bench/mpi --rounds $(ROUNDS) $(SELECT) $(if $(OUT),--out $(OUT))

.PHONY: bench-scale
bench-scale: $(if $(LIB),,library-folder)
	bench/scale $(SELECT) $(if $(OUT),--out $(OUT))
