"""The one Spark session of a process."""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from spark_code import quick_start
from spark_code.java import is_packaged, java_home
from tidemark.config import SparkSettings
from tidemark.errors import JavaMissing
from tidemark.lake import CATALOG, LakeSettings

ICEBERG = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"
ICEBERG_AWS = "org.apache.iceberg:iceberg-aws-bundle:1.12.0"
SQLITE = "org.xerial:sqlite-jdbc:3.50.3.0"
POSTGRESQL = "org.postgresql:postgresql:42.7.8"
EVERYTHING = [ICEBERG, SQLITE, POSTGRESQL, ICEBERG_AWS]

MOST_CORES = 10_000

# Ivy's own idea of where to look includes the user's half-filled Maven cache and a host that is gone.
IVY_SETTINGS = """<ivysettings>
  <settings defaultResolver="central"/>
  <resolvers><ibiblio name="central" m2compatible="true"/></resolvers>
</ivysettings>
"""

# Spark's own chatter at start, before its log level can be set.
QUIET = """rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{yy/MM/dd HH:mm:ss} %p %c{1}: %m%n%ex
"""

DEFAULTS = {
    "spark.app.name": "tidemark",
    "spark.driver.memory": "1g",
    "spark.log.level": "ERROR",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.shuffle.partitions": "8",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
# In every session, also over Spark Connect, whatever the configuration says: results depend on them.
FIXED = {
    # Moments are compared as text in places; with another zone a mark would be hours ahead of its rows.
    "spark.sql.session.timeZone": "UTC",
    # A query of somebody else's must not read this process's environment.
    "spark.sql.variable.substitute": "false",
    # What others have published must be seen at once.
    f"spark.sql.catalog.{CATALOG}.cache-enabled": "false",
}


def cache_folder() -> Path:
    """Jars and the Java wrapper: downloaded once per user, shared by all projects."""
    home = os.environ.get("TIDEMARK_CACHE") or Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "tidemark"
    return Path(home)


def jar_files(coordinates: list[str], cache: Path) -> list[Path]:
    parts = (each.split(":") for each in coordinates)
    return [cache / "ivy" / "jars" / f"{group}_{name}-{version}.jar" for group, name, version in parts]


def jar_config(coordinates: list[str], cache: Path) -> dict[str, str]:
    """The jars by their files if they were fetched before (no network, no resolving), by coordinates otherwise."""
    files = jar_files(coordinates, cache)
    if all(file.exists() for file in files):
        return {"spark.jars": ",".join(map(str, files))}
    settings = cache / "ivy" / "settings.xml"
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text(IVY_SETTINGS)
    return {
        "spark.jars.ivy": str(cache / "ivy"),
        "spark.jars.ivySettings": str(settings),
        "spark.jars.packages": ",".join(coordinates),
    }


def quiet_config(cache: Path) -> dict[str, str]:
    settings = cache / "log4j2.properties"
    if not settings.exists():
        settings.parent.mkdir(parents=True, exist_ok=True)
        settings.write_text(QUIET)
    return {"spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={settings.as_uri()}"}


def java_config(spark: SparkSettings, lake: LakeSettings, cache: Path) -> dict[str, str]:
    """Class path and options of Java: a Spark in this process has all jars at hand, any other is sent what it needs."""
    quiet, files = quiet_config(cache), jar_files(EVERYTHING, cache)
    own_path = "spark.driver.extraClassPath" in spark.config
    if own_path or not re.fullmatch(r"local(\[.*\])?", spark.master) or not all(file.exists() for file in files):
        return quiet | jar_config(coordinates(lake), cache)
    options = f"{quiet['spark.driver.extraJavaOptions']} {quick_start.java_options()}"
    return {"spark.driver.extraJavaOptions": options.strip()} | quick_start.local_config(files)


def coordinates(lake: LakeSettings) -> list[str]:
    """What the lake needs on Spark's class path."""
    wanted = [ICEBERG]
    uri = lake.properties.get("uri", "")
    if uri.startswith("jdbc:sqlite"):
        wanted.append(SQLITE)
    if uri.startswith("jdbc:postgresql"):
        wanted.append(POSTGRESQL)
    if lake.on_s3:
        wanted.append(ICEBERG_AWS)
    return wanted


def lake_config(lake: LakeSettings) -> dict[str, str]:
    prefix = f"spark.sql.catalog.{CATALOG}"
    return {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        prefix: "org.apache.iceberg.spark.SparkCatalog",
        **{f"{prefix}.{key}": value for key, value in lake.properties.items()},
    }


def session_config(spark: SparkSettings, lake: LakeSettings) -> dict[str, str]:
    """All settings of the session: a local one, one on a cluster, or one of a Spark Connect server."""
    if spark.remote:
        chosen = lake_config(lake)
        chosen.pop("spark.sql.extensions")  # static: the server was started with it
        return {"spark.remote": spark.remote} | chosen | spark.config | FIXED
    if lake.on_s3 and is_packaged(java_home(cache_folder()), cache_folder()):
        raise JavaMissing(
            "the lake is on S3, and Iceberg's client needs the module jdk.net of Java, which the Java from PyPI was built "
            "without. Install a Java 17 or later (Debian: openjdk-17-jre-headless), or set JAVA_HOME to one."
        )
    java = java_config(spark, lake, cache_folder())
    return {"spark.master": spark.master} | DEFAULTS | java | lake_config(lake) | spark.config | FIXED


def prepare_environment() -> None:
    """What Spark's launcher takes from the environment."""
    os.environ["JAVA_HOME"] = str(java_home(cache_folder()))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


def start_session(config: dict[str, str]) -> SparkSession:
    """The process's session, started if there is none."""
    if "spark.remote" not in config:
        prepare_environment()
    builder = SparkSession.builder
    for key, value in config.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def local_tasks(spark: SparkSettings) -> int | None:
    """How many tasks a Spark in this process will run at the same time; None for any other Spark."""
    found = re.fullmatch(r"local(?:\[(\*|\d+)(?:,.*)?\])?", spark.master)
    if spark.remote or not found or "spark.default.parallelism" in spark.config:
        return None
    cores = found.group(1) or "1"
    return len(os.sched_getaffinity(0)) if cores == "*" else int(cores)


def tasks_at_once(spark: SparkSession) -> int:
    """How many tasks the session's Spark runs at the same time, local, on a cluster or behind Spark Connect.

    Spark cuts a range that nobody else has cut into as many partitions as it has cores: how many that are is found out by
    running it, since there is no other way that works over Spark Connect too.
    """
    said = spark.conf.get("spark.default.parallelism", None)
    if said:
        return int(said)
    numbers = spark.range(MOST_CORES).select(f.spark_partition_id().alias("partition"))
    return int(numbers.agg(f.max("partition")).collect()[0][0]) + 1


def fetch_jars() -> None:
    """Fetches every jar that some configuration may want, so that later starts need no network."""
    jars = jar_config(EVERYTHING, cache_folder())
    if "spark.jars.packages" in jars:
        # In a process of its own: Java takes its class path when it starts.
        config = {"spark.master": "local[1]"} | DEFAULTS | jars
        code = f"from spark_code.session import start_session; start_session({config!r}).stop()"
        subprocess.run([sys.executable, "-c", code], check=True)


def archive_classes() -> None:
    """Has a session over an empty lake note the classes that sessions load."""
    quick_start.ARCHIVE.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        place = {"uri": f"jdbc:sqlite:{folder}/lake.db", "warehouse": f"{folder}/lake"}
        lake = LakeSettings({"type": "jdbc", "jdbc.schema-version": "V1"} | place)
        try:
            quick_start.make_archive(start_session, session_config(SparkSettings(), lake), CATALOG)
        except PySparkException as error:
            sys.stderr.write(f"this Java archives no classes ({type(error).__name__}): Spark will begin more slowly\n")


if __name__ == "__main__":
    fetch_jars()
    archive_classes()
