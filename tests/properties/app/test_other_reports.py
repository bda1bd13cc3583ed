"""What a notebook shows of a profile, a manifest and a training state."""

import mlx.core as mx

import mlxfp as fp
from tests.app.reports.test_reports import Page


def test_a_profile_has_bars():
    found = fp.inspect.profile(fp.pipe(fp.from_examples([{"x": place} for place in range(20)]), fp.batch(4)))
    page = Page(found._repr_html_())
    assert "from_examples(20 rows)" in page.words
    assert page.names.count("tr") == 1 + len(found.parts)
    assert found.verdict in page.text


def test_a_manifest_has_columns_and_files(tmp_path):
    rows = fp.from_examples([{f"<b>{place}": 1 for place in range(30)}])
    page = Page(fp.write(rows, tmp_path, format="parquet")._repr_html_())
    assert "b" not in page.names
    assert "part-00000.parquet" in page.words
    assert "<b>0" in page.text
    assert "<b>25" not in page.text


def test_a_state_has_its_trees():
    page = Page(fp.TrainState({"w": mx.zeros((2, 3))}, {}, {}, step=1234, seed=0)._repr_html_())
    assert "TrainState: step 1,234, seed 0" in page.text
    assert {"params", "buffers", "opt", "extra", "6", "24"} <= set(page.words)
