/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * The datatypes of atomic operations, and the effect of each operation on
 * small whole numbers, which all of them represent exactly.
 */
#ifndef CT_ELEMENT_H
#define CT_ELEMENT_H

#include <stdbool.h>
#include <rdma/fi_atomic.h>

/* fi_atomic(3) numbers the types in two stretches; this counts through both. */
#define CT_DATATYPES 20
enum fi_datatype ct_datatype(int index);

#define CT_OPS 20
enum fi_op ct_op(int index);

const char *ct_datatype_name(enum fi_datatype type);
const char *ct_op_name(enum fi_op op);
size_t ct_datatype_size(enum fi_datatype type);

/* A value with the imaginary part of complex types; 0 for the others. */
struct ct_value {
	double re, im;
};

/* Writes and reads element i of an array of the type. */
void ct_encode(void *array, size_t i, enum fi_datatype type,
	       struct ct_value value);
struct ct_value ct_decode(const void *array, size_t i, enum fi_datatype type);

bool ct_is_integer(enum fi_datatype type);
bool ct_is_signed(enum fi_datatype type);
bool ct_is_complex(enum fi_datatype type);
bool ct_is_compare(enum fi_op op);

/* True if the operation has a meaning for the type. */
bool ct_op_applies(enum fi_op op, enum fi_datatype type);

/* The value at the target afterwards. */
struct ct_value ct_apply(enum fi_op op, enum fi_datatype type,
			 struct ct_value target, struct ct_value source,
			 struct ct_value compare);

bool ct_same(struct ct_value a, struct ct_value b);

#endif
