# SPDX-License-Identifier: BSD-2-Clause OR MIT
# Fuzzing of what peers send. Needs a nightly toolchain and cargo-fuzz; the same
# checks on the seeds and on damaged copies of them are part of `cargo test`.
#
#   make fuzz                            each target for a minute
#   make fuzz FUZZ_SECONDS=3600 FUZZ_TARGETS=rdm_endpoint

FUZZ_SECONDS ?= 60
FUZZ_TARGETS ?= handshake stream subflows packet msg_endpoint rdm_endpoint regions rxd_datagrams rxd_endpoints \
	shm_records verbs_hello lnx_address

.PHONY: fuzz
# The conformance programs under valgrind are what finds leaks.
fuzz:
	cd fuzz && $(CARGO) run -q --bin write_seeds
	for target in $(FUZZ_TARGETS); do \
		$(CARGO) +nightly fuzz run $$target -- -timeout=20 -detect_leaks=0 \
			-max_total_time=$(FUZZ_SECONDS) || exit 1; \
	done
