"""Adapters of mlx-lm (LoRA and DoRA), written as `mlx_lm.load` reads them."""

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from mlx import nn
from mlx.utils import tree_flatten

from mlxfp.core.checks import check_types
from mlxfp.core.errors import ArgumentError
from mlxfp.models.folders import write_arrays, write_json

_LEAVES = ("lora_a", "lora_b", "m")  # the arrays of an adapter; m is the magnitude of DoRA
_ADVICE = "Before training, call model.freeze(), then mlx_lm.tuner.utils.linear_to_lora_layers."


def save_adapters(folder: str | PathLike[str], model: nn.Module) -> None:
    """Write the adapters of a model of mlx-lm to a folder that `mlx_lm.load(..., adapter_path=folder)` reads.

    Adapters are the LoRA or DoRA layers of `mlx_lm.tuner.utils.linear_to_lora_layers`. After training, first put the trained arrays into
    the model: `model.update(state.params)`. `adapters.safetensors` gets the arrays of the adapters alone. `adapter_config.json` gets
    their rank, scale and rate of dropout, and which layers have adapters, from which mlx-lm rebuilds them. Files of older adapters in
    the folder are replaced.

    Raises `ArgumentError` for a model without adapters, for adapters that differ in rank, scale or dropout, as the file has one of each,
    and for other trainable arrays, which would be lost.

    >>> from tempfile import TemporaryDirectory
    >>> import mlx.core as mx
    >>> class Lora(nn.Module):  # as mlx-lm writes it: a layer and two small factors
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.linear, self.dropout, self.scale = nn.Linear(4, 4).freeze(), nn.Dropout(0.1), 20.0
    ...         self.lora_a, self.lora_b = mx.zeros((4, 2)), mx.zeros((2, 4))
    >>> class Model(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.layers = [nn.Linear(4, 4).freeze(), Lora()]
    >>> with TemporaryDirectory() as folder:
    ...     save_adapters(folder, Model())
    ...     sorted(path.name for path in Path(folder).iterdir())
    ['adapter_config.json', 'adapters.safetensors']

    See also: `save`, for whole models of `mlxfp.models`.
    """
    check_types(nn.Module, model=model)
    adapters = {name: module for name, module in model.named_modules() if "lora_a" in module and "lora_b" in module}
    if not adapters:
        raise ArgumentError(f"The model has no adapters: {type(model).__name__} holds no layer with lora_a and lora_b. {_ADVICE}")
    arrays = {f"{name}.{leaf}": module[leaf] for name, module in adapters.items() for leaf in _LEAVES if leaf in module}
    trained: Mapping[str, Any] = tree_flatten(model.trainable_parameters(), destination={})  # type: ignore[assignment]  # the destination
    if others := sorted(set(trained) - set(arrays)):
        raise ArgumentError(
            f"The model has {len(others)} trainable arrays in addition to its adapters, such as {others[0]!r}: mlx-lm does not read them "
            f"from a file of adapters, so what they learned would be lost. {_ADVICE} Or save the whole model with "
            "mlx_lm.utils.save_model."
        )
    settings = _settings(adapters)
    kind = settings.pop("kind")
    count, keys = _find_keys(model, set(adapters))
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    write_arrays(place / "adapters.safetensors", arrays)
    write_json(place / "adapter_config.json", {"fine_tune_type": kind, "num_layers": count, "lora_parameters": settings | {"keys": keys}})


def _settings(adapters: Mapping[str, Any]) -> dict[str, Any]:
    """Return what all adapters have in common: their kind, rank, scale and rate of dropout."""
    found = {name: _settings_of(module) for name, module in adapters.items()}
    first, common = next(iter(found.items()))
    for name, settings in found.items():
        for key, value in settings.items():
            if value != common[key]:
                raise ArgumentError(
                    f"The adapters of a file have one {key}, got {common[key]!r} in {first!r} and {value!r} in {name!r}. "
                    "Make all of them with one call of mlx_lm.tuner.utils.linear_to_lora_layers."
                )
    return common


def _settings_of(module: Any) -> dict[str, Any]:
    experts = module.lora_b.ndim == 3  # of a mixture of experts: lora_b is [experts, outputs, rank], else [rank, outputs]
    return {
        "kind": "dora" if "m" in module else "lora",
        "rank": module.lora_b.shape[-1 if experts else 0],
        "scale": module.scale,
        "dropout": round(1 - module.dropout._p_1, 9),  # noqa: SLF001  # MLX keeps the rate nowhere else
    }


def _find_keys(model: Any, adapters: set[str]) -> tuple[int, list[str]]:
    """Return how many of the last blocks have adapters, and the names of the adapted layers, as mlx-lm finds them again.

    mlx-lm takes names inside of a block, which then hold for all of the last blocks, and names inside of the model.
    """
    names = {id(module): name for name, module in model.named_modules()}
    blocks = [f"{names[id(block)]}." for block in getattr(model, "layers", ())]
    inner = [{name.removeprefix(block) for name in adapters if name.startswith(block)} for block in blocks]
    count = len(blocks) - next((place for place, keys in enumerate(inner) if keys), 0)
    keys = set[str]().union(*inner)
    again = {block + key for block in blocks[-count:] for key in keys} & set(names.values())
    outer = {name for name in adapters if not name.startswith(tuple(blocks))}
    return count, sorted(keys | outer if again | outer == adapters else adapters)
