"""`mlxfp laws`: each law of a part of your own, held or broken."""

from textwrap import dedent

import pytest
from hypothesis import settings

from mlxfp.app.cli import main


@pytest.fixture
def parts(tmp_path, monkeypatch):
    """A module of parts in the working folder."""
    (tmp_path / "odd_parts.py").write_text(
        dedent("""
            import numpy as np
            import pyarrow as pa
            from attrs import frozen
            from hypothesis import strategies as st
            import mlxfp as fp
            from mlxfp.testing import laws

            rows = fp.from_examples([{"x": 1}, {"x": 2}])

            @frozen(repr=False)
            class FirstOfChunk(fp.RowWise):
                def apply(self, chunk):
                    first = [value.as_py() for value in chunk["x"][:1]]
                    return chunk.set_column(0, "x", pa.array(first * len(chunk), pa.int64()))

                def schema(self, schema):
                    return pa.schema({"x": pa.int64()})

            def first():
                return laws.Subject(FirstOfChunk(), schema=pa.schema([pa.field("x", pa.int64(), nullable=False)]))

            def collate(examples):
                return {"x": np.array([example["x"] for example in examples])}

            def named():
                return laws.Subject(collate, examples=st.lists(st.builds(dict, x=st.integers(0, 9)), min_size=1))

            more = fp.map(lambda row: {"x": row["x"] + 1})

            def needs_an_argument(size, more):
                return rows
            """),
        encoding="utf-8",
    )
    monkeypatch.chdir(tmp_path)
    before = settings.get_current_profile_name()
    settings.register_profile("few", settings.get_profile(before), max_examples=8)
    settings.load_profile("few")
    yield
    assert settings.get_current_profile_name() == "few"
    settings.load_profile(before)


def test_laws_that_hold_are_listed_with_what_they_say(parts, capsys):
    assert main(["laws", "odd_parts:rows"]) == 0
    head, *lines, coverage, end = capsys.readouterr().out.splitlines()
    assert head == "odd_parts:rows: pipe(from_examples(2 rows))"
    assert lines[0].startswith("  held    assert_value: a copy of a dataset, stage or source")
    assert all(line.startswith("  held    assert_") for line in lines)
    assert coverage == "Cursors were checked after each of 2 items."
    assert end == f"{len(lines)} laws, none broken."


def test_a_function_that_makes_a_part_is_called(parts, capsys):
    assert main(["laws", "odd_parts:named"]) == 0
    assert capsys.readouterr().out.startswith("odd_parts:named: collate\n")


def test_a_broken_law_is_shown_with_the_smallest_case_and_the_exit_code_says_so(parts, capsys):
    assert main(["laws", "odd_parts:first"]) == 1
    said = capsys.readouterr().out
    assert "  BROKEN  assert_chunks_do_not_matter: chunk boundaries before `batch` do not change the items" in said
    assert "          The rows: [{'x': 0}, {'x': 1}], in chunks of [2]" in said
    assert "  held    assert_repeatable:" in said
    assert "laws.Subject" not in said
    assert said.splitlines()[-1].endswith(" laws, 1 broken.")


def test_who_needs_columns_is_told_how_to_name_them(parts, capsys):
    hint = "If more needs columns, give a function that returns laws.Subject(part, schema=...)."
    assert main(["laws", "odd_parts:more"]) == 1
    assert hint in capsys.readouterr().out


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ("odd_parts", "mlxfp laws needs MODULE:NAME, as in parcels:Describe, got 'odd_parts'."),
        ("no_such_parts:x", "mlxfp laws: the module 'no_such_parts' of 'no_such_parts:x' cannot be imported"),
        ("odd_parts:row", "No part of the module 'odd_parts'"),
        ("odd_parts:collate", "instead of collate, give a function that returns laws.Subject(part, ...) with these arguments."),
        ("odd_parts:needs_an_argument", "give a function that returns laws.Subject(part, ...)"),
        ("odd_parts:np", "check takes a dataset, source, stage, collator, metric, observer or train step, got module"),
    ],
)
def test_what_is_not_a_part_is_explained(parts, capsys, part, message):
    assert main(["laws", part]) == 1
    assert message in capsys.readouterr().err
