"""What happens while nobody looks: who hears of failures besides by mail, and how long Dagster's own records are kept."""

from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator

from tidemark.config.values import Count, Section


class WebhookSettings(Section):
    """An address that gets every failure as JSON."""

    url: SecretStr
    """Where to POST to: https://… It may hold a token: put it into the environment, ${WEBHOOK_URL}."""
    headers: dict[str, SecretStr] = Field(default_factory=dict, repr=False)
    """Further headers, such as Authorization. Put their values into the environment."""

    @field_validator("url")
    @classmethod
    def _url_is_http(cls, url: SecretStr) -> SecretStr:
        parts = urlsplit(url.get_secret_value())
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("must be http://… or https://….")
        return url


class RetentionSettings(Section):
    """Which finished runs Dagster and the history keep. One is deleted when it is neither among the newest nor young."""

    runs: Count = 200
    """The newest runs of a subject that are kept, however old."""
    days: Count = 30
    """Runs that ended in the last so many days are kept, however many."""
