# SPDX-License-Identifier: BSD-2-Clause OR MIT
"""mpi4py's mutex in the order of events that its accumulate to oneself has to stand: rank 1 is away from the
moment when its fetch has taken the lock until rank 0 has queued up behind it. Two ranks; the argument is a
folder of theirs. Used by `mpi4py_suite.py` beside it.

Rank 1 sets its link to the next rank to null, takes the lock with a fetch at rank 0, and waits for the fetch.
MPICH's progress then handles what has arrived through libfabric, the result of the fetch and rank 0's link,
before what a rank has sent to itself, which does not pass libfabric. A mutex that waits for the fetch alone
loses the link, and both ranks wait for ever: on the C library, on this one, and over UCX.
"""

import pathlib
import sys
import time

from mpi4py import MPI
from mpi4py.util import sync

HOLDER, WAITER = 1, 0
TAIL = 2  # the index in rank 0's window of the last rank in the queue

folder = pathlib.Path(sys.argv[1])
ready, queued = folder / "ready", folder / "queued"
me = MPI.COMM_WORLD.rank


class Window(MPI.Win):
    """The mutex's window, whose calls wait for the other rank's."""

    def Lock_all(self, *more):
        super().Lock_all(*more)
        if me == WAITER and not ready.exists():
            ready.touch()
            while memoryview(self).cast("i")[TAIL] != HOLDER:
                MPI.COMM_WORLD.Iprobe()

    def Flush(self, rank):
        while (me, rank) == (HOLDER, WAITER) and not queued.exists():
            time.sleep(0.001)
        super().Flush(rank)

    def Accumulate(self, origin, target_rank, *more):
        super().Accumulate(origin, target_rank, *more)
        if (me, target_rank) == (WAITER, HOLDER):
            queued.touch()


mutex = sync.Mutex(comm=MPI.COMM_WORLD)
window = mutex._window
mutex._window = Window(window)
while me == HOLDER and not ready.exists():
    MPI.COMM_WORLD.Iprobe()
mutex.acquire()
mutex.release()
mutex._window = window
mutex.free()
if me == 0:
    print("mpi4py_mutex: PASS")
