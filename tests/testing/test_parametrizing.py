"""Each law of a part is a test with a name, and the plugin says at the end what is broken."""

import re
from textwrap import dedent

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp import losses, metrics
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, UnknownNameError
from mlxfp.testing import laws, parametrize_with_laws
from mlxfp.testing.laws.families import FAMILIES
from tests.testing.laws import broken
from tests.training.observers.runs import run

pytest_plugins = ["pytester"]

NUMBERS = st.lists(st.floats(-9, 9, width=32), min_size=1, max_size=5)
PAIRS = NUMBERS.map(lambda some: (np.array(some, np.float32), np.zeros(len(some), np.float32)))
ROWS = st.lists(st.builds(dict, input_ids=st.lists(st.integers(1, 9))), min_size=1, max_size=3)


@pytest.fixture(autouse=True)
def _few_cases():
    before = settings.get_current_profile_name()
    settings.register_profile("few", settings.get_profile(before), max_examples=8)
    settings.load_profile("few")
    yield
    settings.load_profile(before)


def as_arrays(metric):
    import mlx.core as mx

    return laws.Subject(metric, arrays=PAIRS.map(lambda pair: tuple(map(mx.array, pair))))


@parametrize_with_laws(
    [
        fp.batch(2),
        fp.pipe(fp.from_examples([{"x": place} for place in range(4)]), fp.shuffle(seed=0)),
        laws.Subject(fp.collators.text(pad_id=0), examples=ROWS, masks={"attention_mask": "input_ids"}),
        as_arrays(losses.mse),
        laws.Subject(iter, events=list(run())),
    ]
)
def test_parts_that_are_right_hold_each_of_their_laws(law):
    law()


def test_every_family_has_its_laws_and_check_checks_the_same():
    subjects = {
        "dataset": fp.from_examples([{"x": 1}]),
        "stage": laws.Subject(fp.batch(2), ahead=0),
        "collator": laws.Subject(fp.collators.text(pad_id=0), examples=ROWS, padding={"input_ids": 0}, dtypes={"input_ids": "int32"}),
        "metric": as_arrays(losses.mse),
        "observer": laws.Subject(iter, events=[]),
        "train step": laws.Subject(max, state=object(), batches=object()),
    }
    found = {law.subject.family.name: [] for subject in subjects.values() for law in laws.laws_of(subject)}
    for subject in subjects.values():
        for law in laws.laws_of(subject):
            found[law.subject.family.name].append(law.name)
            assert hasattr(laws, law.name)  # the name of a law is that of its function
    assert found.keys() == subjects.keys() == {family.name for family in FAMILIES}
    assert {"assert_lazy", "assert_replay_is_bounded", "assert_chunks_do_not_matter"} < set(found["stage"])
    assert {"assert_pads_with", "assert_dtypes", "assert_list_and_view_agree"} < set(found["collator"])
    assert "assert_random_access" in found["dataset"]
    assert "assert_random_access" not in [law.name for law in laws.laws_of(fp.batch(1)(subjects["dataset"]))]


def names_of_broken(part):
    names, said = [], []
    for law in laws.laws_of(part):
        try:
            law()
        except AssertionError as error:
            names.append(law.name)
            said.append(str(error))
    assert all(said)
    return names


def test_only_the_law_that_is_broken_fails_with_the_smallest_case_that_breaks_it():
    def longest(examples):
        return {"x": np.full(len(examples), max(example["x"] for example in examples))}

    subject = laws.Subject(longest, examples=st.lists(st.builds(dict, x=st.integers(0, 99)), min_size=1))
    assert names_of_broken(subject) == ["assert_an_example_stands_alone"]
    (law,) = (law for law in laws.laws_of(subject) if law.name == "assert_an_example_stands_alone")
    with pytest.raises(AssertionError) as caught:
        law()
    assert "assert_an_example_stands_alone(" in caught.value.__notes__[0]
    assert re.search(r"examples=\[{'x': \d}, {'x': \d}\]", caught.value.__notes__[0])


def test_a_state_that_changes_breaks_the_law_of_purity_and_those_of_values_and_rows_hold():
    found = names_of_broken(broken.MutatingState()(fp.from_examples([{"x": place} for place in range(5)])))
    assert "assert_pure_stages" in found
    assert not {"assert_value", "assert_reads"} & set(found)


def test_a_metric_that_is_a_mean_of_means_is_caught():
    import mlx.core as mx

    def worst(predictions, targets):
        return mx.abs(predictions - targets).max(), mx.array(1.0)

    assert names_of_broken(as_arrays(worst)) == ["assert_merges"]
    assert names_of_broken(as_arrays(metrics.mae)) == []


def test_an_observer_that_keeps_an_event_back_is_caught():
    def every_other(events):
        yield from list(events)[::2]

    assert names_of_broken(laws.Subject(every_other, events=list(run()))) == ["assert_keeps_events", "assert_observes_lazily"]


def test_mistakes_are_named_when_the_tests_are_made():
    with pytest.raises(ArgumentError, match="needs at least one part"):
        parametrize_with_laws([])
    with pytest.raises(UnknownNameError, match=r"law of these parts is named 'assert_permute'\. Did you mean 'assert_permutes'"):
        parametrize_with_laws([laws.Subject(len, examples=ROWS)], expected_failures={"assert_permute": "?"})
    with pytest.raises(ArgumentTypeError, match="check takes a dataset, source, stage, collator, metric, observer or train step, got int"):
        parametrize_with_laws([3])
    with pytest.raises(ArgumentError, match=r"The laws of a stage do not use arrays, got batch\(size=2\)"):
        laws.Subject(fp.batch(2), arrays=PAIRS)


def test_laws_are_tests_with_names_and_expected_failures_and_a_summary(pytester, monkeypatch):
    pytester.makepyfile(
        test_parts=dedent("""
            import numpy as np
            from hypothesis import strategies as st
            from mlxfp.testing import laws, parametrize_with_laws

            ROWS = st.lists(st.builds(dict, x=st.integers(0, 9)), min_size=1)

            def longest(examples):
                return {"x": np.full(len(examples), max(example["x"] for example in examples))}

            def right(examples):
                return {"x": np.array([example["x"] for example in examples])}

            @parametrize_with_laws([laws.Subject(right, examples=ROWS)])
            def test_right(law):
                law()

            @parametrize_with_laws(
                [laws.Subject(longest, examples=ROWS)], expected_failures={"assert_an_example_stands_alone": "it is the maximum"}
            )
            def test_known(law):
                law()

            @parametrize_with_laws([laws.Subject(right, examples=ROWS)], expected_failures={"assert_permutes": "not true"})
            def test_held(law):
                law()

            @parametrize_with_laws([laws.Subject(longest, examples=ROWS)])
            def test_broken(law):
                law()

            def test_of_something_other():
                pass
            """)
    )
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # as in an environment where nothing else is installed
    run = pytester.runpytest_inprocess("-p", "mlxfp.testing.pytest_plugin", "-m", "law", "--strict-markers", "-rA")
    run.assert_outcomes(passed=21, failed=2, xfailed=1, deselected=1)
    run.stdout.fnmatch_lines(["*PASSED test_parts.py::test_right?right-assert_pure_collator?"])
    run.stdout.fnmatch_lines(
        [
            "=* laws =*",
            "right: 11 laws hold, unexpectedly kept assert_permutes",
            "longest: 10 laws hold, broken assert_an_example_stands_alone, broken as expected assert_an_example_stands_alone",
        ]
    )
