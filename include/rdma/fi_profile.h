/* Written by `make headers` from the abi crate. Change abi/, not this file. */

/*
 * Counters and events of objects, fi_profile(3).
 */
#ifndef RDMA_FI_PROFILE_H
#define RDMA_FI_PROFILE_H

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>

#ifdef __cplusplus
extern "C" {
#endif

struct fi_profile_ops;
struct fid;

/* Variables of fi_profile(3). */
enum {
	FI_VAR_UNEXP_MSG_CNT,
	FI_VAR_UNEXP_MSG_QUEUE,
	FI_VAR_MSG_QUEUE_CNT,
	FI_VAR_CONNECTION_CNT,
	FI_VAR_CONN_REQUEST,
	FI_VAR_CONN_ACCEPT,
	FI_VAR_CONN_REJECT,
	FI_VAR_OFI_MEM,
};

/* Events of fi_profile(3). */
enum {
	FI_EVENT_UNEXP_MSG_RECVD,
	FI_EVENT_UNEXP_MSG_MATCHED,
};

/* Kinds of types in a profile, fi_profile(3). */
enum fi_profile_type {
	fi_primitive_type,
	fi_defined_type,
};

/* The type of a variable or event, by `datatype_sel`. */
union fi_profile_desc_datatype {
	enum fi_datatype primitive;
	enum fi_type defined;
};

/* A variable or event of a profile, fi_profile(3). */
struct fi_profile_desc {
	uint32_t id;
	enum fi_profile_type datatype_sel;
	union fi_profile_desc_datatype datatype;
	uint64_t flags;
	size_t size;
	const char *name;
	const char *desc;
};

/* A profile of an object: its counters and events, fi_profile(3). */
struct fid_profile {
	struct fid fid;
	struct fi_profile_ops *ops;
};

/* Operations of a profile, fi_profile(3). */
struct fi_profile_ops {
	size_t size;
	void (*reset)(struct fid_profile *profile, uint64_t flags);
	ssize_t (*query_vars)(struct fid_profile *profile, struct fi_profile_desc *varlist,
			      size_t *count);
	ssize_t (*query_events)(struct fid_profile *profile, struct fi_profile_desc *eventlist,
				size_t *count);
	ssize_t (*read_var)(struct fid_profile *profile, uint32_t var_id, void *data, size_t *size);
	int (*reg_callback)(struct fid_profile *profile, uint32_t event_id,
			    int (*callback)(struct fid_profile*, struct fi_profile_desc*, void*,
			    size_t, void*), void *context);
	void (*start_reads)(struct fid_profile *profile, uint64_t flags);
	void (*end_reads)(struct fid_profile *profile, uint64_t flags);
};

static inline void
fi_profile_reset(struct fid_profile *profile, uint64_t flags)
{
	profile->ops->reset(profile, flags);
}

static inline ssize_t
fi_profile_query_vars(struct fid_profile *profile, struct fi_profile_desc *varlist, size_t *count)
{
	return profile->ops->query_vars(profile, varlist, count);
}

static inline ssize_t
fi_profile_query_events(struct fid_profile *profile, struct fi_profile_desc *eventlist,
			size_t *count)
{
	return profile->ops->query_events(profile, eventlist, count);
}

static inline ssize_t
fi_profile_read_u64(struct fid_profile *profile, uint32_t var_id, uint64_t *data)
{
	size_t size = sizeof(*data);
	ssize_t ret = profile->ops->read_var(profile, var_id, data, &size);

	return ret > 0 ? 0 : ret;
}

static inline int
fi_profile_register_callback(struct fid_profile *profile, uint32_t event_id,
			     int (*callback)(struct fid_profile *profile,
					     struct fi_profile_desc *event, void *param,
					     size_t size, void *context),
			     void *context)
{
	return profile->ops->reg_callback(profile, event_id, callback, context);
}

static inline void
fi_profile_start_reads(struct fid_profile *profile, uint64_t flags)
{
	profile->ops->start_reads(profile, flags);
}

static inline void
fi_profile_end_reads(struct fid_profile *profile, uint64_t flags)
{
	profile->ops->end_reads(profile, flags);
}

/* A provider answers this name with the address of the profile's `ops` member. */
static inline int
fi_profile_open(struct fid *fid, uint64_t flags, struct fid_profile **profile, void *context)
{
	void *member;
	int ret = fi_open_ops(fid, "fi_profile_ops", flags, &member, context);

	if (ret == 0)
		*profile = (struct fid_profile *)((char *)member -
						  offsetof(struct fid_profile, ops));
	return ret;
}

static inline int
fi_profile_close(struct fid_profile *profile)
{
	return fi_close(&profile->fid);
}

#ifdef __cplusplus
}
#endif

#endif /* RDMA_FI_PROFILE_H */
