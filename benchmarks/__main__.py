"""Run the benchmarks, print the table and write the results as JSON: `python -m benchmarks [NAME ...]`.

Every benchmark runs in a fresh process. After an error, the table shows the reason and the other benchmarks still run.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import attrs

from benchmarks.measuring import Row

WORKS = {  # benchmark name: function that returns rows of the table
    "import": "startup.rows",
    "loop-overhead": "run_loop.rows",
    "tokens-bpe": "tokenizing.bpe",
    "tokens-wordpiece": "tokenizing.wordpiece",
    "tokens-pipeline": "tokenizing.pipeline",
    "tokens-table": "tokenizing.table",
    "tokens-plain": "tokenizing.plain",
    "first-epoch": "first_epoch.rows",
    "cached-epoch": "cached_epoch.rows",
    "memory-arrays": "memory_arrays.rows",
    "memory-tokens": "memory_arrays.tokens",
    "memory-windows": "memory_arrays.windows",
    "memory-images": "memory_arrays.images",
    "images": "images.rows",
    "images-augment": "images.augmented",
    "sound": "sound.rows",
    "pack": "packing.rows",
    "padding": "padding.rows",
    "cursor": "resuming.rows",
    "elastic": "resuming.ranks",
    "memory": "memory.rows",
    "step": "steps.rows",
    "eager": "eager.rows",
    "attention": "attention.rows",
    "lora": "adapters.rows",
    "stall": "stalls.rows",
    "python-map": "workers.python_map",
    "cores": "workers.cores",
    "runner": "workers.runner",
    "jsonl": "reading.jsonl",
    "wide": "reading.wide",
    "write": "writing.rows",
    "ranks": "ranks.rows",
}
_PEERS = (
    *("torch", "datasets", "grain", "mlx-data", "mlx-lm", "gigatoken", "tokie", "polars", "orjson", "ray"),
    *("pillow", "soundfile", "soxr", "librosa"),
)
_PACKAGES = ("mlxfp", "mlx", "numpy", "pyarrow", "tokenizers", *_PEERS)
_README = Path(__file__).with_name("README.md")
_BEGIN, _END = "<!-- written by python -m benchmarks --write -->", "<!-- end -->"
_LIMIT = 3600  # seconds per benchmark
_MEASURE = "import sys; from benchmarks.__main__ import measure; measure(*sys.argv[1:])"


def main() -> None:
    """Run the given benchmarks. The exit code is 0 if every bar is met."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", choices=[[], *WORKS], help=f"some of: {', '.join(WORKS)} (default: all)")
    parser.add_argument("--small", action="store_true", help="use little data, only to test that everything runs; the numbers mean nothing")
    parser.add_argument("--json", type=Path, default=Path("benchmarks.json"), help="where to write the rows (default benchmarks.json)")
    parser.add_argument("--write", action="store_true", help="put the table into benchmarks/README.md; for all names, at full size")
    options = parser.parse_args()
    if options.write and (options.names or options.small):
        parser.error("--write needs a run of all names at full size. Leave out the names and --small.")
    machine = _machine()
    print("\n".join(machine), end="\n\n")
    print(_HEAD)
    rows: list[Row] = []
    for name in options.names or WORKS:
        for row in _measured(name, small=options.small):
            rows.append(row)
            print(_line(row), flush=True)
        results = [{**attrs.asdict(row), "verdict": row.verdict} for row in rows]
        options.json.write_text(json.dumps({"machine": machine, "rows": results}, indent=1), "utf-8")
    if options.write:
        _write(machine, rows)
    judged = [row for row in rows if row.verdict != "no bar"]
    missed = [row for row in judged if row.verdict != "met"]
    print(f"\n{len(judged) - len(missed)} of {len(judged)} lines meet their bar.")
    sys.exit(bool(missed))


def measure(name: str, file: str, small: str) -> None:
    """Run a benchmark in this process and write the rows to a JSON file."""
    from mlxfp.runtime import use_fast_blas

    use_fast_blas()  # must run before the import of MLX
    module, function = WORKS[name].split(".")
    rows = getattr(import_module(f"benchmarks.{module}"), function)(small=bool(small))
    Path(file).write_text(json.dumps([attrs.asdict(row) for row in rows]), "utf-8")


def _measured(name: str, *, small: bool) -> list[Row]:
    """Run a benchmark in a fresh process, separate from packages, threads and memory of other benchmarks."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "rows.json")
        command = [sys.executable, "-c", _MEASURE, name, str(file), "small" if small else ""]
        try:
            subprocess.run(command, check=True, timeout=_LIMIT)
        except subprocess.SubprocessError as error:
            reason = "took too long" if isinstance(error, subprocess.TimeoutExpired) else "failed, see above"
            return [Row(name, "-", "-", reason, None, 0)]
        return [Row(**row) for row in json.loads(file.read_text("utf-8"))]


_HEAD = (
    f"| {'id':14} | {'work':58} | {'ours':24} | {'peer':38} | {'number':>7} | {'bar':>8} | verdict |\n"
    f"|{'-' * 16}|{'-' * 60}|{'-' * 26}|{'-' * 40}|{'-' * 8}:|{'-' * 9}:|---------|"
)


def _line(row: Row) -> str:
    number = "-" if row.number is None else f"{row.number:.2f}"
    bar = "-" if row.bar is None else f"{'>=' if row.sense == 'at least' else '<='} {row.bar:g}"
    return f"| {row.id:14} | {row.work:58} | {row.ours:24} | {row.peer:38} | {number:>7} | {bar:>8} | {row.verdict} |"


def _machine() -> list[str]:
    """Return lines about the machine and the package versions, as seen by a fresh process."""
    code = "from mlxfp.runtime import report, use_fast_blas; use_fast_blas(); print(report())"
    backend = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    return [
        f"- {platform.system()} {platform.machine()}, {_processor()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        f"- {', '.join(_named(line) for line in backend.splitlines()[1:])}",
        f"- {', '.join(f'{name} {_version(name)}' for name in _PACKAGES)}",
    ]


def _named(line: str) -> str:
    """Shorten a library path in a line of the runtime report to the file name."""
    name, value = line.split(maxsplit=1)
    return f"{name} {Path(value).name}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        lines = []
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.processor() or "unknown processor")


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "absent"


def _write(machine: list[str], rows: list[Row]) -> None:
    """Replace the table between the two markers in README.md."""
    before, _, rest = _README.read_text("utf-8").partition(_BEGIN)
    _, _, after = rest.partition(_END)
    table = "\n".join([*machine, "", _HEAD, *map(_line, rows)])
    _README.write_text(f"{before}{_BEGIN}\n\n{table}\n\n{_END}{after}", "utf-8")


if __name__ == "__main__":
    main()
