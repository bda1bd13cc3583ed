"""Loading and saving of pretrained models in folders with the layout of transformers."""

from collections.abc import Collection, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx import nn
from mlx.utils import tree_unflatten

from mlxfp.models.catalogue import FORMATS, MODELS
from mlxfp.models.folders import CONFIG, HUB_FILES, read_json, read_weights, write_json, write_weights
from mlxfp.models.formats import Blueprint
from mlxfp.models.heads import HEADS
from mlxfp.models.layers import PRETRAINED, check_module, named_arrays, pretrained_in
from mlxfp.models.numeric_features import WithNumbers
from mlxfp.models.safetensors_files import differences
from mlxfp.models.tables.catalogue import TABLE_MODELS, build_table_model, is_table_model, table_json
from mlxfp.support.checks import check_positive, check_types, check_utf8
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, CheckpointError, DataError, MlxfpError
from mlxfp.support.hub import model_folder
from mlxfp.text.tokenizers.tokenizer import Tokenizer

_BODIES: dict[Any, Any] = {architecture.config: architecture.body for architecture in MODELS.values()}


def load(folder: str | PathLike[str], *, dtype: mx.Dtype = mx.float32, revision: str | None = None) -> nn.Module:
    """Read a model with its head from a folder with `config.json` and safetensors, written by transformers or `save`.

    Supported are BERT, ModernBERT, Llama and Qwen2: without a head, or with a head for masked or causal language modelling, or for row or
    token classification. Outputs equal the outputs of transformers. A network of `TABLE_MODELS` is read with all data that `predict_table`
    needs.

    The model is in evaluation mode. Weights are converted to `dtype`. The default is float32, because half precision loses small updates.
    `load_tokenizer(folder)` reads the tokenizer.

    A path such as `"org/name"`, if no such folder exists, names a model on the Hugging Face hub, downloaded into the cache of
    huggingface_hub. `revision` is a branch, a tag or a commit; the default is the newest version. The attribute `pretrained` of the model
    is `"org/name@commit"`. `save` and the checkpoints of `fit` store this text.

    No code in the files is executed: pickled weights (`pytorch_model.bin`) are refused. Raises `MissingFileError` for missing files,
    `DataError` for an unsupported config, and `CheckpointError` with the names of all missing, unexpected or wrongly shaped weights.

    >>> import mlxfp as fp
    >>> from tempfile import TemporaryDirectory
    >>> body = fp.models.Bert(fp.models.BertConfig(vocab_size=100, hidden_size=16, num_hidden_layers=1, num_attention_heads=2))
    >>> with TemporaryDirectory() as folder:
    ...     fp.models.save(folder, fp.models.Classifier(body, 3))
    ...     fp.models.load(folder)(mx.array([[5, 6, 7]])).shape
    (1, 3)

    See also: `load_body` for adding another head to the body.
    """
    return _load_from(folder, dtype, revision, body_only=False)


def load_body(folder: str | PathLike[str], *, dtype: mx.Dtype = mx.float32, revision: str | None = None) -> nn.Module:
    """Read only the backbone of a model, without the head. `Classifier(load_body(folder), 2)` adds a new head. See `load` for details.

    >>> from tempfile import TemporaryDirectory
    >>> import mlxfp as fp
    >>> config = fp.models.BertConfig(vocab_size=100, hidden_size=16, num_hidden_layers=1, num_attention_heads=2)
    >>> with TemporaryDirectory() as folder:
    ...     fp.models.save(folder, fp.models.MaskedLM(fp.models.Bert(config)))
    ...     fp.models.Classifier(fp.models.load_body(folder), 3)(mx.array([[5, 6, 7]])).shape
    (1, 3)
    """
    return _load_from(folder, dtype, revision, body_only=True)


def save(folder: str | PathLike[str], model: nn.Module, *, tokenizer: Tokenizer | None = None, shard_size: int = 5_000_000_000) -> None:
    """Write a model and its tokenizer to a folder for `load`, `load_tokenizer` and transformers.

    The model comes from `mlxfp.models` and may lack a head, or is a network of `TABLE_MODELS`. The head may be wrapped in `WithNumbers`.
    A table network is saved with the conversion of its table columns and outputs.

    The folder is created if necessary, and files of an older model in the folder are replaced. `config.json` has the keys of
    transformers. A head unknown to transformers is described in the section `mlxfp`. Weights are written to `model.safetensors` or,
    above `shard_size` bytes, to several files with an index.

    Raises `ArgumentTypeError` for other models, and `ArgumentError` for a tokenizer with more tokens than the model's vocabulary.

    >>> from tempfile import TemporaryDirectory
    >>> import mlxfp as fp
    >>> with TemporaryDirectory() as folder:
    ...     fp.models.save(folder, fp.models.Bert(fp.models.BertConfig(vocab_size=9, hidden_size=8, num_attention_heads=2)))
    ...     sorted(path.name for path in Path(folder).iterdir())
    ['config.json', 'model.safetensors']
    """
    check_module(model, "fp.models.save(folder, model)")
    check_utf8(folder, "folder")
    check_types((Tokenizer, type(None)), tokenizer=tokenizer)
    check_positive(shard_size=shard_size)
    if is_table_model(model):
        if tokenizer is not None:
            raise ArgumentError(f"A {type(model).__name__} has no tokenizer, got {tokenizer!r}. Leave out the argument tokenizer.")
        _write(Path(folder), model, named_arrays(model), table_json(model), shard_size)
        return
    head, numbers = (model.head, model.number_settings) if isinstance(model, WithNumbers) else (model, None)
    body, kind, settings = _take_apart(head)
    if tokenizer is not None and tokenizer.vocab_size > body.config.vocab_size:
        raise ArgumentError(
            f"The tokenizer has {tokenizer.vocab_size} tokens, but the model's vocabulary has {body.config.vocab_size}. "
            "Save the tokenizer used in training."
        )
    if problems := differences(_shapes(named_arrays(_build(body.config, kind, settings, numbers))), _shapes(named_arrays(model))):
        raise ArgumentError(
            f"The arrays of the model do not match its config: {'; '.join(problems):.300}. Merge adapters with merge_adapters before "
            "saving. If layers are quantized, save the model first, then quantize. To change a size, create a model with this size."
        )
    formats = (format for format in FORMATS.values() if format.config is type(body.config))
    format = next(format for format in formats if all(getattr(body.config, name) == value for name, value in format.constants.items()))
    plan, json = format.write(body.config, kind, settings, numbers)
    arrays = {plan.name_of(name): array for name, array in named_arrays(model).items()}
    json |= _token_ids(tokenizer) | {"dtype": str(body.tokens.weight.dtype).removeprefix("mlx.core.")}
    _write(Path(folder), model, arrays, json, shard_size)
    if tokenizer is not None:
        tokenizer.save(folder)


def _write(folder: Path, model: nn.Module, arrays: Mapping[str, mx.array], json: Mapping[str, Any], shard_size: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_weights(folder, arrays, shard_size)
    write_json(folder / CONFIG, {**json, PRETRAINED: names[0]} if (names := pretrained_in(model)) else json)


def _load_from(path: str | PathLike[str], dtype: mx.Dtype, revision: str | None, *, body_only: bool) -> nn.Module:
    folder, hub_name = model_folder(path, revision=revision, files=HUB_FILES)
    model = _load(folder, dtype, body_only=body_only)
    pretrained = hub_name or read_json(folder / CONFIG).get(PRETRAINED)
    if isinstance(pretrained, str):
        head: Any = model.head if isinstance(model, WithNumbers) else model
        setattr(getattr(head, "body", head), PRETRAINED, pretrained)
    return model


def _load(folder: Path, dtype: mx.Dtype, *, body_only: bool) -> nn.Module:
    check_types(mx.Dtype, dtype=dtype)
    if not mx.issubdtype(dtype, mx.floating):
        raise ArgumentError(f"dtype must be a floating-point type, got {dtype}. Pass mx.float32, mx.bfloat16 or mx.float16.")
    json, weights = read_json(folder / CONFIG), read_weights(folder)
    plan: Blueprint | None = None
    try:
        if str(json.get("model_type")) in TABLE_MODELS and not body_only:
            model = build_table_model(json, str(folder / CONFIG))
        else:
            plan = _plan(json, weights, body_only=body_only)
            model = _build(plan.config, plan.kind, plan.settings, plan.numbers)
    except MlxfpError as error:
        error.add_note(f"while reading {folder / CONFIG}")
        raise
    except (TypeError, ValueError, KeyError, AttributeError, ArithmeticError) as error:
        raise DataError(f"{folder / CONFIG} does not describe a model: {type(error).__name__}: {error}.") from error
    names = {name: name if plan is None else plan.name_of(name) for name in named_arrays(model)}  # name in the model -> name in the files
    if plan is not None:
        weights = plan.current({name: array for name, array in weights.items() if not body_only or name.startswith(plan.prefix)})
        weights = {name: array for name, array in weights.items() if not plan.drops(name) or name in set(names.values())}
    if problems := differences({names[name]: text for name, text in _shapes(named_arrays(model)).items()}, _shapes(weights)):
        listed = "\n  ".join(problems)
        raise CheckpointError(f"The weights in {str(folder)!r} do not match the {type(model).__name__} in {CONFIG}:\n  {listed}")
    model.update(tree_unflatten([(name, weights[name_in_file]) for name, name_in_file in names.items()]))
    model.set_dtype(dtype)  # integers keep their dtype
    mx.eval(model.parameters())
    return model.eval()


def _plan(json: Mapping[str, Any], weights: Collection[str], *, body_only: bool) -> Blueprint:
    if "quantization" in json or "quantization_config" in json:
        raise DataError("The weights are quantized, and mlxfp cannot read quantized weights. Use the folder of the original model.")
    format = FORMATS[str(json.get("model_type"))]
    plan = format.read_body(json, weights) if body_only else format.read(json, weights)
    # The check comes before the creation of the model, because a wrong number of blocks could exhaust the memory.
    if plan.config.num_hidden_layers > len(weights):
        raise DataError(
            f"num_hidden_layers is {plan.config.num_hidden_layers}, but the files have only {len(weights)} arrays, less than one array per "
            "layer. Correct num_hidden_layers in config.json."
        )
    return plan


def _build(config: Any, kind: str | None, settings: Mapping[str, Any], numbers: Mapping[str, Any] | None) -> nn.Module:
    """Create the model. MLX is lazy, so initial weights that the file replaces are never computed."""
    body = _BODIES[type(config)](config)
    model: nn.Module = body if kind is None else HEADS[kind](body, **settings)
    return model if numbers is None else WithNumbers(model, **numbers)


def _shapes(arrays: Mapping[str, mx.array]) -> dict[str, str]:
    """Describe arrays by name. All floating-point dtypes have the same description, because `load` converts the weights."""
    return {name: f"{_kind(array.dtype)}{list(array.shape)}" for name, array in arrays.items()}


def _kind(dtype: mx.Dtype) -> str:
    return "float" if mx.issubdtype(dtype, mx.floating) else str(dtype).removeprefix("mlx.core.")


def _take_apart(model: nn.Module) -> tuple[Any, str | None, dict[str, Any]]:
    """Return the backbone of a model, the key of the head in `HEADS`, and the settings of the head. Without a head, the key is None."""
    kind = next((name for name, head in HEADS.items() if type(model) is head), None)
    body = model if kind is None else model.body
    if type(body) not in _BODIES.values():
        raise ArgumentTypeError(
            f"save writes the models of mlxfp.models, got {type(model).__name__} of {type(body).__name__}. "
            "Save another model with model.save_weights(file), or a training state with save_state."
        )
    return body, kind, {} if kind is None else model.settings


def _token_ids(tokenizer: Tokenizer | None) -> dict[str, Any]:
    """Return the ids of special tokens for config.json.

    Missing ids are written as null, because defaults of transformers may exceed the vocabulary.
    """
    roles: Collection[str] = ("pad", "bos", "eos", "cls", "sep")
    return {f"{role}_token_id": getattr(tokenizer, f"{role}_id") if getattr(tokenizer, f"{role}_token", None) else None for role in roles}
