"""A day of trade at the demo shop: carts that are filled and changed, deliveries that arrive as files."""

import os
from pathlib import Path

OLD, CARTS, CHANGED, LINES = 5_000, 100, 50, 200


def carts() -> list[str]:
    """Statements that fill new carts and change some of the oldest. A shop without carts first gets those of half a year."""
    return [
        "INSERT INTO sales.cart (cart_id, updated_at) "
        "SELECT gen_random_uuid(), clock_timestamp() - hours * interval '1 hour' "
        f"FROM generate_series(1, {OLD}) AS hours WHERE NOT EXISTS (SELECT FROM sales.cart)",
        "INSERT INTO sales.cart (cart_id, updated_at) "
        f"SELECT gen_random_uuid(), clock_timestamp() FROM generate_series(1, {CARTS})",
        "UPDATE sales.cart SET updated_at = clock_timestamp() WHERE cart_id IN "
        f"(SELECT cart_id FROM sales.cart ORDER BY updated_at LIMIT {CHANGED})",
    ]


def new_column(number: int) -> str:
    """A statement that gives carts one more column; `number` is how many they have."""
    return f"ALTER TABLE sales.cart ADD COLUMN channel_{number} text DEFAULT 'web'"


def deliver(folder: Path, step: int) -> Path:
    """Puts the next delivery into the folder, whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f"{step},{line},sku-{line:05d},{1 + line % 7},{line / 4:.2f}" for line in range(1, LINES + 1)]
    path = folder / f"delivery-{step:04d}.csv"
    written = path.with_suffix(".part")
    written.write_text("\n".join(["delivery,line,sku,quantity,price", *lines]) + "\n", encoding="utf-8")
    os.replace(written, path)
    return path
