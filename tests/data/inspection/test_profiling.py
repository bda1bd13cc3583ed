import re
import threading
import time

import mlx.core as mx
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings

import mlxfp as fp
from mlxfp.collators.texts import text
from mlxfp.data.inspection.profiling import PartProfile, Profile, profile
from mlxfp.support.errors import ArgumentError, ArgumentTypeError
from mlxfp.testing.probing import from_chunks
from mlxfp.testing.strategies import pipelines
from tests.data.left_running import no_thread_left


def numbers(count):
    return fp.from_table({"x": np.arange(count)})


def parts(found):
    return {part.part.partition("(")[0]: part for part in found.parts}


@settings(max_examples=25)
@given(dataset=pipelines())
def test_a_pipeline_under_the_clock_gives_what_it_gives_without(dataset):
    with no_thread_left():
        assert profile(dataset, items=10_000).count == len(list(dataset))


def test_every_part_is_told_with_what_came_out_of_it():
    dataset = fp.pipe(
        fp.concat([fp.pipe(numbers(30), fp.map(dict)), numbers(20)]),
        fp.filter(lambda row: row["x"] < 10),
        fp.batch(4),
        fp.unbatch(),
        fp.batch(8),
        fp.collate(lambda group: {"x": mx.array([row["x"] for row in group])}),
        fp.prefetch(2),
    )
    found = profile(dataset)
    assert [(part.part.partition("(")[0], part.count) for part in found.parts] == [
        ("from_table", 30),
        ("map", 30),
        ("from_table", 20),
        ("concat", 50),
        ("filter", 20),
        ("batch", 5),
        ("unbatch", 20),
        ("batch", 3),
        ("collate", 3),
        ("prefetch", 3),
        ("run loop", 3),
    ]
    assert found.count == 3


def slowly(seconds):
    def work(row):
        time.sleep(seconds)
        return row

    return fp.map(work, schema=pa.schema({"x": pa.int64()}))


def test_the_time_of_a_part_is_its_own():
    dataset = fp.pipe(numbers(50), slowly(0.002), fp.shuffle(seed=0), fp.batch(10), fp.repeat(2), slowly(0.001))
    found = profile(dataset)
    first, second = (part for part in found.parts if part.part.startswith("map"))
    assert first.seconds > second.seconds > 0.1
    assert sum(part.seconds for part in found.parts) == pytest.approx(found.seconds, rel=0.1)
    assert sum(parts(found)[name].seconds for name in ("from_table", "shuffle", "batch", "repeat", "run loop")) < first.seconds
    assert found.verdict.startswith("map(function=slowly.<locals>.work")


def test_what_is_loaded_is_the_time_of_what_makes_it():
    dataset = fp.pipe(numbers(50), slowly(0.002), fp.load(), fp.shuffle(seed=0), fp.batch(10))
    found = parts(profile(dataset))
    assert found["map"].seconds > found["load"].seconds + found["shuffle"].seconds


def test_a_prefetch_says_how_full_it_was_and_how_long_it_was_waited_for():
    def chunks(count):
        return from_chunks([pa.record_batch({"x": [x]}) for x in range(count)])

    starved = parts(profile(fp.pipe(chunks(30), slowly(0.005), fp.batch(1), fp.prefetch(3))))["prefetch"]
    assert starved.depth == 3
    assert starved.queue < 1.5
    assert starved.waited > 0.1
    assert starved.seconds == 0
    full = parts(profile(fp.pipe(chunks(30), fp.batch(1), fp.prefetch(3)), consume=lambda item: time.sleep(0.005)))["prefetch"]
    assert full.queue > 1.5
    assert full.waited < starved.waited


def test_the_stall_of_the_consumer_leaves_the_first_item_out():
    dataset = fp.pipe(fp.from_table({"x": np.arange(40)}), slowly(0.005), fp.load(), fp.batch(1))
    found = profile(dataset, consume=lambda item: time.sleep(0.005))
    assert found.first > 0.15
    assert found.stall < 0.8
    assert found.consumed > 0.15


class Sends:
    bytes_sent = 3_000_000

    def __call__(self, item):
        pass


def test_what_a_consumer_sends_to_other_ranks_is_shown():
    found = profile(fp.pipe(numbers(4), fp.batch(2)), consume=Sends())
    assert found.sent == 3_000_000
    assert "For each, it sends 3,000,000 bytes to other ranks." in str(found)
    assert "other ranks" not in str(profile(numbers(4), consume=lambda item: None))


def test_a_run_that_is_longer_than_asked_for_stops_there():
    endless = fp.from_iterable(lambda: ({"x": x} for x in iter(int, 1)))
    with no_thread_left():
        assert profile(fp.pipe(endless, fp.batch(4), fp.prefetch(2)), items=3).count == 3
    assert profile(fp.mix([numbers(5), numbers(5)], [1, 1]), items=20).count == 20


def test_errors_and_an_empty_run_are_as_they_are():
    with pytest.raises(ZeroDivisionError) as caught:
        profile(fp.pipe(numbers(9), fp.map(lambda row: {"x": 1 / row["x"]}, schema=pa.schema({"x": pa.float64()}))))
    assert any("while running map(function=" in note for note in caught.value.__notes__)
    nothing = profile(fp.pipe(numbers(3), fp.filter(lambda row: False), fp.batch(2)))
    assert (nothing.count, nothing.first) == (0, 0)
    assert "0 items in" in repr(nothing)


def test_an_error_of_the_consumer_ends_the_threads():
    def consume(item):
        raise LookupError(len(item))

    with no_thread_left():
        try:
            profile(fp.pipe(numbers(9), fp.batch(2), fp.prefetch(2)), consume=consume)
        except LookupError as error:
            kept = error  # and with it the frame of the run
            assert not [thread for thread in threading.enumerate() if thread.name.startswith("mlxfp")]
    assert kept.args == (2,)


def test_it_prints_as_a_table():
    found = Profile(
        (
            PartProfile("read_csv('train.csv')", 1000, 0.5),
            PartProfile(f"map(function={'f' * 70})", 1000, 1.25, advice="Use columns."),
            PartProfile("prefetch(depth=2)", 10, 0.0, 1.5, 0.125, 2),
        ),
        10,
        2.0,
        0.25,
        0.4,
    )
    assert repr(found).splitlines() == [
        "part                                                            out  out/s  seconds  share",
        "read_csv('train.csv')                                         1,000  2,000    0.500    25%",
        "map(function=ffffffffffffffffffffffffffffffffffffffffffff...  1,000    800    1.250    62%",
        "prefetch(depth=2)                                                10           0.000     0%  0.1 of 2 ready; 1.5 s waited for",
        "10 items in 2 s (5/s), the first after 0.25 s. From then on the consumer waits 77.1% of the time.",
        f"map(function={'f' * 70}) limits: it works 62% of the time. Use columns.",
    ]


@pytest.mark.parametrize(
    ("advice", "consumed", "says"),
    [
        ("Use it.", 0.0, r"slowest\(\) limits: it works 90% of the time. Use it.$"),
        ("", 0.0, r"slowest\(\) limits: it works 90% of the time.$"),
        ("Use it.", 0.05, r"Use it. prefetch\(2\) at the end prepares the next"),
        ("Use it.", 0.99, r"^The consumer limits: it waits 1.0% of the time. A faster pipeline would change nothing.$"),
    ],
)
def test_the_verdict_names_the_slowest_part_and_what_helps(advice, consumed, says):
    found = Profile((PartProfile("other()", 1, 0.05), PartProfile("slowest()", 1, 0.9, advice=advice)), 10, 1.0, 0.0, consumed)
    with pytest.raises(AssertionError):
        assert_matches(found.verdict, "limits: it works 5%")
    assert_matches(found.verdict, says)


@pytest.mark.parametrize(
    ("dataset", "part", "advice"),
    [
        (numbers(9), 0, "cache(path) after it"),
        (fp.pipe(numbers(9), fp.map(dict)), 1, 'prefetch(2, workers=4, kind="processes") at the end'),
        (fp.pipe(numbers(9), fp.filter(bool)), 1, "Filter before expensive stages"),
        (fp.pipe(numbers(9), fp.shuffle(seed=0)), 1, "load() or cache(path) before shuffle"),
        (numbers(9), -1, "Rows become dicts one by one"),
    ],
)
def test_parts_say_what_makes_them_faster(dataset, part, advice):
    assert advice in profile(dataset).parts[part].advice


def assert_matches(text, pattern):
    assert re.search(pattern, text), text


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (lambda: profile([1]), ArgumentTypeError, "works on a dataset"),
        (lambda: profile(numbers(1), items=0), ArgumentError, "items must be at least 1, got items=0."),
        (lambda: profile(numbers(1), consume=3), ArgumentTypeError, "consume must be a function, got consume=3."),
    ],
)
def test_messages(make, kind, message):
    with pytest.raises(kind, match=message):
        make()


def test_map_chunks_under_the_clock_keeps_its_schema():
    assert profile(fp.pipe(numbers(5), fp.map_chunks(lambda chunk: chunk), fp.batch(2)), items=1).count == 1


@pytest.mark.parametrize("view", [fp.shard(0, 2), lambda rows: fp.pipe(rows, fp.split([0.5, 0.5], seed=0))[0]])
def test_a_view_of_a_stream_counts_what_it_gives(view):
    found = profile(fp.pipe(numbers(40), fp.filter(lambda row: row["x"] < 20), view, fp.map(dict)))
    kept = parts(found)["map"].count
    assert 0 < kept < 20
    assert [part.count for part in found.parts] == [40, 20, kept, kept, kept]


def test_what_runs_rewritten_is_told_as_it_was_written():
    rows = fp.from_table({"x": range(9), "y": range(9)})
    found = profile(fp.pipe(rows, fp.rename_columns({"x": "z"}), fp.drop_columns(["y"]), fp.batch(2)))
    assert [(part.part, part.count) for part in found.parts] == [
        ("from_table(9 rows)", 9),
        ("rename_columns(names=(('x', 'z'),)), drop_columns(columns=('y',))", 9),
        ("batch(size=2)", 5),
        ("run loop", 5),
    ]


def test_stages_that_run_as_one_are_told_apart_where_they_can_be():
    rows = fp.from_table({"x": range(9), "y": range(9)})
    tokenizer = fp.train_tokenizer(fp.from_table({"text": ["one two"]}), kind="wordpiece", vocab_size=20)
    apart = profile(fp.pipe(rows, fp.template("{x}", into="a"), fp.template("{a}"), fp.map(dict), fp.batch(9)))
    assert [(part.part, part.count) for part in apart.parts][1:4] == [
        ("template(pattern='{x}', into='a')", 9),
        ("template(pattern='{a}')", 9),
        ("map(function=dict)", 9),
    ]
    together = profile(fp.pipe(rows, fp.template("{x}"), fp.tokenize(tokenizer), fp.batch(2), fp.collate(text(pad_id=0))))
    assert together.parts[2].advice.startswith("cache(path)")
    assert [(part.part.partition("(")[0], ", collate(" in part.part) for part in together.parts] == [
        ("from_table", False),
        ("template", False),
        ("tokenize", False),
        ("batch", True),
        ("run loop", False),
    ]
