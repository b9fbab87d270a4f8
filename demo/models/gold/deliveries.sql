/* ---
description: Every delivery with its size and its worth.
owner: team:data-platform
checks:
  - unique: delivery
  - relationships: {column: delivery, to: silver.delivery_lines, field: delivery}
  - row_count_change: {max_increase_percent: 500, max_decrease_percent: 0}
    blocking: false
--- */
WITH lines AS (
    SELECT delivery, sku, amount, currency
    FROM silver.delivery_lines
)
SELECT
    delivery,
    count(*) AS lines,
    count(DISTINCT sku) AS skus,
    sum(amount) AS worth,
    max(currency) AS currency
FROM lines
GROUP BY delivery
