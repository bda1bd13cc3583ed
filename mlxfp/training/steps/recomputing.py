"""Gradient checkpointing: the backward pass recomputes the activations of blocks, to save memory.

Source: Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016. Plain `mx.checkpoint` has three problems: dropout draws a
different mask in the backward pass, arrays inside attrs values get no gradient, and a module that updates buffers updates them twice.
"""

from collections.abc import Iterator
from typing import Any

import mlx.core as mx
from mlx import nn

from mlxfp.support.errors import ArgumentError
from mlxfp.support.trees import TreeDef, flatten, unflatten
from mlxfp.training.steps.drawing import drawing_from, generator, set_generator
from mlxfp.training.steps.modules import changed_arrays, copy_module, get_arrays, put_arrays, split_arrays, with_arrays
from mlxfp.training.steps.precision import is_floating


def blocks_of(model: nn.Module) -> tuple[nn.Module, ...]:
    """Return the repeated blocks of a module: the items of lists with two or more modules of one type. Lists inside a block are ignored.

    Raises `ArgumentError` if the module has no such list.
    """
    blocks = tuple(_blocks(model))
    if not blocks:
        raise ArgumentError(
            f"checkpoint_blocks needs a list of two or more modules of one type, and {type(model).__name__} has none. "
            "Keep its blocks in a list, as in self.blocks = [Block() for _ in range(depth)]."
        )
    return blocks


def recompute_blocks(model: nn.Module) -> None:
    """Make the repeated blocks of a module recompute activations in the backward pass.

    This function modifies the module, so pass a private copy. If a block updates a buffer of more than 4,096 elements, the block must
    assign a new array to the attribute, as `nn.BatchNorm` does. A change in place, as with `+=`, is not detected (see
    `modules.changed_arrays`).
    """
    for block in blocks_of(model):
        kind: Any = type(block)
        block.__class__ = type(kind.__name__, (kind,), {"__call__": _recomputed})


def _blocks(value: Any) -> Iterator[nn.Module]:
    if isinstance(value, list) and len(value) > 1 and isinstance(value[0], nn.Module) and len(set(map(type, value))) == 1:
        yield from value
    elif isinstance(value, list | dict):  # `nn.Module` is a dict
        for part in value.values() if isinstance(value, dict) else value:
            yield from _blocks(part)


def _recomputed(self: Any, *args: Any, **kwargs: Any) -> Any:
    kind = type(self).__bases__[0]
    before = copy_module(self)  # copy the block, because the block may change before the backward pass
    before.__class__ = kind
    params, buffers = split_arrays(before)
    structure, leaves = flatten((params, args, kwargs))
    differentiated = [is_floating(leaf) for leaf in leaves]  # MLX cannot differentiate integers, so only floats are arguments of `run`
    results: list[tuple[TreeDef, list[Any]]] = []
    start_key = generator()  # the forward and the backward pass draw from the same key

    def run(arrays: list[mx.array]) -> list[mx.array]:
        rest = iter(arrays)
        given = [next(rest) if passed else leaf for passed, leaf in zip(differentiated, leaves, strict=True)]
        params, args, kwargs = unflatten(structure, given)
        block = copy_module(before)
        put_arrays(block, params)
        given_buffers = get_arrays(block, buffers)
        with drawing_from(start_key) as drawing:
            result = kind.__call__(block, *args, **kwargs)
            end_key = generator() if drawing.drawn else None
        results.append(flatten((result, changed_arrays(given_buffers, get_arrays(block, buffers)), end_key)))
        return [leaf for leaf in results[-1][1] if isinstance(leaf, mx.array)]

    arrays = iter(mx.checkpoint(run)([leaf for leaf, passed in zip(leaves, differentiated, strict=True) if passed]))
    result_structure, result_leaves = results[0]
    result, news, end_key = unflatten(result_structure, [next(arrays) if isinstance(leaf, mx.array) else leaf for leaf in result_leaves])
    if end_key is not None:
        set_generator(mx.stop_gradient(end_key))  # draws after the block continue from the last key of the block
    put_arrays(self, with_arrays(get_arrays(self, buffers), news))
    return result
