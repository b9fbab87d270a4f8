"""Commands that a test needs and no package of ours brings."""

import os
import shutil

import pytest


def need(command: str) -> str:
    """The command's path. Without it the test is skipped; in CI, where nothing may be skipped, it fails."""
    found = shutil.which(command)
    if found:
        return found
    missing = f"{command} is not installed: as root, `apt-get install {command}`"
    if os.environ.get("CI") == "true":
        pytest.fail(missing)
    pytest.skip(missing)
