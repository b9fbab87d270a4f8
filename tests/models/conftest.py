from pathlib import Path

import pytest

from tests.catalog.harness import SparkForTests
from tests.models.folder import Folder
from tests.models.harness import ModelLab


@pytest.fixture
def lab(tmp_path: Path, spark: SparkForTests) -> ModelLab:
    return ModelLab.make(tmp_path / "lab", spark)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """A project of models that nobody has written yet."""
    return Folder(tmp_path)
