"""Where something is written, for what is found out later."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tidemark.config.problems import Place, shown
from tidemark.errors import ConfigError
from tidemark.findings import Finding


@dataclass(frozen=True)
class Origin:
    """A file, and the lines of what is written in it."""

    file: str
    lines: Mapping[Place, int] = field(default_factory=dict, repr=False)
    # What relative paths in it are relative to.
    folder: Path = Path()

    def line(self, place: Place) -> int:
        """The line of the place, or of the nearest one around it that is written in the file."""
        while place and place not in self.lines:
            place = place[:-1]
        return self.lines.get(place, 1)

    def finding(self, place: Place, words: str) -> Finding:
        return Finding(self.file, self.line(place), words, shown(place))

    def refuse(self, place: Place, words: str) -> ConfigError:
        return ConfigError.of([self.finding(place, words)])
