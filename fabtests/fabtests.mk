# SPDX-License-Identifier: BSD-2-Clause OR MIT
# Conformance programs. Included by the Makefile of the tree.
#
#   make fabtests                        this tree's library, tcp, shm, rxm, udp and loopback
#   make fabtests-rows                   only fabtests/bin/rows, which says what that runs
#   make fabtests LIB=<dir>              another libfabric.so.1
#   make fabtests FABTESTS=<bin dir>     an installed upstream fabtests instead
#   SETS=quick,standard                  upstream's test sets (default quick)
#   CONFIGS=<dir>                        upstream's test_configs, for SETS=complex,stress
#   VALGRIND=1                           the programs under memcheck
#   PROVIDER=tcp  PROGRAMS="message rma"
#   make check-containers                two processes in containers, sandboxes and limits

PROVIDER ?= tcp
SETS ?= quick
# Upstream's tests of what a provider does not offer.
EXCLUDE = fabtests/upstream/exclude$(if $(filter shm sockets udp ucx,$(PROVIDER)),-$(PROVIDER))$(if $(filter \
	%ofi_rxm,$(PROVIDER)),-rxm)$(if $(filter %ofi_rxd,$(PROVIDER)),-rxd)
KNOWN ?= fabtests/known/c-library-2.x
# The C library, to be in one process with this one; dev/setup gets it.
OTHER ?= .deps/mpich/lib/mpich

# What needs no network: for the shm provider.
LOCAL = $(WITHIN) absent allocation asleep calls collective crowd denied departed descriptors deserted ensemble forks hmem hmem_shared impostor killed killed_connecting multitude roused \
	openshmem peer_srx process sleepers taken_back watchers withdrawn
# What has large data, once more where processes do not read one another's memory.
LARGE = crowd hmem hmem_shared killed match message rma simulation withdrawn
# And one process only: for the loopback provider.
WITHIN = atomic auth av backlog binding cancel caps cntr completion contexts cq early elsewhere endpoint entries eq first \
	getinfo hints hook itself late leak match message mr nothing outsiders param peer peer_av poll posted refused rma signals simulation source \
	stx text threads trigger unreachable untouched

# What passes messages without tags that fit into datagrams: for udp.
DATAGRAMS = binding cntr cq datagram denied early first forks linklocal poll posted signals untouched

# All but soak, which `make soak` (dev/check, step soak) runs on each provider.
EVERY = $(filter-out soak,$(basename $(notdir $(wildcard fabtests/programs/*.c))))

# For rxm, all but those that take long, what is about tcp alone, and sleepers (docs/fabtests.md).
LAYERED = $(filter-out crowd door leak multipath sleepers,$(EVERY))

# For rxd, all of these but what is about connections, and buffers of the kernel behind them; what one side
# does while the other makes no progress; and what kills many peers. What asks after peers that are gone
# has shorter times for that.
GIVEN_UP = collective deserted endpoint killed_connecting unreachable
OVER_DATAGRAMS = $(filter-out $(GIVEN_UP) absent buffered cm ensemble exhaustion firewall idle killed neighbour \
	reconnect restarted silent,$(LAYERED))

# Under all hooks at once: what passes objects in every way.
HOOKED = cm cntr contexts cq eq poll trigger
HOOKS = noop;trace;perf;profile;monitor;debug

# For tcp under the name sockets.
RENAMED = cm completion contexts denied elsewhere firewall getinfo hmem hmem_shared idle message multipath rma trigger
# And what sends messages, for its endpoints of the type FI_EP_DGRAM, which are reliable.
RELIABLE = binding cntr contexts cq early first match message poll signals source

# What lnx links, over shared memory and tcp.
LINKED = cancel cntr collective cq deserted early entries first hmem hmem_shared killed match message poll rma source taken_back trigger untouched

# And over datagrams, whose descriptors are nested deeply.
LINKED_OVER_DATAGRAMS = first match poll

# What ucx offers, over UCX's transports between processes of a host.
OVER_UCX = binding cntr completion cq early entries first match message poll posted rma

# What `make fabtests` runs, a run a line.
define ROWS
-p tcp $(EVERY)
-p shm -a none -e rdm $(LOCAL)
FI_SHM_DISABLE_CMA=1 -p shm -a none -e rdm $(LARGE)
FI_HOOK='$(HOOKS)' $(HOOKED)
FI_HOOK='$(HOOKS)' -p 'udp;ofi_rxd' -e rdm message
FI_TCP_FIREWALL_ADDR=1 firewall
FI_TCP_LOCAL=off asleep forks hmem hmem_shared idle sleepers withdrawn
-p 'tcp;ofi_rxm' -e rdm $(LAYERED)
FI_TCP_LOCAL=off FI_TCP_MAX_UNEXPECTED=65536 -p 'tcp;ofi_rxm' -e rdm backlog
FI_OFI_RXM_USE_SRX=no -p 'tcp;ofi_rxm' -e rdm backlog
-p 'udp;ofi_rxd' -e rdm $(OVER_DATAGRAMS)
FI_OFI_RXD_TIMEOUT=2000 -p 'udp;ofi_rxd' -e rdm $(GIVEN_UP)
FI_OFI_RXD_TIMEOUT=1000 -p 'udp;ofi_rxd' -e rdm killed restarted
FI_OFI_RXD_TIMEOUT=10000 -p 'udp;ofi_rxd' -e rdm silent
-p loopback -a none -e rdm $(WITHIN)
FI_LNX_PROV_LINKS=shm+tcp:lo -p lnx -a none -e rdm $(LINKED)
FI_LNX_PROV_LINKS='udp;ofi_rxd:lo' -p lnx -a none -e rdm $(LINKED_OVER_DATAGRAMS)
FI_UCX_DEVICES=all -p ucx -a none -e rdm $(OVER_UCX)
-p sockets $(RENAMED)
-p sockets -e dgram $(RELIABLE)
-p ofi_mrail -e rdm multipath
-p udp -e dgram $(DATAGRAMS)
-p udp -e dgram -a ::1 datagram
endef

.PHONY: fabtests fabtests-rows
fabtests-rows:
	$(shell mkdir -p fabtests/bin)$(file >fabtests/bin/rows,$(ROWS))@:

fabtests:
ifdef FABTESTS
	fabtests/upstream/run --bin $(FABTESTS) --sets $(SETS) -p '$(PROVIDER)' \
		$(if $(CONFIGS),--configs $(CONFIGS)) $(if $(LIB),--lib $(LIB),--exclude $(EXCLUDE))
else ifeq ($(LIB)$(PROGRAMS)$(PROVIDER),tcp)
	$(MAKE) -s fabtests-rows
	VALGRIND=$(VALGRIND) fabtests/run --rows fabtests/bin/rows
	fabtests/refusals/compare
	fabtests/semantics/run $(if $(wildcard $(OTHER)),--with $(OTHER))
else
	VALGRIND=$(VALGRIND) fabtests/run -p '$(PROVIDER)' \
		$(if $(LIB),--lib $(LIB) --known $(KNOWN)) $(PROGRAMS)
endif

# docs/containers.md has what is expected.
.PHONY: check-containers
check-containers:
	fabtests/containers/run --lib $(or $(LIB),target/lib)
