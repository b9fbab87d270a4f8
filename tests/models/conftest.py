from pathlib import Path

import pytest

from tests.catalog.harness import SparkForTests
from tests.models.harness import ModelLab


@pytest.fixture
def lab(tmp_path: Path, spark: SparkForTests) -> ModelLab:
    return ModelLab.make(tmp_path / "lab", spark)
