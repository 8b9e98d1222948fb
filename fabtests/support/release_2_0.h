/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * Included before everything else, this binds a program to the oldest symbol
 * versions of the 2.x releases, so that it runs on all of them although it was
 * built with newer headers. Members that later releases appended to the
 * structures must not be used then.
 */
#ifndef CT_RELEASE_2_0_H
#define CT_RELEASE_2_0_H

__asm__(".symver fi_getinfo, fi_getinfo@FABRIC_1.8");
__asm__(".symver fi_freeinfo, fi_freeinfo@FABRIC_1.8");
__asm__(".symver fi_dupinfo, fi_dupinfo@FABRIC_1.8");

#endif
