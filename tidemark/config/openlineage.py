"""`openlineage`: where events about runs go."""

from pathlib import Path
from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, ValidationInfo, field_validator, model_validator

from tidemark.config.values import Section, Text, absolute, folder_of


class OpenLineageSettings(Section):
    """A lineage backend, or a file."""

    url: str | None = None
    """The backend, such as https://lineage.example.com."""
    endpoint: Text = "api/v1/lineage"
    """The path of its interface below the url."""
    api_key: SecretStr | None = None
    """The key it asks for. Put it into the environment: ${LINEAGE_KEY}."""
    file: Annotated[Path, Field(strict=False)] | None = None
    """A file instead, one event a line."""
    namespace: Text = "tidemark"
    """The namespace of the jobs: the name of this installation among others."""

    @field_validator("url")
    @classmethod
    def _url_is_an_address(cls, url: str | None) -> str | None:
        if url is None:
            return None
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.password or parts.query:
            raise ValueError("must be https://host, without a login and without options: the key has a setting of its own.")
        return url

    @field_validator("file")
    @classmethod
    def _file_is_absolute(cls, file: Path | None, info: ValidationInfo) -> Path | None:
        return None if file is None else absolute(str(file), folder_of(info))

    @model_validator(mode="after")
    def _one_of_url_and_file(self) -> Self:
        if (self.url is None) == (self.file is None):
            raise ValueError("give either url or file.")
        if self.api_key is not None and self.url is None:
            raise ValueError("api-key is for url only; a file has none.")
        return self
