"""Hold loaders to the laws of `mlxfp.testing.audit`: `python -m benchmarks.audit_loaders [NAME ...]`.

Every loader runs in a fresh process, with the Python of an environment that has the loader: `--python datasets=/path/bin/python`, or
`--python /path/bin/python` for all loaders without a path. The environments also need hypothesis and the dependencies of mlxfp except MLX.
"""

import argparse
import json
import os
import pickle
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from importlib import import_module
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any

from benchmarks.audited import LIMITS, LOADERS, ROWS, Audited, same

_FOLDER = Path(__file__).parent
_PAGE = _FOLDER.parent / "docs/explanation/loader-audit.md"
_BEGIN, _END = "<!-- written by python -m benchmarks.audit_loaders --write -->", "<!-- end -->"
_COLUMNS = {  # law: heading of the column
    "permutation": "each row once",
    "workers": "order with workers",
    "orders": "new order each epoch",
    "resume": "exact resume",
    "next epoch": "next epoch after resume",
    "other workers": "other workers",
    "ranks": "2 ranks",
    "other ranks": "other ranks",
    "errors": "errors raised",
    "locations": "errors name the row",
    "memory": "flat memory",
}
_RESUMING = ("resume", "next epoch", "other workers", "other ranks")
_SILENCE, _LIMIT = 60, 1200  # seconds without an item, seconds per loader


def main() -> None:
    """Audit the given loaders, print the table and the findings."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of: {', '.join(LOADERS)} (default: all)")
    parser.add_argument("--python", action="append", default=[], metavar="NAME=PATH", help="interpreter for a loader, or for all others")
    parser.add_argument(
        "--json", type=Path, default=Path("loader-audit.json"), help="where to write results; other loaders stay in the file"
    )
    parser.add_argument("--write", action="store_true", help="put the table of the file into docs/explanation/loader-audit.md")
    options = parser.parse_args()
    if unknown := [name for name in options.names if name not in LOADERS]:
        parser.error(f"no loader is named {', '.join(unknown)}. Known: {', '.join(LOADERS)}")
    pythons: dict[str, str] = dict(value.split("=", 1) if "=" in value else ("", value) for value in options.python)
    results = json.loads(options.json.read_text("utf-8")) if options.json.exists() else {}
    for name in options.names or LOADERS:
        results[name] = audit_in_a_process(name, pythons.get(name) or pythons.get("") or sys.executable)
        options.json.write_text(json.dumps(results, indent=1), "utf-8")
        print("\n".join(line for line in table({name: results[name]}) if not line.startswith("| ---")), flush=True)
    if options.write:
        write(results)


def write(results: dict[str, dict[str, Any]]) -> None:
    """Put the table of the results into the page."""
    before, _, rest = _PAGE.read_text("utf-8").partition(_BEGIN)
    text = "\n".join(table({name: results[name] for name in LOADERS if name in results}))
    _PAGE.write_text(f"{before}{_BEGIN}\n\n{text}\n\n{_END}{rest.partition(_END)[2]}", "utf-8")


def audit_in_a_process(name: str, python: str) -> dict[str, Any]:
    """Audit a loader with an interpreter. Return versions and findings, or the reason for no result."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "AUDIT_FOLDER": folder, "PYTHONPATH": str(_FOLDER.parent)}
        code = f"from benchmarks.audit_loaders import audit_here; audit_here({name!r})"
        try:
            subprocess.run([python, "-c", code], check=True, timeout=_LIMIT, env=environment, stdout=sys.stderr)
            return dict(json.loads(Path(folder, "findings.json").read_text("utf-8")))
        except (subprocess.SubprocessError, OSError) as error:
            return {"versions": [], "reason": f"{type(error).__name__}: the audit did not finish, see the output", "findings": []}


def audit_here(name: str) -> None:
    """Audit a loader in this process, and write versions and findings to the folder of the audit."""
    audited = LOADERS[name]
    result: dict[str, Any] = {"versions": [], "findings": []}
    try:
        import_module(audited.module)
    except ImportError as error:
        result["reason"] = f"cannot be imported: {error}"
    else:
        result["versions"] = [f"{package} {version(package)}" for package in audited.packages]
        result["findings"] = findings_of(name, audited)
    Path(os.environ["AUDIT_FOLDER"], "findings.json").write_text(json.dumps(result), "utf-8")


def findings_of(name: str, audited: Audited) -> list[tuple[str, str]]:
    """Return pairs of a law and a description for a loader."""
    from mlxfp.testing import audit
    from mlxfp.testing.audit.resuming import check_resuming

    loader = audit.Loader(audited.title, ROWS, partial(_run, audited, 1), partial(_apply, audited), partial(_ranks, name, audited))
    if not audited.ranked:
        loader = audit.Loader(audited.title, ROWS, loader.run, loader.apply)
    findings = [(finding.law, finding.detail) for finding in audit.examine(loader)]
    findings = [("workers" if law == "determinism" else law, detail) for law, detail in findings]
    if not audited.stateful:
        return [(law, detail) for law, detail in findings if law not in _RESUMING]
    if "resume" not in dict(findings):
        several = audit.Loader(f"{audited.title} over two epochs", 2 * ROWS, partial(_run, audited, 2))
        findings += [("next epoch", detail) for detail in check_resuming(several, 2)]
    return findings


def _run(audited: Audited, epochs: int, *case: Any) -> Iterator[tuple[Any, Any]]:
    """Run `epochs` epochs that count as one: the rows of the second one have other numbers. `case` has the arguments of `audit.Run`."""
    from mlxfp.testing.audit.values import numbers_of

    seed, epoch, workers, state = case
    first = epoch * epochs
    started, saved = (first, None) if state is None else state
    for number, item, after in _timed(audited, same, seed, started, workers, saved):
        if number >= first + epochs:
            return
        if number >= first:
            yield [row + ROWS * (number - first) for row in numbers_of(item)], (number, after)


def _apply(audited: Audited, function: Any, epochs: int, workers: int) -> Iterator[Any]:
    for number, item, _ in _timed(audited, function, 0, 0, workers, None):
        if number >= epochs:
            return
        yield item


def _timed(audited: Audited, function: Any, *start: Any) -> Iterator[tuple[int, Any, Any]]:
    """Run a stream, and raise a TimeoutError if no item comes for a minute."""
    signal.signal(signal.SIGALRM, _give_up)
    stream = audited.stream(function, *start)
    try:
        silence = 3 * _SILENCE if "RANK" in os.environ else _SILENCE  # ranks wait for each other
        signal.alarm(silence)
        for triple in stream:
            signal.alarm(0)
            yield triple
            signal.alarm(silence)
    finally:
        signal.alarm(0)
        stream.close()


def _give_up(*_: Any) -> None:
    raise TimeoutError(f"no item for {_SILENCE} seconds")


def _ranks(name: str, audited: Audited, count: int, states: Sequence[Any] | None) -> list[list[tuple[Any, Any]]]:
    """Run the first epoch in `count` processes, as torchrun does."""
    with socket.socket() as free, tempfile.TemporaryDirectory() as folder:
        free.bind(("127.0.0.1", 0))
        address = {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(free.getsockname()[1]),
            "LOCAL_WORLD_SIZE": str(count),
            "GLOBAL_BATCH": "8",
        }
        free.close()
        starts = [None] * count if states is None else [(0, state) for state in audited.merge([state for _, state in states], count)]
        processes = []
        for rank, state in enumerate(starts):
            file = Path(folder, f"{rank}.pickle")
            file.write_bytes(pickle.dumps(state))
            environment = {**os.environ, **address, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count)}
            code = f"from benchmarks.audit_loaders import run_rank; run_rank({name!r}, {str(file)!r})"
            processes.append(subprocess.Popen([sys.executable, "-c", code], env=environment, stderr=subprocess.PIPE, text=True))
        messages = [process.communicate(timeout=300)[1] for process in processes]
        if failed := [message for process, message in zip(processes, messages, strict=True) if process.returncode]:
            lines = [line for line in failed[0].splitlines() if line and not line.startswith((" ", "["))]
            raise RuntimeError(lines[-1] if lines else "a rank ended without a message")
        return [pickle.loads(Path(folder, f"{rank}.pickle").read_bytes()) for rank in range(count)]  # noqa: S301  # written by our own processes


def run_rank(name: str, file: str) -> None:
    """Run the first epoch of a rank from the state in a file, and write items and states to the file."""
    state = pickle.loads(Path(file).read_bytes())  # noqa: S301  # written by the process that started this one
    Path(file).write_bytes(pickle.dumps(list(_run(LOADERS[name], 1, 0, 0, 0, state))))


def table(results: dict[str, dict[str, Any]]) -> list[str]:
    """Return the lines of the table and of the findings, in Markdown."""
    lines = [f"| loader | {' | '.join(_COLUMNS.values())} |", f"| --- |{' --- |' * len(_COLUMNS)}"]
    lines += [f"| {_title(name)} | {' | '.join(_cell(name, law, result) for law in _COLUMNS)} |" for name, result in results.items()]
    for name, result in results.items():
        described = list(chain.from_iterable(_described(name, law, result) for law in _COLUMNS)) or ["- no finding"]
        lines += ["", f"**{_title(name)}** ({', '.join(result['versions']) or 'not run'})", ""]
        lines += [f"- {result['reason']}"] if "reason" in result else described
    return lines


def _title(name: str) -> str:
    return LOADERS[name].title


def _cell(name: str, law: str, result: dict[str, Any]) -> str:
    if "reason" in result:
        return "not run"
    if law in _RESUMING and not LOADERS[name].stateful:
        return "no state"
    broken = {other for other, _ in result["findings"]}
    hidden = any("hides a ValueError" in detail for _, detail in result["findings"])
    unseen = {"next epoch": "resume" in broken, "locations": hidden, "ranks": not LOADERS[name].ranked}
    if unseen.get(law):
        return "-"
    details = [detail for other, detail in result["findings"] if other == law]
    raising = [" raises " in detail for detail in details]
    if not details:
        return "yes"
    if (name, law) in LIMITS and not (law == "resume" and any(raising)):
        return "documented"
    return "refused" if law.startswith("other") and all(raising) else "**no**"


def _described(name: str, law: str, result: dict[str, Any]) -> Iterator[str]:
    details = [detail for other, detail in result["findings"] if other == law]
    if not details:
        return
    stem = f"{name.replace('-', '_')}_{law.replace(' ', '_')}"
    scripts = sorted(path.name for path in (_FOLDER / "audits").glob(f"{stem}*.py"))
    links = f" Scripts: {', '.join(f'`{script}`' for script in scripts)}." if scripts else ""
    limit = f" Documented: {LIMITS[name, law]}" if (name, law) in LIMITS else ""
    shown = " ".join(_sentence(_title(name), detail) for detail in details[:3])
    yield f"- Law **{_COLUMNS[law]}**: {shown}{limit}{links}"


def _sentence(title: str, detail: str) -> str:
    text = _short(detail.removeprefix(title).strip().splitlines()[0])
    return f"{title} {text}" if text.endswith(".") else f"{title} {text}."


def _short(text: str) -> str:
    text = (
        re.sub(r"\x1b\[\d+m| \(pid=.*?\)", "", text).replace("|", "/").replace("<", "(").replace(">", ")")
    )  # Ray adds colours and addresses
    return text if len(text) <= 160 else f"{text[:157]}..."


if __name__ == "__main__":
    main()
