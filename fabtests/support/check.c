/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
#include "check.h"

#include <getopt.h>
#include <regex.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define DEFAULT_PATIENCE 30.0
#define TEST_LIMIT 60.0
/* Seconds between two looks at a test, if the machine is busy. */
#define LONGEST_NAP 1.0

enum outcome { PASSED = 0, FAILED = 1, SKIPPED = 2 };

const struct ct_test *ct_running;
struct ct_options ct_opt = { .source = "127.0.0.1", .type = FI_EP_RDM };

static struct {
	char program[64];
	const char *test;
	const char *only;
	regex_t *known;			/* identities that are expected to fail */
	size_t known_count;
	bool in_process;
	bool list;
	bool placed;			/* the command line says where endpoints are */
	bool running;			/* inside a test: leave is valid */
	jmp_buf leave;
	bool failed;			/* an unexpected failure in this test */
	char reason[512];
} state;

double ct_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static double scale(void)
{
	const char *text = getenv("CT_TIMEOUT_SCALE");
	double value = text ? atof(text) : 1.0;

	return value > 0 ? value : 1.0;
}

double ct_patience(void)
{
	return DEFAULT_PATIENCE * scale();
}

int ct_patience_ms(void)
{
	return (int)(ct_patience() * 1000);
}

int ct_times(int count)
{
	if (!ct_opt.valgrind)
		return count;
	return count > 20 ? count / 20 : 1;
}

static const char *type_name(void)
{
	switch (ct_opt.type) {
	case FI_EP_MSG:
		return "msg";
	case FI_EP_DGRAM:
		return "dgram";
	default:
		return "rdm";
	}
}

static void identity(char *out, size_t size, const char *check)
{
	snprintf(out, size, "%s/%s/%s%s%s", state.program, type_name(),
		 state.test, check ? "/" : "", check ? check : "");
}

static bool is_known(const char *id)
{
	for (size_t i = 0; i < state.known_count; i++)
		if (!regexec(&state.known[i], id, 0, NULL, 0))
			return true;
	return false;
}

/* One write per line, so that lines of parallel programs do not mix. */
static void report(const char *word, const char *id, const char *reason)
{
	char line[1024];
	int len = snprintf(line, sizeof(line), "%-5s %s%s%s\n", word, id,
			   reason && *reason ? "  " : "",
			   reason ? reason : "");

	if (len >= (int)sizeof(line)) {
		len = sizeof(line) - 1;
		line[len - 1] = '\n';
	}
	if (write(STDOUT_FILENO, line, (size_t)len) < 0)
		_exit(FAILED);
}

void ct_value(const char *fmt, ...)
{
	char id[256], text[512];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	identity(id, sizeof(id), NULL);
	report("value", id, text);
}

static _Thread_local struct {
	const char *file;
	int line;
} here;

void ct_here(const char *file, int line)
{
	here.file = file;
	here.line = line;
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* Ends the test, or the process if there is no test. */
static void __attribute__((noreturn)) leave(enum outcome outcome)
{
	if (state.running)
		longjmp(state.leave, 1 + (int)outcome);
	fprintf(stderr, "%s\n", state.reason);
	_exit(outcome);
}

void ct_fail(const char *file, int line, const char *fmt, ...)
{
	va_list args;
	int len;

	/* Inside the support library the caller's line is more useful. */
	if (strstr(file, "support/") && here.file) {
		file = here.file;
		line = here.line;
	}
	len = snprintf(state.reason, sizeof(state.reason), "%s:%d: ",
		       base_name(file), line);
	va_start(args, fmt);
	vsnprintf(state.reason + len, sizeof(state.reason) - (size_t)len, fmt,
		  args);
	va_end(args);
	leave(FAILED);
}

void ct_skip(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(state.reason, sizeof(state.reason), fmt, args);
	va_end(args);
	leave(SKIPPED);
}

bool ct_check(const char *file, int line, bool ok, const char *fmt, ...)
{
	char name[128], id[256], where[128];
	va_list args;

	va_start(args, fmt);
	vsnprintf(name, sizeof(name), fmt, args);
	va_end(args);
	identity(id, sizeof(id), name);
	if (ok) {
		report("ok", id, NULL);
		return true;
	}
	snprintf(where, sizeof(where), "%s:%d", base_name(file), line);
	if (is_known(id)) {
		report("known", id, where);
	} else {
		report("FAIL", id, where);
		state.failed = true;
	}
	return false;
}

/* Runs one test to its end and prints its line. */
/*
 * An address of the loopback interface that no other test has. Tests leave
 * addresses behind at which nobody is any more, and send to them; the system
 * gives a port that is free to anybody, but not to another test's address.
 */
static const char *own_address(void)
{
	static char text[16];
	unsigned id = (unsigned)getpid();

	snprintf(text, sizeof(text), "127.%u.%u.%u", 64 + (id >> 16 & 63),
		 id >> 8 & 255, id & 255);
	return text;
}

static enum outcome run_here(const struct ct_test *test)
{
	char id[256];
	int left;

	if (!state.placed)
		ct_opt.source = own_address();

	ct_running = test;
	state.test = test->name;
	state.running = true;
	state.failed = false;
	state.reason[0] = '\0';
	identity(id, sizeof(id), NULL);

	left = setjmp(state.leave);
	if (!left)
		test->run();
	state.running = false;

	switch (left ? left - 1 : PASSED) {
	case SKIPPED:
		report("skip", id, state.reason);
		return state.failed ? FAILED : SKIPPED;
	case FAILED:
		if (is_known(id)) {
			report("known", id, state.reason);
			return state.failed ? FAILED : PASSED;
		}
		report("FAIL", id, state.reason);
		return FAILED;
	default:
		if (!state.failed)
			report("ok", id, NULL);
		return state.failed ? FAILED : PASSED;
	}
}

/* A child that ended without a report of its own: killed, or out of time. */
static enum outcome report_death(const struct ct_test *test, const char *reason)
{
	char id[256];

	state.test = test->name;
	identity(id, sizeof(id), NULL);
	if (is_known(id)) {
		report("known", id, reason);
		return PASSED;
	}
	report("FAIL", id, reason);
	return FAILED;
}

static enum outcome run_in_child(const struct ct_test *test)
{
	const char *seconds = test->flags & CT_LASTING ? getenv("CT_SECONDS") : NULL;
	double limit = TEST_LIMIT * scale() * (test->flags & CT_SLOW ? 10 : 1) +
		       (seconds ? 2 * atof(seconds) : 0);
	struct timespec nap = { .tv_nsec = 2000000 };
	double left = limit, last = ct_now(), now;
	char reason[128];
	int status;
	pid_t pid, done;

	fflush(NULL);
	pid = fork();
	if (pid < 0)
		return report_death(test, "fork failed");
	if (!pid) {
		/* A process group of its own: a hung test is killed with its
		 * children. */
		setpgid(0, 0);
		exit(run_here(test));
	}
	setpgid(pid, pid);

	while (!(done = waitpid(pid, &status, WNOHANG))) {
		/* Time in which this process was stopped, as the test was with
		 * it, does not count. */
		now = ct_now();
		left -= now - last < LONGEST_NAP ? now - last : LONGEST_NAP;
		last = now;
		if (left < 0) {
			kill(-pid, SIGKILL);
			waitpid(pid, &status, 0);
			snprintf(reason, sizeof(reason),
				 "hung for %.0f seconds", limit);
			return report_death(test, reason);
		}
		nanosleep(&nap, NULL);
	}
	if (done < 0)
		return report_death(test, "waitpid failed");
	kill(-pid, SIGKILL);
	if (WIFSIGNALED(status)) {
		snprintf(reason, sizeof(reason), "killed by signal %d (%s)",
			 WTERMSIG(status), strsignal(WTERMSIG(status)));
		return report_death(test, reason);
	}
	switch (WEXITSTATUS(status)) {
	case PASSED:
	case FAILED:
	case SKIPPED:
		return WEXITSTATUS(status);
	default:
		snprintf(reason, sizeof(reason), "exit status %d",
			 WEXITSTATUS(status));
		return report_death(test, reason);
	}
}

/*
 * The file of known deviations of some other library: one extended regular
 * expression per line, matched against whole identities; the reason follows
 * after '#'.
 */
static bool load_known(const char *path)
{
	FILE *file = fopen(path, "r");
	char line[1024], anchored[1100];

	if (!file) {
		perror(path);
		return false;
	}
	while (fgets(line, sizeof(line), file)) {
		regex_t *grown;
		char *end = strchr(line, '#');

		if (!end)
			end = line + strlen(line);
		while (end > line && strchr(" \t\n", end[-1]))
			end--;
		*end = '\0';
		if (!*line)
			continue;
		snprintf(anchored, sizeof(anchored), "^(%s)$", line);
		grown = realloc(state.known,
				(state.known_count + 1) * sizeof(*grown));
		if (!grown)
			abort();
		state.known = grown;
		if (regcomp(&state.known[state.known_count], anchored,
			    REG_EXTENDED | REG_NOSUB)) {
			fprintf(stderr, "%s: bad expression: %s\n", path, line);
			fclose(file);
			return false;
		}
		state.known_count++;
	}
	fclose(file);
	return true;
}

static void usage(void)
{
	fprintf(stderr,
		"usage: %s [-e msg|rdm|dgram] [-p provider] [-a node|none]\n"
		"       [-t test] [-k known-deviations] [-s] [-l] [-r]\n"
		"  -s  run in this process, without children (for debuggers)\n"
		"  -l  list the tests\n"
		"  -r  print what the calls return, and judge nothing\n",
		state.program);
	exit(FAILED);
}

static void parse(int argc, char **argv)
{
	int c;

	snprintf(state.program, sizeof(state.program), "%s",
		 base_name(argv[0]));
	ct_opt.valgrind = getenv("CT_VALGRIND") != NULL;
	while ((c = getopt(argc, argv, "e:p:a:t:k:slr")) != -1) {
		switch (c) {
		case 'e':
			if (!strcmp(optarg, "msg"))
				ct_opt.type = FI_EP_MSG;
			else if (!strcmp(optarg, "rdm"))
				ct_opt.type = FI_EP_RDM;
			else if (!strcmp(optarg, "dgram"))
				ct_opt.type = FI_EP_DGRAM;
			else
				usage();
			break;
		case 'p':
			ct_opt.provider = optarg;
			break;
		case 'a':
			state.placed = true;
			ct_opt.source = strcmp(optarg, "none") ? optarg : NULL;
			break;
		case 't':
			state.only = optarg;
			break;
		case 'k':
			if (!load_known(optarg))
				exit(FAILED);
			break;
		case 's':
			state.in_process = true;
			break;
		case 'l':
			state.list = true;
			break;
		case 'r':
			ct_opt.values = true;
			break;
		default:
			usage();
		}
	}
	if (optind != argc)
		usage();
}

int ct_main(int argc, char **argv, const struct ct_test *tests, size_t count)
{
	int type, failures = 0;

	parse(argc, argv);
	switch (ct_opt.type) {
	case FI_EP_MSG:
		type = CT_MSG;
		break;
	case FI_EP_DGRAM:
		type = CT_RDM | CT_DGRAM;
		break;
	default:
		type = CT_RDM;
	}
	for (size_t i = 0; i < count; i++) {
		enum outcome outcome;

		if (!(tests[i].flags & type) ||
		    (state.only && strcmp(state.only, tests[i].name)))
			continue;
		if (state.list) {
			puts(tests[i].name);
			continue;
		}
		outcome = state.in_process ? run_here(&tests[i])
					   : run_in_child(&tests[i]);
		failures += outcome == FAILED;
	}
	for (size_t i = 0; i < state.known_count; i++)
		regfree(&state.known[i]);
	free(state.known);
	return failures ? 1 : 0;
}
