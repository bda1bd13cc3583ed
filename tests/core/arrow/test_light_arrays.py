"""Arrays of numbers that are made without pandas are those of pyarrow; and a process that writes text as tokens does not import it."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from mlxfp.core.arrow.light_arrays import number_array, numbers_of, text_scalar

NUMBERS = st.sampled_from(["i1", "i4", "i8", "u1", "u8", "f2", "f4", "f8", "?"])
STEPS = st.sampled_from([slice(None), slice(1, None), slice(None, None, 2), slice(None, None, -1)])


@given(arrays.arrays(np.int64, st.integers(0, 20)), STEPS)
def test_integers_become_what_pyarrow_makes_of_them(values, part):
    made = number_array(values[part])
    assert made.equals(pa.array(values[part]))
    assert np.array_equal(numbers_of(made), values[part])


@given(NUMBERS, st.lists(st.integers(0, 1), max_size=20), STEPS, st.integers(0, 3))
def test_numbers_of_any_type_become_what_pyarrow_makes_of_them(name, values, part, first):
    found = np.array(values, name)[part]
    made = number_array(found)
    assert made.equals(pa.array(found))
    assert made.type == pa.array(found).type
    rest = numbers_of(made[first:])
    assert rest.dtype == found.dtype
    assert rest.tolist() == found[first:].tolist()


def test_what_is_not_a_plain_array_of_numbers_is_left_to_pyarrow():
    assert number_array(np.array(["a", None], object)).to_pylist() == ["a", None]
    with pytest.raises(pa.ArrowException):
        number_array(np.array([1, 2], ">i4"))
    with pytest.raises(pa.ArrowException):
        number_array(np.zeros((2, 2)))
    assert np.array_equal(numbers_of(pa.array([1, None])), [1.0, np.nan], equal_nan=True)
    assert numbers_of(pa.array([True, None])).tolist() == [True, None]


@given(st.text())
def test_a_text_is_the_scalar_that_pyarrow_makes(text):
    assert text_scalar(text).equals(pa.scalar(text))


WRITES = """
import sys
import mlxfp as fp
rows = fp.pipe(fp.read_jsonl(sys.argv[1]), fp.template("{title}: {text}"), fp.tokenize(fp.load_tokenizer(sys.argv[2])))
fp.write(fp.pipe(rows, fp.select_columns(["input_ids"])), sys.argv[3])
print("pandas" in sys.modules)
"""


def test_a_process_that_writes_text_as_tokens_does_not_import_pandas(tmp_path: Path):
    import mlxfp as fp

    lines = tmp_path / "lines.jsonl"
    lines.write_text("".join(f'{{"title": "Line {i}", "text": "{"a cat in a hat " * (i % 9)}{i}"}}\n' for i in range(400)))
    fp.train_tokenizer(fp.pipe(fp.read_jsonl(lines)), kind="bpe", vocab_size=300).save(tmp_path / "tokenizer")
    command = [sys.executable, "-c", WRITES, str(lines), str(tmp_path / "tokenizer"), str(tmp_path / "out")]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == "False"
