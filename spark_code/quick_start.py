"""What makes a local Spark begin sooner: Java's classes from an archive, Python's imports before workers are forked.

`make setup` makes the archive once, from a session that does a little of everything. Java looks itself whether it fits, and
does without it if not: another Java, other jars, none at all.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import SparkSession

DAEMON = "spark_code.python_daemon"
ARCHIVE = Path(sys.prefix) / "share" / "tidemark" / "spark.jsa"
# Java's remarks on an archive that does not fit, and on classes that it leaves out.
UNHEARD = "-Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"


def local_config(jars: Iterable[Path]) -> dict[str, str]:
    """All jars next to Spark's own, where they need no copy, and always the same ones: an archive is of one class path."""
    return {"spark.driver.extraClassPath": os.pathsep.join(map(str, jars)), "spark.python.daemon.module": DAEMON}


def java_options() -> str:
    return f"-XX:SharedArchiveFile={ARCHIVE} {UNHEARD}" if ARCHIVE.exists() else ""


def make_archive(start: Callable[[dict[str, str]], SparkSession], config: dict[str, str], catalog: str) -> None:
    """The archive, of what this process's session loads; Java writes it when it ends."""
    with tempfile.TemporaryDirectory() as folder:
        fresh = Path(folder) / ARCHIVE.name
        options = f"{config['spark.driver.extraJavaOptions']} -XX:ArchiveClassesAtExit={fresh} {UNHEARD}"
        spark = start(config | {"spark.driver.extraJavaOptions": options})
        practise(spark, catalog)
        spark.stop()
        gateway = SparkContext._gateway
        assert gateway is not None, "a session was started"
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait()
        if fresh.exists():
            ARCHIVE.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(fresh, ARCHIVE)


def practise(spark: SparkSession, catalog: str) -> None:
    """Some of all that runs do: tables, views, branches, merges, tasks in Python."""

    def same(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from rows

    table = f"{catalog}.practice.things"
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {catalog}.practice")
    spark.sql(f"CREATE TABLE {table} (id bigint, name string, at timestamp) USING iceberg PARTITIONED BY (bucket(2, id))")
    spark.range(0, 10, 1, 2).mapInArrow(same, "id bigint").createOrReplaceTempView("numbers")
    spark.sql(f"INSERT INTO {table} SELECT id, 'thing', current_timestamp() FROM numbers")
    spark.sql(f"ALTER TABLE {table} CREATE OR REPLACE BRANCH practice")
    spark.sql(
        f"MERGE INTO {table}.branch_practice AS t USING (SELECT id + 5 AS id FROM numbers) AS s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET name = 'changed' WHEN NOT MATCHED THEN INSERT (id, name, at) VALUES (s.id, '', NULL)"
    )
    spark.sql(
        f"CALL {catalog}.system.fast_forward(table => 'practice.things', branch => 'main', to => 'practice')"
    ).collect()
    spark.sql(f"DELETE FROM {table} WHERE id = 3")
    spark.sql(
        f"CREATE OR REPLACE VIEW {catalog}.practice.names AS SELECT name, count(*) AS times FROM {table} GROUP BY name"
    )
    spark.sql(f"SELECT * FROM {catalog}.practice.names ORDER BY name").toArrow()
