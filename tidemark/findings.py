"""What is wrong with the files of a project, and where."""

from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong: the file, the line, and what to do. It never repeats a value, which may be a secret."""

    file: str
    line: int
    message: str
    # The place in the file: connections.shop.url. Empty where there is none, as in a query.
    key: str = ""
    # Of the file itself only what is an error makes it unusable.
    severity: Literal["error", "warning"] = "error"
    # The broken part that this one cannot do without.
    caused_by: str | None = None

    def __str__(self) -> str:
        where = f" {self.key}:" if self.key else ""
        return f"{self.file}:{self.line}:{where} {self.message}"

    def to_json(self) -> dict[str, Any]:
        return {
            "file": self.file,
            "line": self.line,
            "key": self.key or None,
            "message": self.message,
            "severity": self.severity,
            "caused_by": self.caused_by,
        }
