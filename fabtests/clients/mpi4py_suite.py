# SPDX-License-Identifier: BSD-2-Clause OR MIT
"""mpi4py's own test suite, some two thousand tests of all of MPI, as dev/setup
built it with MPICH. Used by `run` beside it."""

import os
import pathlib
import re
import shutil
import tempfile
import time

import harness
from harness import DEPS, Failure

HOME = pathlib.Path(DEPS) / "mpi4py"
MUTEX = pathlib.Path(__file__).with_name("mpi4py_mutex.py")
EXCLUDED = pathlib.Path(__file__).with_name("mpi4py-excluded")
RANKS = 2
# mpi4py 4.1.2 passes 2,018 of 2,125 tests, and skips the rest: they want
# packages that are not there, such as numpy, or another number of ranks.
FEWEST_PASSED = 2000
# What has to be among them: a suite without it proves less than it says.
PARTS = ["test_p2p_buf", "test_cco_buf", "test_cco_nb_buf", "test_rma", "test_rma_nb", "test_win",
         "test_threads", "test_util_pool", "test_dynproc"]
# Seconds for all tests. A quiet machine with two processors needs a tenth.
LIMIT = 600


def excluded():
    """The patterns of tests left out; each is followed by its reason."""
    lines = EXCLUDED.read_text(encoding="utf-8").splitlines()
    return [rule for line in lines if (rule := line.partition("#")[0].strip())]


class Rank:
    """What one rank reports: a line for each test, of which the end is
    written when the test ends."""

    def __init__(self, file):
        self.file = file

    def text(self):
        try:
            return self.file.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return ""

    def size(self):
        return self.file.stat().st_size if self.file.exists() else 0

    def running(self):
        """The test that was begun last."""
        begun = re.findall(r"^\w+ \((test_\w+\.\S+)\)", self.text(), re.M)
        return begun[-1] if begun else "no test yet"

    def failed(self):
        return re.findall(r"^(?:FAIL|ERROR|UNEXPECTED SUCCESS): .*", self.text(), re.M)

    def passed(self):
        """How many tests passed, once all have run."""
        text = self.text()
        ran = re.search(r"^Ran (\d+) tests? in ", text, re.M)
        verdict = re.search(r"^OK(?: \(.*\))?$", text, re.M)
        if not ran or not verdict:
            raise Failure("a rank gives no verdict", text)
        skipped = re.search(r"skipped=(\d+)", verdict.group(0))
        for part in PARTS:
            if not re.search(rf"^\w+ \({part}\.\S+\) \.\.\. ok$", text, re.M):
                raise Failure(f"no test of {part} passed", text)
        return int(ran.group(1)) - (int(skipped.group(1)) if skipped else 0)


def where(ranks):
    return ", ".join(f"rank {number} in {rank.running()}" for number, rank in enumerate(ranks))


def reports(ranks):
    return "".join(f"--- rank {number}\n" + "\n".join(rank.text().splitlines()[-30:]) + "\n"
                   for number, rank in enumerate(ranks))


def follow(job, ranks, patience):
    """Returns when the suite has ended well; `patience`, in seconds, is for a
    single test."""
    start = moved = time.monotonic()
    sizes = None
    while job.process.poll() is None:
        now = time.monotonic()
        seen = [rank.size() for rank in ranks]
        if seen != sizes:
            sizes, moved = seen, now
            # One that fails aborts the other, and both leave theirs behind.
            job.note_shared()
        if now - moved > patience:
            raise Failure(f"hangs, nothing for {patience:g} s: {where(ranks)}",
                          reports(ranks) + job.stacks())
        if now - start > LIMIT:
            raise Failure(f"no end after {LIMIT} s: {where(ranks)}", reports(ranks))
        time.sleep(0.5)
    status = job.process.returncode
    failed = [f"rank {number}: {line}" for number, rank in enumerate(ranks)
              for line in rank.failed()]
    if failed:
        raise Failure("; ".join(failed), reports(ranks))
    if status:
        raise Failure(f"exit status {status}: {where(ranks)}", reports(ranks) + job.output())


def mutex(mpi, library, patience):
    """Runs the mutex in the order of events that dev/setup has mended it for: without that, ranks wait for
    ever in one of some dozens of runs."""
    folder = tempfile.mkdtemp(prefix="fabric-mpi4py-")
    command, environment = mpi.command(library, RANKS, [HOME / "bin/python", MUTEX, folder])
    try:
        output = harness.run(command, environment, library, RANKS, patience)
    except Failure as failure:
        raise Failure(f"mpi4py_mutex: {failure}; if all libraries fail, run dev/setup", failure.output) from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if "mpi4py_mutex: PASS" not in output:
        raise Failure("mpi4py_mutex gives no verdict", output)


def suite(mpi, library, patience):
    """Runs the suite; how many tests each rank has passed.

    The first failure ends it: a rank that leaves a test early would be waited
    for by the other one.
    """
    tests = HOME / "source/test/main.py"
    if not tests.exists():
        raise Failure("mpi4py is not installed: run dev/setup")
    mutex(mpi, library, patience)
    # Files that the tests make are in it, too.
    folder = pathlib.Path(tempfile.mkdtemp(prefix="fabric-mpi4py-"))
    ranks = [Rank(folder / f"rank.{number}") for number in range(RANKS)]
    leave_out = [word for pattern in excluded() for word in ("-x", pattern)]
    launcher, environment = mpi.command(library, RANKS, [
        HOME / "bin/python", tests, "--verbose", "--failfast", "--no-builddir", *leave_out])
    # The launcher's own words come first.
    launcher[1:1] = ["-errfile-pattern", folder / "rank.%r"]
    job = harness.Job(launcher, {**environment, "TMPDIR": os.fspath(folder)})
    try:
        follow(job, ranks, patience)
        job.prove(library, RANKS)
        passed = [rank.passed() for rank in ranks]
        if min(passed) < FEWEST_PASSED:
            raise Failure(f"only {min(passed)} tests passed", reports(ranks))
        return min(passed)
    finally:
        job.end()
        shutil.rmtree(folder, ignore_errors=True)
