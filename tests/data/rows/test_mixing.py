"""concat, interleave and mix: what comes when, and how much of each."""

from itertools import islice

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.core.nodes import leaves
from mlxfp.data.rows import joining
from mlxfp.support.errors import ArgumentError, DataError, MissingFileError, PipelineError, SchemaError, UnknownNameError
from mlxfp.testing import laws


def letters(text: str):
    return fp.from_examples([{"x": letter} for letter in text])


def said(dataset, count: int | None = None) -> str:
    return "".join(row["x"] for row in islice(dataset, count))


def by_hand(texts: list[str], weights: list[float], stop: str) -> str:
    """The next letter is of the text that is furthest behind, one letter at a time."""
    given, out = [0] * len(texts), ""
    active = [place for place, weight in enumerate(weights) if weight]
    while active:
        place = min(active, key=lambda place: (given[place] / weights[place], place))
        if given[place] < len(texts[place]):
            out += texts[place][given[place]]
            given[place] += 1
        elif stop == "first":
            break
        else:
            active.remove(place)
    return out


texts = st.lists(st.text("abc", min_size=1, max_size=12), min_size=1, max_size=4)


@given(texts, st.data(), st.sampled_from(["first", "all"]))
def test_a_mixture_takes_from_the_one_that_is_furthest_behind(texts: list[str], data: st.DataObject, stop: str):
    weights = data.draw(st.lists(st.integers(0, 4), min_size=len(texts), max_size=len(texts)).filter(any))
    assert said(fp.mix([letters(text) for text in texts], weights, stop=stop)) == by_hand(texts, weights, stop)


@given(texts)
def test_interleaving_takes_turns(texts: list[str]):
    longest = max(len(text) for text in texts)
    assert said(fp.interleave([letters(text) for text in texts])) == "".join(
        text[turn] for turn in range(longest) for text in texts if turn < len(text)
    )


@given(texts)
def test_concatenating_joins_end_to_end_and_rows_can_be_taken_by_number(texts: list[str]):
    joined = fp.concat([letters(text) for text in texts])
    whole = "".join(texts)
    assert said(joined) == whole
    assert fp.length(joined) == len(whole)
    assert [joined[i]["x"] for i in range(len(whole))] == list(whole)
    assert sorted(said(fp.pipe(joined, fp.shuffle(seed=1)))) == sorted(whole)


def test_tokens_are_mixed_in_proportion_at_every_moment():
    rng = np.random.default_rng(0)
    long, short = (fp.from_table({"input_ids": [[mark] * int(n) for n in rng.integers(1, most, 3000)]}) for mark, most in ((0, 50), (1, 6)))
    counts = np.zeros(2)
    for row in islice(fp.mix([long, short], [1, 3], by="tokens"), 3000):
        counts[row["input_ids"][0]] += len(row["input_ids"])
        assert abs(counts[0] * 3 - counts[1]) <= 3 * 50 + 6  # within one row of each


def test_a_mixture_that_restarts_never_ends_and_shuffles_anew():
    parts = [fp.pipe(letters("abcdefgh"), fp.shuffle(seed=0)), letters("-")]
    heard = said(fp.mix(parts, [1, 1]), 64)
    passes = [heard[0::2][at : at + 8] for at in range(0, 32, 8)]
    assert {"".join(sorted(each)) for each in passes} == {"abcdefgh"}
    assert len(set(passes)) > 1


def test_a_dataset_without_rows_or_weight_is_legal():
    empty = fp.from_table(pa.table({"x": pa.array([], pa.string())}))
    assert said(fp.mix([letters("ab"), letters("z")], [1, 0], stop="all")) == "ab"
    assert said(fp.mix([letters("ab"), empty], [1, 1], stop="all"), 6) == "ab"
    assert said(fp.mix([letters("ab"), empty], [1, 0], stop="restart"), 6) == "ababab"
    assert said(fp.concat([empty, letters("ab"), empty])) == said(fp.interleave([empty, letters("ab")])) == "ab"


@pytest.mark.parametrize("part", ["nothing", "nothing later"])
def test_a_mixture_that_restarts_does_not_go_on_without_a_dataset(part):
    passes = [1, 0] if part == "nothing later" else [0]
    rows = fp.from_iterable(lambda: ({"x": "c"} for _ in range(passes.pop(0))), schema=pa.schema({"x": pa.string()}))
    with pytest.raises(
        DataError, match=r"mix cannot restart a dataset without items: an epoch of pipe\(from_iterable.* has no items\. Check the source"
    ):
        said(fp.mix([letters("ab"), rows], [1, 1]), 6)


# https://github.com/marin-community/marin/issues/1753
@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: fp.mix([letters("ab"), letters("c")], [1, float("nan")]), ArgumentError, "at least 0 and not all 0"),
        (lambda: fp.mix([letters("ab"), letters("c")], [2, -1]), ArgumentError, "at least 0 and not all 0"),
        (lambda: fp.mix([letters("ab"), fp.read_jsonl("nothing/*.jsonl")], [1, 1]), MissingFileError, r"nothing/\*\.jsonl"),
        (
            lambda: fp.mix([letters("ab"), fp.pipe(letters("c"), fp.filter(lambda row: False))], [1, 1]),
            DataError,
            "cannot restart a dataset without items",
        ),
    ],
)
def test_no_part_of_a_mixture_is_left_out_silently(make, error, message):
    with pytest.raises(error, match=message):
        said(make(), 6)
    assert said(fp.mix([letters("ab"), letters("c")], [1, 1]), 6) == "acbcac"  # a part of one row comes again and again


@pytest.mark.parametrize("join", [fp.concat, fp.interleave, lambda parts: fp.mix(parts, [2, 1], stop="all")])
@pytest.mark.parametrize("after", [[fp.batch(2)], [fp.batch(2), fp.collate(lambda group: {"x": tuple(row["x"] for row in group)})]])
def test_groups_and_batches_are_joined_as_wholes_and_resume(join, after):
    parts = [fp.pipe(letters(text), *after) for text in ("abcde", "123")]
    joined = join(parts)
    laws.assert_resumable(joined)
    found = [tuple(item["x"]) if isinstance(item, dict) else tuple(row["x"] for row in item) for item in joined]
    assert sorted(found) == [("1", "2"), ("3",), ("a", "b"), ("c", "d"), ("e",)]


def test_schemas_are_inferred_through_joined_datasets_and_caches_follow_their_files(tmp_path):
    for name in "ab":
        (tmp_path / f"{name}.jsonl").write_text(f'{{"x": "{name}"}}\n')
    joined = fp.concat([fp.read_jsonl(tmp_path / f"{name}.jsonl") for name in "ab"])
    upper = fp.pipe(joined, fp.map(lambda row: {"y": row["x"].upper()}))
    assert fp.schema(upper) == pa.schema({"y": pa.string()})
    folder = tmp_path / "kept"
    assert [row["y"] for row in fp.pipe(upper, fp.cache(folder))] == ["A", "B"]
    (tmp_path / "b.jsonl").write_text('{"x": "cc"}\n')
    assert [row["y"] for row in fp.pipe(upper, fp.cache(folder))] == ["A", "CC"]


@pytest.mark.parametrize("join", [fp.concat, fp.interleave, lambda datasets: fp.mix(datasets, [1] * len(datasets), stop="all")])
def test_the_sources_of_many_datasets_are_counted_once(join, monkeypatch):
    counted = []
    monkeypatch.setattr(joining, "leaves", lambda dataset: counted.append(dataset) or leaves(dataset))
    assert len(list(join([fp.from_examples([{"x": number}] * 3) for number in range(50)]))) == 150
    assert len(counted) == 50


def test_the_same_rows_joined_twice_have_different_keys():
    rows = letters("ab")
    keys = [key for group in fp.pipe(fp.concat([rows, rows]), fp.batch(9)) for key in group.chunk.column("__key__").to_pylist()]
    assert len(set(keys)) == 4


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: fp.mix([], []), ArgumentError, "at least one dataset"),
        (lambda: fp.mix([letters("a")], [1, 2]), ArgumentError, r"one weight for each of the 1 datasets, got \[1, 2\]"),
        (lambda: fp.mix([letters("a")], [0]), ArgumentError, "at least 0 and not all 0"),
        (lambda: fp.mix([letters("a")], [1], stop="never"), UnknownNameError, "No stop is named 'never'"),
        (
            lambda: fp.concat([letters("a"), fp.pipe(letters("b"), fp.batch(1))]),
            PipelineError,
            "cannot join datasets of examples and of groups",
        ),
        (lambda: fp.mix([fp.pipe(letters("b"), fp.batch(1))], [1], by="tokens"), PipelineError, "Mix before batch"),
        (lambda: list(fp.concat([letters("a"), fp.from_examples([{"y": 1}])])), SchemaError, "dataset 1 has y int64"),
        (lambda: list(fp.mix([letters("a")], [1], by="tokens")), SchemaError, "needs the column input_ids"),
    ],
)
def test_mistakes_are_named(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_what_mix_warns_of_points_at_the_line_with_mix():
    others_each_epoch = fp.pipe(letters("abc"), fp.shuffle(seed=0), fp.take(2))
    with pytest.warns(RuntimeWarning, match="Each epoch has other rows") as warned:
        fp.mix([others_each_epoch, letters("d")], [1, 1])
    assert [warning.filename for warning in warned] == [__file__]
