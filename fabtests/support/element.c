/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
#include "element.h"

#include <complex.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

__extension__ typedef __int128 int128;
__extension__ typedef unsigned __int128 uint128;

enum kind { SIGNED, UNSIGNED, REAL, COMPLEX };

static const struct {
	enum fi_datatype type;
	const char *name;
	size_t size;
	enum kind kind;
	int exponent, mantissa;		/* bits of the small float formats */
} types[CT_DATATYPES] = {
	{ FI_INT8, "int8", 1, SIGNED, 0, 0 },
	{ FI_UINT8, "uint8", 1, UNSIGNED, 0, 0 },
	{ FI_INT16, "int16", 2, SIGNED, 0, 0 },
	{ FI_UINT16, "uint16", 2, UNSIGNED, 0, 0 },
	{ FI_INT32, "int32", 4, SIGNED, 0, 0 },
	{ FI_UINT32, "uint32", 4, UNSIGNED, 0, 0 },
	{ FI_INT64, "int64", 8, SIGNED, 0, 0 },
	{ FI_UINT64, "uint64", 8, UNSIGNED, 0, 0 },
	{ FI_FLOAT, "float", sizeof(float), REAL, 0, 0 },
	{ FI_DOUBLE, "double", sizeof(double), REAL, 0, 0 },
	{ FI_FLOAT_COMPLEX, "float-complex", sizeof(float complex), COMPLEX,
	  0, 0 },
	{ FI_DOUBLE_COMPLEX, "double-complex", sizeof(double complex), COMPLEX,
	  0, 0 },
	{ FI_LONG_DOUBLE, "long-double", sizeof(long double), REAL, 0, 0 },
	{ FI_LONG_DOUBLE_COMPLEX, "long-double-complex",
	  sizeof(long double complex), COMPLEX, 0, 0 },
	{ FI_INT128, "int128", 16, SIGNED, 0, 0 },
	{ FI_UINT128, "uint128", 16, UNSIGNED, 0, 0 },
	{ FI_FLOAT16, "float16", 2, REAL, 5, 10 },
	{ FI_BFLOAT16, "bfloat16", 2, REAL, 8, 7 },
	{ FI_FLOAT8_E4M3, "float8-e4m3", 1, REAL, 4, 3 },
	{ FI_FLOAT8_E5M2, "float8-e5m2", 1, REAL, 5, 2 },
};

static const struct {
	enum fi_op op;
	const char *name;
	bool compare;
} ops[CT_OPS] = {
	{ FI_MIN, "min", false },
	{ FI_MAX, "max", false },
	{ FI_SUM, "sum", false },
	{ FI_PROD, "prod", false },
	{ FI_LOR, "lor", false },
	{ FI_LAND, "land", false },
	{ FI_BOR, "bor", false },
	{ FI_BAND, "band", false },
	{ FI_LXOR, "lxor", false },
	{ FI_BXOR, "bxor", false },
	{ FI_ATOMIC_READ, "read", false },
	{ FI_ATOMIC_WRITE, "write", false },
	{ FI_CSWAP, "cswap", true },
	{ FI_CSWAP_NE, "cswap-ne", true },
	{ FI_CSWAP_LE, "cswap-le", true },
	{ FI_CSWAP_LT, "cswap-lt", true },
	{ FI_CSWAP_GE, "cswap-ge", true },
	{ FI_CSWAP_GT, "cswap-gt", true },
	{ FI_MSWAP, "mswap", true },
	{ FI_DIFF, "diff", false },
};

static int type_index(enum fi_datatype type)
{
	int i = 0;

	while (types[i].type != type)
		i++;
	return i;
}

static int op_index(enum fi_op op)
{
	int i = 0;

	while (ops[i].op != op)
		i++;
	return i;
}

enum fi_datatype ct_datatype(int index)
{
	return types[index].type;
}

enum fi_op ct_op(int index)
{
	return ops[index].op;
}

const char *ct_datatype_name(enum fi_datatype type)
{
	return types[type_index(type)].name;
}

const char *ct_op_name(enum fi_op op)
{
	return ops[op_index(op)].name;
}

size_t ct_datatype_size(enum fi_datatype type)
{
	return types[type_index(type)].size;
}

bool ct_is_integer(enum fi_datatype type)
{
	enum kind kind = types[type_index(type)].kind;

	return kind == SIGNED || kind == UNSIGNED;
}

bool ct_is_signed(enum fi_datatype type)
{
	return types[type_index(type)].kind != UNSIGNED;
}

bool ct_is_complex(enum fi_datatype type)
{
	return types[type_index(type)].kind == COMPLEX;
}

bool ct_is_compare(enum fi_op op)
{
	return ops[op_index(op)].compare;
}

/* The small formats, for values that they hold exactly. */
static uint16_t small_encode(double value, int exponent, int mantissa)
{
	uint16_t sign = signbit(value) ? 1 : 0, bits;
	int exp, bias = (1 << (exponent - 1)) - 1;
	double fraction;

	if (value == 0)
		return (uint16_t)(sign << (exponent + mantissa));
	fraction = frexp(fabs(value), &exp) * 2;	/* 1 <= fraction < 2 */
	bits = (uint16_t)((exp - 1 + bias) << mantissa);
	bits |= (uint16_t)ldexp(fraction - 1, mantissa);
	return (uint16_t)(bits | sign << (exponent + mantissa));
}

static double small_decode(uint16_t bits, int exponent, int mantissa)
{
	int bias = (1 << (exponent - 1)) - 1;
	int exp = bits >> mantissa & ((1 << exponent) - 1);
	double fraction = ldexp(bits & ((1 << mantissa) - 1), -mantissa);
	double value = exp ? ldexp(1 + fraction, exp - bias)
			   : ldexp(fraction, 1 - bias);

	return bits >> (exponent + mantissa) & 1 ? -value : value;
}

void ct_encode(void *array, size_t i, enum fi_datatype type,
	       struct ct_value value)
{
	int t = type_index(type);
	unsigned char *at = (unsigned char *)array + i * types[t].size;
	long double pair[2] = { value.re, value.im };
	uint16_t small;
	int128 whole = (int128)value.re;

	memset(at, 0, types[t].size);
	if (ct_is_integer(type)) {
		/* Little-endian hosts: the low bytes are first. */
		memcpy(at, &whole, types[t].size);
		return;
	}
	switch (type) {
	case FI_FLOAT:
	case FI_FLOAT_COMPLEX:
		memcpy(at, (float[2]) { (float)value.re, (float)value.im },
		       types[t].size);
		break;
	case FI_DOUBLE:
	case FI_DOUBLE_COMPLEX:
		memcpy(at, (double[2]) { value.re, value.im }, types[t].size);
		break;
	case FI_LONG_DOUBLE:
	case FI_LONG_DOUBLE_COMPLEX:
		memcpy(at, pair, types[t].size);
		break;
	default:
		small = small_encode(value.re, types[t].exponent,
				     types[t].mantissa);
		memcpy(at, &small, types[t].size);
	}
}

struct ct_value ct_decode(const void *array, size_t i, enum fi_datatype type)
{
	int t = type_index(type);
	const unsigned char *at = (const unsigned char *)array +
				  i * types[t].size;
	struct ct_value value = { 0, 0 };
	float floats[2] = { 0, 0 };
	double doubles[2] = { 0, 0 };
	long double longs[2] = { 0, 0 };
	uint16_t small = 0;
	int128 whole = 0;

	if (ct_is_integer(type)) {
		if (ct_is_signed(type) && at[types[t].size - 1] & 0x80)
			whole = -1;
		memcpy(&whole, at, types[t].size);
		value.re = ct_is_signed(type) ? (double)whole
					      : (double)(uint128)whole;
		return value;
	}
	switch (type) {
	case FI_FLOAT:
	case FI_FLOAT_COMPLEX:
		memcpy(floats, at, types[t].size);
		value = (struct ct_value) { floats[0], floats[1] };
		break;
	case FI_DOUBLE:
	case FI_DOUBLE_COMPLEX:
		memcpy(doubles, at, types[t].size);
		value = (struct ct_value) { doubles[0], doubles[1] };
		break;
	case FI_LONG_DOUBLE:
	case FI_LONG_DOUBLE_COMPLEX:
		memcpy(longs, at, types[t].size);
		value = (struct ct_value) { (double)longs[0],
					    (double)longs[1] };
		break;
	default:
		memcpy(&small, at, types[t].size);
		value.re = small_decode(small, types[t].exponent,
					types[t].mantissa);
	}
	return value;
}

bool ct_op_applies(enum fi_op op, enum fi_datatype type)
{
	switch (op) {
	case FI_BOR:
	case FI_BAND:
	case FI_BXOR:
	case FI_MSWAP:
		return ct_is_integer(type);
	case FI_MIN:
	case FI_MAX:
	case FI_CSWAP_LE:
	case FI_CSWAP_LT:
	case FI_CSWAP_GE:
	case FI_CSWAP_GT:
		return !ct_is_complex(type);	/* complex numbers have no order */
	default:
		return true;
	}
}

bool ct_same(struct ct_value a, struct ct_value b)
{
	return a.re == b.re && a.im == b.im;
}

static bool truth(struct ct_value v)
{
	return v.re != 0 || v.im != 0;
}

static struct ct_value swap_if(bool condition, struct ct_value target,
			       struct ct_value source)
{
	return condition ? source : target;
}

struct ct_value ct_apply(enum fi_op op, enum fi_datatype type,
			 struct ct_value t, struct ct_value s,
			 struct ct_value c)
{
	long ti = (long)t.re, si = (long)s.re, ci = (long)c.re;
	struct ct_value r = t;

	switch (op) {
	case FI_MIN:
		return s.re < t.re ? s : t;
	case FI_MAX:
		return s.re > t.re ? s : t;
	case FI_SUM:
		return (struct ct_value) { t.re + s.re, t.im + s.im };
	case FI_DIFF:
		r = (struct ct_value) { t.re - s.re, t.im - s.im };
		if (!ct_is_signed(type) && r.re < 0)
			r.re = ldexp(1, (int)ct_datatype_size(type) * 8) + r.re;
		return r;
	case FI_PROD:
		return (struct ct_value) { t.re * s.re - t.im * s.im,
					   t.re * s.im + t.im * s.re };
	case FI_LOR:
		return (struct ct_value) { truth(t) || truth(s), 0 };
	case FI_LAND:
		return (struct ct_value) { truth(t) && truth(s), 0 };
	case FI_LXOR:
		return (struct ct_value) { truth(t) != truth(s), 0 };
	case FI_BOR:
		return (struct ct_value) { (double)(ti | si), 0 };
	case FI_BAND:
		return (struct ct_value) { (double)(ti & si), 0 };
	case FI_BXOR:
		return (struct ct_value) { (double)(ti ^ si), 0 };
	case FI_ATOMIC_WRITE:
		return s;
	case FI_CSWAP:
		return swap_if(ct_same(c, t), t, s);
	case FI_CSWAP_NE:
		return swap_if(!ct_same(c, t), t, s);
	case FI_CSWAP_LE:
		return swap_if(c.re <= t.re, t, s);
	case FI_CSWAP_LT:
		return swap_if(c.re < t.re, t, s);
	case FI_CSWAP_GE:
		return swap_if(c.re >= t.re, t, s);
	case FI_CSWAP_GT:
		return swap_if(c.re > t.re, t, s);
	case FI_MSWAP:
		return (struct ct_value) { (double)((si & ci) | (ti & ~ci)),
					   0 };
	default:
		return t;
	}
}
