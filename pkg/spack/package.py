# SPDX-License-Identifier: BSD-2-Clause OR MIT
"""Spack recipe. In a repository of recipes, as packages/libfabric_rs/package.py, or libfabric-rs
for Spack before 1.0. The tarball of `make dist` has to be where `url` says, or in a mirror; it has
no checksum here, so that `spack install --no-checksum libfabric-rs` is the command.

It takes the place of libfabric where a package depends on it through

    packages:
      libfabric:
        buildable: false
        externals: [{spec: "libfabric@2.7.0", prefix: <prefix of libfabric-rs>}]
"""

from spack.package import *

try:
    # Spack 1.0 has it here, those before it in spack.package.
    from spack_repo.builtin.build_systems.makefile import MakefilePackage
except ImportError:
    pass

# Providers that are part of the library, by their names in FI_PROVIDER: those that are not chosen
# stay out of use by default.
BUILT_IN = {
    "tcp": "tcp",
    "shm": "shm",
    "rxm": "ofi_rxm",
    "rxd": "ofi_rxd",
    "udp": "udp",
    "sockets": "sockets",
}


class LibfabricRs(MakefilePackage):
    """A drop-in libfabric.so.1, written in Rust."""

    homepage = "https://ofiwg.github.io/libfabric/"
    # The tarball of `make dist`, which has all crates.
    url = "file:///srv/mirror/libfabric-rs-2.7.0.tar.xz"

    license("BSD-2-Clause OR MIT")

    version("2.7.0")

    variant(
        "fabrics",
        default="tcp,shm,rxm,rxd,udp,sockets,verbs",
        values=(*BUILT_IN, "verbs"),
        multi=True,
        description="Providers in use unless FI_PROVIDER says otherwise",
    )

    depends_on("c", type="build")
    depends_on("rust@1.95:", type="build")
    depends_on("gmake", type="build")
    # It is opened when it is needed, so that it has to be found then.
    depends_on("rdma-core", when="fabrics=verbs", type=("link", "run"))

    def chosen(self, name):
        return self.spec.satisfies(f"fabrics={name}")

    def setup_build_environment(self, env):
        env.set("CARGO_NET_OFFLINE", "true")
        # Where the library looks for libfabric.conf.
        env.set("LIBFABRIC_SYSCONFDIR", self.prefix.etc)

    def build(self, spec, prefix):
        make("tools", "providers")

    def install(self, spec, prefix):
        make(f"PREFIX={prefix}", "install")
        if not self.chosen("verbs"):
            remove_directory_contents(join_path(prefix.lib, "libfabric"))
        left_out = [BUILT_IN[name] for name in BUILT_IN if not self.chosen(name)]
        if left_out:
            mkdirp(prefix.etc)
            with open(join_path(prefix.etc, "libfabric.conf"), "w") as file:
                file.write("FI_PROVIDER=^" + ",".join(left_out) + "\n")

    def setup_run_environment(self, env):
        if self.chosen("verbs"):
            env.prepend_path("LD_LIBRARY_PATH", self.spec["rdma-core"].prefix.lib)
