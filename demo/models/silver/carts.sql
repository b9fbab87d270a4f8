/* ---
description: Carts as they are now, one row each. A column that the shop adds comes along by itself.
owner: team:data-platform
materialization: incremental
incremental:
  strategy: merge
  merge: {unique_key: cart_id, filter_column: updated_at, lookback: 10 seconds}
  on_schema_change: append_new_columns
checks:
  - unique: cart_id
  - not_null: [cart_id, updated_at]
  - row_count_change: {max_decrease_percent: 0}
--- */
SELECT record.*
FROM bronze.default.shop.shop_carts__latest
