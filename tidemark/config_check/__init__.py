"""All that can be known to be wrong with a project without asking a source: what `tidemark config check` reports."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tidemark.config import Config
from tidemark.config.loading import read_config
from tidemark.config_check.models import model_findings
from tidemark.config_check.sources import connection_findings, connector_findings
from tidemark.connectors.manifests import load_manifests
from tidemark.errors import ConfigError
from tidemark.findings import Finding
from tidemark.models.graph import load_project
from tidemark.parts import Broken


@dataclass(frozen=True)
class Checked:
    """What was found, and how much there is that can be used."""

    findings: tuple[Finding, ...]
    connections: int = 0
    connectors: int = 0
    models: int = 0

    @property
    def has_errors(self) -> bool:
        return any(each.severity == "error" for each in self.findings)


def check_project(path: Path | None = None, *, variables: bool = True) -> Checked:
    """Everything that is wrong with the configuration, its manifests and its models.

    Without `variables`, one that is not set is no fault where it is only needed when a source is read.
    """
    try:
        config, findings = read_config(path)
    except ConfigError as error:
        return Checked(error.findings)
    return checked(config, findings, variables=variables)


def checked(config: Config, findings: Iterable[Finding] = (), *, variables: bool = True) -> Checked:
    """The same for a configuration that is read already."""
    manifests = load_manifests(config)
    project = load_project(config, manifests)
    found = [
        *findings,
        *_of(config.broken),
        *connection_findings(config, variables=variables),
        *_of(manifests.broken),
        *connector_findings(config, manifests, variables=variables),
        *_of(project.broken),
        *model_findings(config, project),
    ]
    # In the order of the files and of their lines; what only follows from something else comes last.
    first = config.origin.file if config.origin else str(config.path)
    files = {file: place for place, file in enumerate(dict.fromkeys([first, *(each.file for each in found)]))}
    in_order = sorted(dict.fromkeys(found), key=lambda each: (each.caused_by is not None, files[each.file], each.line))
    return Checked(tuple(in_order), len(config.connections), len(manifests), len(project.models))


def _of(broken: Iterable[Broken]) -> Iterator[Finding]:
    return (finding for each in broken for finding in each.findings)
