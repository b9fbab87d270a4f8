"""One connection: which source, what of it, and the parameters of its runs."""

from pathlib import Path
from typing import Annotated

from pydantic import Field, SecretStr, field_validator
from pydantic.json_schema import SkipJsonSchema

from tidemark.address import Address
from tidemark.config.cron import checked_cron
from tidemark.config.environment import BadReference, substituted
from tidemark.config.origin import Origin
from tidemark.config.problems import did_you_mean
from tidemark.config.values import Count, Hours, Percent, Section, Switch, Text, TextList, absolute_url
from tidemark.errors import UsageError
from tidemark.store.keys import checked_id


class Connection(Section):
    """A source that the catalogue is kept in sync with."""

    app: str
    """The kind of source, by the name of its source pack."""
    id: str
    """The connection's id in qualified names and paths: letters, digits, '.', '_', '-'. It never changes."""
    url: SecretStr
    """Where the source is. Put it into the environment: ${SHOP_URL} is looked up when the connection is used."""
    include: Annotated[TextList, Field(min_length=1)] = ("*",)
    """Shell patterns on schema.table: a table is in scope if one of them fits."""
    exclude: TextList = ()
    """Shell patterns on schema.table: a table is out of scope if one of them fits."""
    schedule: str | None = None
    """When a run starts by itself: a cron expression such as "0 * * * *". Without it, never."""
    upkeep: str = "0 3 * * 0"
    """When the whole published state is compared and old files are removed: a cron expression."""
    watch: Count | None = None
    """Every how many seconds the source is asked whether something changed, which starts a run. Without it, never."""
    incremental_extraction: Switch = False
    """Whether a run reads the columns of changed tables only; otherwise every run reads everything."""
    column_batch_size: Count = 25_000
    """Tables in one batch of column extraction."""
    source_connections: Count = 8
    """How many tasks may read columns from the source at the same time, each over a connection of its own."""
    column_chunk_size: Count = 100_000
    """Records in one file of the JSON mirror."""
    copy_workers: Count = 3
    """Files of the JSON mirror written at the same time."""
    prepone_marker_timestamp: Switch = True
    """Whether the marker is moved back when it is read, for sources whose only signal is a clock."""
    prepone_marker_hours: Hours = 3
    """By how many hours the marker is moved back."""
    system_schema_name: Text = "SYS"
    """The schema that a source's own catalogue is in, where that differs (Oracle)."""
    max_removed_percent: Percent = 30
    """A run that would remove more of the tables than this (and more than ten) stops until --allow-removals."""

    name: SkipJsonSchema[str] = Field(default="", alias="(name)")
    """The key that the connection stands under."""
    origin: SkipJsonSchema[Origin | None] = Field(default=None, alias="(origin)", repr=False)
    """Where all this is written."""

    @property
    def address(self) -> str:
        """What runs, marks and leases of this connection are filed under."""
        return str(Address.catalog(self.name or f"{self.app}_{self.id}"))

    def resolved_url(self) -> str:
        """The URL with the environment put in, and with an absolute path where it names a file."""
        origin = self.origin or Origin(f"connection {self.name or self.address}", folder=Path.cwd())
        place = ("connections", self.name, "url")
        try:
            url = substituted(self.url.get_secret_value())
        except BadReference as error:
            raise origin.refuse(place, str(error)) from None
        if not url.strip():
            raise origin.refuse(place, "the url is empty. Write it, or set the variable that it names.")
        return absolute_url(url, origin.folder)

    @field_validator("app")
    @classmethod
    def _app_has_a_pack(cls, app: str) -> str:
        # Imported here: loading the packs is slow, and configuration may not depend on their package.
        from tidemark.catalog.packs import is_known, known_apps

        if not is_known(app):
            known = known_apps()
            raise ValueError(f"there is no source pack of this name.{did_you_mean(app, known)} Known: {', '.join(known)}.")
        return app

    @field_validator("id", "name")
    @classmethod
    def _fits_into_a_path(cls, text: str) -> str:
        try:
            return checked_id(text, "it")
        except UsageError:
            allowed = "up to 128 letters, digits, '.', '_' and '-', beginning with a letter or digit"
            raise ValueError(f"must be {allowed}.") from None

    @field_validator("schedule", "upkeep")
    @classmethod
    def _schedule_is_cron(cls, schedule: str | None) -> str | None:
        return None if schedule is None else checked_cron(schedule)
