"""What happens at the sources meanwhile: carts are filled, deliveries arrive, developers migrate."""

import random
import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime

import psycopg

from tests.soak.place import Place


class Trade(threading.Thread):
    """Changes everything every second or so, until it is stopped."""

    def __init__(self, place: Place, seed: int) -> None:
        super().__init__(name="trade", daemon=True)
        self._place, self._chance, self._ended = place, random.Random(seed), threading.Event()
        self._carts = self._delivery = self._tables = 0
        self.failure: BaseException | None = None
        self.last_change = datetime.now(UTC)

    def stop(self) -> None:
        self._ended.set()
        self.join()
        if self.failure:
            raise self.failure

    def run(self) -> None:
        try:
            with psycopg.connect(self._place.shop_url, autocommit=True) as shop:
                while not self._ended.wait(self._chance.uniform(0.3, 1.5)):
                    what = self._chance.choices(("carts", "delivery", "shop", "notes"), (6, 2, 2, 1))[0]
                    if what == "carts":
                        self._sell(shop)
                    elif what == "delivery":
                        self._deliver()
                    elif what == "shop":
                        self._migrate(lambda sql: shop.execute(sql.encode()), "sales.")
                    else:
                        self._note()
                    self.last_change = datetime.now(UTC)
        except BaseException as error:
            self.failure = error

    def _sell(self, shop: "psycopg.Connection[tuple[object, ...]]") -> None:
        """New carts, and old ones that change, in one transaction whose moment is read as it ends."""
        new, self._carts = self._chance.randint(1, 20), self._carts + 20
        with shop.transaction():
            shop.execute(
                "INSERT INTO sales.cart SELECT n, 'customer ' || n %% 97, n %% 500, clock_timestamp() "
                "FROM generate_series(%s::bigint, %s::bigint) AS n",
                (self._carts - 20, self._carts - 20 + new - 1),
            )
            shop.execute(
                "UPDATE sales.cart SET amount = amount + 1, updated_at = clock_timestamp() WHERE cart_id %% 17 = %s",
                (self._chance.randrange(17),),
            )

    def _deliver(self) -> None:
        """A file that appears whole."""
        self._delivery += 1
        lines = [f"{self._delivery},{line},sku{line % 7},{line * 3}" for line in range(1, self._chance.randint(2, 30))]
        file = self._place.deliveries / f"{self._delivery:06}.csv"
        hidden = file.with_suffix(".tmp")
        hidden.write_text("\n".join(["delivery,line,sku,quantity", *lines]) + "\n")
        hidden.rename(file)

    def _migrate(self, execute: Callable[[str], object], prefix: str) -> None:
        """A table comes, changes or goes."""
        self._tables += 1
        of = self._chance.randint(1, max(1, self._tables))
        statements = [
            f"CREATE TABLE {prefix}t{self._tables} (id bigint, name varchar(40))",
            f"ALTER TABLE {prefix}t{of} ADD COLUMN c{self._tables} varchar(40)",
            f"DROP TABLE {prefix}t{of}",
        ]
        with suppress(psycopg.Error, sqlite3.Error):  # that table is gone
            execute(self._chance.choices(statements, (4, 4, 1))[0])

    def _note(self) -> None:
        # Whoever reads it holds a lock for a moment.
        connection = sqlite3.connect(self._place.notes, timeout=10)
        try:
            with connection:
                self._migrate(connection.execute, "")
        finally:
            connection.close()
