/* Written by `make headers` from the abi crate. Change abi/, not this file. */

/*
 * Sharing of objects with the library and between applications; extensions of providers.
 */
#ifndef RDMA_FI_EXT_H
#define RDMA_FI_EXT_H

#include <stdbool.h>
#include <rdma/fabric.h>
#include <rdma/providers/fi_log.h>
#include <rdma/providers/fi_prov.h>

#ifdef __cplusplus
extern "C" {
#endif

struct fi_ops_mem_monitor;
struct fi_provider;
struct fid;
struct fid_mem_monitor;

/* Flag: log lines of providers that the user has filtered out are not passed to an imported log. */
#define FI_LOG_PROV_FILTERED	1ULL

/* Ranges of option and command values that belong to one provider. */
#define FI_PROV_SPECIFIC_EFA	0xefa0000
#define FI_PROV_SPECIFIC_TCP	0x7cb0000

/* Endpoint options of the efa provider, fi_efa(7). */
enum {
	FI_OPT_EFA_RNR_RETRY = -FI_PROV_SPECIFIC_EFA,
	FI_OPT_EFA_EMULATED_READ,
	FI_OPT_EFA_EMULATED_WRITE,
	FI_OPT_EFA_EMULATED_ATOMICS,
	FI_OPT_EFA_USE_DEVICE_RDMA,
	FI_OPT_EFA_SENDRECV_IN_ORDER_ALIGNED_128_BYTES,
	FI_OPT_EFA_WRITE_IN_ORDER_ALIGNED_128_BYTES,
	FI_OPT_EFA_HOMOGENEOUS_PEERS,
	FI_OPT_EFA_USE_UNSOLICITED_WRITE_RECV,
};

/* Argument of `FI_EXPORT_FID`: location of the object to share. */
struct fi_fid_export {
	struct fid **fid;
	uint64_t flags;
	void *context;
};

/* Functions of an application that receives all log lines, fi_provider(3). */
struct fi_ops_log {
	size_t size;
	int (*enabled)(const struct fi_provider *prov, enum fi_log_level level,
		       enum fi_log_subsys subsys, uint64_t flags);
	int (*ready)(const struct fi_provider *prov, enum fi_log_level level,
		     enum fi_log_subsys subsys, uint64_t flags, uint64_t *showtime);
	void (*log)(const struct fi_provider *prov, enum fi_log_level level,
		    enum fi_log_subsys subsys, const char *func, int line, const char *msg);
};

/* Functions of the library that a memory monitor calls when a range is unmapped. */
struct fi_ops_mem_notify {
	size_t size;
	void (*notify)(struct fid_mem_monitor *monitor, const void *addr, size_t len);
};

/* A memory monitor, for fi_import. */
struct fid_mem_monitor {
	struct fid fid;
	struct fi_ops_mem_monitor *export_ops;
	struct fi_ops_mem_notify *import_ops;
};

/* Functions of a memory monitor that the library imports. */
struct fi_ops_mem_monitor {
	size_t size;
	int (*start)(struct fid_mem_monitor *monitor);
	void (*stop)(struct fid_mem_monitor *monitor);
	int (*subscribe)(struct fid_mem_monitor *monitor, const void *addr, size_t len);
	void (*unsubscribe)(struct fid_mem_monitor *monitor, const void *addr, size_t len);
	bool (*valid)(struct fid_mem_monitor *monitor, const void *addr, size_t len);
};

/* An application's logging, for fi_import. */
struct fid_logging {
	struct fid fid;
	struct fi_ops_log *ops;
};

/* A form of an object that another component can import. */
static inline int
fi_export_fid(struct fid *fid, uint64_t flags, struct fid **expfid, void *context)
{
	struct fi_fid_export request;

	request.fid = expfid;
	request.flags = flags;
	request.context = context;
	return fi_control(fid, FI_EXPORT_FID, &request);
}

static inline int
fi_import_fid(struct fid *fid, struct fid *expfid, uint64_t flags)
{
	return fid->ops->bind(fid, expfid, flags);
}

/* Gives an object of the application to a named part of the library. */
static inline int
fi_import(uint32_t version, const char *name, void *attr, size_t attr_len, uint64_t flags,
	  struct fid *fid, void *context)
{
	struct fid *part;
	int ret = fi_open(version, name, attr, attr_len, flags, &part, context);

	if (ret != 0)
		return ret;
	ret = fi_import_fid(part, fid, flags);
	fi_close(part);
	return ret;
}

/* Sends the library's log lines to the application. */
static inline int
fi_import_log(uint32_t version, uint64_t flags, struct fid_logging *log_fid)
{
	log_fid->fid.fclass = FI_CLASS_LOG;
	log_fid->ops->size = sizeof(*log_fid->ops);
	return fi_import(version, "logging", NULL, 0, flags, &log_fid->fid, log_fid);
}

#ifdef __cplusplus
}
#endif

#endif /* RDMA_FI_EXT_H */
