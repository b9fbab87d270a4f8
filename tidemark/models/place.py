"""Where a model lives: its table in the lake, and its name in ledger, leases and marks."""

from dataclasses import dataclass

from tidemark.address import Address
from tidemark.errors import ConfigError
from tidemark.lake_names import CATALOG, SHADOWS

# A model whose name has no schema is kept here.
NAMESPACE = "models"
# Other systems keep their own tables there.
TAKEN = ("bronze", "catalog", "feeds", "checkpoints", SHADOWS)


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
    def spark_name(self) -> str:
        return spark_name(self.table)

    @property
    def address(self) -> str:
        """What runs, marks and leases of the model are filed under."""
        return str(Address.model(self.name))


def spark_name(table: str, branch: str | None = None) -> str:
    """A table of the lake as Spark's SQL takes it, whatever signs its names have."""
    parts = [CATALOG, *table.split("."), *([f"branch_{branch}"] if branch else [])]
    return ".".join(quoted(part) for part in parts)


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
