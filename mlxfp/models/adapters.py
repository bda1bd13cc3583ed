"""Adapters: small factors that are trained in the place of a model's own weights, in the files of mlx-lm."""

from collections.abc import Callable, Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from os import PathLike
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx import nn
from mlx.nn.layers.distributed import (
    AllToShardedLinear,
    FullyShardedModule,
    QuantizedAllToShardedLinear,
    QuantizedShardedToAllLinear,
    ShardedToAllLinear,
)
from mlx.utils import tree_flatten

from mlxfp.models.folders import read_arrays, read_json, write_arrays, write_json
from mlxfp.models.layers import copy_modules, random_key
from mlxfp.support.checks import as_strings, check_integer, check_positive, check_types
from mlxfp.support.errors import ArgumentError, DataError, MissingFileError, listed, suggest

_LEAVES = ("lora_a", "lora_b", "m")  # the arrays of an adapter; m is the magnitude of DoRA
_DIVIDED = (
    FullyShardedModule,
    AllToShardedLinear,
    ShardedToAllLinear,
    QuantizedAllToShardedLinear,
    QuantizedShardedToAllLinear,
)
_CONFIG, _WEIGHTS = "adapter_config.json", "adapters.safetensors"
_ADVICE = "Make them with models.lora; or, in mlx-lm, call model.freeze(), then mlx_lm.tuner.utils.linear_to_lora_layers, before training."


class LoRALinear(nn.Module):
    """A linear layer, and a product of two small factors that is added to it, under the names of mlx-lm: see `lora`.

    >>> layer = LoRALinear(nn.Linear(4, 3), mx.ones((4, 2)), mx.zeros((2, 3)), scale=20.0, dropout=0.0)
    >>> layer(mx.ones((5, 4))).shape
    (5, 3)
    """

    def __init__(self, linear: nn.Module, lora_a: mx.array, lora_b: mx.array, *, scale: float, dropout: float) -> None:
        """Keep a layer, which may be quantized, and the factors, float[inputs, rank] and float[rank, outputs]."""
        super().__init__()
        self.linear, self.dropout, self.scale = linear, nn.Dropout(dropout), scale
        self.lora_a, self.lora_b = lora_a, lora_b

    def __call__(self, x: mx.array) -> mx.array:
        """Return `linear(x) + scale * (x @ lora_a @ lora_b)`, with dropout on the x of the factors: float[..., outputs]."""
        more = self.scale * ((self.dropout(x) @ self.lora_a) @ self.lora_b)
        changed: mx.array = self.linear(x) + more.astype(x.dtype)
        return changed


def lora(  # noqa: PLR0913  # all have defaults but one, and are named
    model: nn.Module, *, rank: int = 8, scale: float = 20.0, layers: Sequence[str] | None = None, dropout: float = 0.0, seed: int = 0
) -> nn.Module:
    """Return a copy of a model in which linear layers have adapters, and nothing else trains (Hu et al., "LoRA", 2021).

    An adapted layer computes `linear(x) + scale * (x @ lora_a @ lora_b)`: of its weights, float[outputs, inputs], only the two factors,
    float32[inputs, rank] and float32[rank, outputs], are trained. The second is zero at first, so the copy computes what the model does.
    `scale` is that of mlx-lm, for which other libraries write alpha / rank. The model may be any `mlx.nn` module, quantized ones too. It
    stays as it is, and shares its weights with the copy.

    `layers` are patterns of names, as in `["*.q_proj", "*.v_proj"]`; by default all linear layers in lists are adapted, which are the
    blocks of a transformer, and not its output. A new head has to train whole: call `unfreeze()` on it in the copy. `seed` draws the first
    factors.

    Raises `ArgumentError` for a pattern that is the name of no linear layer, and for a model that has adapters, or is divided between
    ranks: make adapters first, and call `fully_shard` on the copy.

    >>> import mlxfp as fp
    >>> model = fp.models.create("decoder", size="tiny", head="causal_lm", vocab_size=50)
    >>> model = fp.models.lora(model, rank=4, layers=["*.query", "*.value"])
    >>> sorted({name.rsplit(".", 1)[1] for name, _ in tree_flatten(model.trainable_parameters())})
    ['lora_a', 'lora_b']

    See also: `save_adapters` and `load_adapters`; `merge_adapters`, when they are trained.
    """
    check_types(nn.Module, model=model)
    check_positive(rank=rank)
    check_integer(seed=seed)
    check_types((int, float), scale=scale, dropout=dropout)
    if not 0 <= dropout < 1:
        raise ArgumentError(f"dropout must be at least 0 and less than 1, got dropout={dropout!r}.")
    linear = _linear_layers(model)
    chosen = _chosen(linear, None if layers is None else as_strings("layers", layers, empty=False))
    factors = {}
    for name in chosen:
        inputs, outputs = _sizes(linear[name])
        most = inputs**-0.5
        first = mx.random.uniform(-most, most, (inputs, rank), key=random_key(seed, "lora", name))
        factors[name] = first, mx.zeros((rank, outputs))
    return _adapted(model, factors, scale=scale, dropout=dropout)


def load_adapters(folder: str | PathLike[str], model: nn.Module) -> nn.Module:
    """Return a copy of a model with the adapters of a folder, as `save_adapters` and mlx-lm write it.

    The copy is what `lora` returns, with other factors. Raises `MissingFileError` for missing files, `DataError` for adapters of another
    kind than LoRA of linear layers, and for those that do not fit the layers of the model, naming one.

    >>> from tempfile import TemporaryDirectory
    >>> model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    >>> with TemporaryDirectory() as folder:
    ...     save_adapters(folder, lora(model, rank=2))
    ...     load_adapters(folder, model).layers[2].lora_a.shape
    (4, 2)
    """
    check_types(nn.Module, model=model)
    place = Path(folder)
    config, path = read_json(place / _CONFIG), place / _WEIGHTS
    if not path.is_file():
        raise MissingFileError(f"There is no {_WEIGHTS} in {str(folder)!r}. Pass the folder that save_adapters wrote.")
    kind, settings = config.get("fine_tune_type", "lora"), config.get("lora_parameters")
    if kind != "lora" or not isinstance(settings, dict) or not isinstance(settings.get("scale"), int | float):
        raise DataError(
            f"{place / _CONFIG} must describe LoRA with lora_parameters and their scale, got fine_tune_type={kind!r} and "
            f"lora_parameters={settings!r:.60}. Read other adapters with mlx_lm.load(..., adapter_path=...)."
        )
    arrays, linear = read_arrays(path), _linear_layers(model)
    factors = {}
    for name in sorted({name.rpartition(".")[0] for name in arrays}):
        first, second = (arrays.get(f"{name}.{leaf}") for leaf in _LEAVES[:2])
        sizes = _sizes(linear[name]) if name in linear else None
        if (
            first is None
            or second is None
            or sizes is None
            or (first.shape, second.shape)
            != (
                (sizes[0], first.shape[-1]),
                (first.shape[-1], sizes[1]),
            )
        ):
            found = {each: array.shape for each, array in arrays.items() if each.startswith(f"{name}.")}
            has = "no such linear layer" if sizes is None else f"a linear layer of {sizes[0]} inputs and {sizes[1]} outputs"
            raise DataError(
                f"{path} holds {found}, and the model has {has} there. Load the model that the adapters were trained with, or read other "
                "kinds of adapters with mlx_lm.load(..., adapter_path=...)."
            )
        factors[name] = first, second
    return _adapted(model, factors, scale=settings["scale"], dropout=settings.get("dropout", 0.0))


def merge_adapters(model: nn.Module) -> nn.Module:
    """Return a copy of a model without its adapters, which are added to the weights: it computes the same, up to rounding, and faster.

    The sums have the dtype of the weights. Quantized layers become plain ones, because to quantize the sums again would change what the
    adapters learned: `nn.quantize` does it where memory is short. The merged layers are frozen. Raises `ArgumentError` for
    a model without adapters, or with others than LoRA of linear layers.

    >>> model = lora(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)))
    >>> print(merge_adapters(model).layers[1])
    Linear(input_dims=4, output_dims=2, bias=True)
    """
    check_types(nn.Module, model=model)
    adapters = _adapters_of(model)
    if not adapters:
        raise ArgumentError(f"The model has no adapters to merge: {type(model).__name__} holds no layer with lora_a and lora_b.")
    for name, module in adapters.items():
        if "m" in module or not isinstance(module.get("linear"), nn.Linear | nn.QuantizedLinear):
            raise ArgumentError(f"merge_adapters takes LoRA of linear layers, got {type(module).__name__} in {name!r}. Use mlx_lm.fuse.")
    merged = {id(module): _merged(module) for module in adapters.values()}
    return _copied(model, lambda module: merged.get(id(module)))


def save_adapters(folder: str | PathLike[str], model: nn.Module) -> None:
    """Write the adapters of a model to a folder that `load_adapters` and `mlx_lm.load(..., adapter_path=folder)` read.

    Adapters are those of `lora`, or, in a model of mlx-lm, the LoRA or DoRA layers of `mlx_lm.tuner.utils.linear_to_lora_layers`. After
    training, first put the trained arrays into the model: `model.update(state.params)`. `adapters.safetensors` gets the arrays of the
    adapters alone. `adapter_config.json` gets their rank, scale and rate of dropout, and which layers have adapters, from which mlx-lm
    rebuilds them. Files of older adapters in the folder are replaced.

    Raises `ArgumentError` for a model without adapters, for adapters that differ in rank, scale or dropout, as the file has one of each,
    and for other trainable arrays, which would be lost.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     save_adapters(folder, lora(nn.Sequential(nn.Linear(4, 4))))
    ...     sorted(path.name for path in Path(folder).iterdir())
    ['adapter_config.json', 'adapters.safetensors']

    See also: `save`, for whole models of `mlxfp.models`.
    """
    check_types(nn.Module, model=model)
    adapters = _adapters_of(model)
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
    write_arrays(place / _WEIGHTS, arrays)
    write_json(place / _CONFIG, {"fine_tune_type": kind, "num_layers": count, "lora_parameters": settings | {"keys": keys}})


def _adapters_of(model: nn.Module) -> dict[str, Any]:
    return {name: module for name, module in model.named_modules() if "lora_a" in module and "lora_b" in module}


def _linear_layers(model: nn.Module) -> dict[str, Any]:
    """Return the linear layers of a model by name; raise `ArgumentError` for a model with adapters."""
    if adapters := _adapters_of(model):
        raise ArgumentError(f"The model has adapters already, in {next(iter(adapters))!r} for one. Merge them first, with merge_adapters.")
    if divided := sorted(name for name, module in model.named_modules() if isinstance(module, _DIVIDED)):
        raise ArgumentError(
            f"Adapters are made for whole layers, and the model is divided between ranks, at {listed(map(repr, divided))}. Make them "
            "first, and divide the copy by fully_shard."
        )
    return {name: module for name, module in model.named_modules() if isinstance(module, nn.Linear | nn.QuantizedLinear)}


def _chosen(linear: Collection[str], patterns: tuple[str, ...] | None) -> list[str]:
    """Return the names that match one of the patterns, or, without patterns, those of layers in lists."""
    if patterns is None:
        found = [name for name in linear if any(part.isdigit() for part in name.split("."))]
        if not found:
            raise ArgumentError(f"The model has no linear layers in lists, got {listed(map(repr, linear)) or 'none'}. Name some in layers.")
        return found
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in linear):
            names = listed(map(repr, linear)) or "none"
            raise ArgumentError(f"layers: no linear layer is named {pattern!r}.{suggest(pattern, linear)} The model has: {names}.")
    return [name for name in linear if any(fnmatchcase(name, pattern) for pattern in patterns)]


def _sizes(linear: Any) -> tuple[int, int]:
    """Return how many inputs and outputs a layer has."""
    outputs, inputs = linear.weight.shape
    return (inputs * 32 // linear.bits if isinstance(linear, nn.QuantizedLinear) else inputs), outputs


def _adapted(model: nn.Module, factors: Mapping[str, tuple[mx.array, mx.array]], *, scale: float, dropout: float) -> nn.Module:
    """Copy a model with these adapters, and freeze all else."""
    names = {id(module): name for name, module in model.named_modules() if name in factors}

    def adapter(module: nn.Module) -> nn.Module | None:
        if id(module) not in names:
            return None
        made = LoRALinear(_copied(module, lambda inner: None), *factors[names[id(module)]], scale=scale, dropout=dropout)
        return made.train(module.training)

    new = _copied(model, adapter).freeze()
    for made in _adapters_of(new).values():
        made.unfreeze(recurse=False, keys=list(_LEAVES[:2]))
    return new


def _copied(model: nn.Module, instead: Callable[[Any], Any]) -> nn.Module:
    new: nn.Module = copy_modules(model, instead)
    return new


def _merged(adapter: Any) -> nn.Module:
    linear = adapter.linear
    weight = linear.weight
    if isinstance(linear, nn.QuantizedLinear):
        how: dict[str, Any] = {"group_size": linear.group_size, "bits": linear.bits, "mode": linear.mode}
        weight = mx.dequantize(weight, linear.scales, linear.get("biases"), **how)
    outputs, inputs = weight.shape
    plain = nn.Linear(inputs, outputs, bias=False)
    added = adapter.scale * (adapter.lora_a @ adapter.lora_b).T.astype(mx.float32)
    plain.weight = (weight.astype(mx.float32) + added).astype(weight.dtype)
    if "bias" in linear:
        plain.bias = linear.bias
    return plain.freeze().train(adapter.training)


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
