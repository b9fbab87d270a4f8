"""Which tables of a source a connection looks at."""

from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True, slots=True)
class Scope:
    """Shell patterns on `schema.table`. Case counts. A table is in scope if one includes it and none excludes it."""

    include: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = ()

    def covers(self, schema: str, table: str) -> bool:
        if self.include == ("*",) and not self.exclude:
            return True
        name = f"{schema}.{table}"
        return _matches(name, self.include) and not _matches(name, self.exclude)

    def reaches(self, schema: str) -> bool:
        """Whether some table of this schema, existing or not, could be in scope."""
        start = f"{schema}."
        # A pattern can go on from `schema.` exactly if `schema.` uses up some beginning of it.
        included = any(fnmatchcase(start, pattern[:end]) for pattern in self.include for end in range(len(pattern) + 1))
        # And it takes the whole schema if `schema.` uses up all of it and the rest may be anything.
        excluded = any(pattern.endswith("*") and fnmatchcase(start, pattern) for pattern in self.exclude)
        return included and not excluded


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
