"""Collate functions of other libraries are collators: their arrays become those of MLX, and their parts have names."""

import pickle
from collections import UserDict
from importlib.util import find_spec
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, DataError
from mlxfp.testing import laws

ROWS = [{"x": [1, 2], "y": 0.5}, {"x": [3], "y": 1.5}]


def pad(examples: list[dict[str, Any]]) -> Any:
    assert type(examples) is list
    assert all(type(example) is dict for example in examples)
    width = max(1, *(len(example["x"]) for example in examples))
    ids = np.array([example["x"] + [0] * (width - len(example["x"])) for example in examples], np.int64)
    return UserDict({"ids": ids, "y": np.array([example["y"] for example in examples])})


def pair(examples: list[dict[str, Any]]) -> Any:
    return pad(examples)["ids"], ["text"] * len(examples)


def shown(batch: dict[str, Any]) -> dict[str, Any]:
    return {name: values if isinstance(values, tuple) else (values.tolist(), values.dtype) for name, values in batch.items()}


def test_a_mapping_becomes_a_dict_of_mlx_arrays_of_32_bits():
    expected = {"ids": ([[1, 2], [3, 0]], mx.int32), "y": ([0.5, 1.5], mx.float32)}
    assert shown(fp.collators.foreign(pad)(ROWS)) == expected
    (batch,) = fp.pipe(fp.from_examples(ROWS), fp.batch(2), fp.collate(fp.collators.foreign(pad)))
    assert shown(batch) == expected
    assert type(batch) is dict


def test_the_parts_of_a_tuple_and_a_single_array_get_names():
    assert shown(fp.collators.foreign(pair, names=("x", "kind"))(ROWS)) == {"x": ([[1, 2], [3, 0]], mx.int32), "kind": ("text", "text")}
    assert shown(fp.collators.foreign(lambda rows: mx.array([len(rows)]), names=["count"])(ROWS)) == {"count": ([2], mx.int32)}


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        (np.array([[1], [2]], np.uint8), mx.uint8),
        (np.array([1, 2], np.float16), mx.float16),
        (np.array([True, False]), mx.bool_),
        (np.array([5, 6, 7, 8])[::-2], mx.int32),
        (np.float64(2.5), mx.float32),
        (mx.array([1.0, 2.0], mx.bfloat16), mx.float32),
    ],
)
def test_arrays_of_any_layout_are_taken(values: Any, dtype: Any):
    made = fp.collators.foreign(lambda rows: {"a": values})(ROWS)["a"]
    assert made.dtype == dtype
    assert made.tolist() == values.tolist()


def test_nested_parts_and_arrays_of_text_are_taken():
    batch = fp.collators.foreign(lambda rows: {"a": {"b": np.zeros(2)}, "names": np.array(["p", "q"])})(ROWS)
    assert shown(batch) == {"a.b": ([0.0, 0.0], mx.float32), "names": ("p", "q")}


@pytest.mark.parametrize(
    ("function", "names", "error", "message"),
    [
        (
            pair,
            (),
            ArgumentError,
            r"one name for each value that pair returns\. The function returned 2 values in a tuple, got names=\[\]\. Example: foreign\(",
        ),
        (pair, ("x",), ArgumentError, r"The function returned 2 values in a tuple, got names=\['x'\]"),
        (pad, ("x", "y"), ArgumentError, "names= is only for tuples, but pad returned UserDict. Remove names=."),
        (lambda rows: None, (), ArgumentTypeError, "A batch holds arrays and lists of texts, .*, but the batch is NoneType: None"),
        (lambda rows: {"x": [[1], [2, 3]]}, (), ArgumentTypeError, r"but 'x' is list: \[\[1\], \[2, 3\]\]"),
        (
            lambda rows: {"x": np.array([1 << 40])},
            (),
            DataError,
            r"Element 0 of 'x' in the result of .* holds 1099511627776, beyond 32-bit",
        ),
        (
            lambda rows: {"x": np.array([None, 1])},
            (),
            DataError,
            r"The array 'x' in the result of .* must contain numbers or texts, got the dtype object\.",
        ),
    ],
)
def test_results_that_are_no_batch_are_refused(function: Any, names: Any, error: Any, message: str):
    with pytest.raises(error, match=message):
        fp.collators.foreign(function, names=names)(ROWS)


def test_arguments_and_empty_groups_are_refused():
    with pytest.raises(ArgumentTypeError, match="function must be a function, got function=3"):
        fp.collators.foreign(3)
    with pytest.raises(ArgumentTypeError, match=r"names must be a list of strings, got the string 'x'"):
        fp.collators.foreign(pad, names="x")
    with pytest.raises(DataError, match="got an empty group"):
        fp.collators.foreign(pad)([])


def test_it_is_a_value_that_keeps_to_the_laws_and_combines():
    collator = fp.collators.foreign(pair, names=("x", "kind"))
    assert repr(collator) == "foreign(function=pair, names=('x', 'kind'))"
    assert pickle.loads(pickle.dumps(collator)) == collator
    assert fp.inspect.fingerprint(collator) != fp.inspect.fingerprint(fp.collators.foreign(pad))
    rows = st.lists(st.fixed_dictionaries({"x": st.lists(st.integers(0, 9)), "y": st.floats(-9, 9)}), min_size=1, max_size=4)
    laws.check(fp.collators.foreign(pad), examples=rows, padding={"ids": 0}, carries={"y": "y"}, dtypes={"ids": "int32", "y": "float32"})
    both = fp.collators.multimodal([fp.collators.foreign(pad), fp.collators.text(pad_id=9)])
    assert list(both([{**row, "input_ids": row["x"]} for row in ROWS])) == ["ids", "y", "input_ids", "attention_mask"]


@pytest.mark.skipif(find_spec("torch") is None, reason="needs torch: pip install 'mlxfp[bench]'")
def test_collate_functions_of_torch_are_taken():
    import torch
    from torch.utils.data import default_collate

    def padded(rows: Any) -> Any:
        return torch.nn.utils.rnn.pad_sequence([torch.tensor(row["x"]) for row in rows], batch_first=True)

    assert shown(fp.collators.foreign(padded, names=["ids"])(ROWS)) == {"ids": ([[1, 2], [3, 0]], mx.int32)}
    rows = [{"y": row["y"], "name": "a", "half": torch.ones(2, dtype=torch.bfloat16)} for row in ROWS]
    assert shown(fp.collators.foreign(default_collate)(rows)) == {
        "y": ([0.5, 1.5], mx.float32),
        "name": ("a", "a"),
        "half": ([[1.0, 1.0], [1.0, 1.0]], mx.float32),
    }
