/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* fi_tostr for every enumeration and structure, fi_strerror, fi_version. */
#include <string.h>
#include <sys/socket.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_collective.h>
#include <rdma/providers/fi_log.h>

#include "check.h"
#include "pattern.h"
#include "peer.h"

/* The text of one value is its own name. */
#define NAMED(enumeration, type, value)					\
	do {								\
		enumeration ct_value_ = value;				\
		const char *ct_text_ = fi_tostr(&ct_value_, type);	\
									\
		CHECK(ct_text_ && !strcmp(ct_text_, #value), "%s",	\
		      #value);						\
	} while (0)

static void enumerations(void)
{
	NAMED(enum fi_ep_type, FI_TYPE_EP_TYPE, FI_EP_UNSPEC);
	NAMED(enum fi_ep_type, FI_TYPE_EP_TYPE, FI_EP_MSG);
	NAMED(enum fi_ep_type, FI_TYPE_EP_TYPE, FI_EP_DGRAM);
	NAMED(enum fi_ep_type, FI_TYPE_EP_TYPE, FI_EP_RDM);
	NAMED(uint32_t, FI_TYPE_ADDR_FORMAT, FI_FORMAT_UNSPEC);
	NAMED(uint32_t, FI_TYPE_ADDR_FORMAT, FI_SOCKADDR);
	NAMED(uint32_t, FI_TYPE_ADDR_FORMAT, FI_SOCKADDR_IN);
	NAMED(uint32_t, FI_TYPE_ADDR_FORMAT, FI_SOCKADDR_IN6);
	NAMED(uint32_t, FI_TYPE_ADDR_FORMAT, FI_SOCKADDR_IB);
	NAMED(uint32_t, FI_TYPE_ADDR_FORMAT, FI_ADDR_STR);
	NAMED(enum fi_threading, FI_TYPE_THREADING, FI_THREAD_UNSPEC);
	NAMED(enum fi_threading, FI_TYPE_THREADING, FI_THREAD_SAFE);
	NAMED(enum fi_threading, FI_TYPE_THREADING, FI_THREAD_DOMAIN);
	NAMED(enum fi_threading, FI_TYPE_THREADING, FI_THREAD_COMPLETION);
	NAMED(enum fi_progress, FI_TYPE_PROGRESS, FI_PROGRESS_UNSPEC);
	NAMED(enum fi_progress, FI_TYPE_PROGRESS, FI_PROGRESS_AUTO);
	NAMED(enum fi_progress, FI_TYPE_PROGRESS, FI_PROGRESS_MANUAL);
	NAMED(uint32_t, FI_TYPE_PROTOCOL, FI_PROTO_UNSPEC);
	NAMED(uint32_t, FI_TYPE_PROTOCOL, FI_PROTO_SOCK_TCP);
	NAMED(uint32_t, FI_TYPE_PROTOCOL, FI_PROTO_XNET);
	NAMED(uint32_t, FI_TYPE_PROTOCOL, FI_PROTO_SHM);
	NAMED(enum fi_av_type, FI_TYPE_AV_TYPE, FI_AV_UNSPEC);
	NAMED(enum fi_av_type, FI_TYPE_AV_TYPE, FI_AV_MAP);
	NAMED(enum fi_av_type, FI_TYPE_AV_TYPE, FI_AV_TABLE);
	NAMED(enum fi_datatype, FI_TYPE_ATOMIC_TYPE, FI_INT8);
	NAMED(enum fi_datatype, FI_TYPE_ATOMIC_TYPE, FI_UINT64);
	NAMED(enum fi_datatype, FI_TYPE_ATOMIC_TYPE, FI_LONG_DOUBLE_COMPLEX);
	NAMED(enum fi_datatype, FI_TYPE_ATOMIC_TYPE, FI_UINT128);
	NAMED(enum fi_op, FI_TYPE_ATOMIC_OP, FI_MIN);
	NAMED(enum fi_op, FI_TYPE_ATOMIC_OP, FI_ATOMIC_WRITE);
	NAMED(enum fi_op, FI_TYPE_ATOMIC_OP, FI_MSWAP);
	NAMED(int, FI_TYPE_EQ_EVENT, FI_CONNREQ);
	NAMED(int, FI_TYPE_EQ_EVENT, FI_CONNECTED);
	NAMED(int, FI_TYPE_EQ_EVENT, FI_SHUTDOWN);
	NAMED(int, FI_TYPE_EQ_EVENT, FI_AV_COMPLETE);
	NAMED(enum fi_cq_format, FI_TYPE_CQ_FORMAT, FI_CQ_FORMAT_CONTEXT);
	NAMED(enum fi_cq_format, FI_TYPE_CQ_FORMAT, FI_CQ_FORMAT_TAGGED);
	NAMED(enum fi_wait_obj, FI_TYPE_WAIT_OBJ, FI_WAIT_NONE);
	NAMED(enum fi_wait_obj, FI_TYPE_WAIT_OBJ, FI_WAIT_FD);
	NAMED(enum fi_wait_obj, FI_TYPE_WAIT_OBJ, FI_WAIT_YIELD);
	NAMED(enum fi_cq_wait_cond, FI_TYPE_CQ_WAIT_COND, FI_CQ_COND_NONE);
	NAMED(enum fi_cq_wait_cond, FI_TYPE_CQ_WAIT_COND,
	      FI_CQ_COND_THRESHOLD);
	NAMED(enum fi_hmem_iface, FI_TYPE_HMEM_IFACE, FI_HMEM_SYSTEM);
	NAMED(enum fi_hmem_iface, FI_TYPE_HMEM_IFACE, FI_HMEM_CUDA);
	NAMED(enum fi_collective_op, FI_TYPE_COLLECTIVE_OP, FI_BARRIER);
	NAMED(enum fi_collective_op, FI_TYPE_COLLECTIVE_OP, FI_ALLREDUCE);
}

static const char *flag_text(uint64_t value, enum fi_type type)
{
	return fi_tostr(&value, type);
}

/* Flags are listed by name, separated by a comma and a space. */
static void flags(void)
{
	CHECK(!strcmp(flag_text(FI_MSG, FI_TYPE_CAPS), "FI_MSG"), "one");
	CHECK(!strcmp(flag_text(FI_MSG | FI_TAGGED, FI_TYPE_CAPS),
		      "FI_MSG, FI_TAGGED"), "two");
	CHECK(!strcmp(flag_text(0, FI_TYPE_CAPS), ""), "none");
	CHECK(!strcmp(flag_text(FI_CONTEXT | FI_CONTEXT2, FI_TYPE_MODE),
		      "FI_CONTEXT, FI_CONTEXT2"), "mode");
	CHECK(!strcmp(flag_text(FI_ORDER_RAW | FI_ORDER_SAS,
				FI_TYPE_MSG_ORDER),
		      "FI_ORDER_RAW, FI_ORDER_SAS"), "order");
	CHECK(!strcmp(flag_text(FI_MR_LOCAL | FI_MR_PROV_KEY,
				FI_TYPE_MR_MODE),
		      "FI_MR_LOCAL, FI_MR_PROV_KEY"), "mr-mode");
	CHECK(strstr(flag_text(FI_INJECT | FI_COMPLETION, FI_TYPE_OP_FLAGS),
		     "FI_INJECT"), "op-flags");
	CHECK(strstr(flag_text(FI_RECV | FI_MSG | FI_REMOTE_CQ_DATA,
			       FI_TYPE_CQ_EVENT_FLAGS), "FI_REMOTE_CQ_DATA"),
	      "cq-flags");
}

static void structures(void)
{
	static const struct {
		enum fi_type type;
		const char *begins;
	} kinds[] = {
		{ FI_TYPE_INFO, "fi_info:" },
		{ FI_TYPE_TX_ATTR, "fi_tx_attr:" },
		{ FI_TYPE_RX_ATTR, "fi_rx_attr:" },
		{ FI_TYPE_EP_ATTR, "fi_ep_attr:" },
		{ FI_TYPE_DOMAIN_ATTR, "fi_domain_attr:" },
		{ FI_TYPE_FABRIC_ATTR, "fi_fabric_attr:" },
	};
	struct ct_spec spec = { 0 };
	struct fi_info *info = ct_getinfo(&spec), *blank = fi_allocinfo();

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		for (int empty = 0; empty < 2; empty++) {
			struct fi_info *of = empty ? blank : info;
			const void *data =
				i == 0 ? (void *)of :
				i == 1 ? (void *)of->tx_attr :
				i == 2 ? (void *)of->rx_attr :
				i == 3 ? (void *)of->ep_attr :
				i == 4 ? (void *)of->domain_attr :
					 (void *)of->fabric_attr;
			const char *text = fi_tostr(data, kinds[i].type);

			while (text && *text == ' ')
				text++;
			CHECK(text && !strncmp(text, kinds[i].begins,
					       strlen(kinds[i].begins)),
			      "%s%s", kinds[i].begins, empty ? "blank" : "");
		}
	}
	{
		const char *text = fi_tostr(info, FI_TYPE_INFO);

		CHECK(strstr(text, "fi_domain_attr:") &&
		      strstr(text, "prov_name: ") &&
		      strstr(text, info->fabric_attr->prov_name) &&
		      strstr(text, "addr_format: FI_"), "whole");
	}
	fi_freeinfo(info);
	fi_freeinfo(blank);
}

/* The re-entrant form fills the caller's buffer and never more. */
static void into_buffer(void)
{
	struct ct_spec spec = { 0 };
	struct fi_info *info = ct_getinfo(&spec);
	uint64_t caps = FI_MSG | FI_RMA | FI_TAGGED;
	char buf[64];

	memset(buf, 0xee, sizeof(buf));
	CHECK(fi_tostr_r(buf, sizeof(buf), &caps, FI_TYPE_CAPS) == buf,
	      "returns-it");
	CHECK(!strcmp(buf, "FI_MSG, FI_RMA, FI_TAGGED"), "text");
	memset(buf, 0xee, sizeof(buf));
	fi_tostr_r(buf, 10, &caps, FI_TYPE_CAPS);
	CHECK(memchr(buf, 0, 10) && !strncmp(buf, "FI_MSG, F", strlen(buf)),
	      "truncated");
	CHECK(ct_is_all(buf + 10, sizeof(buf) - 10, 0xee), "not-beyond");
	memset(buf, 0xee, sizeof(buf));
	fi_tostr_r(buf, sizeof(buf) - 4, info, FI_TYPE_INFO);
	CHECK(memchr(buf, 0, sizeof(buf) - 4) &&
	      ct_is_all(buf + sizeof(buf) - 4, 4, 0xee), "structure");
	fi_freeinfo(info);
}

static void unknown(void)
{
	int value = 12345;
	const char *text = fi_tostr(&value, FI_TYPE_EP_TYPE);

	CHECK(text && *text, "value");
	text = fi_tostr(&value, (enum fi_type)54321);
	CHECK(text != NULL, "type");
}

static void version_text(void)
{
	const char *text = fi_tostr("", FI_TYPE_VERSION);

	CHECK(text && strlen(text) > 0, "tostr");
	CHECK(FI_MAJOR(fi_version()) >= 2, "major");
}

static void errors(void)
{
	const char *first = fi_strerror(FI_ENODATA), *text;

	REQUIRE(first && *first);
	CHECK(!strcmp(fi_strerror(0), "Success"), "success");
	CHECK(!strcmp(fi_strerror(FI_EINVAL), "Invalid argument"), "errno");
	for (int e = FI_EOTHER; e < FI_EOTHER + 14; e++) {
		text = fi_strerror(e);
		REQUIRE(text && *text);
	}
	CHECK(strcmp(fi_strerror(FI_EAVAIL), fi_strerror(FI_EOTHER)),
	      "own-texts");
	/* The function takes positive errors; programs pass the negative one,
	 * too. */
	text = fi_strerror(-FI_EINVAL);
	CHECK(text != NULL, "negative");
	text = fi_strerror(987654);
	CHECK(text && *text, "unknown");
}

static const struct ct_test tests[] = {
	{ "enumerations", enumerations, CT_BOTH },
	{ "flags", flags, CT_BOTH },
	{ "structures", structures, CT_BOTH },
	{ "into-buffer", into_buffer, CT_BOTH },
	{ "unknown", unknown, CT_BOTH },
	{ "version", version_text, CT_BOTH },
	{ "errors", errors, CT_BOTH },
};

CT_MAIN(tests)
