"""What is left of runs whose rows upkeep removed: how many ended in which way, and how long they took."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.create_table(
        "tidemark_forgotten_runs",
        sa.Column("subject", sa.Text, primary_key=True),
        sa.Column("status", sa.Text, primary_key=True),
        sa.Column("runs", sa.BigInteger, nullable=False),
        sa.Column("seconds", sa.Float, nullable=False),
    )
