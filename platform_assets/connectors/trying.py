"""`tidemark connector`: what kinds there are, what a source offers, and whether a connector keeps the rules."""

import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from tidemark.cli.options import AsJson, ConfigFile
from tidemark.cli.output import print_json, print_line
from tidemark.cli.tables import print_table
from tidemark.config import Config, load_config

ManifestFile = Annotated[Path, typer.Argument(metavar="MANIFEST", help="The manifest's file.")]


def register(app: typer.Typer) -> None:
    connector = typer.Typer(help="Connectors: their kinds, their sources, and a test of one.", no_args_is_help=True)
    for name, command in (("kinds", kinds), ("describe", describe), ("test", put_to_the_test)):
        connector.command(name)(command)
    app.add_typer(connector, name="connector")


def kinds(as_json: AsJson = False) -> None:
    """The kinds of connectors that are installed."""
    from tidemark.connectors.registry import known_kinds

    print_json(known_kinds()) if as_json else print_line("\n".join(known_kinds()))


def describe(manifest: ManifestFile, as_json: AsJson = False, config: ConfigFile = None) -> None:
    """What the source of a manifest offers: names, keys, and fields that could be cursors."""
    from tidemark.connectors.manifest import load_manifest
    from tidemark.connectors.manifests import opened_connector

    with opened_connector(load_config(config), load_manifest(manifest), "describe") as source:
        offered = [asdict(each) for each in source.streams()]
    if as_json:
        print_json(offered)
    elif offered:
        rows = [[", ".join(value) if isinstance(value, tuple) else value for value in each.values()] for each in offered]
        print_table(str(manifest), list(offered[0]), rows)
    else:
        print_line("the source offers nothing to these credentials")


def put_to_the_test(
    manifest: ManifestFile,
    stream: Annotated[str | None, typer.Option("--stream", help="Only this stream.")] = None,
    as_json: AsJson = False,
    config: ConfigFile = None,
) -> None:
    """Put a connector to the test on its real source: rules, cycles, faults. No record is written there."""
    from spark_code.connectors.kit import StreamKit, Verdict
    from spark_code.platform import Platform
    from tidemark.connectors.manifest import load_manifest

    loaded, described = load_config(config), load_manifest(manifest)
    streams = [described.stream(stream)] if stream else list(described.streams)
    verdicts: list[Verdict] = []
    with tempfile.TemporaryDirectory(prefix="tidemark-kit-") as folder:
        platform = Platform(thrown_away(loaded, Path(folder)))
        for each in streams:
            for verdict in StreamKit(platform, described, each).verdicts():
                verdicts.append(verdict)
                if not as_json:
                    print_line(f"{word(verdict.passed):>6}  {each.id}: {verdict.rule}: {verdict.told}")
        platform.control.close()
    if as_json:
        print_json([asdict(each) for each in verdicts])
    if any(each.passed is False for each in verdicts):
        raise typer.Exit(1)


def word(passed: bool | None) -> str:
    return "–" if passed is None else "ok" if passed else "FAILED"


def thrown_away(config: Config, folder: Path) -> Config:
    """The same Spark and the same credentials, with a store that nobody else sees."""
    spark: dict[str, Any] = config.spark.model_dump(by_alias=True, exclude_unset=True)
    path = folder / "tidemark.yaml"
    path.write_text(yaml.safe_dump({"store": str(folder / "store"), "spark": spark}), encoding="utf-8")
    return load_config(path).model_copy(update={"credentials": config.credentials})
