"""Fingerprints: one for each value, in every process."""

import importlib
import json
import math
import re
import shutil
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.core.identity import comparable, difference, fingerprint, identify
from mlxfp.support.errors import FingerprintError
from mlxfp.testing.comparing import same
from mlxfp.testing.strategies import rechunkings, tables
from tests.core import values
from tests.core.values import VALUES, Place, Point, double, nested, ping


def test_values_that_differ_have_different_fingerprints():
    found: dict[str, Any] = {}
    for value in VALUES:
        text = fingerprint(value)
        assert re.fullmatch(r"[0-9a-f]{32}", text)
        assert text not in found, f"{value!r} has the fingerprint of {found[text]!r}"
        found[text] = value


EQUAL: list[tuple[Any, Any]] = [
    ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    ({"a": 1}, OrderedDict(a=1)),
    ({1, 2, 3}, frozenset({3, 2, 1})),
    (bytes(2), bytearray(2)),
    (math.nan, -math.nan),
    (Point(1, 2), Point(1, 3)),
    (Place(1, 2), Place(1, 3)),
    (np.arange(6)[::2], np.array([0, 2, 4])),
    (pa.schema({"x": pa.int8()}, metadata={"a": "b"}), pa.schema({"x": pa.int8()})),
    (pa.table({"x": [1]}).replace_schema_metadata({"a": "b"}), pa.table({"x": [1]})),
    (pa.array([1, 2, 3])[1:], pa.array([2, 3])),
    (pa.array([math.nan]), pa.array(np.array([-math.nan]))),
    (pa.array([True, False] * 9)[3:], pa.array([False, *[True, False] * 7])),
    (pa.array(["b", "a"]).dictionary_encode()[1:], pa.array(["a"]).dictionary_encode()),
    (pa.RunEndEncodedArray.from_arrays([1, 2], [5, 5]), pa.RunEndEncodedArray.from_arrays([2], [5])),
    (pa.array([1, 7])[:1], pa.Array.from_buffers(pa.int64(), 1, [None, pa.array([1, 7]).buffers()[1]])),
    (pa.array(["long enough for a buffer", "b"], pa.string_view())[1:], pa.array(["b"], pa.string_view())),
    (pa.StructArray.from_arrays([pa.array([1, 2])], ["a"], mask=pa.array([False, True])), pa.array([{"a": 1}, None])),
    (
        pa.FixedSizeListArray.from_arrays(pa.array([1, 2, 3, 4]), 2, mask=pa.array([True, False])),
        pa.array([None, [3, 4]], pa.list_(pa.int64(), 2)),
    ),
    (pa.ListArray.from_arrays(pa.array([0, 1, 3], pa.int32()), pa.array([1, 2, 2]), mask=pa.array([False, True])), pa.array([[1], None])),
    (pa.array([[1], [2]], pa.list_view(pa.int64()))[1:], pa.array([[2]], pa.list_view(pa.int64()))),
]


@pytest.mark.parametrize(("a", "b"), EQUAL, ids=lambda value: f"{type(value).__name__} {value!s:.30}")
def test_equal_values_have_one_fingerprint(a: Any, b: Any):
    assert fingerprint(a) == fingerprint(b)


@given(st.data())
def test_the_layout_of_a_table_is_no_part_of_its_fingerprint(data: st.DataObject):
    table = data.draw(tables(min_columns=1))
    chunks = data.draw(rechunkings(table))
    order = pa.array(range(table.num_rows), pa.int64())
    copies = [
        pa.Table.from_batches(chunks),
        fp.parts.one_chunk(table),
        table.take(order),
        pa.concat_tables([table, table]).slice(table.num_rows),
    ]
    assert {fingerprint(copy) for copy in copies} == {fingerprint(table)}


@given(tables(min_columns=1), tables(min_columns=1))
def test_tables_have_one_fingerprint_exactly_if_they_are_the_same(a: pa.Table, b: pa.Table):
    assert (fingerprint(a) == fingerprint(b)) == same(a, b)


@given(tables(min_columns=1, min_rows=2), st.data())
def test_any_other_order_of_rows_is_another_fingerprint(table: pa.Table, data: st.DataObject):
    order = data.draw(st.permutations(range(table.num_rows)))
    other = table.take(pa.array(order, pa.int64()))
    assert (fingerprint(other) == fingerprint(table)) == same(other, table)


def test_a_table_of_many_rows_is_hashed_in_parts():
    rows = 2 * 65_536 + 1
    table = pa.table({"x": range(rows)})
    assert fingerprint(table) == fingerprint(pa.concat_tables([table.slice(0, 70_000), table.slice(70_000)]))
    assert fingerprint(table) != fingerprint(pa.table({"x": [*range(rows - 1), 0]}))


def test_functions_differ_by_what_they_close_over_and_by_the_globals_they_name(monkeypatch: pytest.MonkeyPatch):
    def times(factor: Any) -> Any:
        return lambda row: row * factor

    assert fingerprint(times(2)) == fingerprint(times(2)) != fingerprint(times(3))
    before = fingerprint(double), fingerprint(nested), fingerprint(ping)
    monkeypatch.setattr(values, "FACTOR", 3)
    assert fingerprint(double) != before[0]
    assert fingerprint(nested) != before[1], "nested names double, which names FACTOR, and FACTOR itself in a comprehension"
    assert fingerprint(ping) == before[2]


def test_functions_differ_by_the_helpers_that_they_call_in_modules_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "cleaning").mkdir()
    sources = {
        "cleaning/__init__.py": "from cleaning import deep\n",
        "cleaning/deep.py": "import cleaning\ndef strip(text):\n    return text.strip(MARKS)\nMARKS = '.'\n",
        "helping.py": "import os\nimport cleaning\ndef clean(row):\n    return cleaning.deep.strip(row['text']) + os.sep\n",
        "mapped.py": "import json, helping\ndef function(row):\n    return {'text': helping.clean(row), 'other': json.dumps(row)}\n",
    }

    def found(**changed: str) -> str:
        for name, source in sources.items():
            (tmp_path / name).write_text(changed.get(name, source))
        for name in ("mapped", "helping", "cleaning.deep", "cleaning"):
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        for cached in tmp_path.rglob("__pycache__"):
            shutil.rmtree(cached)
        return fingerprint(importlib.import_module("mapped").function)

    once = found()
    assert found() == once
    for name, source in sources.items():
        if name != "cleaning/__init__.py":
            other = source.replace("'.'", "'!'").replace("os.sep", "os.sep * 2").replace("'other'", "'others'")
            assert (found(**{name: other}) == once) == (other == source), name
    assert found(**{"cleaning/deep.py": sources["cleaning/deep.py"].replace("strip(MARKS)", "rstrip(MARKS)")}) != once


def test_running_a_function_does_not_change_its_fingerprint():
    before = fingerprint(double)
    for x in range(2000):
        double({"x": x})
    assert fingerprint(double) == before


def test_methods_of_built_in_values_differ_by_the_value():
    lookup, other = {"a": 1}, {"a": 2}
    assert fingerprint(lookup.get) == fingerprint({"a": 1}.get) != fingerprint(other.get)
    assert fingerprint(dict.fromkeys) != fingerprint(dict.get)


HANDLE = SimpleNamespace()


def test_an_attribute_with_the_name_of_a_global_is_no_global():
    def asks(row: Any) -> Any:
        return row.HANDLE

    def names(row: Any) -> Any:
        return HANDLE

    assert fingerprint(asks)
    with pytest.raises(FingerprintError, match=r"A value of type SimpleNamespace"):
        fingerprint(names)


def test_a_function_may_name_its_own_version():
    def opaque(row: Any) -> Any:
        return json if row else open  # only named

    opaque.__fingerprint__ = "v1"  # type: ignore[attr-defined]  # this is how
    first = fingerprint(opaque)
    opaque.__fingerprint__ = "v2"  # type: ignore[attr-defined]  # the same
    assert fingerprint(opaque) != first


def test_a_cell_that_is_not_filled_yet_does_not_stop_it():
    def outer() -> str:
        def inner() -> Any:
            return later

        found = fingerprint(inner)
        later = 1
        return found if later else ""

    assert outer() == outer()


def test_what_has_no_content_of_its_own_says_what_to_do():
    with pytest.raises(
        FingerprintError, match=r"A value of type SimpleNamespace has no fingerprint: namespace\(x=1\). Use a frozen attrs class"
    ):
        fingerprint(SimpleNamespace(x=1))
    with pytest.raises(FingerprintError, match=r"A value of type ndarray has no fingerprint"):
        fingerprint(np.array([None, object()]))


def test_an_error_inside_a_function_names_the_function():
    handle = SimpleNamespace()
    with pytest.raises(FingerprintError) as caught:
        fingerprint(lambda row: (row, handle))
    (note,) = caught.value.__notes__
    assert re.match(r"the value is used by the function .*<lambda>. Alternatively, set a version of .*__fingerprint__ = 'v1'.", note)


def test_comparable_is_the_value_itself_where_there_is_no_fingerprint():
    handle = SimpleNamespace()
    assert comparable(handle) is handle
    assert comparable([math.nan]) == comparable([math.nan])


SCRIPT = """
from tests.core.values import VALUES
from mlxfp.core.identity import fingerprint
print(*[fingerprint(value) for value in VALUES])
"""


def test_fingerprints_are_the_same_in_every_process():
    root = Path(__file__).parent.parent.parent
    runs = [
        subprocess.run(
            [sys.executable, "-c", SCRIPT], cwd=root, env={"PYTHONHASHSEED": seed, "PATH": ""}, capture_output=True, text=True, check=True
        )  # our own text
        for seed in ("1", "2")
    ]
    assert runs[0].stdout.split() == runs[1].stdout.split() == [fingerprint(value) for value in VALUES]


def test_the_identity_of_a_pipeline_names_every_part_in_order():
    dataset = fp.pipe(fp.from_table({"x": [1, 2]}), fp.take(2), fp.batch(2), fp.repeat(3))
    assert [text for text, _ in identify(dataset)] == ["from_table(2 rows)", "take(count=2)", "batch(size=2)", "repeat(epochs=3)"]
    other = fp.pipe(fp.from_table({"x": [1, 2]}), fp.take(1), fp.batch(2), fp.repeat(3))
    assert [a[1] == b[1] for a, b in zip(identify(dataset), identify(other), strict=True)] == [True, False, True, True]


def test_the_first_difference_is_told():
    a, b, c = ("a", "1"), ("b", "2"), ("c", "3")
    assert difference((a, b), (a, b)) is None
    assert difference((a, b), (a, c)) == ("b", "c")
    assert difference((a, b), (a, ("b", "4"))) == ("b", "b with other content")
    assert difference((a, b), (a,)) == ("b as part 2", "nothing there")
    assert difference((a,), (a, b, c)) == ("nothing there", "b as part 2")
    assert difference((), ()) is None


_USER_CLASS = """
from attrs import frozen

@frozen
class Scale:
    factor: int = 2

    def apply(self, row):
        return {{"x": row["x"] * {0}}}

    @staticmethod
    def shift(row):
        return {{"x": row["x"] + {0}}}

    @classmethod
    def create(cls, row):
        return {{"x": row["x"] - {0}}}

    def __call__(self, row):
        return self.apply(row)
"""

_USER_ATTRIBUTE = """
class Table:
    names = {{"a": {0}}}

    @staticmethod
    def read(row):
        return {{"x": Table.names[row["x"]]}}

    @classmethod
    def create(cls, row):
        return {{"x": cls.names[row["x"]]}}
"""


def _inside(scale):
    return lambda row: {**scale.apply(row)}


def _user_class(number, text=_USER_CLASS, name="Scale"):
    names = {"__name__": "user"}
    exec(compile(text.format(number), "/home/user/scale.py", "exec"), names)
    return names[name]


@pytest.mark.parametrize(
    "use",
    [
        lambda kind: kind().apply,
        lambda kind: kind(),
        lambda kind: _inside(kind()),
        lambda kind: kind.shift,
        lambda kind: lambda row: kind().apply(row),
        lambda kind: lambda row: {**kind.shift(row)},
        lambda kind: kind.create,
        lambda kind: kind,
    ],
)
def test_case_e6_an_edited_method_has_another_fingerprint(use):
    first, same, edited = (fingerprint(use(_user_class(number))) for number in (2, 2, 3))
    assert first == same
    assert first != edited


@pytest.mark.parametrize("use", [lambda kind: kind.read, lambda kind: kind.create, lambda kind: lambda row: {**kind.read(row)}])
def test_an_edited_attribute_of_a_class_has_another_fingerprint(use):
    """A cache gave the rows of the old attribute."""
    first, same, edited = (fingerprint(use(_user_class(number, _USER_ATTRIBUTE, "Table"))) for number in (2, 2, 3))
    assert first == same
    assert first != edited
