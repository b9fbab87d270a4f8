"""The shop's next migration: one of each kind of change, different every time."""


def migration(step: int) -> list[str]:
    """Statements of the step-th migration, counted from 1: every step finds what the one before left."""
    wider = 40 + 10 * step
    return [
        # tables: created, dropped, renamed
        f"CREATE TABLE sales.season_{step} (product_id bigint REFERENCES sales.product, discount numeric(5, 2))",
        f"DROP TABLE people.campaign_{step - 1}",
        f"CREATE TABLE people.campaign_{step} (campaign_id int PRIMARY KEY, title text, begins_on date)",
        f"ALTER TABLE people.note_{step - 1} RENAME TO note_{step}",
        # columns: added, altered, renamed, dropped
        f"ALTER TABLE sales.customer ADD COLUMN preference_{step} text DEFAULT 'none'",
        f"ALTER TABLE sales.product ALTER COLUMN sku TYPE varchar({wider})",
        f"ALTER TABLE warehouse.bin RENAME COLUMN {'label' if step % 2 else 'code'} TO {'code' if step % 2 else 'label'}",
        "ALTER TABLE warehouse.supplier DROP COLUMN IF EXISTS vat_number"
        if step % 2
        else "ALTER TABLE warehouse.supplier ADD COLUMN vat_number varchar(20)",
        # a comment only
        f"COMMENT ON TABLE sales.voucher IS 'Codes of season {step}'",
    ]
