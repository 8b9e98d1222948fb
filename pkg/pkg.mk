# SPDX-License-Identifier: BSD-2-Clause OR MIT
# Packages. Included by the Makefile of the tree.
#
#   make deb            Debian packages in target/packages/deb
#   make rpm            RPM packages in target/packages/rpm
#   make dist           tarballs in target/packages: binary, and source with all crates
#   make deb rpm dist GLIBC=2.17    for that version of the C library and all newer ones
#   make deb rpm dist GLIBC=2.17 ARCH=aarch64
#   make check-deb      installs the Debian packages in a root of its own, runs Debian's MPI
#   make check-rpm      installs the RPM packages below a folder of its own
#   make check-dist     tries the tarballs somewhere else
#   make check-old-glibc GLIBC=2.17    tries these, in new roots of several releases
#   make check-uninstalled   the MPI libraries at hand, through with-libfabric-rs

PACKAGES = target/packages

.PHONY: deb rpm dist check-deb check-rpm check-dist check-old-glibc check-uninstalled

deb: tools providers
	rm -rf $(PACKAGES)/deb
	pkg/deb/build $(PACKAGES)/deb

rpm: tools providers
	rm -rf $(PACKAGES)/rpm
	pkg/rpm/build $(PACKAGES)/rpm

dist: tools providers
	pkg/dist binary $(PACKAGES)
	pkg/dist source $(PACKAGES)

check-deb: deb
	pkg/deb/check $(PACKAGES)/deb

check-rpm: rpm
	pkg/rpm/check $(PACKAGES)/rpm

check-dist: dist
	pkg/dist check $(PACKAGES)

ifdef GLIBC
check-old-glibc: tools providers deb rpm
	pkg/dist binary $(PACKAGES)
	pkg/check-old-glibc $(GLIBC) $(ARCH) $(PACKAGES)
else
check-old-glibc:
	@echo "which one? make $@ GLIBC=2.17" >&2; exit 2
endif

check-uninstalled: library-folder
	fabtests/clients/uninstalled $(LIBRARY_FOLDER)
