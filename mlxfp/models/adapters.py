"""LoRA adapters: small trained factors added to frozen weights, in the file format of mlx-lm."""

from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from os import PathLike
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx import nn
from mlx.nn.layers import distributed
from mlx.utils import tree_flatten

from mlxfp.models.folders import read_arrays, read_json, write_arrays, write_json
from mlxfp.models.layers import check_module, copy_modules, random_key
from mlxfp.support.checks import as_strings, check_integer, check_positive, check_types
from mlxfp.support.errors import ArgumentError, DataError, MissingFileError, listed, suggest

_LEAVES = ("lora_a", "lora_b", "m")  # arrays of an adapter; m is the magnitude in DoRA
_CONFIG, _WEIGHTS = "adapter_config.json", "adapters.safetensors"
_ADVICE = "Add adapters before training: with models.lora, or in mlx-lm with model.freeze() and mlx_lm.tuner.utils.linear_to_lora_layers."


class LoRALinear(nn.Module):
    """Linear layer with a LoRA adapter: adds the product of the input and two small matrices to the output. See `lora`.

    The attributes have the same names as in mlx-lm, so that mlx-lm can read the weights.

    >>> layer = LoRALinear(nn.Linear(4, 3), mx.ones((4, 2)), mx.zeros((2, 3)), scale=20.0, dropout=0.0)
    >>> layer(mx.ones((5, 4))).shape
    (5, 3)
    """

    def __init__(self, linear: nn.Module, lora_a: mx.array, lora_b: mx.array, *, scale: float, dropout: float) -> None:
        """Add two factors to the layer `linear` (quantized or not): `lora_a`, float[inputs, rank], and `lora_b`, float[rank, outputs]."""
        super().__init__()
        self.linear, self.dropout, self.scale = linear, nn.Dropout(dropout), scale
        self.lora_a, self.lora_b = lora_a, lora_b

    def __call__(self, x: mx.array) -> mx.array:
        """Return `linear(x) + scale * (dropout(x) @ lora_a @ lora_b)`: float[..., outputs]."""
        more = self.scale * ((self.dropout(x) @ self.lora_a) @ self.lora_b)
        changed: mx.array = self.linear(x) + more.astype(x.dtype)
        return changed


def lora(  # noqa: PLR0913
    model: nn.Module, *, rank: int = 8, scale: float = 20.0, layers: Sequence[str] | None = None, dropout: float = 0.0, seed: int = 0
) -> nn.Module:
    """Return a copy of a model with trainable adapters in linear layers and all other weights frozen (Hu et al., "LoRA", 2021).

    An adapted layer computes `linear(x) + scale * (x @ lora_a @ lora_b)`. Only the factors, float32[inputs, rank] and float32[rank,
    outputs], are trained. `lora_b` starts at zero, so the copy initially computes the same outputs as the model. `scale` is defined as in
    mlx-lm; other libraries write alpha / rank.

    The model may be any `mlx.nn` module, also with quantized layers. The model is not changed. The copy and the model share the frozen
    weights.

    `layers` are name patterns, as in `["*.q_proj", "*.v_proj"]`. By default, all linear layers inside lists are adapted: the blocks of a
    transformer, but not the output layer. A new head must be trained completely: call `unfreeze()` on the head of the copy. `seed`
    initializes `lora_a`.

    Raises `ArgumentError` for a pattern that matches no linear layer, for a model with adapters, and for a model that is sharded over
    ranks. For a sharded model, call `lora` first, then `fully_shard` on the copy.

    >>> import mlxfp as fp
    >>> model = fp.models.create("decoder", size="tiny", head="causal_lm", vocab_size=50)
    >>> model = fp.models.lora(model, rank=4, layers=["*.query", "*.value"])
    >>> sorted({name.rsplit(".", 1)[1] for name, _ in tree_flatten(model.trainable_parameters())})
    ['lora_a', 'lora_b']

    See also: `save_adapters` and `load_adapters`; `merge_adapters` after training.
    """
    check_module(model)
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
    """Return a copy of a model with the adapters in a folder written by `save_adapters` or mlx-lm.

    The copy has the same layers as a copy made by `lora`. Raises `MissingFileError` for missing files. Raises `DataError` with the name
    of a layer for adapters that do not fit the model, and for adapters other than LoRA of linear layers.

    >>> from tempfile import TemporaryDirectory
    >>> model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    >>> with TemporaryDirectory() as folder:
    ...     save_adapters(folder, lora(model, rank=2))
    ...     load_adapters(folder, model).layers[2].lora_a.shape
    (4, 2)
    """
    check_module(model, "fp.models.load_adapters(folder, model)")
    source = Path(folder)
    config, path = read_json(source / _CONFIG), source / _WEIGHTS
    if not path.is_file():
        raise MissingFileError(f"There is no {_WEIGHTS} in {str(folder)!r}. Pass a folder written by save_adapters.")
    kind, settings = config.get("fine_tune_type", "lora"), config.get("lora_parameters")
    if kind != "lora" or not isinstance(settings, dict) or not isinstance(settings.get("scale"), int | float):
        raise DataError(
            f"{source / _CONFIG} must describe LoRA with a scale in lora_parameters, got fine_tune_type={kind!r} and "
            f"lora_parameters={settings!r:.60}. Read other adapters with mlx_lm.load(..., adapter_path=...)."
        )
    arrays, linear = read_arrays(path), _linear_layers(model)
    factors = {}
    for name in sorted({name.rpartition(".")[0] for name in arrays}):
        first, second = (arrays.get(f"{name}.{leaf}") for leaf in _LEAVES[:2])
        sizes = _sizes(linear[name]) if name in linear else None
        rank = 0 if first is None else first.shape[-1]
        if first is None or second is None or sizes is None or (first.shape, second.shape) != ((sizes[0], rank), (rank, sizes[1])):
            shapes = {key: array.shape for key, array in arrays.items() if key.startswith(f"{name}.")}
            layer = "no linear layer" if sizes is None else f"a linear layer of {sizes[0]} inputs and {sizes[1]} outputs"
            raise DataError(
                f"{path} contains adapter weights of shapes {shapes}, but the model has {layer} with the name {name!r}. Pass the "
                "base model that was used to train the adapters. Read adapters other than LoRA with mlx_lm.load(..., adapter_path=...)."
            )
        factors[name] = first, second
    return _adapted(model, factors, scale=settings["scale"], dropout=settings.get("dropout", 0.0))


def merge_adapters(model: nn.Module) -> nn.Module:
    """Return a copy of a model with the adapters added to the weights. The copy is faster and computes the same outputs, up to rounding.

    The new weights have the dtype of the old weights. Quantized layers become plain layers, because quantizing the new weights would
    change the learned adapters. To save memory, call `nn.quantize` on the copy. Layers with new weights are frozen. Raises `ArgumentError`
    for a model without adapters, and for adapters other than LoRA of linear layers.

    >>> model = lora(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)))
    >>> print(merge_adapters(model).layers[1])
    Linear(input_dims=4, output_dims=2, bias=True)
    """
    check_module(model)
    adapters = _adapters_of(model)
    if not adapters:
        raise ArgumentError(
            f"The model has no adapters to merge: {type(model).__name__} has no layer with lora_a and lora_b. Pass the result of "
            f"models.lora."
        )
    for name, module in adapters.items():
        if "m" in module or not isinstance(module.get("linear"), nn.Linear | nn.QuantizedLinear):
            raise ArgumentError(
                f"merge_adapters merges only LoRA adapters of linear layers, but layer {name!r} is a {type(module).__name__}. Write "
                "save_adapters(folder, model), and then run the command mlx_lm.fuse --adapter-path FOLDER."
            )
    merged = {id(module): _merged(module) for module in adapters.values()}
    new: nn.Module = copy_modules(model, lambda module: merged.get(id(module)))
    return new


def save_adapters(folder: str | PathLike[str], model: nn.Module) -> None:
    """Write the adapters of a model to a folder for `load_adapters` and `mlx_lm.load(..., adapter_path=folder)`.

    Adapters come from `lora` or, in models of mlx-lm, from `mlx_lm.tuner.utils.linear_to_lora_layers` (LoRA or DoRA). After training,
    first copy the trained arrays into the model: `model.update(state.params)`.

    `adapters.safetensors` receives only the arrays of the adapters. `adapter_config.json` receives rank, scale, dropout rate and the
    names of the adapted layers, which mlx-lm needs to rebuild the adapters. Files of older adapters in the folder are replaced.

    Raises `ArgumentError` for a model without adapters, and for other trainable arrays, which would be lost. Also raises `ArgumentError` if
    adapters differ in rank, scale or dropout, because the file stores one value of each.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     save_adapters(folder, lora(nn.Sequential(nn.Linear(4, 4))))
    ...     sorted(path.name for path in Path(folder).iterdir())
    ['adapter_config.json', 'adapters.safetensors']

    See also: `save`, for whole models of `mlxfp.models`.
    """
    check_module(model, "fp.models.save_adapters(folder, model)")
    adapters = _adapters_of(model)
    if not adapters:
        raise ArgumentError(f"The model has no adapters: {type(model).__name__} has no layer with lora_a and lora_b. {_ADVICE}")
    arrays = {f"{name}.{leaf}": module[leaf] for name, module in adapters.items() for leaf in _LEAVES if leaf in module}
    trained: Mapping[str, Any] = tree_flatten(model.trainable_parameters(), destination={})  # type: ignore[assignment]  # the destination
    if others := sorted(set(trained) - set(arrays)):
        raise ArgumentError(
            f"The model has {len(others)} trainable arrays besides the adapters, such as {others[0]!r}. These arrays would be lost, "
            f"because an adapter file cannot store them. {_ADVICE} Or save the whole model with mlx_lm.utils.save_model."
        )
    settings = _settings(adapters)
    kind = settings.pop("kind")
    count, keys = _find_keys(model, set(adapters))
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    write_arrays(target / _WEIGHTS, arrays)
    write_json(target / _CONFIG, {"fine_tune_type": kind, "num_layers": count, "lora_parameters": settings | {"keys": keys}})


def _adapters_of(model: nn.Module) -> dict[str, Any]:
    return {name: module for name, module in model.named_modules() if "lora_a" in module and "lora_b" in module}


def _linear_layers(model: nn.Module) -> dict[str, Any]:
    """Return the linear layers of a model by name. Raise `ArgumentError` for a model with adapters."""
    if adapters := _adapters_of(model):
        raise ArgumentError(
            f"The model already has adapters, for example in {next(iter(adapters))!r}. Merge these adapters first with merge_adapters."
        )
    if divided := sorted(name for name, module in model.named_modules() if type(module).__module__ == distributed.__name__):
        raise ArgumentError(
            f"Adapters need whole layers, but the model is sharded over ranks at {listed(map(repr, divided))}. Call lora first, then "
            "fully_shard on the copy."
        )
    return {name: module for name, module in model.named_modules() if isinstance(module, nn.Linear | nn.QuantizedLinear)}


def _chosen(linear: Collection[str], patterns: tuple[str, ...] | None) -> list[str]:
    """Return the names of the layers to adapt: all names that match at least one pattern.

    Without patterns, return the names of layers inside lists of modules, such as `layers.0.q_proj` in a list of transformer blocks.
    """
    if patterns is None:
        in_lists = [name for name in linear if any(part.isdigit() for part in name.split("."))]
        if not in_lists:
            raise ArgumentError(
                "By default, lora adapts only linear layers inside lists of modules, but the model has no such layers. Linear layers of "
                f"the model: {listed(map(repr, linear)) or 'none'}. Name the layers to adapt in layers=[...]."
            )
        return in_lists
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in linear):
            names = listed(map(repr, linear)) or "none"
            raise ArgumentError(f"layers: no linear layer is named {pattern!r}.{suggest(pattern, linear)} The model has: {names}.")
    return [name for name in linear if any(fnmatchcase(name, pattern) for pattern in patterns)]


def _sizes(linear: Any) -> tuple[int, int]:
    """Return the number of inputs and outputs of a layer."""
    outputs, inputs = linear.weight.shape
    return (inputs * 32 // linear.bits if isinstance(linear, nn.QuantizedLinear) else inputs), outputs


def _adapted(model: nn.Module, factors: Mapping[str, tuple[mx.array, mx.array]], *, scale: float, dropout: float) -> nn.Module:
    """Copy a model, add the adapters, and freeze all other weights."""
    names = {id(module): name for name, module in model.named_modules() if name in factors}

    def adapter(module: nn.Module) -> nn.Module | None:
        if id(module) not in names:
            return None
        layer = LoRALinear(copy_modules(module, lambda inner: None), *factors[names[id(module)]], scale=scale, dropout=dropout)
        return layer.train(module.training)

    new: nn.Module = copy_modules(model, adapter).freeze()
    for adapted in _adapters_of(new).values():
        adapted.unfreeze(recurse=False, keys=list(_LEAVES[:2]))
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
    """Return the common settings of all adapters: kind, rank, scale and dropout rate."""
    settings_by_name = {name: _settings_of(module) for name, module in adapters.items()}
    first, common = next(iter(settings_by_name.items()))
    for name, settings in settings_by_name.items():
        for key, value in settings.items():
            if value != common[key]:
                raise ArgumentError(
                    f"All adapters in a file need the same {key}, got {common[key]!r} in {first!r} and {value!r} in {name!r}. "
                    "Create all adapters with one call of mlx_lm.tuner.utils.linear_to_lora_layers."
                )
    return common


def _settings_of(module: Any) -> dict[str, Any]:
    experts = module.lora_b.ndim == 3  # shape of lora_b: [experts, outputs, rank] in a mixture of experts, otherwise [rank, outputs]
    return {
        "kind": "dora" if "m" in module else "lora",
        "rank": module.lora_b.shape[-1 if experts else 0],
        "scale": module.scale,
        "dropout": round(1 - module.dropout._p_1, 9),  # noqa: SLF001  # MLX has no public attribute
    }


def _find_keys(model: Any, adapters: set[str]) -> tuple[int, list[str]]:
    """Return the settings `num_layers` and `keys` of mlx-lm for the layers in `adapters`.

    mlx-lm adapts the last `num_layers` blocks. `keys` are the names of the adapted layers. A name relative to a block, such as
    `self_attn.q_proj`, applies to each of the last blocks. A name relative to the model, such as `lm_head`, applies to a single layer.
    """
    names = {id(module): name for name, module in model.named_modules()}
    blocks = [f"{names[id(block)]}." for block in getattr(model, "layers", ())]
    inner = [{name.removeprefix(block) for name in adapters if name.startswith(block)} for block in blocks]
    count = len(blocks) - next((index for index, keys in enumerate(inner) if keys), 0)
    keys = set[str]().union(*inner)
    rebuilt = {block + key for block in blocks[-count:] for key in keys} & set(names.values())
    outer = {name for name in adapters if not name.startswith(tuple(blocks))}
    return count, sorted(keys | outer if rebuilt | outer == adapters else adapters)
