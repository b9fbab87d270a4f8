"""Fetches what the servers of tests are made of, so that no test waits for a download: `python -m tests.services.fetch`."""

from shutil import which

from tests.services.cap import fetched_packages
from tests.services.kafka import fetched_jars

if __name__ == "__main__":
    fetched_jars()
    if which("npm"):  # without it its tests say that they need it
        fetched_packages()
