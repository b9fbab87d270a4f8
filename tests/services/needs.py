"""Commands that a test needs and no package of ours brings."""

import os
import shutil

import pytest


def need(command: str, package: str | None = None) -> str:
    """The command's path. Without it the test is skipped; in CI, where nothing may be skipped, it fails.

    `package` is the Debian package that has it, if that is called otherwise.
    """
    # Servers are in a folder that only root looks into.
    found = shutil.which(command, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin")
    if found:
        return found
    missing = f"{command} is not installed: as root, `apt-get install {package or command}`"
    if os.environ.get("CI") == "true":
        pytest.fail(missing)
    pytest.skip(missing)
