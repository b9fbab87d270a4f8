"""Rotation of keys: values that an older key sealed are re-sealed with the newest."""

from dataclasses import dataclass

import sqlalchemy as sa

from tidemark.control.schema import mark_values
from tidemark.control.sealing import Keyring, Place
from tidemark.errors import StateError

BATCH = 200  # values a transaction: short enough that commits of other runs do not wait for long

PLACE = (mark_values.c.subject, mark_values.c.version)


@dataclass(frozen=True)
class Batch:
    """What one transaction did; `last` is where the next goes on, None if there is nothing left."""

    done: int
    broken: list[StateError]
    last: Place | None


def reseal_next(connection: sa.Connection, tenant: str, keyring: Keyring, after: Place | None) -> Batch:
    """Re-seals the next values, in the order of their places; those that do not open are left and reported."""
    done = 0
    broken: list[StateError] = []
    place = None
    for row in connection.execute(_old_values(tenant, keyring.newest_prefix, after)).all():
        place = Place(row.subject, row.version)
        try:
            sealed = keyring.seal(keyring.open(row.value, place), place)
        except StateError as error:
            broken.append(error)
            continue
        same = (mark_values.c.subject == place.subject, mark_values.c.version == place.version)
        connection.execute(sa.update(mark_values).where(*same).values(value=sealed))
        done += 1
    return Batch(done, broken, place)


def _old_values(tenant: str, newest: str, after: Place | None) -> sa.Select[tuple[object, ...]]:
    # Not LIKE: SQLite's takes upper and lower case for the same, and both know wildcards.
    old = sa.func.substr(mark_values.c.value, 1, len(newest)) != newest
    query = sa.select(*PLACE, mark_values.c.value).where(mark_values.c.tenant == tenant, old)
    if after is not None:
        query = query.where(sa.tuple_(*PLACE) > (after.subject, after.version))
    return query.order_by(*PLACE).limit(BATCH).with_for_update()
