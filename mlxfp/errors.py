"""Errors: every error of mlxfp derives from `MlxfpError` and from the matching built-in class."""

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
    RowIndexError,
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
    "RowIndexError",
    "SchemaError",
    "UnknownNameError",
    "WorkerError",
]


def __dir__() -> list[str]:
    return __all__
