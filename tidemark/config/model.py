"""The configuration as a whole."""

import re
from pathlib import Path
from typing import Annotated, Any, Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, ValidationInfo, field_validator, model_validator
from pydantic.json_schema import SkipJsonSchema

from tidemark.config.connection import Connection
from tidemark.config.dagster_storage import dagster_storage
from tidemark.config.models import ModelsSettings
from tidemark.config.openlineage import OpenLineageSettings
from tidemark.config.origin import Origin
from tidemark.config.problems import Place, did_you_mean
from tidemark.config.unattended import RetentionSettings, WebhookSettings
from tidemark.config.values import (
    Count,
    PlainValue,
    Port,
    Property,
    Section,
    Switch,
    Text,
    TextList,
    absolute,
    absolute_url,
    folder_of,
)
from tidemark.errors import ConfigError, UnknownConnection, UsageError
from tidemark.findings import Finding
from tidemark.parts import Broken, refuse_broken
from tidemark.store.keys import checked_id

S3 = "s3://"
_S3_URL = re.compile(r"s3://[A-Za-z0-9][A-Za-z0-9._-]{1,62}(/.*)?")
_ADDRESS = re.compile(r"[^@\s<>,]+@[^@\s<>,]+")


class StoreSettings(Section):
    """Where objects are kept; a plain text is its url."""

    url: Text
    """A folder, or s3://bucket/prefix. Credentials for S3 come from the environment."""
    endpoint: str | None = None
    """The address of an S3 service that is not Amazon's, such as https://host:port."""
    region: str | None = None
    """The region of the bucket."""

    @property
    def folder(self) -> Path | None:
        """The folder of a local store."""
        return None if self.url.startswith(S3) else Path(self.url)

    @model_validator(mode="before")
    @classmethod
    def _text_is_the_url(cls, value: Any) -> Any:
        return {"url": value} if isinstance(value, str) else value

    @field_validator("url")
    @classmethod
    def _url_is_a_folder_or_a_bucket(cls, url: str, info: ValidationInfo) -> str:
        if _S3_URL.fullmatch(url):
            return url.rstrip("/")
        if "://" in url:
            raise ValueError("must be a folder or s3://bucket/prefix.")
        return str(absolute(url, folder_of(info)))

    @field_validator("endpoint")
    @classmethod
    def _endpoint_is_an_address(cls, endpoint: str | None) -> str | None:
        parts = urlsplit(endpoint or "https://none")
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.password:
            raise ValueError("must be https://host:port, without a login: credentials come from the environment.")
        return endpoint

    @model_validator(mode="after")
    def _endpoint_and_region_are_of_s3(self) -> Self:
        if self.folder and (self.endpoint or self.region):
            raise ValueError("endpoint and region are for s3:// only; a folder has neither.")
        return self


class SparkSettings(Section):
    """Where Spark is, and how it is set up."""

    master: Text = "local[*]"
    """Where Spark runs: local[*], local[2], or the address of a cluster such as spark://host:7077."""
    remote: str | None = None
    """A Spark Connect server, sc://host:15002, instead of a master."""
    config: dict[str, Property] = Field(default_factory=dict)
    """Further Spark properties, passed through as they are."""
    parallelism: Count | None = None
    """How many tasks a large piece of work is shared by. Without it, as many as Spark runs at the same time."""

    @field_validator("remote")
    @classmethod
    def _remote_is_spark_connect(cls, remote: str | None) -> str | None:
        if remote is not None and not re.fullmatch(r"sc://[^\s/]+.*", remote):
            raise ValueError("must be the address of a Spark Connect server, sc://host:15002.")
        return remote

    @model_validator(mode="after")
    def _one_of_master_and_remote(self) -> Self:
        if self.remote is not None and "master" in self.model_fields_set:
            raise ValueError("master and remote exclude each other. Keep one.")
        return self


class EmailSettings(Section):
    """A mail server and the addresses it is used with."""

    host: Text
    """The SMTP server."""
    port: Port = 25
    """Its port."""
    sender: str = Field(alias="from")
    """The address mails come from."""
    to: Annotated[TextList, Field(min_length=1)]
    """The addresses mails go to."""
    starttls: Switch = False
    """Whether the connection is encrypted after the greeting."""
    username: str | None = None
    """The login, if the server wants one."""
    password: SecretStr | None = None
    """The login's password. Put it into the environment: ${SMTP_PASSWORD}."""

    @field_validator("sender", "to")
    @classmethod
    def _addresses(cls, value: Any) -> Any:
        if not all(_ADDRESS.fullmatch(address) for address in ([value] if isinstance(value, str) else value)):
            raise ValueError("must be mail addresses, name@host, without names around them.")
        return value

    @model_validator(mode="after")
    def _login_is_whole(self) -> Self:
        if (self.username is None) != (self.password is None):
            raise ValueError("username and password go together. Give both or neither.")
        return self


class Config(Section):
    """All of tidemark.yaml."""

    store: StoreSettings
    """Where objects are kept: a folder, s3://bucket/prefix, or url, endpoint and region."""
    control: str = Field(default="", repr=False, validate_default=True)
    """The control database: sqlite:///path or postgresql://… Without it, control.db in the store's folder."""
    spark: SparkSettings = SparkSettings()
    """The Spark that runs the work."""
    lake: dict[str, PlainValue] = Field(default_factory=dict)
    """Properties of an Iceberg catalogue of your own, such as type and uri. Without any, the store keeps one."""
    connections: dict[str, Connection] = Field(default_factory=dict)
    """The sources, by name."""
    connectors: TextList = ()
    """Manifests of connectors: files or patterns such as connectors/*.yaml, relative to this file."""
    credentials: dict[str, dict[str, SecretStr]] = Field(default_factory=dict, repr=False)
    """Credentials that manifests name: fields with a reference to the environment each, ${NAME}."""
    tenants: Annotated[TextList, Field(min_length=1)] = ("default",)
    """Whose streams are read: every connector is run for each tenant apart."""
    models: ModelsSettings | None = None
    """The folder of models: queries whose results are kept as tables and views. Or folder, variables and external."""
    email: EmailSettings | None = None
    """The mail server that failures are reported through. Without it, no mail is sent."""
    webhook: WebhookSettings | None = None
    """An address that gets every failure as JSON. Without it, nothing is posted."""
    retention: RetentionSettings = RetentionSettings()
    """Which finished runs Dagster keeps."""
    openlineage: OpenLineageSettings | None = None
    """The lineage backend that gets an event for every run. Without it, none is sent."""
    dagster_home: Annotated[Path, Field(strict=False)] | None = None
    """The folder of the Dagster instance that keeps runs and schedules."""
    dagster_storage: Text | None = Field(default=None, repr=False)
    """The database of a Dagster instance that several hosts share: postgresql://user:${NAME}@host:5432/database."""

    path: SkipJsonSchema[Path] = Field(default=Path("tidemark.yaml"), alias="(path)")
    """The file that all this was read from."""
    origin: SkipJsonSchema[Origin | None] = Field(default=None, alias="(origin)", repr=False)
    """The lines of it."""
    broken: SkipJsonSchema[tuple[Broken, ...]] = Field(default=(), alias="(broken)", repr=False)
    """Connections that cannot be used, by name, and why."""

    def connection(self, name: str) -> Connection:
        """The connection of that name."""
        if name in self.connections:
            return self.connections[name]
        refuse_broken(self.broken, name)
        if not self.connections:
            raise UnknownConnection(f"no connection '{name}': {self.path} has none yet. Add it under `connections:`.")
        known = ", ".join(self.connections)
        raise UnknownConnection(
            f"no connection '{name}' in {self.path}.{did_you_mean(name, self.connections)} Connections: {known}."
        )

    def finding(self, place: Place, words: str) -> Finding:
        """Something that is wrong at a place of the file."""
        return (self.origin or Origin(str(self.path))).finding(place, words)

    @field_validator("control")
    @classmethod
    def _control_is_a_database(cls, control: str, info: ValidationInfo) -> str:
        # Imported here: SQLAlchemy is slow to load.
        from tidemark.control.url import control_url

        store = info.data.get("store")  # missing if it is wrong itself: reported already
        if control:
            url = absolute_url(control, folder_of(info))
        elif store is None:
            return control
        elif store.folder is None:
            raise ValueError("a store on S3 needs a control database. Allowed: postgresql://… or sqlite:///path.")
        else:
            url = f"sqlite:///{store.folder / 'control.db'}"
        try:
            control_url(url)
        except ConfigError as error:
            raise ValueError(str(error).removeprefix("control: ")) from None
        return url

    @field_validator("tenants")
    @classmethod
    def _tenants_fit_into_paths(cls, tenants: tuple[str, ...]) -> tuple[str, ...]:
        try:
            checked = tuple(checked_id(tenant, "it") for tenant in tenants)
        except UsageError:
            allowed = "letters, digits, '.', '_' and '-', beginning with a letter or digit"
            raise ValueError(f"must be ids of {allowed}.") from None
        if len({re.sub(r"[^a-z0-9]", "_", tenant.lower()) for tenant in checked}) < len(checked):
            raise ValueError("two are the same, case and punctuation aside, as their tables would be.")
        return checked

    @field_validator("dagster_storage")
    @classmethod
    def _dagster_storage_is_a_database(cls, storage: str | None) -> str | None:
        if storage is not None:
            dagster_storage(storage)
        return storage

    @field_validator("dagster_home")
    @classmethod
    def _dagster_home_is_absolute(cls, home: Path | None, info: ValidationInfo) -> Path | None:
        return None if home is None else absolute(str(home), folder_of(info))
