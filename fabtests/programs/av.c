/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* Address vectors: both types, every way to insert, look-up, removal. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "pattern.h"
#include "transfer.h"
#include "wait.h"

/* A domain to open vectors in. */
static struct ct_peer peer;

static void setup(void)
{
	struct ct_spec spec = { 0 };

	ct_open_domain(&peer, &spec, ct_getinfo(&spec), NULL, NULL);
	if (peer.info->addr_format != FI_SOCKADDR_IN)
		SKIP("addresses are not FI_SOCKADDR_IN");
}

static void teardown(void)
{
	ct_close_peer(&peer);
}

static struct fid_av *open_av(enum fi_av_type type, uint64_t flags)
{
	struct fi_av_attr attr = { .type = type, .flags = flags };
	struct fid_av *av;

	OK(fi_av_open(peer.domain, &attr, &av, NULL));
	REQUIRE(av->fid.fclass == FI_CLASS_AV);
	return av;
}

/* The n-th of a family of distinct addresses. */
static struct sockaddr_in address(unsigned n)
{
	struct sockaddr_in sin = {
		.sin_family = AF_INET,
		.sin_port = htons((uint16_t)(1024 + n % 50000)),
		.sin_addr.s_addr = htonl(0x0a000001 + n / 50000 * 7 + n % 251),
	};

	return sin;
}

static bool is_at(struct fid_av *av, fi_addr_t at, struct sockaddr_in want)
{
	struct sockaddr_in got;
	size_t len = sizeof(got);

	memset(&got, 0xee, sizeof(got));
	return !fi_av_lookup(av, at, &got, &len) && len == sizeof(got) &&
	       got.sin_family == want.sin_family &&
	       got.sin_port == want.sin_port &&
	       got.sin_addr.s_addr == want.sin_addr.s_addr;
}

static void each_type(void (*test)(struct fid_av *av, const char *name))
{
	static const enum fi_av_type types[] = { FI_AV_TABLE, FI_AV_MAP };
	static const char *const names[] = { "table", "map" };

	setup();
	for (int i = 0; i < 2; i++) {
		struct fid_av *av = open_av(types[i], 0);

		test(av, names[i]);
		OK(fi_close(&av->fid));
	}
	teardown();
}

static void insert_in(struct fid_av *av, const char *name)
{
	enum { COUNT = 1000 };
	static struct sockaddr_in many[COUNT];
	static fi_addr_t at[COUNT];
	struct sockaddr_in one = address(5000);
	fi_addr_t single = 0;

	for (unsigned i = 0; i < COUNT; i++)
		many[i] = address(i);
	EXPECT(fi_av_insert(av, many, COUNT, at, 0, NULL), COUNT);
	for (unsigned i = 0; i < COUNT; i++)
		REQUIRE(is_at(av, at[i], many[i]));
	EXPECT(fi_av_insert(av, &one, 1, &single, FI_MORE, NULL), 1);
	REQUIRE(is_at(av, single, one));
	EXPECT(fi_av_insert(av, many, 0, at, 0, NULL), 0);
	/* No two share a place. */
	for (unsigned i = 0; i < COUNT; i++)
		REQUIRE(at[i] != single && at[i] != at[(i + 1) % COUNT]);
	CHECK(true, "%s", name);
}

static void insert(void)
{
	each_type(insert_in);
}

/* A table's addresses are its indices, given or not. */
static void table_indices(void)
{
	struct sockaddr_in some[10];
	struct fid_av *av;
	fi_addr_t at[10];

	setup();
	av = open_av(FI_AV_TABLE, 0);
	for (unsigned i = 0; i < 10; i++)
		some[i] = address(i);
	EXPECT(fi_av_insert(av, some, 4, at, 0, NULL), 4);
	for (unsigned i = 0; i < 4; i++)
		REQUIRE(at[i] == i);
	EXPECT(fi_av_insert(av, some + 4, 3, NULL, 0, NULL), 3);
	EXPECT(fi_av_insert(av, some + 7, 3, at, 0, NULL), 3);
	for (unsigned i = 0; i < 3; i++)
		REQUIRE(at[i] == 7 + i);
	for (unsigned i = 0; i < 10; i++)
		REQUIRE(is_at(av, i, some[i]));
	OK(fi_close(&av->fid));
	teardown();
}

static void remove_in(struct fid_av *av, const char *name)
{
	struct sockaddr_in some[6], other;
	size_t len = sizeof(other);
	fi_addr_t at[6], pair[2], again;

	for (unsigned i = 0; i < 6; i++)
		some[i] = address(i);
	EXPECT(fi_av_insert(av, some, 6, at, 0, NULL), 6);
	pair[0] = at[1];
	pair[1] = at[4];
	OK(fi_av_remove(av, pair, 2, 0));
	CHECK(fi_av_lookup(av, pair[0], &other, &len) == -FI_EINVAL,
	      "%s/gone", name);
	for (unsigned i = 0; i < 6; i++)
		REQUIRE(i == 1 || i == 4 || is_at(av, at[i], some[i]));
	CHECK(true, "%s/others-stay", name);
	CHECK(fi_av_remove(av, pair, 1, 0) == -FI_EINVAL, "%s/twice", name);
	again = 0x7fffffff;
	CHECK(fi_av_remove(av, &again, 1, 0) == -FI_EINVAL, "%s/never-there",
	      name);
	EXPECT(fi_av_insert(av, &some[4], 1, &again, 0, NULL), 1);
	CHECK(is_at(av, again, some[4]), "%s/reinsert", name);
}

static void removal(void)
{
	each_type(remove_in);
}

/* An address that is inserted again names the same peer. */
static void duplicate_in(struct fid_av *av, const char *name)
{
	struct sockaddr_in one = address(1), two = address(2);
	fi_addr_t at[3];

	EXPECT(fi_av_insert(av, &one, 1, &at[0], 0, NULL), 1);
	EXPECT(fi_av_insert(av, &two, 1, &at[1], 0, NULL), 1);
	EXPECT(fi_av_insert(av, &one, 1, &at[2], 0, NULL), 1);
	CHECK(is_at(av, at[0], one) && is_at(av, at[2], one), "%s/both", name);
	OK(fi_av_remove(av, &at[2], 1, 0));
	CHECK(is_at(av, at[0], one), "%s/one-left", name);
	OK(fi_av_remove(av, &at[0], 1, 0));
	CHECK(is_at(av, at[1], two), "%s/other", name);
}

static void duplicates(void)
{
	each_type(duplicate_in);
}

static void lookup_in(struct fid_av *av, const char *name)
{
	struct sockaddr_in one = address(77), got;
	size_t len;
	fi_addr_t at;

	EXPECT(fi_av_insert(av, &one, 1, &at, 0, NULL), 1);
	memset(&got, 0xee, sizeof(got));
	len = 4;
	OK(fi_av_lookup(av, at, &got, &len));
	CHECK(len == sizeof(got), "%s/needed-size", name);
	CHECK(ct_is_all((char *)&got + 4, sizeof(got) - 4, 0xee),
	      "%s/not-beyond", name);
	CHECK(!memcmp(&got, &one, 4), "%s/truncated", name);
	len = sizeof(got);
	CHECK(fi_av_lookup(av, at + 1000, &got, &len) == -FI_EINVAL,
	      "%s/out-of-range", name);
	CHECK(fi_av_lookup(av, FI_ADDR_UNSPEC, &got, &len) == -FI_EINVAL,
	      "%s/unspecified", name);
}

static void lookup(void)
{
	each_type(lookup_in);
}

static void straddr(void)
{
	struct sockaddr_in sin = { .sin_family = AF_INET,
				   .sin_port = htons(4711) };
	struct sockaddr_in6 sin6 = { .sin6_family = AF_INET6,
				     .sin6_port = htons(4711) };
	char text[64], small[12];
	struct fid_av *av;
	size_t len = sizeof(text), needed;
	const char *ret;

	setup();
	av = open_av(FI_AV_TABLE, 0);
	inet_pton(AF_INET, "10.1.2.3", &sin.sin_addr);
	ret = fi_av_straddr(av, &sin, text, &len);
	REQUIRE(ret == text);
	CHECK(!strcmp(text, "fi_sockaddr_in://10.1.2.3:4711"), "text");
	CHECK(len == strlen(text) + 1, "size");
	memset(small, 0xee, sizeof(small));
	needed = sizeof(small) - 4;
	ret = fi_av_straddr(av, &sin, small, &needed);
	CHECK(ret == small && needed == len, "needed-size");
	CHECK(!strncmp(small, text, sizeof(small) - 5) &&
	      small[sizeof(small) - 5] == '\0', "truncated");
	CHECK(ct_is_all(small + sizeof(small) - 4, 4, 0xee), "not-beyond");
	/* Also an address of another family than the vector's. */
	inet_pton(AF_INET6, "fd00::7", &sin6.sin6_addr);
	len = sizeof(text);
	ret = fi_av_straddr(av, &sin6, text, &len);
	CHECK(ret && !strcmp(text, "fi_sockaddr_in6://[fd00::7]:4711"),
	      "other-family");
	OK(fi_close(&av->fid));
	teardown();
}

static void insert_service_in(struct fid_av *av, const char *name)
{
	struct sockaddr_in want = { .sin_family = AF_INET,
				    .sin_port = htons(4567) };
	fi_addr_t at = FI_ADDR_NOTAVAIL;
	long ret;

	inet_pton(AF_INET, "127.0.0.1", &want.sin_addr);
	EXPECT(fi_av_insertsvc(av, "127.0.0.1", "4567", &at, 0, NULL), 1);
	CHECK(is_at(av, at, want), "%s/numeric", name);
	EXPECT(fi_av_insertsvc(av, "localhost", "4567", &at, 0, NULL), 1);
	CHECK(is_at(av, at, want), "%s/by-name", name);
	ret = fi_av_insertsvc(av, "no.such.host.invalid", "1", &at, 0, NULL);
	CHECK(ret <= 0, "%s/unknown-host", name);
}

static void insert_service_no_node_in(struct fid_av *av, const char *name)
{
	fi_addr_t at;

	CHECK(fi_av_insertsvc(av, NULL, "4567", &at, 0, NULL) <= 0, "%s", name);
}

static void insert_service_no_node(void)
{
	each_type(insert_service_no_node_in);
}

static void insert_service(void)
{
	each_type(insert_service_in);
}

static void insert_symmetric_in(struct fid_av *av, const char *name)
{
	fi_addr_t at[6];

	EXPECT(fi_av_insertsym(av, "10.1.1.254", 3, "5000", 2, at, 0, NULL), 6);
	for (unsigned i = 0; i < 6; i++) {
		struct sockaddr_in want = {
			.sin_family = AF_INET,
			.sin_port = htons((uint16_t)(5000 + i % 2)),
			.sin_addr.s_addr = htonl(0x0a0101fe + i / 2),
		};

		CHECK(is_at(av, at[i], want), "%s/%u", name, i);
	}
}

static void insert_symmetric(void)
{
	each_type(insert_symmetric_in);
}

/* FI_SYNC_ERR: each address has a status of its own. */
static void partial_failure(void)
{
	struct sockaddr_in some[3] = { address(1), address(2), address(3) };
	int status[3] = { 77, 77, 77 };
	struct fid_av *av;
	fi_addr_t at[3];

	setup();
	av = open_av(FI_AV_TABLE, 0);
	some[1].sin_family = 250;
	EXPECT(fi_av_insert(av, some, 3, at, FI_SYNC_ERR, status), 2);
	CHECK(status[0] == 0 && status[2] == 0, "successes");
	CHECK(status[1] != 0 && status[1] != 77, "failure");
	CHECK(at[1] == FI_ADDR_NOTAVAIL, "no-address");
	CHECK(is_at(av, at[0], some[0]) && is_at(av, at[2], some[2]), "others");
	OK(fi_close(&av->fid));
	teardown();
}

static void asynchronous(void)
{
	struct sockaddr_in some[5];
	struct fi_av_attr attr = { .type = FI_AV_TABLE, .flags = FI_EVENT };
	struct ct_event event;
	struct fid_av *av;
	fi_addr_t at[5];
	int context, ret;

	setup();
	ret = fi_av_open(peer.domain, &attr, &av, NULL);
	if (ret == -FI_ENOSYS || ret == -FI_EINVAL || ret == -FI_EOPNOTSUPP)
		SKIP("asynchronous insertion is not supported");
	OK(ret);
	for (unsigned i = 0; i < 5; i++)
		some[i] = address(i);
	/* No event is reported yet. */
	CHECK(fi_av_insert(av, some, 5, at, 0, &context) == 5,
	      "synchronous-without-a-queue");
	OK(fi_av_bind(av, &peer.eq.fid->fid, 0));
	OK(fi_av_insert(av, some, 5, at, 0, &context));
	event = ct_event_of(&peer, FI_AV_COMPLETE);
	REQUIRE(event.fid == &av->fid);
	for (unsigned i = 0; i < 5; i++)
		REQUIRE(is_at(av, at[i], some[i]));
	CHECK(true, "success");
	some[2].sin_family = 250;
	OK(fi_av_insert(av, some, 5, at, 0, &context));
	event = ct_any_event(&peer);
	CHECK(event.failed && event.err.fid == &av->fid &&
	      event.err.context == &context && event.err.data == 2, "failure");
	ct_event_of(&peer, FI_AV_COMPLETE);
	CHECK(at[2] == FI_ADDR_NOTAVAIL && at[1] != FI_ADDR_NOTAVAIL,
	      "one-missing");
	OK(fi_close(&av->fid));
	teardown();
}

/* The context and the count of an asynchronous insertion's last event. */
static void asynchronous_event(void)
{
	struct fi_av_attr attr = { .type = FI_AV_TABLE, .flags = FI_EVENT };
	struct sockaddr_in some[3] = { address(1), address(2), address(3) };
	double until = ct_now() + ct_patience();
	struct fi_eq_entry entry;
	struct fid_av *av;
	fi_addr_t at[3];
	uint32_t type;
	ssize_t ret;
	int context;

	setup();
	ret = fi_av_open(peer.domain, &attr, &av, NULL);
	if (ret == -FI_ENOSYS || ret == -FI_EINVAL || ret == -FI_EOPNOTSUPP)
		SKIP("asynchronous insertion is not supported");
	OK(ret);
	OK(fi_av_bind(av, &peer.eq.fid->fid, 0));
	OK(fi_av_insert(av, some, 3, at, 0, &context));
	while ((ret = fi_eq_read(peer.eq.fid, &type, &entry, sizeof(entry),
				 0)) == -FI_EAGAIN)
		REQUIRE(ct_now() < until);
	EXPECT(ret, sizeof(entry));
	REQUIRE(type == FI_AV_COMPLETE);
	CHECK(entry.fid == &av->fid, "fid");
	CHECK(entry.context == &context, "context");
	CHECK(entry.data == 3, "count");
	OK(fi_close(&av->fid));
	teardown();
}

static void unspecified_type(void)
{
	struct fi_av_attr attr = { .type = FI_AV_UNSPEC };
	struct fid_av *av;

	setup();
	OK(fi_av_open(peer.domain, &attr, &av, NULL));
	REQUIRE(attr.type == FI_AV_TABLE || attr.type == FI_AV_MAP);
	OK(fi_close(&av->fid));
	teardown();
}

static void busy(void)
{
	struct ct_spec spec = { 0 };
	struct ct_peer one;

	ct_open_single(&one, &spec);
	EXPECT(fi_close(&one.av->fid), -FI_EBUSY);
	EXPECT(fi_close(&one.domain->fid), -FI_EBUSY);
	ct_close_peer(&one);
}

/* Messages follow the vector, after removal and insertion too. */
static void removed_peer_returns(void)
{
	static struct fi_context2 tx_context, rx_context;
	struct ct_spec spec = { .caps = FI_MSG | FI_SOURCE };
	unsigned char name[CT_NAME];
	struct ct_pair pair;

	ct_open_pair(&pair, &spec);
	ct_warm_up(&pair);
	ct_name(&pair.b.ep->fid, name, sizeof(name));
	for (int i = 0; i < 5; i++) {
		OK(fi_av_remove(pair.a.av, &pair.a.to, 1, 0));
		pair.a.to = ct_insert(&pair.a, name);
		POST(&pair.b, fi_recv(pair.b.ep, NULL, 0, NULL, FI_ADDR_UNSPEC,
				      &rx_context));
		POST(&pair.a, fi_send(pair.a.ep, NULL, 0, NULL, pair.a.to,
				      &tx_context));
		ct_done(&pair.b, &pair.b.rx, &rx_context);
		ct_done(&pair.a, &pair.a.tx, &tx_context);
	}
	ct_close_pair(&pair);
}

/*
 * Addresses of a vector with room for the index of a receive context: the first context is
 * that of a plain endpoint. (sep.c has the others.)
 */
static void receive_context(void)
{
	static struct fi_context2 tx_context, rx_context;
	struct fi_av_attr attr = { .rx_ctx_bits = 4 };
	struct ct_spec spec = { 0 };
	struct ct_peer one;
	unsigned char name[CT_NAME];

	ct_open_domain(&one, &spec, ct_getinfo(&spec), NULL, NULL);
	OK(fi_close(&one.av->fid));
	OK(fi_av_open(one.domain, &attr, &one.av, NULL));
	ct_open_ep(&one, one.info);
	ct_name(&one.ep->fid, name, sizeof(name));
	one.to = fi_rx_addr(ct_insert(&one, name), 0, attr.rx_ctx_bits);
	for (int i = 0; i < 2; i++) {
		POST(&one, fi_recv(one.ep, NULL, 0, NULL, FI_ADDR_UNSPEC,
				   &rx_context));
		POST(&one, fi_send(one.ep, NULL, 0, NULL, one.to, &tx_context));
		ct_done(&one, &one.rx, &rx_context);
		ct_done(&one, &one.tx, &tx_context);
	}
	ct_close_peer(&one);
}

/* A large vector: every entry is at its index. */
static void many(void)
{
	unsigned count = (unsigned)ct_times(200000);
	struct sockaddr_in *some = calloc(count, sizeof(*some));
	fi_addr_t *at = calloc(count, sizeof(*at));
	struct fid_av *av;

	REQUIRE(some && at);
	setup();
	av = open_av(FI_AV_TABLE, 0);
	for (unsigned i = 0; i < count; i++) {
		some[i].sin_family = AF_INET;
		some[i].sin_port = htons((uint16_t)(1 + i % 60000));
		some[i].sin_addr.s_addr = htonl(0x0b000000 + i / 60000);
	}
	EXPECT(fi_av_insert(av, some, count, at, 0, NULL), count);
	for (unsigned i = 0; i < count; i += 97)
		REQUIRE(at[i] == i && is_at(av, at[i], some[i]));
	OK(fi_close(&av->fid));
	teardown();
	free(some);
	free(at);
}

/* Another domain of the process opens a vector by its name, and reads it. */
static void named(void)
{
	struct ct_spec spec = { 0 };
	struct fi_av_attr attr = { .type = FI_AV_TABLE };
	unsigned char own[256], found[256];
	struct fid_av *writer, *reader;
	struct ct_peer one, other;
	char name[64];

	snprintf(name, sizeof(name), "ct-named-%d", (int)getpid());
	attr.name = name;
	ct_open_single(&one, &spec);
	if (!ct_has(&one, FI_SHARED_AV))
		SKIP("vectors are not shared");
	ct_open_single(&other, &spec);
	OK(fi_av_open(one.domain, &attr, &writer, NULL));
	attr.flags = FI_READ;
	OK(fi_av_open(other.domain, &attr, &reader, NULL));
	for (fi_addr_t i = 0; i < 100; i++) {
		struct ct_peer *from = i % 2 ? &one : &other;
		size_t len = ct_name(&from->ep->fid, own, sizeof(own));
		size_t same = sizeof(found);
		fi_addr_t at;

		EXPECT(fi_av_insert(writer, own, 1, &at, 0, NULL), 1);
		memset(found, 0, sizeof(found));
		OK(fi_av_lookup(reader, at, found, &same));
		REQUIRE(same == len && !memcmp(own, found, len));
	}
	OK(fi_close(&reader->fid));
	OK(fi_close(&writer->fid));
	ct_close_peer(&other);
	ct_close_peer(&one);
}

/* The sockets that this process has. */
static int sockets(void)
{
	int count = 0;

	for (int fd = 0; fd < 1024; fd++) {
		struct stat st;

		count += !fstat(fd, &st) && S_ISSOCK(st.st_mode);
	}
	return count;
}

static void pass_one(struct ct_pair *pair)
{
	static struct fi_context2 rx, tx;
	char in = 0, out = 'm';
	struct ct_message incoming = {
		.buf = &in, .len = 1, .from = FI_ADDR_UNSPEC, .context = &rx,
	};
	struct ct_message outgoing = { .buf = &out, .len = 1, .context = &tx };

	POST(&pair->b, ct_recv(&pair->b, CT_RECV, &incoming));
	POST(&pair->a, ct_send(&pair->a, CT_SEND, &outgoing));
	ct_done(&pair->a, &pair->a.tx, &tx);
	ct_done(&pair->b, &pair->b.rx, &rx);
	REQUIRE(in == out);
}

/*
 * Removes an address whose peer has a connection; how many sockets this process
 * has less then, at once and when the peer has noticed. The peer can be reached
 * again.
 */
static void remove_with(const char *cleanup, int *at_once, int *later)
{
	struct ct_spec spec = { 0 };
	unsigned char name[CT_NAME];
	struct ct_pair pair;
	double until;
	int before;

	if (!ct_opt.provider || !strstr(ct_opt.provider, "ofi_rxm"))
		SKIP("no connection belongs to an address");
	setenv("FI_AV_REMOVE_CLEANUP", cleanup, 1);
	/* Within a host, connections may need no socket. */
	setenv("FI_TCP_LOCAL", "off", 1);
	ct_open_pair(&pair, &spec);
	pass_one(&pair);
	before = sockets();
	OK(fi_av_remove(pair.a.av, &pair.a.to, 1, 0));
	*at_once = before - sockets();
	until = ct_now() + 0.2;
	while (ct_now() < until || (*at_once && before - sockets() < 2))
		ct_progress(&pair.a);
	*later = before - sockets();
	ct_name(&pair.b.ep->fid, name, sizeof(name));
	pair.a.to = ct_insert(&pair.a, name);
	pass_one(&pair);
	ct_close_pair(&pair);
}

/* FI_AV_REMOVE_CLEANUP: the connection goes with the address. */
static void removed_with_connection(void)
{
	int at_once, later;

	remove_with("1", &at_once, &later);
	REQUIRE(at_once == 1);
	REQUIRE(later == 2);
}

static void removed_without_connection(void)
{
	int at_once, later;

	remove_with("0", &at_once, &later);
	REQUIRE(at_once == 0);
	REQUIRE(later == 0);
}

static const struct ct_test tests[] = {
	{ "insert", insert, CT_RDM },
	{ "table-indices", table_indices, CT_RDM },
	{ "remove", removal, CT_RDM },
	{ "duplicates", duplicates, CT_RDM },
	{ "lookup", lookup, CT_RDM },
	{ "straddr", straddr, CT_RDM },
	{ "insert-service", insert_service, CT_RDM },
	{ "insert-service-no-node", insert_service_no_node, CT_RDM },
	{ "insert-symmetric", insert_symmetric, CT_RDM },
	{ "partial-failure", partial_failure, CT_RDM },
	{ "asynchronous", asynchronous, CT_RDM },
	{ "asynchronous-event", asynchronous_event, CT_RDM },
	{ "unspecified-type", unspecified_type, CT_RDM },
	{ "busy", busy, CT_RDM },
	{ "removed-peer-returns", removed_peer_returns, CT_RDM },
	{ "removed-with-connection", removed_with_connection, CT_RDM },
	{ "removed-without-connection", removed_without_connection, CT_RDM },
	{ "receive-context", receive_context, CT_RDM },
	{ "many", many, CT_RDM },
	{ "named", named, CT_RDM },
};

CT_MAIN(tests)
