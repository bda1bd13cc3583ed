"""Files of a model folder: `config.json`, and weights in one safetensors file or in shards with an index. No file content is executed."""

import json as jsons
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx

from mlxfp.models.safetensors_files import read_safetensors, write_safetensors
from mlxfp.support.atomic_files import write_whole
from mlxfp.support.errors import CheckpointError, DataError, MissingFileError, suggest_path

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
HUB_FILES = (CONFIG, WEIGHTS, INDEX, "model-*-of-*.safetensors")

# Name patterns of weight files from other programs. A file that matches one of the first five patterns can execute code when read.
_OTHERS = ("*.bin", "*.pt", "*.pth", "*.pkl", "*.ckpt", "*.bin.index.json", "*.h5", "*.msgpack", "*.npz", "*.gguf")


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object from a file. Raises `MissingFileError` or `DataError` with the path."""
    if not path.is_file():
        folder = path.parent
        near = "" if folder.exists() else suggest_path(folder)
        if (folder / "config.yaml").is_file():
            near = f" To write the models of a run to a folder: mlxfp export {folder} --out FOLDER."
        reason = f", so {str(folder)!r} is not the folder of a model" if folder.exists() and path.name == CONFIG else ""
        raise MissingFileError(
            f"There is no {path.name} in {str(folder)!r}{reason}.{near} Pass the folder of a model, or a name on the hub, such as "
            "google-bert/bert-base-uncased."
        )
    try:
        content = jsons.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is not valid JSON, or is nested too deeply: {error}. Download or write the file again.") from error
    if not isinstance(content, dict):
        raise DataError(f"{path} must contain a JSON object, got {type(content).__name__}.")
    return content


def read_weights(folder: Path) -> dict[str, mx.array]:
    """Read all weights in a folder. Raises `MissingFileError` for missing weights, and `CheckpointError` for damaged files."""
    index, whole = folder / INDEX, folder / WEIGHTS
    if index.is_file():
        names = _shards(index)
    elif whole.is_file():
        names = [WEIGHTS]
    else:
        raise MissingFileError(_no_weights(folder))
    if missing := [name for name in names if not (folder / name).is_file()]:
        raise MissingFileError(f"{index} lists missing files: {', '.join(missing)}. Download all files of the model.")
    return {name: array for file in names for name, array in read_arrays(folder / file).items()}


def write_weights(folder: Path, weights: Mapping[str, mx.array], shard_size: int) -> None:
    """Write the weights of a model to a folder, each file atomically. Then remove files with weights of an older model.

    Weights with more than `shard_size` bytes in total are divided into several files (shards). The index of the shards is written last.
    """
    divided = _divide(weights, shard_size)
    count = len(divided)
    shards = {WEIGHTS if count == 1 else f"model-{number:05}-of-{count:05}.safetensors": shard for number, shard in enumerate(divided, 1)}
    for name, shard in shards.items():
        write_arrays(folder / name, shard)
    if count == 1:
        (folder / INDEX).unlink(missing_ok=True)
    else:
        weight_map = {weight: name for name, shard in shards.items() for weight in shard}
        size = sum(array.nbytes for array in weights.values())
        write_json(folder / INDEX, {"metadata": {"total_size": size}, "weight_map": dict(sorted(weight_map.items()))})
    for old in {WEIGHTS, *(path.name for path in folder.glob("model-*-of-*.safetensors"))} - set(shards):
        (folder / old).unlink(missing_ok=True)


def write_arrays(path: Path, arrays: Mapping[str, mx.array]) -> None:
    """Write a safetensors file atomically."""
    hint = "Is the disk full, or the folder read-only? The files in the folder may now belong to two models."
    # The metadata contain "pt", because transformers requires the name of a framework. Arrays have the layout of PyTorch.
    write_safetensors(path, arrays, {"format": "pt"}, hint=hint)


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON object atomically."""
    write_whole(path, (jsons.dumps(value, indent=2, ensure_ascii=False) + "\n").encode())


def _shards(index: Path) -> list[str]:
    """Return the file names in an index. Paths are refused, because a path could point outside the folder."""
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(name, str) for name in weight_map.values()):
        raise DataError(f"{index} has no weight_map, an object that maps weight names to file names. Download the model again.")
    names = sorted(set(weight_map.values()))
    if strange := [name for name in names if Path(name).name != name or not name.endswith(".safetensors")]:
        raise DataError(f"{index} lists {', '.join(map(repr, strange))}, but only safetensors files in the same folder are allowed.")
    return names


def read_arrays(path: Path) -> dict[str, mx.array]:
    """Read a safetensors file. Raises `CheckpointError` for a damaged file."""
    try:
        arrays, _ = read_safetensors(path)
        mx.eval(arrays)  # MLX reads lazily, and the file may be replaced before reading
    except (RuntimeError, ValueError) as error:
        raise CheckpointError(
            f"{path} is not a safetensors file, or is damaged: {str(error).rstrip('.')}. Download or write the file again."
        ) from error
    return arrays


def _no_weights(folder: Path) -> str:
    others = sorted({path.name for pattern in _OTHERS for path in folder.glob(pattern)})
    if not others:
        return f"The folder {str(folder)!r} has no weights: neither {WEIGHTS} nor {INDEX}. Pass a model with safetensors."
    return (
        f"The folder {str(folder)!r} has weights only as {', '.join(others)}, but mlxfp reads only safetensors, because reading pickles "
        "such as pytorch_model.bin can execute code. If you trust the files, convert them with transformers: "
        "AutoModel.from_pretrained(folder).save_pretrained(new_folder). Replace AutoModel by the class of the model with its head."
    )


def _divide(weights: Mapping[str, mx.array], size: int) -> list[dict[str, mx.array]]:
    """Divide weights into shards of at most `size` bytes, in order. A larger weight forms its own shard."""
    shards: list[dict[str, mx.array]] = [{}]
    room = size
    for name, array in weights.items():
        if array.nbytes > room and shards[-1]:
            shards.append({})
            room = size
        shards[-1][name] = array
        room -= array.nbytes
    return shards
