"""Frozen classes for the configuration of a run, read from YAML or JSON, presets and the command line."""

from mlxfp.app.config.classes import (
    CompetitionConfig,
    DataConfig,
    MediaConfig,
    ModelConfig,
    ObserversConfig,
    OptimizerConfig,
    OwnConfig,
    RunConfig,
    ScheduleConfig,
    TextConfig,
    TrainingConfig,
    ValidationConfig,
)
from mlxfp.app.config.loading import Resolved, json_schema
from mlxfp.app.config.presets import PRESETS
from mlxfp.support.structuring import structure, unstructure
from mlxfp.support.yaml_files import read_document, write_document

__all__ = [
    "PRESETS",
    "CompetitionConfig",
    "DataConfig",
    "MediaConfig",
    "ModelConfig",
    "ObserversConfig",
    "OptimizerConfig",
    "OwnConfig",
    "Resolved",
    "RunConfig",
    "ScheduleConfig",
    "TextConfig",
    "TrainingConfig",
    "ValidationConfig",
    "json_schema",
    "read_document",
    "structure",
    "unstructure",
    "write_document",
]


def __dir__() -> list[str]:
    return __all__
