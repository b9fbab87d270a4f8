"""What the shell offers after TAB: commands, and the names of the configuration."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tidemark.cli.test_light_commands import ENGINES, LAKE
from tests.tidemark.cli.test_light_commands import project as project
from tidemark.cli.listening import require_free
from tidemark.errors import PortInUse

pytestmark = pytest.mark.fast

# What is imported is listed in the place of the end.
CODE = """
import sys
sys.argv[0] = "tidemark"
from tidemark.cli import app
app.leave = lambda code: print(*sys.modules, file=sys.stderr)
app.main()
"""


def offered(project: Path, line: str) -> tuple[list[str], set[str]]:
    """What Bash offers for the last word of the line, and what was imported for it."""
    words = line.split(" ")
    environment = {
        **os.environ,
        "_TIDEMARK_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
    }
    done = subprocess.run(
        [sys.executable, "-c", CODE], cwd=project, env=environment, capture_output=True, text=True, check=False
    )
    return done.stdout.split(), set(done.stderr.split())


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("tidemark cat", ["catalog"]),
        ("tidemark catalog run ", ["shop"]),
        ("tidemark catalog history sh", ["shop"]),
        ("tidemark stream plan d", ["default/shop/shop.orders"]),
        ("tidemark model run silver.", ["silver.one"]),
        ("tidemark status m", ["model/silver.one"]),
        ("tidemark catalog run x", []),
        ("tidemark catalog run --config nowhere.yaml ", []),
    ],
)
def test_the_shell_completes_commands_and_names_without_an_engine(project: Path, line: str, names: list[str]) -> None:
    found, imported = offered(project, line)
    assert found == names
    assert "typer" in imported
    assert not imported & {*ENGINES, *LAKE}


def test_a_port_that_is_taken_is_an_error_with_a_name_and_a_remedy() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(PortInUse, match=rf"127.0.0.1:{port} .*`tidemark ui --port {port + 1}`"):
            require_free("127.0.0.1", port, "tidemark ui --port")
    require_free("127.0.0.1", port, "tidemark ui --port")
