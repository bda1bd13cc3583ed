"""Data and training for MLX as values and pure functions.

This file is a table of contents. A name is imported when it is first used, so `import mlxfp` loads neither MLX nor Arrow.
To add a name: its module below, an import for type checkers, and `__all__`; `tests/test_import.py` holds the three equal.
"""

from importlib import import_module

TYPE_CHECKING = False  # type checkers take it as True; importing it from typing would cost more than the rest of this file
if TYPE_CHECKING:
    from mlxfp import collators, config, distributed, kaggle, models, runs, runtime, tasks, testing
    from mlxfp.collators.collating import collate
    from mlxfp.core.cursors import Cursor, aiterate, iterate
    from mlxfp.core.datasets import Combinator, Dataset, RowWise, Source, Stage, Wrapper
    from mlxfp.core.describing import explain, length, schema
    from mlxfp.core.errors import (
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
        PipelineError,
        SchemaError,
        UnknownNameError,
    )
    from mlxfp.core.examples import Examples
    from mlxfp.core.identity import fingerprint
    from mlxfp.core.optimizing import optimize
    from mlxfp.core.pipelines import compose, pipe
    from mlxfp.data.inspection.checksums import checksum
    from mlxfp.data.inspection.column_stats import column_stats, column_stats_at
    from mlxfp.data.inspection.differences import diff
    from mlxfp.data.inspection.locating import Origin
    from mlxfp.data.inspection.mixture_counts import Proportion, mixture_proportions
    from mlxfp.data.inspection.previews import preview
    from mlxfp.data.inspection.profiling import Profile, profile
    from mlxfp.data.inspection.provenance import row_origins, trace_row
    from mlxfp.data.lengths.augmenting import drop_fields, drop_tokens, replace_tokens
    from mlxfp.data.lengths.batching import batch, unbatch
    from mlxfp.data.lengths.bucketing import batch_by_tokens, bucket_by_length
    from mlxfp.data.lengths.packing import pack
    from mlxfp.data.lengths.shape_planning import ShapePlan, batch_shapes, shape_plan
    from mlxfp.data.lengths.windowing import windows
    from mlxfp.data.rows.columns import drop_columns, rename_columns, select_columns
    from mlxfp.data.rows.dataset_splits import Splits, train_valid_test
    from mlxfp.data.rows.filtering import filter_by
    from mlxfp.data.rows.map_filter import filter, flat_map, map, map_chunks, skip, take
    from mlxfp.data.rows.mixing import concat, interleave, mix
    from mlxfp.data.rows.repeating import repeat
    from mlxfp.data.rows.selecting import select, split
    from mlxfp.data.rows.sharding import World, shard
    from mlxfp.data.rows.shuffling import ShuffleQuality, shuffle, shuffle_quality
    from mlxfp.data.running.caching import cache, load
    from mlxfp.data.running.prefetching import prefetch
    from mlxfp.data.running.skipping_errors import SkippedRow, on_error, skipped_rows
    from mlxfp.data.sources.arrow_files import read_arrow
    from mlxfp.data.sources.csv_files import read_csv
    from mlxfp.data.sources.hf_datasets import from_hf
    from mlxfp.data.sources.in_memory import from_examples, from_iterable, from_table
    from mlxfp.data.sources.json_files import read_jsonl
    from mlxfp.data.sources.media_files import read_audio, read_images
    from mlxfp.data.sources.parquet_files import read_parquet
    from mlxfp.data.sources.text_files import read_text
    from mlxfp.data.sources.torch_datasets import from_torch
    from mlxfp.evaluation import metrics
    from mlxfp.text.padding import pad
    from mlxfp.text.templates.templates import Template, template
    from mlxfp.text.tokenizers.files import load_tokenizer
    from mlxfp.text.tokenizers.tokenizer import Tokenizer
    from mlxfp.text.tokenizers.training import train_tokenizer
    from mlxfp.text.tokenizing import tokenize
    from mlxfp.training import losses, observers
    from mlxfp.training.loop import events
    from mlxfp.training.loop.checkpoints import load_latest, load_state, save_state
    from mlxfp.training.loop.control import Control
    from mlxfp.training.loop.fitting import best, evaluate, fit, last, predict
    from mlxfp.training.loop.nonfinite import NonFiniteError
    from mlxfp.training.observers.plotting import plot_run
    from mlxfp.training.optimization import optimizers, schedules
    from mlxfp.training.steps.averaging import ema_weights
    from mlxfp.training.steps.state import TrainState, train_state
    from mlxfp.training.steps.steps import train_step
    from mlxfp.training.steps.transforms import functional, jit

__version__ = "0.1.0"

__all__ = [
    "ArgumentError",
    "ArgumentTypeError",
    "CheckpointError",
    "Combinator",
    "ConfigError",
    "Control",
    "Cursor",
    "CursorError",
    "CursorMismatchError",
    "DataError",
    "Dataset",
    "Examples",
    "FingerprintError",
    "MissingExtraError",
    "MissingFileError",
    "MlxfpError",
    "NonFiniteError",
    "Origin",
    "PipelineError",
    "Profile",
    "Proportion",
    "RowWise",
    "SchemaError",
    "ShapePlan",
    "ShuffleQuality",
    "SkippedRow",
    "Source",
    "Splits",
    "Stage",
    "Template",
    "Tokenizer",
    "TrainState",
    "UnknownNameError",
    "World",
    "Wrapper",
    "aiterate",
    "batch",
    "batch_by_tokens",
    "batch_shapes",
    "best",
    "bucket_by_length",
    "cache",
    "checksum",
    "collate",
    "collators",
    "column_stats",
    "column_stats_at",
    "compose",
    "concat",
    "config",
    "diff",
    "distributed",
    "drop_columns",
    "drop_fields",
    "drop_tokens",
    "ema_weights",
    "evaluate",
    "events",
    "explain",
    "filter",
    "filter_by",
    "fingerprint",
    "fit",
    "flat_map",
    "from_examples",
    "from_hf",
    "from_iterable",
    "from_table",
    "from_torch",
    "functional",
    "interleave",
    "iterate",
    "jit",
    "kaggle",
    "last",
    "length",
    "load",
    "load_latest",
    "load_state",
    "load_tokenizer",
    "losses",
    "map",
    "map_chunks",
    "metrics",
    "mix",
    "mixture_proportions",
    "models",
    "observers",
    "on_error",
    "optimize",
    "optimizers",
    "pack",
    "pad",
    "pipe",
    "plot_run",
    "predict",
    "prefetch",
    "preview",
    "profile",
    "read_arrow",
    "read_audio",
    "read_csv",
    "read_images",
    "read_jsonl",
    "read_parquet",
    "read_text",
    "rename_columns",
    "repeat",
    "replace_tokens",
    "row_origins",
    "runs",
    "runtime",
    "save_state",
    "schedules",
    "schema",
    "select",
    "select_columns",
    "shape_plan",
    "shard",
    "shuffle",
    "shuffle_quality",
    "skip",
    "skipped_rows",
    "split",
    "take",
    "tasks",
    "template",
    "testing",
    "tokenize",
    "trace_row",
    "train_state",
    "train_step",
    "train_tokenizer",
    "train_valid_test",
    "unbatch",
    "windows",
]

# Module -> the public names that live in it.
_NAMES: dict[str, tuple[str, ...]] = {
    "mlxfp.collators.collating": ("collate",),
    "mlxfp.core.cursors": ("Cursor", "aiterate", "iterate"),
    "mlxfp.core.datasets": ("Combinator", "Dataset", "RowWise", "Source", "Stage", "Wrapper"),
    "mlxfp.core.describing": ("explain", "length", "schema"),
    "mlxfp.data.inspection.differences": ("diff",),
    "mlxfp.core.errors": (
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
        "PipelineError",
        "SchemaError",
        "UnknownNameError",
    ),
    "mlxfp.core.examples": ("Examples",),
    "mlxfp.data.inspection.checksums": ("checksum",),
    "mlxfp.core.identity": ("fingerprint",),
    "mlxfp.core.optimizing": ("optimize",),
    "mlxfp.core.pipelines": ("compose", "pipe"),
    "mlxfp.data.inspection.mixture_counts": ("Proportion", "mixture_proportions"),
    "mlxfp.data.sources.arrow_files": ("read_arrow",),
    "mlxfp.data.lengths.augmenting": ("drop_fields", "drop_tokens", "replace_tokens"),
    "mlxfp.data.lengths.batching": ("batch", "unbatch"),
    "mlxfp.data.lengths.bucketing": ("batch_by_tokens", "bucket_by_length"),
    "mlxfp.data.running.caching": ("cache", "load"),
    "mlxfp.data.rows.columns": ("drop_columns", "rename_columns", "select_columns"),
    "mlxfp.data.sources.csv_files": ("read_csv",),
    "mlxfp.data.rows.map_filter": ("filter", "flat_map", "map", "map_chunks", "skip", "take"),
    "mlxfp.data.rows.filtering": ("filter_by",),
    "mlxfp.data.sources.hf_datasets": ("from_hf",),
    "mlxfp.data.sources.json_files": ("read_jsonl",),
    "mlxfp.data.inspection.locating": ("Origin",),
    "mlxfp.data.inspection.column_stats": ("column_stats", "column_stats_at"),
    "mlxfp.data.sources.media_files": ("read_audio", "read_images"),
    "mlxfp.data.rows.mixing": ("concat", "interleave", "mix"),
    "mlxfp.data.lengths.packing": ("pack",),
    "mlxfp.data.sources.parquet_files": ("read_parquet",),
    "mlxfp.data.running.prefetching": ("prefetch",),
    "mlxfp.data.inspection.previews": ("preview",),
    "mlxfp.data.inspection.profiling": ("Profile", "profile"),
    "mlxfp.data.inspection.provenance": ("row_origins", "trace_row"),
    "mlxfp.data.rows.repeating": ("repeat",),
    "mlxfp.data.rows.selecting": ("select", "split"),
    "mlxfp.data.lengths.shape_planning": ("ShapePlan", "shape_plan", "batch_shapes"),
    "mlxfp.data.rows.sharding": ("World", "shard"),
    "mlxfp.data.rows.shuffling": ("ShuffleQuality", "shuffle", "shuffle_quality"),
    "mlxfp.data.running.skipping_errors": ("SkippedRow", "on_error", "skipped_rows"),
    "mlxfp.data.sources.in_memory": ("from_examples", "from_iterable", "from_table"),
    "mlxfp.data.rows.dataset_splits": ("Splits", "train_valid_test"),
    "mlxfp.data.sources.text_files": ("read_text",),
    "mlxfp.data.sources.torch_datasets": ("from_torch",),
    "mlxfp.data.lengths.windowing": ("windows",),
    "mlxfp.text.padding": ("pad",),
    "mlxfp.text.templates.templates": ("Template", "template"),
    "mlxfp.text.tokenizers.files": ("load_tokenizer",),
    "mlxfp.text.tokenizers.training": ("train_tokenizer",),
    "mlxfp.text.tokenizers.tokenizer": ("Tokenizer",),
    "mlxfp.text.tokenizing": ("tokenize",),
    "mlxfp.training.steps.averaging": ("ema_weights",),
    "mlxfp.training.loop.checkpoints": ("load_latest", "load_state", "save_state"),
    "mlxfp.training.loop.control": ("Control",),
    "mlxfp.training.loop.fitting": ("best", "evaluate", "fit", "last", "predict"),
    "mlxfp.training.loop.nonfinite": ("NonFiniteError",),
    "mlxfp.training.observers.plotting": ("plot_run",),
    "mlxfp.training.steps.state": ("TrainState", "train_state"),
    "mlxfp.training.steps.steps": ("train_step",),
    "mlxfp.training.steps.transforms": ("functional", "jit"),
}

# Family -> the module that holds its members: `fp.losses.mse` lives in mlxfp/training/losses.py.
_FAMILIES = {
    "collators": "mlxfp.collators",
    "config": "mlxfp.config",
    "distributed": "mlxfp.distributed",
    "events": "mlxfp.training.loop.events",
    "kaggle": "mlxfp.kaggle",
    "losses": "mlxfp.training.losses",
    "metrics": "mlxfp.evaluation.metrics",
    "models": "mlxfp.models",
    "observers": "mlxfp.training.observers",
    "optimizers": "mlxfp.training.optimization.optimizers",
    "runs": "mlxfp.runs",
    "runtime": "mlxfp.runtime",
    "schedules": "mlxfp.training.optimization.schedules",
    "tasks": "mlxfp.tasks",
    "testing": "mlxfp.testing",
}

_HOMES = {name: module for module, names in _NAMES.items() for name in names} | _FAMILIES


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'mlxfp' has no attribute {name!r}", name=name, obj=import_module(__name__))
    module = import_module(_HOMES[name])
    value = module if name in _FAMILIES else getattr(module, name)
    globals()[name] = value  # the next use does not come here
    return value


def __dir__() -> list[str]:
    return __all__
