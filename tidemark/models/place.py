"""Where a model lives: its table in the lake, and its name in ledger, leases and marks."""

from dataclasses import dataclass

from tidemark.errors import ConfigError
from tidemark.lake import CATALOG

SYSTEM = "models"
# A model whose name has no schema is kept here; so are the tables that a rebuild works on.
NAMESPACE = "models"
# Other systems keep their own tables there.
TAKEN = ("bronze", "catalog", "feeds", "checkpoints")


@dataclass(frozen=True, slots=True)
class ModelPlace:
    """A model is called `schema.table`, and its table in the lake is called the same."""

    name: str

    def __post_init__(self) -> None:
        schema = self.name.partition(".")[0].lower()
        if "." in self.name and schema in TAKEN:
            raise ConfigError(
                f"{self.name}: a model cannot live in the schema '{schema}', which is another system's. Choose another."
            )

    @property
    def table(self) -> str:
        """The table in the lake, without the lake's own name."""
        return self.name if "." in self.name else f"{NAMESPACE}.{self.name}"

    @property
    def beside(self) -> str:
        """The table that a rebuild works on until it takes the place of the other."""
        return f"{self.table}__beside"

    @property
    def spark_name(self) -> str:
        return spark_name(self.table)

    @property
    def subject(self) -> str:
        return self.name

    @property
    def lease(self) -> str:
        return f"{SYSTEM}/{self.name}"


def spark_name(table: str, branch: str | None = None) -> str:
    """A table of the lake as Spark's SQL takes it, whatever signs its names have."""
    parts = [CATALOG, *table.split("."), *([f"branch_{branch}"] if branch else [])]
    return ".".join(quoted(part) for part in parts)


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
