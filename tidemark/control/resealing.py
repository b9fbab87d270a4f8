"""Rotation of keys: values of state that an older key sealed are sealed anew with the newest."""

from dataclasses import dataclass

import sqlalchemy as sa

from tidemark.control.schema import stream_value
from tidemark.control.sealing import Keyring, Place
from tidemark.errors import StateError

BATCH = 200  # values a transaction: short enough that commits of other runs do not wait for long

PLACE = (stream_value.c.connector_id, stream_value.c.stream_id, stream_value.c.version)


@dataclass(frozen=True)
class Batch:
    """What one transaction did; `last` is where the next goes on, None if there is nothing left."""

    done: int
    broken: list[StateError]
    last: Place | None


def reseal_next(connection: sa.Connection, tenant: str, keyring: Keyring, after: Place | None) -> Batch:
    """Seals the next values anew, in the order of their places; those that do not open are left and reported."""
    done = 0
    broken: list[StateError] = []
    place = None
    for row in connection.execute(_old_values(tenant, keyring.newest_prefix, after)).all():
        place = Place(tenant, row.connector_id, row.stream_id, row.version)
        try:
            sealed = keyring.seal(keyring.open(row.sealed, place), place)
        except StateError as error:
            broken.append(error)
            continue
        same = (stream_value.c[name] == value for name, value in vars(place).items())
        connection.execute(sa.update(stream_value).where(*same).values(sealed=sealed))
        done += 1
    return Batch(done, broken, place)


def _old_values(tenant: str, newest: str, after: Place | None) -> sa.Select[tuple[object, ...]]:
    # Not LIKE: SQLite's takes upper and lower case for the same, and both know wildcards.
    old = sa.func.substr(stream_value.c.sealed, 1, len(newest)) != newest
    query = sa.select(*PLACE, stream_value.c.sealed).where(stream_value.c.tenant_id == tenant, old)
    if after is not None:
        query = query.where(sa.tuple_(*PLACE) > (after.connector_id, after.stream_id, after.version))
    return query.order_by(*PLACE).limit(BATCH).with_for_update()
