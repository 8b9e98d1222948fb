# SPDX-License-Identifier: BSD-2-Clause OR MIT
# Performance programs. Included by the Makefile of the tree.
#
#   make bench BASELINE=<dir>       beside the libfabric.so.1 in that folder
#   make bench-net BASELINE=<dir>   over a veth pair: plain, with delay, with loss
#   ROUNDS=5  CASES='tagged|read'  FABTESTS=<bin dir> (upstream's programs too)

ROUNDS ?= 5
BENCH = bench/run --rounds $(ROUNDS) $(if $(LIB),--lib $(LIB)) \
	$(if $(BASELINE),--baseline $(BASELINE)) $(if $(CASES),--only '$(CASES)')

.PHONY: bench
bench:
	$(BENCH) $(if $(FABTESTS),--fabtests $(FABTESTS))

.PHONY: bench-net
bench-net:
	$(BENCH) --net
	$(BENCH) --net --delay 1ms
	$(BENCH) --net --delay 1ms --loss 0.1%
