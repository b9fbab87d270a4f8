"""The peer: dbt with DuckDB merges the same batch into the same table, as a whole process. In an environment of its own.

    python dbt_peer.py FOLDER REPEAT

FOLDER has full.parquet and batch.parquet. Prints the seconds of each run as JSON; the table is put back before each.
"""

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import duckdb

PROJECT = """
name: peer
version: "1.0"
profile: peer
model-paths: [models]
flags: {send_anonymous_usage_stats: false}
"""

MODEL = """
{{ config(materialized='incremental', incremental_strategy='merge', unique_key='id') }}
SELECT * FROM read_parquet('{{ var("source") }}')
"""


def main(folder: Path, repeat: int) -> list[float]:
    project = folder / "dbt"
    (project / "models").mkdir(parents=True)
    database = project / "peer.duckdb"
    (project / "dbt_project.yml").write_text(PROJECT)
    (project / "models" / "orders.sql").write_text(MODEL)
    target = {"type": "duckdb", "path": str(database), "threads": 2}
    (project / "profiles.yml").write_text(json.dumps({"peer": {"target": "dev", "outputs": {"dev": target}}}))
    ran(project, folder / "full.parquet")
    before = project / "before.duckdb"
    shutil.copy(database, before)
    taken = []
    for _ in range(repeat):
        shutil.copy(before, database)
        started = time.monotonic()
        ran(project, folder / "batch.parquet")
        taken.append(round(time.monotonic() - started, 2))
    rows, changed = counted(database)
    print(f"dbt: {rows} rows, {changed} of the batch", file=sys.stderr)
    return taken


def ran(project: Path, source: Path) -> None:
    dbt = Path(sys.executable).with_name("dbt")
    words = [dbt, "--quiet", "run", "--project-dir", project, "--profiles-dir", project, "--vars", f"source: {source}"]
    subprocess.run(words, check=True, cwd=project)


def counted(database: Path) -> tuple[int, int]:
    with duckdb.connect(str(database), read_only=True) as db:
        ((rows, changed),) = db.sql("SELECT count(*), count(*) FILTER (note = 'batch') FROM orders").fetchall()
        return rows, changed


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]))))
