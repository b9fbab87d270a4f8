/* ---
description: What suppliers delivered, line by line, with what it costs.
owner: team:data-platform
materialization: incremental
incremental:
  strategy: delete_insert
  delete_insert: {unique_key: delivery, filter_column: delivery}
  on_schema_change: sync_all_columns
checks:
  - unique: [delivery, line]
  - accepted_values: {column: currency, values: [EUR, USD]}
--- */
SELECT
    record.delivery,
    record.line,
    record.sku,
    record.quantity,
    record.price,
    record.quantity * record.price AS amount,
    @currency AS currency
FROM bronze.default.deliveries.deliveries_lines__latest
