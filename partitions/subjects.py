"""One partition per subject of any system, for upkeep. A sensor keeps the keys in sync with the configuration."""

from dagster import DynamicPartitionsDefinition

subjects = DynamicPartitionsDefinition(name="subjects")
