"""One partition per connection. A sensor keeps the keys in sync with the configuration."""

from dagster import DynamicPartitionsDefinition

connections = DynamicPartitionsDefinition(name="connections")
