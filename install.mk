# Installation. Included by the Makefile of the tree.
#
#   make install                          below /usr/local
#   make install PREFIX=/usr DESTDIR=/tmp/package LIBDIR=/usr/lib/x86_64-linux-gnu
#   make install-providers PROVIDER_DIR=/opt/providers    providers for another libfabric

PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
BINDIR ?= $(PREFIX)/bin
MANDIR ?= $(PREFIX)/share/man
HTMLDIR ?= $(PREFIX)/share/doc/libfabric/html
INSTALL ?= install

# The file name is that of the C library of the same interface version: it is newer than any 1.x,
# so that ldconfig prefers it.
LIBRARY_FILE = libfabric.so.1.32.0
VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
TOOLS = fi_info fi_mon_sampler fi_pingpong fi_strerror

# The folder in which libfabric.so.1, this library and others, looks for providers by default.
PROVIDER_DIR ?= $(LIBDIR)/libfabric
# The providers that are not built into libfabric.so.1.
SEPARATE = verbs

.PHONY: install install-providers uninstall

install: tools providers
	$(INSTALL) -d $(DESTDIR)$(LIBDIR)/pkgconfig $(DESTDIR)$(BINDIR) \
		$(DESTDIR)$(INCLUDEDIR)/rdma/providers
	$(INSTALL) -m 755 $(BUILT)/release/libfabric.so $(DESTDIR)$(LIBDIR)/$(LIBRARY_FILE)
	ln -sf $(LIBRARY_FILE) $(DESTDIR)$(LIBDIR)/libfabric.so.1
	ln -sf libfabric.so.1 $(DESTDIR)$(LIBDIR)/libfabric.so
	$(INSTALL) -m 644 include/rdma/*.h $(DESTDIR)$(INCLUDEDIR)/rdma
	$(INSTALL) -m 644 include/rdma/providers/*.h $(DESTDIR)$(INCLUDEDIR)/rdma/providers
	$(INSTALL) -m 755 $(TOOLS:%=$(BUILT)/release/%) pkg/with-libfabric-rs $(DESTDIR)$(BINDIR)
	$(INSTALL) -d $(DESTDIR)$(PROVIDER_DIR)
	$(INSTALL) -m 755 $(SEPARATE:%=$(BUILT)/providers/lib%-fi.so) $(DESTDIR)$(PROVIDER_DIR)
	sed -e 's|@PREFIX@|$(PREFIX)|' \
		-e 's|@LIBDIR@|$(LIBDIR:$(PREFIX)/%=$${prefix}/%)|' \
		-e 's|@INCLUDEDIR@|$(INCLUDEDIR:$(PREFIX)/%=$${prefix}/%)|' -e 's|@VERSION@|$(VERSION)|' \
		pkgconfig/libfabric.pc.in >$(DESTDIR)$(LIBDIR)/pkgconfig/libfabric.pc
	chmod 644 $(DESTDIR)$(LIBDIR)/pkgconfig/libfabric.pc
	docs/man/install $(DESTDIR)$(MANDIR)
	if command -v mandoc >/dev/null; then docs/man/install --html $(DESTDIR)$(HTMLDIR); \
	else echo "no HTML pages: mandoc is not installed"; fi

# The providers that are built into libfabric.so.1 need no library of their own: these libraries
# are for other libfabrics, or to replace a single provider.
install-providers: providers
	$(INSTALL) -d $(DESTDIR)$(PROVIDER_DIR)
	$(INSTALL) -m 755 $(PROVIDERS:%=$(BUILT)/providers/lib%-fi.so) $(DESTDIR)$(PROVIDER_DIR)

uninstall:
	rm -f $(DESTDIR)$(LIBDIR)/$(LIBRARY_FILE) $(DESTDIR)$(LIBDIR)/libfabric.so.1 \
		$(DESTDIR)$(LIBDIR)/libfabric.so $(DESTDIR)$(LIBDIR)/pkgconfig/libfabric.pc
	rm -f $(patsubst include/%,$(DESTDIR)$(INCLUDEDIR)/%,$(wildcard include/rdma/*.h include/rdma/providers/*.h))
	rm -f $(TOOLS:%=$(DESTDIR)$(BINDIR)/%) $(DESTDIR)$(BINDIR)/with-libfabric-rs
	rm -f $(PROVIDERS:%=$(DESTDIR)$(PROVIDER_DIR)/lib%-fi.so)
	docs/man/install --remove $(DESTDIR)$(MANDIR)
	rm -rf $(DESTDIR)$(HTMLDIR)
