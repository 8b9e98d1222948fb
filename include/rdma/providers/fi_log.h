/* Written by `make headers` from the abi crate. Change abi/, not this file. */

/*
 * Logging by providers, fi_provider(3).
 */
#ifndef RDMA_PROVIDERS_FI_LOG_H
#define RDMA_PROVIDERS_FI_LOG_H

#include <errno.h>
#include <inttypes.h>
#include <rdma/fabric.h>
#include <rdma/providers/fi_prov.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Log levels, fi_provider(3). */
enum fi_log_level {
	FI_LOG_WARN,
	FI_LOG_TRACE,
	FI_LOG_INFO,
	FI_LOG_DEBUG,
};

/* Subsystems that log, fi_provider(3). */
enum fi_log_subsys {
	FI_LOG_CORE,
	FI_LOG_FABRIC,
	FI_LOG_DOMAIN,
	FI_LOG_EP_CTRL,
	FI_LOG_EP_DATA,
	FI_LOG_AV,
	FI_LOG_CQ,
	FI_LOG_EQ,
	FI_LOG_MR,
	FI_LOG_CNTR,
};

/* Returns whether a log line would be written, fi_provider(3). */
extern int fi_log_enabled(const struct fi_provider *prov, enum fi_log_level level,
			  enum fi_log_subsys subsys);
/*
 * As fi_log_enabled, but true at most once in an interval, whose state `showtime` points to,
 * fi_provider(3).
 */
extern int fi_log_ready(const struct fi_provider *prov, enum fi_log_level level,
			enum fi_log_subsys subsys, uint64_t *showtime);
/* Writes a log line, fi_provider(3). */
extern void fi_log(const struct fi_provider *prov, enum fi_log_level level,
		   enum fi_log_subsys subsys, const char *func, int line, const char *fmt, ...)
	FI_FORMAT_PRINTF(6, 7);

/* Logs where the level and the subsystem are wanted; leaves errno alone. */
#define FI_LOG(prov, level, subsystem, ...)                                              \
	do {                                                                             \
		if (fi_log_enabled(prov, level, subsystem)) {                            \
			int fi_log_errno_ = errno;                                       \
			fi_log(prov, level, subsystem, __func__, __LINE__, __VA_ARGS__); \
			errno = fi_log_errno_;                                           \
		}                                                                        \
	} while (0)

/* The same for a line that may recur fast: written once an interval. */
#define FI_LOG_SPARSE(prov, level, subsystem, ...)                                       \
	do {                                                                             \
		static uint64_t fi_log_next_;                                            \
		if (fi_log_ready(prov, level, subsystem, &fi_log_next_)) {               \
			int fi_log_errno_ = errno;                                       \
			fi_log(prov, level, subsystem, __func__, __LINE__, __VA_ARGS__); \
			errno = fi_log_errno_;                                           \
		}                                                                        \
	} while (0)

#define FI_WARN(prov, subsystem, ...)		FI_LOG(prov, FI_LOG_WARN, subsystem, __VA_ARGS__)
#define FI_WARN_SPARSE(prov, subsystem, ...)	FI_LOG_SPARSE(prov, FI_LOG_WARN, subsystem, __VA_ARGS__)
#define FI_TRACE(prov, subsystem, ...)		FI_LOG(prov, FI_LOG_TRACE, subsystem, __VA_ARGS__)
#define FI_INFO(prov, subsystem, ...)		FI_LOG(prov, FI_LOG_INFO, subsystem, __VA_ARGS__)

/* A warning that the process prints once at most. */
#define FI_WARN_ONCE(prov, subsystem, ...)                                               \
	do {                                                                             \
		static int fi_log_done_;                                                 \
		if (!fi_log_done_ && fi_log_enabled(prov, FI_LOG_WARN, subsystem)) {     \
			fi_log_done_ = 1;                                                \
			FI_WARN(prov, subsystem, __VA_ARGS__);                           \
		}                                                                        \
	} while (0)

/* Only in debug builds of the provider. */
#if defined(ENABLE_DEBUG) && ENABLE_DEBUG
#define FI_DBG(prov, subsystem, ...)		FI_LOG(prov, FI_LOG_DEBUG, subsystem, __VA_ARGS__)
#define FI_DBG_TRACE(prov, subsystem, ...)	FI_LOG(prov, FI_LOG_TRACE, subsystem, __VA_ARGS__)
#else
#define FI_DBG(prov, subsystem, ...)		do { } while (0)
#define FI_DBG_TRACE(prov, subsystem, ...)	do { } while (0)
#endif

#ifdef __cplusplus
}
#endif

#endif /* RDMA_PROVIDERS_FI_LOG_H */
