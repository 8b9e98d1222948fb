/* Written by `make headers` from the abi crate. Change abi/, not this file. */

/*
 * What an external provider includes, fi_provider(3).
 */
#ifndef RDMA_PROVIDERS_FI_PROV_H
#define RDMA_PROVIDERS_FI_PROV_H

#include <rdma/fabric.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A provider library is called lib<name>-fi.so. */
#define FI_LIB_EXTENSION	"fi"
#define FI_LIB_SUFFIX		FI_LIB_EXTENSION ".so"

/* Head of the one function that a provider library exports. */
#if defined(__GNUC__)
#define FI_EXT_INI	__attribute__((visibility("default"))) struct fi_provider *fi_prov_ini(void)
#else
#define FI_EXT_INI	struct fi_provider *fi_prov_ini(void)
#endif

struct fi_context;
struct fi_fabric_attr;
struct fi_info;
struct fid_fabric;

/* A provider: what `fi_prov_ini` of an external provider returns, fi_provider(3). */
struct fi_provider {
	/* The provider's own version. */
	uint32_t version;
	/* The interface version that the provider was built for. */
	uint32_t fi_version;
	/* Used by the library only. */
	struct fi_context context;
	const char *name;
	int (*getinfo)(uint32_t version, const char *node, const char *service, uint64_t flags,
		       const struct fi_info *hints, struct fi_info **info);
	int (*fabric)(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context);
	/* Called when the library is unloaded. */
	void (*cleanup)(void);
};

/* Parameters, fi_provider(3): environment variable FI_<PROVIDER>_<NAME>. */
/* Announces a parameter, fi_provider(3). */
extern int fi_param_define(const struct fi_provider *provider, const char *param_name,
			   enum fi_param_type type, const char *help_string_fmt, ...)
	FI_FORMAT_PRINTF(4, 5);
/* Returns the value that the user has set, or -FI_ENODATA, fi_provider(3). */
extern int fi_param_get(struct fi_provider *provider, const char *param_name, void *value);

static inline int
fi_param_get_str(struct fi_provider *provider, const char *param_name, char **value)
{
	return fi_param_get(provider, param_name, value);
}

static inline int
fi_param_get_int(struct fi_provider *provider, const char *param_name, int *value)
{
	return fi_param_get(provider, param_name, value);
}

static inline int
fi_param_get_bool(struct fi_provider *provider, const char *param_name, int *value)
{
	return fi_param_get(provider, param_name, value);
}

static inline int
fi_param_get_size_t(struct fi_provider *provider, const char *param_name, size_t *value)
{
	return fi_param_get(provider, param_name, value);
}

#ifdef __cplusplus
}
#endif

#endif /* RDMA_PROVIDERS_FI_PROV_H */
