/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* What the process uses of the system. */
#ifndef CT_PROCESS_H
#define CT_PROCESS_H

/* Open descriptors; a few more, the same number at each call. */
int ct_descriptors(void);

/* Bytes of memory that are resident. */
long ct_resident(void);

/* Permits as many descriptors as the system does, up to this number. */
void ct_allow_descriptors(unsigned long most);

#endif
