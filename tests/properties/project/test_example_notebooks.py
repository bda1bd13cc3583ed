"""The notebooks of examples/: they run, the repository holds none of their outputs, and an interrupted cell leaves a run to continue."""

import json
from pathlib import Path
from textwrap import dedent

import nbformat
import pytest
from jupyter_client.manager import start_new_kernel
from nbclient import NotebookClient

from tests.compiling import nothing_compiled

NOTEBOOKS = sorted(Path(__file__).parents[3].glob("examples/*.ipynb"))


@pytest.fixture(scope="module", autouse=True)
def uncompiled():
    with nothing_compiled():  # in the kernels
        yield


def test_there_is_one_for_the_tutorial_and_one_for_a_competition():
    assert [path.stem for path in NOTEBOOKS] == ["competition", "tutorial"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_repository_holds_no_outputs(path):
    made = json.loads(path.read_text("utf-8"))
    codes = [cell for cell in made["cells"] if cell["cell_type"] == "code"]
    assert codes
    assert [cell["source"] for cell in codes if cell["outputs"] or cell["execution_count"] is not None] == []
    assert {*made["metadata"]} <= {"kernelspec", "language_info"}  # no versions or widgets of whoever ran it last
    assert made["metadata"]["language_info"] == {"name": "python"}
    assert all(cell["metadata"] == {} for cell in made["cells"])
    nbformat.validate(made)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_what_it_makes(path, tmp_path):
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    shown = [output["data"]["text/html"] for output in outputs if "text/html" in output.get("data", {})]
    assert len(shown) >= 4
    assert all(html.startswith('<div class="mlxfp">') and "<script" not in html for html in shown)
    assert [output["text"] for output in outputs if output.get("name") == "stderr"] == []
    assert not list(tmp_path.iterdir())  # a notebook leaves nothing where it is


SETTING = """
    import mlxfp as fp

    fp.runtime.use_fast_blas()
    from mlx import nn

    rows = fp.from_examples([{"x": float(number), "y": 3.0 * number} for number in range(16)])
    batches = fp.pipe(rows, fp.shuffle(seed=0), fp.batch(4), fp.collate(fp.collators.default()), fp.prefetch(2))
    model, optimizer = nn.Linear(1, 1), fp.optimizers.adamw(1e-2)
    step = fp.train_step(model, lambda model, batch: fp.losses.mse(model(batch["x"][:, None])[:, 0], batch["y"] / 48), optimizer)
    start = fp.train_state(model, optimizer, seed=0)
"""
ENDLESS = """
    for event in fp.fit(step, start, batches, epochs=10**6):
        if event.step == 20 and isinstance(event, fp.events.Stepped):
            print("running", flush=True)
"""
CONTINUED = """
    ends = []
    for state, cursor in ((start, None), (event.state, event.cursor)):
        events = fp.fit(step, state, batches, epochs=10**6, steps=event.step + 10, cursor=cursor)
        ends.append(fp.last(events).state)
    print(event.step >= 20, ends[0].step == event.step + 10, ends[0] == ends[1])
"""


def test_an_interrupted_cell_leaves_the_last_event_and_the_next_one_continues_the_run():
    manager, client = start_new_kernel()
    texts = []

    def hear(message):
        if message["msg_type"] == "stream":
            texts.append(message["content"]["text"].strip())
            if texts[-1] == "running":
                manager.interrupt_kernel()  # what the button of a notebook does

    try:
        ends = [client.execute_interactive(dedent(cell), timeout=120, output_hook=hear) for cell in (SETTING, ENDLESS, CONTINUED)]
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    assert [end["content"].get("ename") for end in ends] == [None, "KeyboardInterrupt", None], texts
    assert texts[-1] == "True True True"
