"""The audit of loaders: mlxfp breaks no law, and a loader with planted faults breaks the laws of the faults."""

from itertools import count
from pathlib import Path

import numpy as np

from benchmarks.audit_loaders import audit_in_a_process, findings_of, table
from benchmarks.audited import LOADERS, ROWS, Audited


def test_mlxfp_breaks_no_law_of_the_audit():
    findings = findings_of("mlxfp", LOADERS["mlxfp"])
    assert findings == []
    lines = table({"mlxfp": {"versions": ["mlxfp 1"], "findings": findings}})
    assert lines[2] == f"| mlxfp |{' yes |' * 11}"
    assert lines[-1] == "- no finding"


def broken(function, seed, epoch, workers, state):
    """Lose row 7 with workers, repeat the order, skip a batch after resuming, and end the epoch at an error."""
    for number in count(epoch):
        order = np.random.default_rng(seed).permutation(ROWS)
        batches = (order[order != 7] if workers else order).reshape(-1, 7 if workers else 5)
        for index in range(0 if state is None else state + 1, len(batches)):
            try:
                yield number, [function(int(row)) for row in batches[index]], index + 1
            except ValueError:
                break
        state = None


def test_planted_faults_are_findings():
    findings = findings_of("mlxfp", Audited("broken", "numpy", (), broken, ranked=False))
    assert {law for law, _ in findings} == {"permutation", "workers", "orders", "resume", "other workers", "errors"}
    details = dict(reversed(findings))
    assert details["permutation"] == "broken with 2 workers loses the rows [7]"
    assert "resumed after item 1 of 10, loses the rows [" in details["resume"]
    assert "hides a ValueError in row 33: the epoch ends, and loses the rows [" in details["errors"]


def test_a_loader_that_is_not_installed_has_a_reason():
    result = audit_in_a_process("mlxfp", "/no/such/python")
    assert result["reason"].startswith("FileNotFoundError")
    assert table({"mlxfp": result})[2] == f"| mlxfp |{' not run |' * 11}"


def test_scripts_of_findings_are_short():
    """A finding that others cite is a script of at most 20 lines."""
    lengths = {
        path.name: len(path.read_text("utf-8").splitlines()) for path in (Path(__file__).parents[3] / "benchmarks/audits").glob("*.py")
    }
    assert lengths
    assert {name: length for name, length in lengths.items() if length > 20} == {}
