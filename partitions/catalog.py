"""One partition per connection. A sensor keeps the keys in step with the configuration."""

from dagster import DynamicPartitionsDefinition

connections = DynamicPartitionsDefinition(name="connections")
