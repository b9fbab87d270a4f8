"""How files of tests are shared out to processes."""

from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling


class OnceEach(LoadFileScheduling):
    """A test that ended its process is not run again: it would end one process after the other."""

    def remove_node(self, node: Any) -> str | None:
        files = self.assigned_work[node]
        running = next((test for tests in files.values() for test, done in tests.items() if not done), None)
        if running is not None:
            files[self._split_scope(running)][running] = True
        super().remove_node(node)
        return running


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> OnceEach | None:
    return OnceEach(config, log) if config.getvalue("dist") == "loadfile" else None
