/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* Calls of the library itself, which belong to no provider. */
#include <stdlib.h>
#include <rdma/fi_ext.h>
#include <rdma/providers/fi_prov.h>

#include "row.h"

static int open_of(uint32_t version, const char *name, size_t len,
		   uint64_t flags)
{
	struct fid *opened = NULL;

	return fi_open(version, name, memory, len, flags, &opened, NULL);
}

COMPARED(BOTH, "library/open-unknown",
    open_of(FI_VERSION(1, 20), "no such object", 0, 0))
COMPARED(BOTH, "library/open-cache-of-early-version",
    open_of(FI_VERSION(1, 12), "mr_cache", 0, 0))
COMPARED(BOTH, "library/open-cache-attributes",
    open_of(FI_VERSION(1, 20), "mr_cache", 8, 0))
COMPARED(BOTH, "library/open-cache-flags",
    open_of(FI_VERSION(1, 20), "mr_cache", 0, UNKNOWN_FLAG))
COMPARED(BOTH, "library/open-cache", open_of(FI_VERSION(1, 20), "mr_cache", 0, 0))
COMPARED(BOTH, "library/parameter-without-name",
    fi_param_define(NULL, NULL, FI_PARAM_INT, "nothing"))
COMPARED(BOTH, "library/parameter-of-no-kind",
    fi_param_define(NULL, "strange", UNKNOWN_NUMBER, "nothing"))
COMPARED(BOTH, "library/parameter-of-no-kind-read", ({
	int value;

	setenv("FI_STRANGE", "7", 1);
	fi_param_define(NULL, "strange", UNKNOWN_NUMBER, "nothing");
	fi_param_get_int(NULL, "strange", &value);
    }))
COMPARED(BOTH, "library/parameter-unset", ({
	int value;

	OK(fi_param_define(NULL, "unset", FI_PARAM_INT, "nothing"));
	fi_param_get_int(NULL, "unset", &value);
    }))
COMPARED(BOTH, "library/parameter-not-defined", ({
	int value;

	fi_param_get_int(NULL, "not_defined", &value);
    }))
COMPARED(BOTH, "library/parameter-nowhere",
    (FIRST(fi_param_define(NULL, "unset", FI_PARAM_INT, "nothing")),
     fi_param_get_int(NULL, "unset", NULL)))
