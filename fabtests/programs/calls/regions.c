/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* Registrations that a provider may refuse, and other calls on regions. */
#include <string.h>

#include "row.h"

static struct fid_mr *region;
static const struct iovec whole = { memory, sizeof(memory) };

static int reg(const void *buf, size_t len, uint64_t access, uint64_t key,
	       uint64_t flags)
{
	return fi_mr_reg(domain(), buf, len, access, 0, key, flags, &region,
			 NULL);
}

/* A read of a whole uint64_t through the region that was registered at b. */
static int regattr(uint64_t flags, struct fi_mr_attr attr)
{
	if (!attr.mr_iov && !(flags & FI_MR_DMABUF)) {
		attr.mr_iov = &whole;
		attr.iov_count = 1;
	}
	attr.access = FI_REMOTE_READ | FI_READ;
	return fi_mr_regattr(domain(), &attr, flags, &region);
}

COMPARED(BOTH, "region/empty", reg(memory, 0, FI_REMOTE_READ, 1, 0))
COMPARED(BOTH, "region/of-nothing", reg(NULL, 0, FI_REMOTE_READ, 1, 0))
COMPARED(BOTH, "region/at-nothing", reg(NULL, 64, FI_REMOTE_READ, 1, 0))
COMPARED(BOTH, "region/wraps", reg(memory, SIZE_MAX, FI_REMOTE_READ, 1, 0))
COMPARED(BOTH, "region/no-access", reg(memory, 64, 0, 1, 0))
COMPARED(BOTH, "region/all-access", reg(memory, 64, ~0ULL, 1, 0))
COMPARED(BOTH, "region/key-beyond",
    reg(memory, 64, FI_REMOTE_READ, 1ULL << 62, 0))
COMPARED(BOTH, "region/key-not-available",
    reg(memory, 64, FI_REMOTE_READ, FI_KEY_NOTAVAIL, 0))
COMPARED(BOTH, "region/key-in-use-locally",
    (FIRST(reg(memory, 64, FI_SEND, 1, 0)), reg(memory, 64, FI_SEND, 1, 0)))
COMPARED(BOTH, "region/no-pieces",
    fi_mr_regv(domain(), &whole, 0, FI_REMOTE_READ, 0, 1, 0, &region, NULL))
COMPARED(BOTH, "region/flag-rma-event",
    reg(memory, 64, FI_REMOTE_READ, 1, FI_RMA_EVENT))
COMPARED(BOTH, "region/flag-pmem",
    reg(memory, 64, FI_REMOTE_READ, 1, FI_RMA_PMEM))
COMPARED(BOTH, "region/flag-host-alloc",
    reg(memory, 64, FI_REMOTE_READ, 1, FI_HMEM_HOST_ALLOC))
COMPARED(BOTH, "region/flag-device-only",
    reg(memory, 64, FI_REMOTE_READ, 1, FI_HMEM_DEVICE_ONLY))
COMPARED(BOTH, "region/flag-single-use",
    reg(memory, 64, FI_REMOTE_READ, 1, FI_MR_SINGLE_USE))
COMPARED(BOTH, "region/attr-offset",
    regattr(0, (struct fi_mr_attr) { .offset = 8 }))
COMPARED(BOTH, "region/attr-host-alloc",
    regattr(FI_HMEM_HOST_ALLOC, (struct fi_mr_attr) { 0 }))
COMPARED(BOTH, "region/attr-device-only",
    regattr(FI_HMEM_DEVICE_ONLY, (struct fi_mr_attr) { 0 }))
COMPARED(BOTH, "region/attr-dmabuf", ({
	struct fi_mr_dmabuf buf = { .fd = 0, .len = 64, .base_addr = memory };

	regattr(FI_MR_DMABUF, (struct fi_mr_attr) {
		.dmabuf = &buf, .iov_count = 1,
	});
    }))
COMPARED(BOTH, "region/attr-cuda",
    regattr(0, (struct fi_mr_attr) { .iface = FI_HMEM_CUDA }))
COMPARED(BOTH, "region/attr-ze",
    regattr(0, (struct fi_mr_attr) { .iface = FI_HMEM_ZE }))
COMPARED(BOTH, "region/attr-auth-key", regattr(0, (struct fi_mr_attr) {
	.auth_key = (uint8_t *)memory, .auth_key_size = 16,
    }))
COMPARED(BOTH, "region/attr-auth-key-nowhere",
    regattr(0, (struct fi_mr_attr) { .auth_key_size = 16 }))
COMPARED(BOTH, "region/enable", fi_mr_enable(mr()))
COMPARED(BOTH, "region/bind-endpoint", fi_mr_bind(mr(), &ep()->fid, 0))
COMPARED(BOTH, "region/bind-counter",
    fi_mr_bind(mr(), &cntr()->fid, FI_REMOTE_WRITE))
COMPARED(BOTH, "region/refresh", fi_mr_refresh(mr(), &whole, 1, 0))
COMPARED(BOTH, "region/refresh-flag",
    fi_mr_refresh(mr(), &whole, 1, UNKNOWN_FLAG))
COMPARED(BOTH, "region/refresh-of-nothing", fi_mr_refresh(mr(), NULL, 0, 0))
COMPARED(BOTH, "region/refresh-beyond", ({
	struct iovec iov = { &region, 64 };

	fi_mr_refresh(mr(), &iov, 1, 0);
    }))

/* Raw keys */
COMPARED(BOTH, "raw/attributes", ({
	uint64_t base;
	size_t len = 64;

	fi_mr_raw_attr(mr(), &base, (uint8_t *)memory, &len, 0);
    }))
COMPARED(BOTH, "raw/too-small", ({
	uint64_t base;
	size_t len = 1;

	fi_mr_raw_attr(mr(), &base, (uint8_t *)memory, &len, 0);
    }))
COMPARED(BOTH, "raw/map", ({
	uint64_t base, key;
	size_t len = 64;

	OK(fi_mr_raw_attr(mr(), &base, (uint8_t *)memory, &len, 0));
	fi_mr_map_raw(domain(), base, (uint8_t *)memory, len, &key, 0);
    }))
COMPARED(BOTH, "raw/map-wrong-size", ({
	uint64_t key;

	fi_mr_map_raw(domain(), 0, (uint8_t *)memory, 3, &key, 0);
    }))
COMPARED(BOTH, "raw/unmap-stranger", fi_mr_unmap_key(domain(), 12345))
