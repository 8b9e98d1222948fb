# SPDX-License-Identifier: BSD-2-Clause OR MIT
"""Keeps the results of test runs for docs/compatibility.md (dev/compatibility)."""
import datetime
import json
import os
import pathlib
import platform
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def version():
    """The commit of this tree, marked if files are changed."""
    words = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--exclude=*"]
    found = subprocess.run(words, capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"


def machine():
    """The class of this machine: what may matter to a result, and no name."""
    kernel = ".".join(platform.release().split(".")[:2])
    return f"{platform.machine()}, {os.cpu_count()} processors, {platform.system()} {kernel}"


def record(path, suite, provider, results):
    """Puts results {name: {"ok": count, ...}} of a provider into the file, in place of those that
    it had for the same names."""
    path = pathlib.Path(path)
    kept = json.loads(path.read_text()) if path.exists() else {}
    stamp = {"date": datetime.date.today().isoformat(), "version": version(),
             "machine": machine()}
    rows = kept.setdefault(suite, {}).setdefault(provider, {})
    for name, counts in results.items():
        rows[name] = {**counts, **stamp}
    path.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
