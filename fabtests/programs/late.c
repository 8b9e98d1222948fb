/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * Every call from where a thread, a process or a caller ends: destructors of
 * thread-specific data, in each of their rounds, those of thread_local objects
 * of C++, exit handlers, destructors of libraries that are closed or that the
 * process ends with.
 */
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "everything.h"
#include "late/caller.h"
#include "transfer.h"

static pthread_key_t key;
static int ends_in;		/* the round that does it */
static struct ct_spec spec;
static bool has_own;		/* the objects are opened there, too */
static struct ct_pair pair;

static void use_all(void)
{
	ct_everything(&spec, (struct ct_everything) {
		.waits = true, .open = has_own ? NULL : &pair,
	});
}

static void destroy(void *arg)
{
	int round = (int)(intptr_t)arg;

	if (round < ends_in)
		REQUIRE(!pthread_setspecific(key, (void *)(intptr_t)(round + 1)));
	else
		use_all();
}

/* The library's state of this thread exists before it ends. */
static void use_before(void)
{
	struct ct_pair first;

	ct_open_pair(&first, &spec);
	ct_warm_up(&first);
	ct_close_pair(&first);
}

static void *run(void *arg)
{
	use_before();
	REQUIRE(!pthread_setspecific(key, (void *)1));
	return arg;
}

static void in_destructors(void)
{
	REQUIRE(!pthread_key_create(&key, destroy));
	for (ends_in = 1; ends_in <= PTHREAD_DESTRUCTOR_ITERATIONS; ends_in++) {
		pthread_t thread;

		if (!has_own)
			ct_open_pair(&pair, &spec);
		REQUIRE(!pthread_create(&thread, NULL, run, NULL));
		REQUIRE(!pthread_join(thread, NULL));
	}
	REQUIRE(!pthread_key_delete(key));
}

/* The C library's function that registers the destructor of a thread_local
 * object. */
extern int __cxa_thread_atexit_impl(void (*function)(void *), void *object,
				    void *dso);
extern void *__dso_handle;

static void destroy_object(void *object)
{
	(void)object;
	use_all();
}

/* One that was made before the library's own is destroyed after them. */
static void *run_with_object(void *arg)
{
	REQUIRE(!__cxa_thread_atexit_impl(destroy_object, NULL, &__dso_handle));
	use_before();
	return arg;
}

static void in_object_destructors(void)
{
	pthread_t thread;

	if (!has_own)
		ct_open_pair(&pair, &spec);
	REQUIRE(!pthread_create(&thread, NULL, run_with_object, NULL));
	REQUIRE(!pthread_join(thread, NULL));
}

static void variants(void (*test)(void))
{
	static const enum fi_threading levels[] = {
		FI_THREAD_SAFE, FI_THREAD_COMPLETION, FI_THREAD_DOMAIN,
	};

	for (int i = 0; i < 12; i++) {
		spec = ct_everything_spec(levels[i % 3], i / 3 % 2 ?
					  FI_PROGRESS_AUTO : FI_PROGRESS_MANUAL);
		fi_freeinfo(ct_getinfo(&spec));
		has_own = i >= 6;
		test();
	}
}

static void thread_ends(void) { variants(in_destructors); }
static void object_ends(void) { variants(in_object_destructors); }

/* Runs it in a process of its own, which ends well. */
static void in_process(void (*body)(void))
{
	pid_t pid = fork();
	int status;

	REQUIRE(pid >= 0);
	if (!pid) {
		body();
		exit(0);
	}
	REQUIRE(waitpid(pid, &status, 0) == pid);
	REQUIRE(WIFEXITED(status) && !WEXITSTATUS(status));
}

static void register_handler(void)
{
	if (!has_own)
		ct_open_pair(&pair, &spec);
	atexit(use_all);
}

static void process_ends(void) { in_process(register_handler); }
static void at_exit(void) { variants(process_ends); }

/* A library that does everything in its destructor. */
static void *load_caller(void)
{
	struct late_caller *caller;
	char path[PATH_MAX + sizeof("-caller.so")];
	ssize_t len = readlink("/proc/self/exe", path, PATH_MAX);
	void *library;

	REQUIRE(len > 0);
	strcpy(path + len, "-caller.so");
	library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!library)
		ct_fail(__FILE__, __LINE__, "%s", dlerror());
	caller = dlsym(library, "late_caller");
	REQUIRE(caller);
	*caller->options = ct_opt;
	caller->spec = spec;
	caller->has_own = has_own;
	if (!has_own)
		caller->open();
	return library;
}

static void leave_caller(void) { (void)load_caller(); }
static void caller_stays(void) { in_process(leave_caller); }
static void library_ends(void) { variants(caller_stays); }

/* Objects that the closed caller opened are used by the program, and the other
 * way round; a thread that it has used ends after it. */
static void *close_caller(void *library)
{
	use_before();
	if (ends_in) {
		REQUIRE(!pthread_setspecific(key, (void *)1));
		REQUIRE(!dlclose(library));
	} else {
		struct late_caller *caller = dlsym(library, "late_caller");

		/* The program gets the objects that the caller has opened. */
		pair = caller->pair;
		pair.a.partner = &pair.b;
		pair.b.partner = &pair.a;
		caller->idle = true;
		REQUIRE(!dlclose(library));
		use_all();
	}
	return NULL;
}

static void caller_leaves(void)
{
	pthread_t thread;
	bool own = has_own;

	REQUIRE(!pthread_key_create(&key, destroy));
	/* Its destructor does everything, and so does that of the thread's data. */
	ends_in = 1;
	has_own = true;
	REQUIRE(!pthread_create(&thread, NULL, close_caller, load_caller()));
	REQUIRE(!pthread_join(thread, NULL));
	/* It does nothing, and its objects are used. */
	ends_in = 0;
	has_own = false;
	REQUIRE(!pthread_create(&thread, NULL, close_caller, load_caller()));
	REQUIRE(!pthread_join(thread, NULL));
	has_own = own;
	REQUIRE(!pthread_key_delete(key));
}

static void caller_ends(void) { variants(caller_leaves); }

static const struct ct_test tests[] = {
	{ "thread-ends", thread_ends, CT_BOTH | CT_SLOW },
	{ "object-ends", object_ends, CT_BOTH | CT_SLOW },
	{ "at-exit", at_exit, CT_BOTH | CT_SLOW },
	{ "library-ends", library_ends, CT_BOTH | CT_SLOW },
	{ "caller-ends", caller_ends, CT_BOTH | CT_SLOW },
};

CT_MAIN(tests)
