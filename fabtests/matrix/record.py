# SPDX-License-Identifier: BSD-2-Clause OR MIT
"""Keeps the results of test runs for docs/compatibility.md (dev/compatibility)."""
import datetime
import json
import os
import pathlib
import platform
import re
import subprocess
import sys

# Asks the library that the dynamic linker finds, and says which file that is.
ASK = """
import ctypes
FI_TYPE_VERSION = 18
tostr = ctypes.CDLL("libfabric.so.1").fi_tostr
tostr.restype = ctypes.c_char_p
print(tostr(b"", FI_TYPE_VERSION).decode())
print(next(line.split()[-1] for line in open("/proc/self/maps") if "/libfabric.so" in line))
"""


def version(folder):
    """What the libfabric.so.1 in a folder, or without one the system's, says of itself: its release
    (fi_tostr(3)) and, since many builds have the same one, the beginning of its build ID."""
    environment = dict(os.environ)
    if folder:
        environment["LD_LIBRARY_PATH"] = str(folder)
    asked = subprocess.run([sys.executable, "-c", ASK], env=environment, capture_output=True,
                           text=True, check=False)
    if asked.returncode:
        return "unknown"
    release, file = asked.stdout.splitlines()
    notes = subprocess.run(["readelf", "--notes", file], capture_output=True, text=True,
                           check=False)
    build = re.search(r"Build ID: ([0-9a-f]{8})", notes.stdout)
    return f"{release}, build {build[1]}" if build else release


def machine():
    """The class of this machine: what may matter to a result, and no name."""
    kernel = ".".join(platform.release().split(".")[:2])
    return f"{platform.machine()}, {os.cpu_count()} processors, {platform.system()} {kernel}"


def record(path, library, suite, provider, results):
    """Puts results {name: {"ok": count, ...}} of a provider of the library in a folder into the
    file, in place of those that it had for the same names."""
    path = pathlib.Path(path)
    kept = json.loads(path.read_text()) if path.exists() else {}
    stamp = {"date": datetime.date.today().isoformat(), "version": version(library),
             "machine": machine()}
    rows = kept.setdefault(suite, {}).setdefault(provider, {})
    for name, counts in results.items():
        rows[name] = {**counts, **stamp}
    path.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
