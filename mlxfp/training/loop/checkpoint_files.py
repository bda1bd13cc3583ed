"""Checkpoint files: names, metadata, reading and writing."""

import base64
import json
import os
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx

from mlxfp.core.cursors import Cursor
from mlxfp.distributed import Ranks
from mlxfp.models.safetensors_files import check_head, read_safetensors, write_safetensors
from mlxfp.support.atomic_files import PARTIAL
from mlxfp.support.errors import ArgumentTypeError, CheckpointError, MissingFileError
from mlxfp.training.loop.events import Evaluation
from mlxfp.training.loop.running_metrics import RunningMetrics

FORMAT = ("mlxfp.state", 3)  # name and version of the file format


def folder_of(folder: str | os.PathLike[str], ranks: Ranks | None) -> Path:
    """Return the checkpoint folder of this rank."""
    return Path(folder) if ranks is None else Path(folder, f"rank-{ranks.world.rank}")


def paths_of_ranks(folder: str | os.PathLike[str]) -> dict[int, list[Path]]:
    """Return the paths of all ranks' checkpoints in a folder, by step."""
    paths: dict[int, list[Path]] = {}
    for rank_folder in sorted(Path(folder).glob("rank-*")):
        for step, path in numbered(rank_folder).items():
            paths.setdefault(step, []).append(path)
    return paths


def head_of(path: Path) -> dict[str, Any]:
    """Read the metadata of a checkpoint without loading arrays. Return an empty dict if the file is missing or damaged."""
    try:
        check_head(path)
        loaded: Any = mx.load(str(path), format="safetensors", return_metadata=True)
        return dict(json.loads(loaded[1]["mlxfp"]))
    except (OSError, RuntimeError, ValueError, KeyError, TypeError, AttributeError):
        return {}  # the error is ignored here, because `load_state` later raises a detailed error


def without_damaged(paths_by_step: Mapping[int, Path]) -> dict[int, Path]:
    """Leave out damaged checkpoints that are newer than the last undamaged checkpoint, and warn. Keys are steps, and values are files.

    If all checkpoints are damaged, return all of them. A later read of the newest file then raises the error.
    """
    damaged = []
    for step in sorted(paths_by_step, reverse=True):
        path = paths_by_step[step]
        try:
            read_safetensors(path)
        except (RuntimeError, ValueError) as error:
            damaged.append((path, error))
            continue
        for other, problem in damaged:
            warnings.warn(
                f"A checkpoint is damaged: {problem}, in {other}. The run continues from {path.name}; remove the damaged file.",
                RuntimeWarning,
                stacklevel=3,
            )
        return {older: paths_by_step[older] for older in paths_by_step if older <= step}
    return dict(paths_by_step)


def name_of(step: int) -> str:
    """Return the file name for a step number. The number is padded with zeros, so sorted file names are in the order of the steps."""
    return f"step-{step:08}.safetensors"


def numbered(folder: Path) -> dict[int, Path]:
    """Return the checkpoints in a folder by step. Return an empty dict for a missing folder."""
    return {int(path.stem[5:]): path for path in folder.glob("step-*.safetensors") if re.fullmatch(r"step-\d{8,}", path.stem)}


def remove_unfinished(folder: Path, name: str) -> None:
    """Remove unfinished files of a killed process. `name` is the file name or glob pattern of the checkpoints."""
    for path in folder.glob(f".{name}.*{PARTIAL}*"):
        path.unlink(missing_ok=True)


def json_text(metadata: Mapping[str, Any]) -> str:
    """Serialise the metadata of a checkpoint to JSON. Raises `ArgumentTypeError` if JSON cannot represent a value of the configuration."""
    try:
        return json.dumps(metadata, default=float)  # convert metrics to float, because metrics may be NumPy scalars
    except (TypeError, ValueError) as error:
        raise ArgumentTypeError(f"The config of a checkpoint must be representable in JSON: {error}. Convert the value to text.") from error


def write_file(path: Path, arrays: Mapping[str, mx.array], metadata: dict[str, str]) -> None:
    """Write arrays to a file. A complete new file replaces an existing file in one step."""
    if not path.parent.is_dir():
        raise MissingFileError(f"There is no folder {path.parent} to write {path.name} into. Create the folder first.")
    if path.is_dir():
        raise CheckpointError(f"{path} is a folder, but a checkpoint is a file. Give a file in the folder: {path / 'last.safetensors'}.")
    hint = "Is the disk full, or is writing not allowed there? An older file at this path is unchanged."
    write_safetensors(path, arrays, metadata, hint=hint)


def compute(path: Path, arrays: Any) -> None:
    """Read the lazy arrays of a checkpoint. Raises `CheckpointError` for a damaged file."""
    try:
        mx.eval(arrays)
    except (RuntimeError, ValueError) as error:
        raise _damaged(path, error) from error


def shards_in(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return from the metadata of a checkpoint how the model is divided between ranks.

    The file holds part `index` (from 0) of `count` parts. `axes` maps the name of each divided array to the divided axis. `segments` maps
    array names to segment sizes, if known.
    """
    shards = metadata.get("shards") or {"index": 0, "count": 1, "axes": {}}
    # Files of older versions have no segment sizes.
    segments = {name: tuple(map(int, sizes)) for name, sizes in shards.get("segments", {}).items()}
    return {"index": int(shards["index"]), "count": int(shards["count"]), "axes": dict(shards["axes"]), "segments": segments}


def check_segments(path: Path, stored: Mapping[str, Any], target: Mapping[str, Any]) -> None:
    """Raise `CheckpointError` if the segment sizes of a divided array are unknown. Segments are, for example, queries, keys and values."""
    rewrite = f", and write one more checkpoint with {stored['count']} ranks: any number of ranks can continue from the new checkpoint"
    for shards, owner, remedy in ((stored, os.fspath(path), rewrite), (target, "the model of this run", "")):
        names = shards["axes"].keys() - shards["segments"].keys()
        # Check only parameters and buffers. Each optimizer moment is sharded like its parameter.
        unknown = sorted(name for name in names if name.startswith(("params.", "buffers.")))
        if unknown:
            raise CheckpointError(
                f"{owner} has no segment sizes for the divided arrays {', '.join(unknown):.200}, so mlxfp cannot join the parts of an "
                "array. Segments are, for example, the queries, keys and values in one array. Older files and MLX's own shard_linear do "
                f"not store segment sizes. Divide the layers with mlxfp.distributed.shard_linear{remedy}."
            )


def check_same_segments(path: Path, stored: Mapping[str, Any], target: Mapping[str, Any]) -> None:
    """Raise `CheckpointError` if the segments of a fused array, such as queries and keys, differ in size between file and model."""
    for array, sizes in sorted(stored["segments"].items()):
        if target["segments"].get(array, sizes) != sizes:
            expected = target["segments"][array]
            raise CheckpointError(
                f"The segments of the array {array} have the sizes {list(sizes)} in the file {path}, but the sizes {list(expected)} "
                "in the model of this run. Call shard_linear with the argument segments= of the run that wrote the file."
            )


def open_file(path: Path) -> tuple[dict[str, mx.array], dict[str, Any]]:
    """Return the lazy arrays of a checkpoint, and a dict of the other fields of `TrainState` and `Checkpoint`.

    The docstring of `shards_in` describes the field `shards`.
    """
    if not path.is_file():
        raise MissingFileError(f"There is no checkpoint at {path}. Check the path, or write one with save_state.")
    try:
        arrays, metadata = read_safetensors(path)
        content = json.loads(metadata["mlxfp"])
        file_format = content["format"], content["version"]
        fields = _fields(content) if file_format == FORMAT else {}
    except (RuntimeError, ValueError, KeyError, TypeError, AttributeError, ArithmeticError) as error:
        raise _damaged(path, error) from error
    if file_format != FORMAT:
        raise CheckpointError(
            f"The checkpoint {path} has the format {file_format}, but the installed mlxfp reads {FORMAT}. Install the mlxfp version that "
            "wrote the file."
        )
    return arrays, {**fields, "cursor": None if fields["cursor"] is None else Cursor.from_bytes(fields["cursor"])}


def _damaged(path: Path, error: Exception) -> CheckpointError:
    if "F64" in str(error):
        return CheckpointError(f"{path} has arrays of float64, which MLX does not read: {error}. Convert the arrays to float32.")
    return CheckpointError(f"{path} is not a checkpoint, or is damaged: {error}. Use a file written by save_state.")


def _fields(metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "step": int(metadata["step"]),
        "seed": int(metadata["seed"]),
        "cursor": metadata["cursor"] and base64.b64decode(metadata["cursor"], validate=True),
        "history": tuple(Evaluation(int(step), dict(metrics)) for step, metrics in metadata["history"]),
        "config": dict(metadata["config"]),
        "optimizer": dict(metadata.get("optimizer", {})),  # older checkpoints have no optimizer settings
        "pretrained": tuple(map(str, metadata.get("pretrained", ()))),  # older checkpoints have no names of pretrained models
        "shards": shards_in(metadata),
        "running": RunningMetrics(
            {name: (float(total), float(weight)) for name, (total, weight) in metadata["running"]["totals"].items()},
            tuple({name: float(value) for name, value in metrics.items()} for metrics in metadata["running"]["unread"]),
        ),
    }
