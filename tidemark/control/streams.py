"""The state of streams: how far each connector has read each, and the audit of every move.

A registry belongs to one tenant, so that no query can forget whose rows it may see. Values are sealed before they reach
the database; the value of every version is kept, so that a stream can be rewound to any of them.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from tidemark.clock import Clock
from tidemark.control.resealing import reseal_next
from tidemark.control.schema import stream_audit, stream_state, stream_value
from tidemark.control.sealing import Keyring, Place
from tidemark.control.stream_records import Cursor, Entry, Stream, StreamMove, StreamState
from tidemark.control.transactions import Transactions
from tidemark.errors import StateError, StateMoved, StateSealBroken, UsageError
from tidemark.store.keys import checked_id

MOVE = [stream_audit.c[column.name] for column in fields(StreamMove)]
VALUE_OF_STATE = sa.and_(*(stream_state.c[name] == stream_value.c[name] for name in vars(Place("", "", "", 0))))
STATES = (
    sa.select(*stream_state.c, stream_value.c.sealed)
    .select_from(stream_state.outerjoin(stream_value, VALUE_OF_STATE))
    .where(stream_state.c.cursor_field.is_not(None))
)

PLAN = 0  # no state has this version, so a plan never passes for one


class StateRegistry:
    """Reads the state of one tenant's streams, and moves it by compare-and-swap on its version."""

    def __init__(self, tenant: str, transactions: Transactions, clock: Clock, keyring: Keyring) -> None:
        self._tenant = checked_id(tenant, "tenant")
        self._transactions = transactions
        self._clock = clock
        self._keyring = keyring

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._tenant!r}, {self._transactions!r}, {self._keyring!r})"

    def get(self, connector: str, stream: str) -> StreamState | None:
        """The state of a stream; None if it never had one or was reset: the next run reads everything."""
        query = STATES.where(self._stream(connector, stream).rows(stream_state))
        with self._read() as connection:
            row = connection.execute(query).one_or_none()
        return None if row is None else self._opened(row)

    def list(self, connector: str | None = None) -> Sequence[StreamState]:
        """The state of every stream that has one, of one connector or of all."""
        query = STATES.where(stream_state.c.tenant_id == self._tenant)
        if connector is not None:
            query = query.where(stream_state.c.connector_id == checked_id(connector, "connector"))
        with self._read() as connection:
            rows = connection.execute(query.order_by(stream_state.c.connector_id, stream_state.c.stream_id)).all()
        return [self._opened(row) for row in rows]

    def history(self, connector: str, stream: str) -> Sequence[StreamMove]:
        """Every move of the stream's state, newest first."""
        own = self._stream(connector, stream).rows(stream_audit)
        query = sa.select(*MOVE).where(own).order_by(stream_audit.c.to_version.desc())
        with self._read() as connection:
            return [StreamMove(**row._mapping) for row in connection.execute(query)]

    def commit(
        self,
        connector: str,
        stream: str,
        *,
        expected_version: int | None,
        cursor_field: str,
        last_cursor: str,
        run_id: str | None,
        actor: str,
        reason: str,
    ) -> StreamState:
        """Moves the state if it is still at the version expected (None: if there is none, not yet or since a reset)."""
        own = self._stream(connector, stream)
        with self._write("stream_commit") as connection:
            row = _locked_row(connection, own)
            version = None if row is None else row.version
            stateless = row is None or row.cursor_field is None
            if expected_version != version and not (expected_version is None and stateless):
                raise _moved(own, expected_version)
            entry = Entry("commit", actor, reason, run_id)
            return self._move(connection, own, version, Cursor(cursor_field, last_cursor), entry)

    def rewind(
        self,
        connector: str,
        stream: str,
        *,
        to_version: int | None = None,
        to_value: str | None = None,
        actor: str,
        reason: str,
    ) -> StreamState:
        """Makes a new version that holds the value of an older one, or a value given: the next run reads on from there."""
        own = self._stream(connector, stream)
        entry = Entry("rewind", actor, _given(reason, f"rewind {own}"), restored_version=to_version)
        with self._write("stream_rewind") as connection:
            row = _locked_row(connection, own)
            if row is None:
                raise UsageError(f"{own} has no state: there is nothing to rewind.")
            if to_version is not None and to_value is None:
                cursor = self._cursor_of(connection, own, to_version)
            elif to_value is not None and to_version is None:
                cursor = Cursor(_newest_field(connection, own), to_value)
            else:
                raise UsageError(f"rewind {own} either to a version or to a value.")
            return self._move(connection, own, row.version, cursor, entry)

    def reset(self, connector: str, stream: str, *, actor: str, reason: str) -> int:
        """Takes the state away, so that the next run reads everything; returns the version that counts this move."""
        own = self._stream(connector, stream)
        entry = Entry("reset", actor, _given(reason, f"reset {own}"))
        with self._write("stream_reset") as connection:
            row = _locked_row(connection, own)
            if row is None or row.cursor_field is None:
                raise UsageError(f"{own} has no state: there is nothing to reset, the next run reads everything anyway.")
            place, _ = self._record(connection, own, row.version, entry, cursor_field=None)
            return place.version

    def value_of(self, connector: str, stream: str, version: int) -> str:
        """The value that the state had at a version."""
        with self._read() as connection:
            return self._cursor_of(connection, self._stream(connector, stream), version).value

    def seal(self, connector: str, stream: str, text: str) -> str:
        """Text of a run that holds values of state, such as its plan, in a form that only this stream's keys open."""
        return self._keyring.seal(text, self._stream(connector, stream).at(PLAN))

    def open(self, connector: str, stream: str, sealed: str) -> str:
        """What `seal` was given."""
        return self._keyring.open(sealed, self._stream(connector, stream).at(PLAN))

    def reseal(self) -> int:
        """Seals every value of the tenant anew that the newest key has not sealed; returns how many.

        Works in small transactions: stopped half-way it goes on from there the next time. Values that do not open are
        left as they are and named at the end, so that one broken value does not keep the others at an old key.
        """
        done = 0
        after: Place | None = None
        broken: list[StateError] = []
        while True:
            with self._write("stream_reseal") as connection:
                batch = reseal_next(connection, self._tenant, self._keyring, after)
            done, after = done + batch.done, batch.last
            broken += batch.broken
            if after is None:
                break
        if broken:
            raise type(broken[0])(f"{done} values were sealed anew and {len(broken)} were left; the first: {broken[0]}")
        return done

    def _stream(self, connector: str, stream: str) -> Stream:
        return Stream(self._tenant, checked_id(connector, "connector"), checked_id(stream, "stream"))

    @contextmanager
    def _read(self) -> Iterator[sa.Connection]:
        with self._transactions.read() as connection:
            _set_tenant(connection, self._tenant)
            yield connection

    @contextmanager
    def _write(self, effect: str) -> Iterator[sa.Connection]:
        with self._transactions.write(effect) as connection:
            _set_tenant(connection, self._tenant)
            yield connection

    def _opened(self, row: Any) -> StreamState:
        place = Place(row.tenant_id, row.connector_id, row.stream_id, row.version)
        if row.sealed is None:  # else a lost value would pass for a reset
            raise StateSealBroken(
                f"{place}: its sealed state is missing. Restore the control database, or reset the stream."
            )
        value = self._keyring.open(row.sealed, place)
        return StreamState(
            **vars(place),
            last_cursor=value,
            cursor_field=row.cursor_field,
            updated_at=row.updated_at,
            run_id=row.run_id,
        )

    def _cursor_of(self, connection: sa.Connection, own: Stream, version: int) -> Cursor:
        query = sa.select(stream_value).where(own.rows(stream_value), stream_value.c.version == version)
        row = connection.execute(query).one_or_none()
        if row is None:
            raise UsageError(f"{own} has no value of version {version}: the commits and rewinds in its history have one.")
        return Cursor(row.cursor_field, self._keyring.open(row.sealed, own.at(version)))

    def _move(
        self, connection: sa.Connection, own: Stream, current: int | None, cursor: Cursor, entry: Entry
    ) -> StreamState:
        place, at = self._record(connection, own, current, entry, cursor.of)
        sealed = self._keyring.seal(cursor.value, place)
        connection.execute(sa.insert(stream_value).values(**vars(place), cursor_field=cursor.of, sealed=sealed))
        return StreamState(
            **vars(place), last_cursor=cursor.value, cursor_field=cursor.of, updated_at=at, run_id=entry.run_id
        )

    def _record(
        self, connection: sa.Connection, own: Stream, current: int | None, entry: Entry, cursor_field: str | None
    ) -> tuple[Place, datetime]:
        """Counts the version up and writes the audit row; the caller holds the lock on the stream's row."""
        place, at = own.at((current or 0) + 1), self._clock.now()
        standing = {"version": place.version, "cursor_field": cursor_field, "run_id": entry.run_id, "updated_at": at}
        if current is None:
            try:
                connection.execute(sa.insert(stream_state).values(**vars(own), **standing))
            except IntegrityError:  # somebody made the first state before us: there was no row yet to lock
                raise _moved(own, None) from None
        else:
            connection.execute(sa.update(stream_state).where(own.rows(stream_state)).values(**standing))
        versions = {"from_version": current, "to_version": place.version}
        connection.execute(sa.insert(stream_audit).values(**vars(own), **versions, **vars(entry), at=at))
        return place, at


def _set_tenant(connection: sa.Connection, tenant: str) -> None:
    """Tells PostgreSQL's row-level security whose rows this transaction may see and write."""
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.set_config("tidemark.tenant", tenant, True)))


def _locked_row(connection: sa.Connection, own: Stream) -> Any:
    """The stream's row, which nobody else can change until the transaction ends; None if it never had a state."""
    query = sa.select(stream_state).where(own.rows(stream_state)).with_for_update()
    return connection.execute(query).one_or_none()


def _newest_field(connection: sa.Connection, own: Stream) -> str:
    query = sa.select(stream_value.c.cursor_field).where(own.rows(stream_value))
    newest: str = connection.execute(query.order_by(stream_value.c.version.desc()).limit(1)).scalar_one()
    return newest


def _given(reason: str, what: str) -> str:
    if not reason.strip():
        raise UsageError(f"{what}: say why. The reason stays in the history of the stream.")
    return reason


def _moved(own: Stream, expected_version: int | None) -> StateMoved:
    expected = "there was none yet" if expected_version is None else f"it was at version {expected_version}"
    return StateMoved(
        f"{own}: this run expected of its state that {expected}, and that is so no more: another run or a person moved it "
        "first. Nothing was changed; run again from where it is now."
    )
