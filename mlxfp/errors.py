"""Errors: every error of this library derives from `MlxfpError` and from the built-in class that fits."""

from mlxfp.support.errors import (
    ArgumentError,
    ArgumentTypeError,
    CheckpointError,
    ConfigError,
    CursorError,
    CursorMismatchError,
    DataError,
    FingerprintError,
    MissingExtraError,
    MissingFileError,
    MlxfpError,
    NonFiniteError,
    PipelineError,
    RankError,
    SchemaError,
    UnknownNameError,
    WorkerError,
)

__all__ = [
    "ArgumentError",
    "ArgumentTypeError",
    "CheckpointError",
    "ConfigError",
    "CursorError",
    "CursorMismatchError",
    "DataError",
    "FingerprintError",
    "MissingExtraError",
    "MissingFileError",
    "MlxfpError",
    "NonFiniteError",
    "PipelineError",
    "RankError",
    "SchemaError",
    "UnknownNameError",
    "WorkerError",
]


def __dir__() -> list[str]:
    return __all__
