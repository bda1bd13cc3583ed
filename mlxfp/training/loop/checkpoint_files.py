"""The files of checkpoints: their names, and how they are written and read."""

import base64
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx

from mlxfp.core.cursors import Cursor
from mlxfp.distributed import Ranks
from mlxfp.models.safetensors_files import check_head
from mlxfp.support.atomic_files import PARTIAL, written_whole
from mlxfp.support.errors import ArgumentTypeError, CheckpointError, MissingFileError
from mlxfp.training.loop.events import Evaluation
from mlxfp.training.loop.running_metrics import RunningMetrics

FORMAT = ("mlxfp.state", 3)  # name and version


def folder_of(folder: str | os.PathLike[str], ranks: Ranks | None) -> Path:
    """Return the folder that the checkpoints of this rank are in."""
    return Path(folder) if ranks is None else Path(folder, f"rank-{ranks.world.rank}")


def paths_of_ranks(folder: str | os.PathLike[str]) -> dict[int, list[Path]]:
    """Find the checkpoints of all ranks in a folder, by their step."""
    found: dict[int, list[Path]] = {}
    for each in sorted(Path(folder).glob("rank-*")):
        for step, path in numbered(each).items():
            found.setdefault(step, []).append(path)
    return found


def optimizer_of(path: Path) -> dict[str, Any]:
    """Read the settings of the optimizer in a checkpoint, without its arrays; none if there is no such file or it does not have them."""
    return dict(head_of(path).get("optimizer", {}))


def head_of(path: Path) -> dict[str, Any]:
    """Read what a checkpoint has without its arrays; nothing if there is no such file, or it is damaged."""
    try:
        check_head(path)
        loaded: Any = mx.load(str(path), format="safetensors", return_metadata=True)
        return dict(json.loads(loaded[1]["mlxfp"]))
    except (OSError, RuntimeError, ValueError, KeyError, TypeError, AttributeError):  # `load_state` says what is wrong with it
        return {}


def name_of(step: int) -> str:
    """Return the file name of the checkpoint of a step, with zeros so that names sort like numbers."""
    return f"step-{step:08}.safetensors"


def numbered(folder: Path) -> dict[int, Path]:
    """Find the checkpoints in a folder by their step; none if the folder does not exist."""
    return {int(path.stem[5:]): path for path in folder.glob("step-*.safetensors") if re.fullmatch(r"step-\d{8,}", path.stem)}


def remove_unfinished(folder: Path, name: str) -> None:
    """Remove the unfinished files of a process that was killed while it wrote checkpoints of this name or glob pattern."""
    for path in folder.glob(f".{name}.*{PARTIAL}*"):
        path.unlink(missing_ok=True)


def json_text(rest: Mapping[str, Any]) -> str:
    """Write everything in a checkpoint but its arrays as JSON; raises `ArgumentTypeError` for a configuration that JSON cannot hold."""
    try:
        return json.dumps(rest, default=float)  # metrics may be numbers of numpy
    except (TypeError, ValueError) as error:
        raise ArgumentTypeError(
            f"A checkpoint holds what JSON can hold, and the config has something else: {error}. Write it as text."
        ) from error


def write_file(path: Path, arrays: Mapping[str, mx.array], metadata: dict[str, str]) -> None:
    """Write arrays to a file that is complete when it replaces an older one."""
    if not path.parent.is_dir():
        raise MissingFileError(f"There is no folder {path.parent} to write {path.name} into. Create it first.")
    if path.is_dir():
        raise CheckpointError(f"{path} is a folder, and a checkpoint is a file. Give a file in it: {path / 'last.safetensors'}.")
    try:
        with written_whole(path, suffix=".safetensors") as file:  # MLX would add this ending to any other
            mx.save_safetensors(str(file), dict(arrays), metadata)
    except RuntimeError as error:  # of MLX
        hint = "Is the disk full, or is writing not allowed there? An older file at this path is unchanged."
        raise CheckpointError(f"{path} could not be written: {str(error).rstrip('.')}. {hint}") from error


def read_file(path: Path) -> tuple[dict[str, mx.array], dict[str, Any]]:
    """Return the arrays of a checkpoint, and the other fields of `TrainState` and `Checkpoint`; `shards` as `shards_in` returns them."""
    arrays, fields = open_file(path)
    compute(path, arrays)  # now: MLX reads lazily, and later there may be another file at the path
    return arrays, fields


def compute(path: Path, arrays: Any) -> None:
    """Read arrays that MLX has not read yet; raises `CheckpointError` for a damaged file."""
    try:
        mx.eval(arrays)
    except (RuntimeError, ValueError) as error:
        raise _damaged(path, error) from error


def shards_in(rest: Mapping[str, Any]) -> dict[str, Any]:
    """Return which part of a state a checkpoint has: `index` and `count`; and, by name, the `axes` of parts, and the known `segments`."""
    found = rest.get("shards") or {"index": 0, "count": 1, "axes": {}}
    segments = {name: tuple(map(int, sizes)) for name, sizes in found.get("segments", {}).items()}  # older files have none
    return {"index": int(found["index"]), "count": int(found["count"]), "axes": dict(found["axes"]), "segments": segments}


def check_segments(path: Path, there: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    """Raise `CheckpointError` unless it is known how each array was divided in a file, and how it is to be divided now."""
    again = f", and write one more checkpoint with {there['count']} ranks, as many as wrote this one: any number can go on from that"
    for shards, where, then in ((there, os.fspath(path), again), (own, "the model of this run", "")):
        names = shards["axes"].keys() - shards["segments"].keys()
        unknown = sorted(name for name in names if name.startswith(("params.", "buffers.")))  # moments are divided as their parameters
        if unknown:
            raise CheckpointError(
                f"Parts of layers are put together segment by segment, and {where} does not say which segments {', '.join(unknown):.200} "
                "has: layers of MLX's shard_linear do not keep them, and older files do not have them. Divide the layers by "
                f"mlxfp.distributed.shard_linear{then}."
            )


def check_same_segments(path: Path, there: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    """Raise `CheckpointError` where a file, and the state of as many ranks that it is loaded into, are known to be divided differently."""
    for name, sizes in sorted(there["segments"].items()):
        if own["segments"].get(name, sizes) != sizes:
            raise CheckpointError(
                f"{path} has {name} in segments of {list(sizes)}, and the state it is loaded into has it in segments of "
                f"{list(own['segments'][name])}, of as many ranks. Pass the segments to shard_linear with which the checkpoint was written."
            )


def open_file(path: Path) -> tuple[dict[str, mx.array], dict[str, Any]]:
    """Return what `read_file` returns, with arrays that are not read yet."""
    if not path.is_file():
        raise MissingFileError(f"There is no checkpoint at {path}. Check the path, or write one with save_state.")
    try:
        check_head(path)
        loaded: Any = mx.load(str(path), format="safetensors", return_metadata=True)
        arrays, metadata = loaded
        rest = json.loads(metadata["mlxfp"])
        version = rest["format"], rest["version"]
        fields = _fields(rest) if version == FORMAT else {}
    except (RuntimeError, ValueError, KeyError, TypeError, AttributeError, ArithmeticError) as error:
        raise _damaged(path, error) from error
    if version != FORMAT:
        raise CheckpointError(
            f"{path} has the format {version}, and this version of mlxfp reads {FORMAT}. Read it with the mlxfp that wrote it."
        )
    return arrays, {**fields, "cursor": None if fields["cursor"] is None else Cursor.from_bytes(fields["cursor"])}


def _damaged(path: Path, error: Exception) -> CheckpointError:
    return CheckpointError(f"{path} is not a checkpoint, or is damaged: {error}. Use a file that save_state wrote.")


def _fields(rest: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "step": int(rest["step"]),
        "seed": int(rest["seed"]),
        "cursor": rest["cursor"] and base64.b64decode(rest["cursor"], validate=True),
        "history": tuple(Evaluation(int(step), dict(metrics)) for step, metrics in rest["history"]),
        "config": dict(rest["config"]),
        "optimizer": dict(rest.get("optimizer", {})),  # older files have none
        "shards": shards_in(rest),
        "running": RunningMetrics(
            {name: (float(total), float(weight)) for name, (total, weight) in rest["running"]["totals"].items()},
            tuple({name: float(value) for name, value in metrics.items()} for metrics in rest["running"]["unread"]),
            rest["running"].get("batches"),  # older files have none
        ),
    }
