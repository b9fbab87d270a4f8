"""Models as a system."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidemark.runs.system import System
from tidemark.subjects import configured_models, views

if TYPE_CHECKING:
    from spark_code.platform import Platform
    from tidemark.config import Config
    from tidemark.models.subject import ModelSubject


def select(config: "Config", names: Sequence[str]) -> list[str]:
    from tidemark.models.graph import load_project

    return [MODEL.address(model.name) for model in load_project(config).selected(names)]


def open_model(platform: "Platform", name: str) -> "ModelSubject":
    from tidemark.models.graph import load_project

    model = load_project(platform.config).find(name)
    from tidemark.models.subject import ModelSubject

    return ModelSubject(platform, model.name, model.metadata)


MODEL = System(
    noun="model",
    summary="Models: queries whose results are kept as tables and views.",
    form="MODEL",
    configured=configured_models,
    place=3,
    open=open_model,
    select=select,
    more=views,
)
