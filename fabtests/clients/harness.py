# SPDX-License-Identifier: BSD-2-Clause OR MIT
"""Runs programs of other projects on a given libfabric.so.1, with time limits,
and proves which library they loaded. Used by the runners beside it, and by
bench/mpi."""

import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time



def _end(*_):
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.exit(1)


# Running jobs are ended with this process.
for _number in (signal.SIGTERM, signal.SIGHUP):
    if signal.getsignal(_number) is not signal.SIG_IGN:
        signal.signal(_number, _end)

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
DEPS = os.path.join(ROOT, ".deps")

# The two sides of dev/rxd-relay, if this runs within it: what a command there begins with, the
# address, and the variables.
RELAY = [(os.environ[f"RELAY_{side}"].split(), address, {"FI_UDP_IFACE": "relay"})
         for side, address in (("A", "10.77.0.1"), ("B", "10.77.0.2")) if f"RELAY_{side}" in os.environ]


def run_in_relay(faults):
    """Starts this program once more within dev/rxd-relay and ends with its status. Without the
    privileges for that, says so and ends without error."""
    words = [os.path.join(ROOT, "dev/rxd-relay"), "--prefix", f"fab{os.getpid()}"]
    possible = os.geteuid() == 0 and os.path.exists("/dev/net/tun") and shutil.which("ip") and \
        subprocess.run(["unshare", "-n", "true"], capture_output=True, check=False).returncode == 0
    if not possible:
        print("not run: dev/rxd-relay needs root, ip(8), network namespaces and /dev/net/tun")
        sys.exit(0)
    sys.stdout.flush()
    sys.exit(subprocess.run([*words, *faults, "--", sys.executable, *sys.argv], check=False).returncode)


class Failure(Exception):
    """A program failed; `output` is what it printed."""

    def __init__(self, reason, output=""):
        super().__init__(reason)
        self.output = output


class Library:
    """A folder with a libfabric.so.1."""

    def __init__(self, folder):
        self.folder = os.path.abspath(folder)
        self.file = os.path.join(self.folder, "libfabric.so.1")
        if not os.path.exists(self.file):
            sys.exit(f"no libfabric.so.1 in {self.folder}")
        self.real = os.path.realpath(self.file)


class Job:
    """One command in a process group of its own. The dynamic linker of every
    process it starts records the libraries that it initializes
    (LD_DEBUG=libs), so that `loaded()` can tell which libfabric was used."""

    def __init__(self, command, environment=None):
        self.command = [str(word) for word in command]
        self.folder = tempfile.mkdtemp(prefix="fabric-client-")
        self.extra = dict(environment or {})
        self.shared = set()
        self.log = open(os.path.join(self.folder, "output"), "w+b")
        env = dict(os.environ, **self.extra)
        env["LD_DEBUG"] = "libs"
        env["LD_DEBUG_OUTPUT"] = os.path.join(self.folder, "ld")
        env.setdefault("TMPDIR", "/tmp")
        self.process = subprocess.Popen(
            self.command, env=env, stdin=subprocess.DEVNULL, stdout=self.log,
            stderr=subprocess.STDOUT, start_new_session=True)

    def output(self):
        self.log.flush()
        with open(self.log.name, "rb") as file:
            return file.read().replace(b"\0", b"").decode(errors="replace")

    def wait(self, seconds):
        """The output of a program that ends with status 0 in time."""
        try:
            status = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Failure(f"no end after {seconds:g} s", self.output() + self.stacks()) from None
        if status != 0:
            reason = f"exit status {status}" if status > 0 else f"killed by signal {-status}"
            raise Failure(reason, self.output())
        return self.output()

    def members(self):
        """Processes of this job: those in its session and their descendants."""
        parents = {}
        sessions = {}
        for name in os.listdir("/proc"):
            if not name.isdigit():
                continue
            try:
                with open(f"/proc/{name}/stat", encoding="ascii", errors="replace") as file:
                    fields = file.read().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(name)] = int(fields[1])
            sessions[int(name)] = int(fields[3])
        found = {pid for pid, session in sessions.items() if session == self.process.pid}
        grown = True
        while grown:
            more = {pid for pid, parent in parents.items() if parent in found} - found
            found |= more
            grown = bool(more)
        return found

    def stacks(self):
        """Stack traces of the processes of a stuck job, if gdb is installed."""
        if not shutil.which("gdb"):
            return ""
        text = ""
        for pid in sorted(self.members()):
            try:
                shown = subprocess.run(
                    ["gdb", "-p", str(pid), "-batch", "-nx", "-ex", "thread apply all bt 14"],
                    capture_output=True, text=True, timeout=20, check=False)
            except subprocess.TimeoutExpired:
                continue
            if "fi_" in shown.stdout or "fabric" in shown.stdout:
                text += f"\n--- stacks of process {pid}\n" + "\n".join(
                    line for line in shown.stdout.splitlines() if line.startswith(("#", "Thread")))
        return text

    def loaded(self):
        """{pid: libfabric path} of the processes that initialized one."""
        found = {}
        for name in os.listdir(self.folder):
            match = re.fullmatch(r"ld\.(\d+)", name)
            if not match:
                continue
            with open(os.path.join(self.folder, name), errors="replace") as file:
                for line in file:
                    hit = re.search(r"calling init: (\S*/libfabric\.so\S*)", line)
                    if hit:
                        found.setdefault(int(match.group(1)), set()).add(
                            os.path.realpath(hit.group(1)))
        return found

    def prove(self, library, processes):
        """At least `processes` processes loaded this library, none another."""
        found = self.loaded()
        for pid, paths in found.items():
            if paths != {library.real}:
                raise Failure(f"process {pid} loaded {', '.join(sorted(paths))} "
                              f"instead of {library.real}", self.output())
        if len(found) < processes:
            raise Failure(f"{len(found)} processes loaded {library.real}, "
                          f"expected {processes}", self.output())

    def note_shared(self):
        """Remembers the shared memory that the job's processes use, which
        is not removed if they do not end by themselves."""
        for pid in self.members():
            try:
                with open(f"/proc/{pid}/maps", errors="replace") as file:
                    self.shared |= {line.split(maxsplit=5)[5].strip() for line in file
                                    if " /dev/shm/" in line}
            except OSError:
                continue

    def end(self):
        """Stops remaining processes and removes the job's files."""
        self.note_shared()
        for pid in self.members():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait()
        for path in self.shared:
            pathlib.Path(path).unlink(missing_ok=True)
        self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def free_port():
    """A TCP port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run(command, environment, library, processes, seconds):
    """Runs a command to its end on `library` and returns its output."""
    job = Job(command, environment)
    try:
        output = job.wait(seconds)
        job.prove(library, processes)
        return output
    finally:
        job.end()


def pair(server, client, seconds, ready_port=None):
    """Runs a server and a client, each (command, environment, library), to
    their ends and returns both outputs. With `ready_port` the client starts
    when the server listens there."""
    jobs = []
    try:
        jobs.append(Job(server[0], server[1]))
        if ready_port:
            wait_for_listener(ready_port, jobs[0], seconds)
        jobs.append(Job(client[0], client[1]))
        outputs = []
        try:
            for job in reversed(jobs):
                outputs.append(job.wait(seconds))
        except Failure as failure:
            texts = [f"--- {name}: {' '.join(job.command)}\n{job.output()}"
                     for name, job in zip(("server", "client"), jobs)]
            side = "client" if job is jobs[1] else "server"
            stacks = failure.output.partition("\n--- stacks")
            raise Failure(f"{side}: {failure}",
                          "\n".join(texts) + stacks[1] + stacks[2]) from None
        for job, side in zip(jobs, (server, client)):
            job.prove(side[2], 1)
        return outputs[1], outputs[0]
    finally:
        for job in jobs:
            job.end()


def wait_for_listener(port, job, seconds):
    """Returns once some process of the job's network listens on the TCP port, or has a socket at
    the UDP port."""
    wanted = f":{port:04X}"
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for table, state in (("tcp", "0A"), ("tcp6", "0A"), ("udp", "07"), ("udp6", "07")):
            try:
                with open(f"/proc/{job.process.pid}/net/{table}", encoding="ascii") as file:
                    for line in file:
                        fields = line.split()
                        if fields[1].endswith(wanted) and fields[3] == state:
                            return
            except OSError:
                continue
        if job.process.poll() is not None:
            raise Failure(f"server ended with status {job.process.returncode}", job.output())
        time.sleep(0.02)
    raise Failure(f"server does not listen on port {port}", job.output())


class Table:
    """Rows printed as they come; remembers whether any failed."""

    def __init__(self, columns):
        self.columns = columns
        self.failed = []
        self._print([name for name, _ in columns])

    def _print(self, cells):
        line = "  ".join(f"{cell:<{width}}" for cell, (_, width) in zip(cells, self.columns))
        print(line.rstrip(), flush=True)

    def case(self, names, body):
        """Runs one case; `body` returns the remaining cells or raises Failure."""
        start = time.monotonic()
        try:
            cells = body()
            result = "ok"
        except Failure as failure:
            cells, result = [], f"FAIL {failure}"
            self.failed.append(" ".join(names))
            for line in failure.output.strip().splitlines()[-90:]:
                print(f"    {line}")
        self._print(names + [f"{time.monotonic() - start:.1f} s"] +
                    (cells or [""]) + [result])

    def finish(self):
        """Prints the totals and returns the exit status."""
        if self.failed:
            print(f"{len(self.failed)} FAILED: " + "; ".join(self.failed))
            return 1
        print("all passed")
        return 0
