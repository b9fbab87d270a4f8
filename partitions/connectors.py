"""One partition per tenant: a stream of one tenant is never read together with another's."""

from dagster import StaticPartitionsDefinition

from tidemark.config import Config


def tenants(config: Config) -> StaticPartitionsDefinition:
    return StaticPartitionsDefinition(list(config.tenants))
