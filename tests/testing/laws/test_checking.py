"""`check` picks the laws that apply, finds what breaks one of them, and says what it needs."""

import re
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import mlx.core as mx
import numpy as np
import pyarrow as pa
import pytest
from attrs import field, frozen
from hypothesis import settings
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.core.examples import Examples, Row
from mlxfp.core.nodes import Part
from mlxfp.data.lengths.batching import batch, unbatch
from mlxfp.support.errors import ArgumentError, ArgumentTypeError
from mlxfp.testing import laws, strategies
from mlxfp.testing.probing import from_chunks
from tests.testing.laws import broken
from tests.training.samples import dataset, setting

NUMBERS = pa.schema([pa.field("x", pa.int64(), nullable=False)])
TOKENS = pa.schema([pa.field("input_ids", pa.list_(pa.field("item", pa.int32(), nullable=False)), nullable=False)])
ROWS = fp.from_examples([{"x": place} for place in range(5)])


@pytest.fixture(autouse=True)
def _few_cases():
    """Each check is a whole test of its own."""
    before = settings.get_current_profile_name()
    settings.register_profile("few", settings.get_profile(before), max_examples=15)
    settings.load_profile("few")
    yield
    settings.load_profile(before)


@pytest.mark.parametrize("subject", [ROWS, ROWS.source, fp.pipe(ROWS, fp.shuffle(seed=0), batch(2)), fp.take(2)(ROWS)], ids=repr)
def test_datasets_and_sources_that_are_right_pass(subject: Any):
    laws.check(subject)


@pytest.mark.parametrize(
    "dataset",
    [
        fp.Dataset(broken.OffByOne()),
        fp.Dataset(broken.WrongCount()),
        fp.Dataset(broken.SortsIndices()),
        broken.MutatingState()(ROWS),
        broken.wrapped(broken.ForgetsResume)(from_chunks(broken.TABLE.to_batches(max_chunksize=2))),
    ],
    ids=repr,
)
def test_datasets_that_are_wrong_are_caught(dataset: fp.Dataset[Any]):
    with pytest.raises(AssertionError):
        laws.check(dataset)


_LONG = pa.table({"x": range(100)})


@pytest.mark.parametrize(
    "dataset",
    [
        fp.Dataset(broken.OffByOne(_LONG)),
        fp.Dataset(broken.WrongCount(_LONG)),
        fp.Dataset(broken.SortsIndices(_LONG)),
        broken.MutatingState()(fp.from_table(_LONG)),
        broken.wrapped(broken.ForgetsResume)(from_chunks(_LONG.to_batches(max_chunksize=2))),
    ],
    ids=["OffByOne", "WrongCount", "SortsIndices", "MutatingState", "ForgetsResume"],
)
def test_mistakes_in_long_datasets_are_caught_with_a_sample_of_cursors(dataset: fp.Dataset[Any]):
    with pytest.raises(AssertionError):
        laws.check(dataset)


@frozen(repr=False)
class _CountsReads(broken.BrokenSource):
    """Correct source that counts how often a reader starts."""

    starts: list[Any] = field(factory=list, eq=False)

    def read(self, epoch: int, position: Any) -> Any:
        self.starts.append(position)
        return super().read(epoch, position)


def test_a_long_dataset_is_read_a_bounded_number_of_times_and_the_report_tells_the_checked_cursors():
    reads = []
    for rows in (100, 400):
        source = _CountsReads(pa.table({"x": range(rows)}))
        report = laws.check(fp.pipe(fp.Dataset(source), batch(2)))
        assert str(report).startswith(f"9 laws hold, in {report.cases} cases. Of {rows // 2:,} items, cursors were checked after the first")
        reads.append(len(source.starts))
    assert reads[1] < 2 * reads[0]  # checks of all cursors would start four times as many readers
    assert str(laws.check(ROWS)).endswith("cases. Cursors were checked after each of 5 items.")


@pytest.mark.parametrize(
    "stage", [batch(2), fp.take(3), fp.shuffle(seed=0), unbatch(), fp.compose(fp.shuffle(seed=1, buffer=2), batch(2))], ids=repr
)
def test_stages_that_are_right_pass_on_any_table(stage: Any):
    laws.check(stage)


def test_a_function_of_rows_gets_values_that_it_can_give_back():
    """A tensor that is null has no Python value, and a map is a list there, so neither is drawn."""
    described = next(law for law in laws.laws_of(fp.map(lambda row: row)) if law.name == "assert_described")
    settings.register_profile("many", settings.get_profile("few"), max_examples=300)
    settings.load_profile("many")
    described()


def test_a_stage_is_held_to_its_look_ahead_where_that_is_given():
    laws.check(broken.HoldsOne(), schema=NUMBERS, ahead=8)
    with pytest.raises(AssertionError, match="reads at most"):
        laws.check(broken.HoldsOne(), schema=NUMBERS, ahead=0)


@pytest.mark.parametrize(
    "stage",
    [broken.CountingStage(), broken.DropsLastOfChunk(), broken.GroupPerChunk(), broken.WrongSchema(), broken.LyingState()],
    ids=repr,
)
def test_stages_that_are_wrong_are_caught(stage: Any):
    with pytest.raises(AssertionError):
        laws.check(stage, schema=NUMBERS)


def test_the_smallest_case_is_shown():
    with pytest.raises(AssertionError, match="chunk boundaries do not change the items") as caught:
        laws.check(broken.DropsLastOfChunk(), schema=NUMBERS)
    assert any("The rows: [{'x': 0}, {'x': 0}], in chunks of [2], or of [1, 1], in epoch 0." in note for note in caught.value.__notes__)
    with pytest.raises(AssertionError, match="in a group that has each example twice") as caught:
        laws.check(_counted, schema=TOKENS, masks={"attention_mask": "input_ids"})
    assert any("examples=({'input_ids': []},)" in note for note in caught.value.__notes__)


def test_a_stage_for_certain_columns_needs_to_know_them():
    laws.check(fp.select_columns(["x"]), schema=NUMBERS)
    laws.check(fp.select_columns(["x"]), examples=strategies.examples(NUMBERS))
    laws.check(fp.select_columns(["x"]), examples=st.just([{"x": 1}, {"x": 2}]), schema=NUMBERS)
    with pytest.raises(ArgumentError, match=r"select_columns\(.*\) can process too few of the random tables"):
        laws.check(fp.select_columns(["a column that is never drawn"]))
    with pytest.raises(ArgumentError) as caught:
        laws.check(fp.select_columns(["y"]), schema=NUMBERS)
    assert str(caught.value) == (
        "select_columns(columns=('y',)) can process too few of the random tables to check its laws. Describe the accepted tables: "
        "check(stage, schema=...) or check(stage, examples=...). The last error: select_columns needs the column 'y', which is missing. "
        "Columns: 'x'."
    )


@pytest.mark.parametrize("part", [fp.map(lambda row: {"z": row["y"]}), lambda rows: {"z": np.array([row["y"] for row in rows])}])
def test_a_column_that_a_schema_lacks_is_named(part: Any):
    with pytest.raises(KeyError) as caught:
        laws.check(part, schema=NUMBERS)
    assert (
        "If 'y' is a column: schema= has only 'x'. Add the column with its type to the schema, such as "
        "schema.append(pyarrow.field('y', pyarrow.int64(), nullable=False))."
    ) in caught.value.__notes__


def test_a_stage_with_a_function_that_cannot_be_pickled_is_no_value():
    @frozen
    class Local:
        def __call__(self, row: Any) -> bool:
            return True

    with pytest.raises(AssertionError, match=r"must be picklable, but pickling raises .* at the top level of a module"):
        laws.check(fp.filter(Local()))


def test_a_function_of_datasets_is_a_stage_once_it_is_composed():
    laws.check(fp.compose(take_two), schema=NUMBERS)


def take_two(dataset: Any) -> Any:
    return fp.pipe(dataset, batch(2), fp.take(2))


def test_collators_that_are_right_pass():
    ids = st.lists(st.builds(dict, input_ids=st.lists(st.integers(0, 9), max_size=4)))
    laws.check(fp.collators.text(pad_id=0), examples=ids, masks={"attention_mask": "input_ids"})
    laws.check(fp.collators.causal(pad_id=0), schema=TOKENS)
    laws.check(fp.collators.text(pad_id=0, side="left"), examples=ids, schema=TOKENS, masks={"attention_mask": "input_ids"})


def test_the_report_says_that_masks_were_not_checked():
    collator, mask = fp.collators.text(pad_id=0), {"attention_mask": "input_ids"}
    report = laws.check(collator, schema=TOKENS)
    assert str(report) == (
        f"7 laws hold, in {report.cases} cases. Masks were not checked. To check a mask, give the names of the mask and of the marked "
        'column: masks={"attention_mask": "input_ids"}.'
    )
    report = laws.check(collator, schema=TOKENS, masks=mask)
    assert str(report) == f"8 laws hold, in {report.cases} cases."


def test_foreign_collators_get_lists_of_plain_dicts_and_views_only_if_asked():
    seen: set[Any] = set()

    def spy(examples: Any) -> Any:
        seen.update([type(examples), *map(type, examples)])
        return fp.collators.text(pad_id=0)(examples)

    laws.check(spy, schema=TOKENS, masks={"attention_mask": "input_ids"})
    assert seen == {list, dict}
    laws.check(spy, schema=TOKENS, views=True)
    assert seen == {list, dict, Examples, Row}


def lists_only(examples: Any) -> dict[str, Any]:
    return {"length": mx.array([len(row["input_ids"]) + isinstance(examples, Examples) for row in examples])}


@frozen(repr=False)
class OfOurs(Part):
    def __call__(self, examples: Any) -> dict[str, Any]:
        return lists_only(examples)


def test_our_collators_are_held_to_the_law_of_views_and_others_if_asked():
    laws.check(lists_only, schema=TOKENS)
    with pytest.raises(AssertionError, match="'length' of lists_only follows the order"):  # a view in another order is a list
        laws.check(lists_only, schema=TOKENS, views=True)
    with pytest.raises(AssertionError, match=r"'length' of of_ours\(\) follows the order"):
        laws.check(OfOurs(), schema=TOKENS)


def _longest_first(examples: Any) -> dict[str, Any]:
    return fp.collators.text(pad_id=0)(sorted(examples, key=lambda row: -len(row["input_ids"])))


def _all_ones(examples: Any) -> dict[str, Any]:
    ids = fp.collators.text(pad_id=0)(examples)["input_ids"]
    return {"input_ids": ids, "attention_mask": mx.ones_like(ids)}


def _counted(examples: Any) -> dict[str, Any]:
    return {"ids": fp.collators.text(pad_id=0)(examples)["input_ids"] + len(examples)}


@pytest.mark.parametrize("collator", [_longest_first, _all_ones, _counted])
def test_collators_that_are_wrong_are_caught(collator: Any):
    with pytest.raises(AssertionError, match=r"follows the order|exactly on the|in a group|each example twice"):
        laws.check(collator, schema=TOKENS, masks={"attention_mask": "input_ids"})


def test_a_train_step_is_held_to_its_laws():
    step, state = setting()
    laws.check(step, state=state, batches=dataset())
    calls: list[int] = []

    def drifting(state: Any, batch: Any) -> Any:
        calls.append(1)
        return step(state, {**batch, "x": batch["x"] * len(calls)})

    with pytest.raises(AssertionError, match="a second call differs"):
        laws.check(drifting, state=state, batches=dataset())


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: laws.check(3), ArgumentTypeError, "check takes a dataset, source, .* observer or train step, got int: 3"),
        (lambda: laws.check(fp.collators.text(pad_id=0)), ArgumentError, r"needs inputs for the collator text\(pad_id=0\)\. Pass schema="),
        (lambda: laws.check(print, state=1), ArgumentError, "check needs both state= and batches="),
        (lambda: laws.check(ROWS, schema=NUMBERS, ahead=0), ArgumentError, "laws of a dataset do not use schema, ahead"),
        (
            lambda: laws.check(batch(2), masks={}),
            ArgumentError,
            r"laws of a stage do not use masks.*Remove masks=\. Arguments in use: schema, examples, ahead",
        ),
    ],
)
def test_what_is_missing_or_of_no_use_is_said(call: Any, error: Any, message: str):
    with pytest.raises(error, match=message):
        call()


def test_holding_data_to_its_laws_does_not_load_mlx():
    code = """
        import sys
        from mlxfp.testing import laws
        from mlxfp.data.sources.in_memory import from_examples
        laws.assert_repeatable(from_examples([{"x": 1}]))
        print([name for name in sys.modules if name.partition(".")[0] == "mlx"])
    """
    run = subprocess.run([sys.executable, "-c", dedent(code)], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_collators_and_loaders_are_held_to_their_laws_without_mlx():
    code = """
        import sys

        class WithoutMLX:
            def find_spec(self, name, path=None, target=None):
                if name.partition(".")[0] == "mlx":
                    raise ImportError("libmlx.so: cannot open shared object file")

        sys.meta_path.insert(0, WithoutMLX())
        import numpy as np
        from hypothesis import strategies as st
        from mlxfp.testing import audit, laws

        def padded(examples):
            rows = [example["x"] for example in examples]
            width = max(map(len, rows))
            ids = np.array([row + [0] * (width - len(row)) for row in rows])
            return {"x": ids, "mask": (ids > 0).astype(np.int32)}

        def loader(seed, epoch, workers, state):
            yield from enumerate(np.random.default_rng([seed, epoch]).permutation(12)[state or 0:], 1 + (state or 0))

        def flipped(seed, epoch, workers, state):
            return ((item, state) for state, item in loader(seed, epoch, workers, state))

        groups = st.lists(st.builds(dict, x=st.lists(st.integers(1, 9), min_size=1)), min_size=1)
        laws.check(padded, examples=groups, masks={"mask": "x"}, padding={"x": 0}, carries={"x": "x"}, dtypes={"x": "int64"})
        laws.assert_ignores_padding(lambda ids, mask: (ids * mask).sum(axis=1), np.array([[3, 0]]), np.array([[1, 0]]))
        print(audit.examine(audit.Loader("mine", 12, flipped)))
    """
    run = subprocess.run([sys.executable, "-c", dedent(code)], capture_output=True, text=True, check=False)
    assert run.stdout.strip() == "()", run.stderr


def test_a_failure_shows_the_line_of_the_test_and_none_of_ours(tmp_path: Path):
    (tmp_path / "test_mine.py").write_text(
        dedent("""
            import numpy as np
            from hypothesis import strategies as st
            from mlxfp.testing import laws

            ROWS = st.lists(st.builds(dict, x=st.integers(0, 9)), min_size=1)

            class Counter:
                calls = 0

                def __call__(self, examples):
                    self.calls += 1
                    return {"x": np.full(len(examples), self.calls)}

            def test_a_law_that_is_broken():
                laws.check(Counter(), examples=ROWS)

            def test_a_mistake_in_the_collator():
                laws.check(lambda examples: {"x": np.array([example["y"] for example in examples])}, examples=ROWS)

            def test_a_law_with_inputs():
                laws.assert_permutes(lambda rows: {"x": np.sort([row["x"] for row in rows])}, [{"x": 2}, {"x": 1}], [1, 0])
            """),
        encoding="utf-8",
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider", "test_mine.py"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "3 failed" in run.stdout, run.stdout + run.stderr
    assert "checking.py" not in run.stdout
    assert "hypothesis/" not in run.stdout
    assert "AssertionError: <Counter object> gives the same batch for the same examples" in run.stdout
    assert re.search(
        r"KeyError: 'y'\s+E\s+Failing test case: every_law_holds\(\s+E\s+examples=\[{'x': 0}\],\s+E\s+seed_of_the_order=0", run.stdout
    )


def test_a_project_that_imports_nothing_else_of_ours_can_use_it(tmp_path: Path):
    (tmp_path / "test_mine.py").write_text(
        dedent("""
            import mlx.core as mx
            import pytest
            from hypothesis import strategies as st
            from mlxfp.testing import laws

            def lengths(examples):
                return {"length": mx.array([len(example["x"]) for example in examples])}

            def totals(examples):
                return {"share": mx.array([len(example["x"]) / sum(len(each["x"]) or 1 for each in examples) for example in examples])}

            @pytest.mark.parametrize("collator", [lengths, totals])
            def test_laws(collator):
                laws.check(collator, examples=st.lists(st.builds(dict, x=st.lists(st.integers(0, 9))), min_size=1))
            """),
        encoding="utf-8",
    )
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:randomly", "test_mine.py"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "1 failed, 1 passed" in run.stdout, run.stdout + run.stderr
    assert re.search(r"'share' of totals is the same in a group that has each example twice, but the results differ at", run.stdout)
    assert re.search(r"examples=\[{'x': \[0?\]}\]", run.stdout)
