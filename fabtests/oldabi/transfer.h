/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
#ifndef TRANSFER_H
#define TRANSFER_H

#include "layouts.h"

/*
 * Sends one message from an endpoint of this fabric to itself. Returns 0, or a
 * negative value and the step that failed. Attributes are laid out with
 * at_page_end.
 */
int transfer_to_self(struct fid_fabric *fabric, struct fi_info *info,
		     void *(*at_page_end)(size_t size), const char **failed_step);

#endif
