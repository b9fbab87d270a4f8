"""Whose log records are shown."""

# The packages of this repository; what others log may quote rows and passwords.
OURS = ("tidemark", "spark_code", "resources", "partitions", "platform_assets")
