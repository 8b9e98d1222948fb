/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * A program that is linked with this file says on standard error where it crashed
 * before a fatal signal ends it: which thread, which address, and the functions
 * that were called, each as an offset in its file.
 */
#define _GNU_SOURCE
#include <execinfo.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Frames that are written. */
#define DEEPEST 40

static void report(int number, siginfo_t *info, void *context)
{
	void *frames[DEEPEST];
	char line[128];
	int length = snprintf(line, sizeof(line), "signal %d (code %d), address %p, %s\n",
			      number, info->si_code, info->si_addr,
			      gettid() == getpid() ? "the main thread" : "another thread");

	(void)context;
	if (length > 0 && write(STDERR_FILENO, line, (size_t)length) == length)
		backtrace_symbols_fd(frames, backtrace(frames, DEEPEST), STDERR_FILENO);
	/* The handler was reset when it was called: the signal ends the process now. */
	raise(number);
}

__attribute__((constructor)) static void prepare(void)
{
	static const int signals[] = { SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT };
	static char stack[64 * 1024];
	stack_t other = { .ss_sp = stack, .ss_size = sizeof(stack) };
	struct sigaction action;
	void *frame;

	/* The first call loads the unwinder, which must not happen in a handler. */
	backtrace(&frame, 1);
	memset(&action, 0, sizeof(action));
	action.sa_sigaction = report;
	action.sa_flags = SA_SIGINFO | SA_RESETHAND | SA_ONSTACK;
	if (sigaltstack(&other, NULL))
		abort();
	for (size_t i = 0; i < sizeof(signals) / sizeof(*signals); i++)
		if (sigaction(signals[i], &action, NULL))
			abort();
}
