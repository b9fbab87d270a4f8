"""Run by Alembic; the caller brings the connection and owns its transaction."""

from alembic import context

from tidemark.control.schema import VERSION_TABLE, metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
)
with context.begin_transaction():
    context.run_migrations()
