"""`make soak`: twenty minutes with nobody watching. Prints what happens; ends with 1 if something is wrong."""

import argparse
import os
import random
import secrets
import shutil
import sys
import tempfile
from pathlib import Path

# Before the first import of Spark: its workers and the children of the soak read both.
os.environ["AWS_ACCESS_KEY_ID"] = "tidemark-test"
os.environ.setdefault("AWS_SECRET_ACCESS_KEY", secrets.token_hex(16))

from tests.soak.soak import soak
from tidemark.cli.ending import end_at_once, leave


def say(words: str) -> None:
    sys.stdout.write(words + "\n")
    sys.stdout.flush()


def main() -> int:
    end_at_once()
    parser = argparse.ArgumentParser(prog="python -m tests.soak")
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--keep", action="store_true", help="leave the folder with all logs, also when all is well")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="tidemark-soak-"))
    folder.chmod(0o755)
    verdict = soak(folder / "place", options.minutes, options.seed, say)
    if options.keep or verdict.wrong:
        say(f"the logs are in {folder}; the same again with --seed {options.seed}")
    else:
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if verdict.wrong else 0


if __name__ == "__main__":
    leave(main())
