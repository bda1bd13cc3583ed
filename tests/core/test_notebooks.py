"""What a notebook shows of datasets, groups, batches and cursors: bounded, escaped, and never an error."""

import pickle
import re

import mlx.core as mx
import numpy as np
import pytest

import mlxfp as fp
from mlxfp.support.errors import ArgumentTypeError, UnknownNameError


class Hostile:
    """A tokenizer whose vocabulary holds HTML."""

    def decode(self, ids):
        return HOSTILE

    def tokens(self, ids):
        return [HOSTILE] * len(ids)


HOSTILE = "<script>alert('x')</script>\x00\u202e</table>"


def html(value):
    return value._repr_html_()


def test_a_dataset_shows_its_parts_and_first_rows():
    shown = html(fp.pipe(fp.from_examples([{"x": place, "name": "Ann"} for place in range(9)]), fp.batch(4)))
    assert "from_examples(9 rows)" in shown
    assert "batch(size=4)" in shown
    assert "3 groups" in shown
    assert shown.count('<span class="column">name <i>string</i></span>') == 1  # batch changes no column
    assert shown.count("Ann") == 4


def test_a_page_shows_the_same_diagram_without_rows():
    dataset = fp.pipe(fp.from_examples([{"x": place, "name": "Ann"} for place in range(9)]), fp.shuffle(seed=0), fp.batch(4))
    shown = fp.explain(dataset, format="html")
    assert shown.partition("</ol>")[0] == html(dataset).partition("</ol>")[0]
    assert "Ann" not in shown
    assert fp.explain(dataset, format="text") == fp.explain(dataset)
    with pytest.raises(UnknownNameError, match=r"No format is named 'svg'"):
        fp.explain(dataset, format="svg")


def places(dataset):
    """Where each part of a pipeline runs, as its diagram says."""
    return re.findall(r'<span class="place">in (.*?)</span>', fp.explain(dataset, format="html"))


def test_a_diagram_says_where_each_part_runs():
    rows = fp.pipe(fp.from_examples([{"x": 1}] * 8), fp.map(dict), fp.batch(2))
    assert places(rows) == ["your loop"] * 3
    ahead = fp.pipe(rows, fp.prefetch(2), fp.unbatch())
    assert places(ahead) == ["the thread of prefetch"] * 3 + ["your loop"] * 2
    shared = fp.pipe(rows, fp.prefetch(2, workers=3))
    assert places(shared) == ["the thread of prefetch", "3 threads", "the thread of prefetch", "your loop"]
    assert places(fp.concat([shared, rows])) == [*places(shared), *["your loop"] * 4]
    assert places(fp.pipe(fp.concat([rows, rows]), fp.prefetch(2, workers=2)))[1] == "2 threads"
    assert places(fp.pipe(rows, fp.prefetch(2, kind="processes")))[1] == "1 process"


def columns(dataset):
    """The columns that a diagram names in each box, and what it says of the others."""
    for box in fp.explain(dataset, format="html").split("<li")[1:]:
        named = re.findall(r'<span class="column">(\w+) <i>(\w+)</i></span>', box)
        yield dict(named), "".join(re.findall(r'<span class="muted">(.*?)</span>', box))


def test_a_diagram_names_the_columns_that_a_part_changes():
    rows = fp.from_examples([{"a": 1, "b": "x"}])
    whole = {"a": "int64", "b": "string"}, ""
    changed = fp.pipe(rows, fp.shuffle(seed=0), fp.map(lambda row: {**row, "a": 0.5, "c": True}), fp.select_columns(["c"]))
    assert list(columns(changed)) == [whole, ({}, ""), ({"a": "double", "c": "bool"}, "and 1 as before"), ({}, "1 as before, 2 left out")]
    assert list(columns(fp.pipe(rows, fp.drop_columns(["a", "b"])))) == [whole, ({}, "no columns")]
    assert [said for _, said in columns(fp.from_table({f"c{place}": [1] for place in range(20)}))] == ["and 8 more"]
    assert list(columns(fp.concat([rows, rows]))) == [whole, whole, ({}, "")]


def test_what_is_kept_or_made_ahead_shows_its_rows_without_being_kept():
    read = []
    rows = fp.from_iterable(lambda: (read.append(place) or {"x": place} for place in range(10_000)))
    shown = html(fp.pipe(rows, fp.load(), fp.prefetch(2, workers=2), fp.batch(2), fp.load(), fp.prefetch(2, kind="processes")))
    assert "The first group:" in shown
    assert shown.count("<td") == 2
    assert len(read) < 10_000


def test_a_diagram_of_what_cannot_run_says_why():
    rows = fp.pipe(fp.from_examples([{"x": 1}]), fp.select_columns(["y"]), fp.prefetch(2, workers=2))
    shown = fp.explain(rows, format="html")
    assert "schema not known (" in shown
    assert places(rows) == ["the thread of prefetch", "the thread of prefetch", "your loop"]


def test_what_data_and_names_hold_is_escaped():
    rows = fp.from_examples([{HOSTILE: HOSTILE, "bytes": b"abc", "none": None}])
    (group,) = fp.pipe(rows, fp.batch(1))
    joined = fp.explain(fp.concat([rows, fp.pipe(rows, fp.prefetch(1))]), format="html")
    arrays = {HOSTILE: mx.zeros((1, 1)), "input_ids": mx.zeros((1, 1), mx.int32)}
    for shown in (
        html(rows),
        html(group),
        html(next(fp.iterate(rows))[1]),
        joined,
        html(fp.inspect.show_batch(arrays, tokenizer=Hostile())),
    ):
        assert "<script" not in shown
        assert not {"\x00", "\u202e"} & set(shown)
    for shown in (
        html(rows),
        html(fp.Examples(group.chunk, {HOSTILE: Hostile()})),
        html(fp.inspect.show_batch(arrays, tokenizer=Hostile())),
    ):
        assert "&lt;script&gt;" in shown
    assert "3 bytes" in html(rows)


def test_it_is_bounded_for_any_data():
    wide = fp.from_table({f"column {place} {'x' * 1000}": ["y" * 100_000] * 6 for place in range(50)})
    long = fp.pipe(fp.from_table({"x" * 1000: range(6)}), *[fp.take(5) for _ in range(100)])
    many = fp.concat([fp.from_table({"x": [1]})] * 300)
    arrays = fp.inspect.show_batch(
        {f"{'n' * 1000} {place} input_ids": mx.zeros((64, 4096), mx.int32) for place in range(50)}, tokenizer=Hostile()
    )
    for value in (wide, long, many, arrays, next(iter(fp.pipe(wide, fp.batch(6))))):
        assert len(html(value)) < 60_000
    assert len(fp.explain(many, format="html")) < 50_000
    assert "and 38 more columns between them" in html(wide)
    assert html(wide).count('scope="col"') == 12
    assert ">c0<" in html(fp.from_table({f"c{place}": ["x"] for place in range(50)}))
    assert ">c49<" in html(fp.from_table({f"c{place}": ["x"] for place in range(50)}))
    assert "100,000 characters" in html(wide)


def test_arrays_and_long_lists_are_told_by_their_shape():
    shown = html(fp.from_examples([{"image": np.zeros((8, 8, 3), np.uint8), "ids": list(range(500)), "share": 0.5}]))
    assert "[8, 8, 3]" in shown
    assert "500 values: 0, 1, 2" in shown
    assert "0.5000" in shown


def test_joined_datasets_are_indented():
    shown = html(fp.concat([fp.from_examples([{"x": 1}]), fp.from_examples([{"x": 2}])]))
    assert shown.count("margin-left:1.5em") == 2
    assert shown.count('class="loop first"') == 2  # those that read no other part: no arrow leads to them


def fail(row):
    raise ValueError(HOSTILE)


def test_a_failing_function_is_told_and_nothing_is_raised():
    shown = html(fp.pipe(fp.from_examples([{"x": 1}]), fp.filter(fail)))
    assert "The first rows cannot be shown: &lt;script&gt;" in shown


def test_a_dataset_without_items_says_so():
    assert "No items." in html(fp.pipe(fp.from_examples([{"x": 1}]), fp.filter(lambda row: False)))


def test_a_whole_epoch_is_never_read_to_show_a_few_rows():
    read = []

    def rows():
        for place in range(1000):
            read.append(place)
            yield {"x": place}

    shuffled = fp.pipe(fp.from_iterable(rows), fp.shuffle(seed=0))
    for dataset in (shuffled, fp.concat([shuffled, shuffled])):
        assert "a whole epoch would be read" in html(dataset)
    assert len(read) < 1000  # the first rows, for their types
    assert "a whole epoch would be read" in html(fp.pipe(fp.from_table({"x": range(50_001)}), fp.shuffle(seed=0)))


def test_few_rows_that_are_taken_by_number_are_shown_in_their_order():
    shuffled = fp.pipe(fp.from_table({"x": range(100, 1_000)}), fp.map(lambda row: {"x": row["x"] * 10}), fp.shuffle(seed=0), fp.batch(4))
    shown = html(fp.concat([shuffled, shuffled]))
    assert re.findall(r"<td[^>]*>([\d,]+)</td>", shown) == [f"{row['x']:,}" for row in next(iter(shuffled))]


def test_what_is_kept_before_a_shuffle_is_not_read_to_show_a_few_rows():
    made = []
    slow = fp.pipe(
        fp.from_table({"x": range(10_000)}), fp.map(lambda row: made.append(row["x"]) or row), fp.load(), fp.shuffle(seed=0), fp.batch(4)
    )
    shown = html(slow)
    assert len(made) < 10_000
    assert "The first group:" in shown
    assert re.findall(r"<td[^>]*>([\d,]+)</td>", shown) == [f"{row['x']:,}" for row in next(iter(slow))]


TEXTS = fp.from_examples([{"text": "to be or not", "late": 1}, {"text": "to be", "late": 0}])
TOKENIZER = fp.train_tokenizer(TEXTS, kind="wordpiece", vocab_size=40)


def test_ids_show_their_text_where_the_tokenizer_is_known():
    encoded = fp.pipe(TEXTS, fp.tokenize(TOKENIZER))
    (group,) = fp.pipe(encoded, fp.shuffle(seed=0), fp.batch(2))
    for shown in (html(encoded), html(group), html(group[1:]), html(group[:1]), html(encoded[:2])):
        assert re.search(r'<span title="to be( or not)?" class="tip">\[', shown)
    assert "title=" not in html(pickle.loads(pickle.dumps(group)))  # a tokenizer may be larger than the rows
    assert pickle.loads(pickle.dumps(group)) == group


def test_ids_of_two_tokenizers_in_one_column_are_left_as_they_are():
    other = fp.pipe(TEXTS, fp.tokenize(fp.train_tokenizer(TEXTS, kind="bpe", vocab_size=300)))
    assert "title=" not in html(fp.concat([fp.pipe(TEXTS, fp.tokenize(TOKENIZER)), other]))
    assert "title=" in html(fp.concat([fp.pipe(TEXTS, fp.tokenize(TOKENIZER)), fp.pipe(TEXTS, fp.tokenize(TOKENIZER))]))


def test_a_batch_shows_padding_and_the_text_of_its_rows():
    batches = fp.pipe(TEXTS, fp.tokenize(TOKENIZER), fp.batch(2), fp.collate(fp.collators.causal(pad_id=TOKENIZER.pad_id)))
    (arrays,) = batches
    shown = html(fp.inspect.show_batch(arrays, tokenizer=TOKENIZER))
    padding = (arrays["attention_mask"] == 0).mean().item()
    assert padding > 0
    assert f"{padding:.1%} padding" in shown
    assert f"{padding:.1%} ignored" in shown
    assert shown.count(">to be or not<") == 2  # ids and labels
    assert ">to be or not<" in html(batches)
    assert "to be" not in html(fp.inspect.show_batch(arrays))
    assert repr(fp.inspect.show_batch(arrays, tokenizer=TOKENIZER)) == fp.inspect.preview(batches, tokenizer=TOKENIZER).replace(
        "batch 0:", "batch:"
    )


def test_whole_numbers_that_are_not_ids_are_not_decoded():
    arrays = {"input_ids": mx.zeros((2, 5), mx.int32), "labels": mx.ones((2, 3), mx.int32)}
    assert (
        html(fp.inspect.show_batch(arrays, tokenizer=TOKENIZER)).count('<td class="w"')
        == html(fp.inspect.show_batch(arrays)).count('<td class="w"') + 4
    )
    with pytest.raises(ArgumentTypeError, match="batch must be Mapping, got list"):
        fp.inspect.show_batch([arrays])


def test_an_id_outside_of_the_vocabulary_is_named():
    assert "9999" in html(fp.inspect.show_batch({"input_ids": mx.array([[9999]])}, tokenizer=TOKENIZER))
    assert "vocabulary" in html(fp.inspect.show_batch({"input_ids": mx.array([[9999]])}, tokenizer=TOKENIZER))


def test_batches_show_names_dtypes_and_shapes():
    shown = html(
        fp.pipe(fp.from_examples([{"x": place} for place in range(4)]), fp.batch(4), fp.collate(lambda group: {"x": mx.zeros((4, 2))}))
    )
    assert "The first batch:" in shown
    assert "[4, 2]" in shown


@pytest.mark.parametrize("through_bytes", [False, True])
def test_a_cursor_shows_where_the_run_is(through_bytes):
    *_, (_, cursor) = fp.iterate(fp.pipe(fp.from_examples([{"x": 1}, {"x": 2}]), fp.batch(1)))
    shown = html(fp.Cursor.from_bytes(cursor.to_bytes()) if through_bytes else cursor)
    assert "epoch" in shown
    assert "batch(size=1)" in shown
