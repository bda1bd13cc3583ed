"""`mlxfp doctor`: what this machine has for training, and what is missing."""

import json
import os
import platform
import re
import shutil
import sys
from argparse import Namespace
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, metadata, requires, version
from pathlib import Path
from typing import Any

from attrs import frozen

from mlxfp import __version__
from mlxfp.app.cli.parsing import Commands, add_command, say, start_mlx
from mlxfp.support.errors import MlxfpError

_REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)(\[(?P<extras>[\w.,\s-]+)\])?(?P<rest>.*)")
_PLACE = re.compile(r"(sys_platform|platform_system)\s*==\s*['\"](\w+)['\"]")


@frozen
class Finding:
    """One check: what was found, for programs as a `value` where a text says less, and what to do if training cannot run."""

    name: str
    found: str
    problem: str = ""
    value: Any = None


def add(commands: Commands) -> None:
    """Add `doctor`."""
    command = add_command(commands, "doctor", _doctor, example="mlxfp doctor\nmlxfp doctor --json")
    command.add_argument("--json", action="store_true", help="print it as JSON, for programs: sizes in bytes, null for what is missing")


def _doctor(options: Namespace) -> int:
    """Show what this machine has for training, and what is missing; exit code 1 if training cannot run."""
    free = shutil.disk_usage(Path.cwd()).free
    findings = [
        Finding("mlxfp", _version("mlxfp") or "not installed", value=__version__),
        Finding(
            "python",
            f"{platform.python_version()}, {sys.executable}",
            value={"version": platform.python_version(), "path": sys.executable},
        ),
        Finding("platform", platform.platform()),
        *_mlx(),
        Finding("free disk", f"{free / 2**30:,.1f} GiB in {Path.cwd()}", value={"bytes": free, "folder": str(Path.cwd())}),
        *_engines(),
        *_credentials(),
        *_extras(),
    ]
    problems = [finding.problem for finding in findings if finding.problem]
    if options.json:
        found = {finding.name: finding.found if finding.value is None else finding.value for finding in findings if finding.name}
        remarks = [finding.found for finding in findings if not finding.name]
        say(json.dumps({"can_train": not problems, "problems": problems, "remarks": remarks, "found": found}, indent=2))
        return 1 if problems else 0
    width = max(len(finding.name) for finding in findings)
    for finding in findings:
        say(f"{finding.name:<{width}}  {finding.found}")
    say("\n".join(["", "Training can run." if not problems else "Training cannot run:", *(f"- {problem}" for problem in problems)]))
    return 1 if problems else 0


def _mlx() -> Iterator[Finding]:
    """Check MLX: whether it starts, its device, its BLAS, and whether it compiles."""
    from mlxfp.runtime import report

    try:
        remarks = start_mlx()
        now = report()
    except MlxfpError as error:
        yield Finding("mlx", "does not start", str(error))
        return
    yield Finding(
        "mlx",
        f"{now.mlx}, {now.backend}: {now.device}",
        value={"version": now.mlx, "backend": now.backend, "device": now.device},
    )
    yield Finding("blas", f"{now.blas}{' (the reference BLAS: slow)' if now.slow else ''}", value={"name": now.blas, "slow": now.slow})
    yield Finding(
        "memory",
        f"MLX takes up to {now.memory / 2**30:.1f} GiB, with what it keeps for reuse: observers.log_memory(limit=...)",
        value={"bytes": now.memory},
    )
    yield from (Finding("", remark) for remark in remarks)
    if sys.platform == "linux" and now.backend == "cpu":
        missing, found = "none: mx.compile needs g++ to make steps faster. On Debian, as root: apt-get install g++", shutil.which("g++")
        yield Finding("C++ compiler", found or missing, value={"path": found})
    yield _compiles()


def _compiles() -> Finding:
    import mlx.core as mx

    try:
        right = mx.compile(lambda x: mx.exp(x) * 0.0 + 1.0)(mx.zeros(4)).tolist() == [1.0] * 4
    except Exception as error:  # noqa: BLE001  # any error of a compiler or a driver
        return Finding("mx.compile", "fails", f"mx.compile, which every training step uses, fails: {error}")
    if right:
        return Finding("mx.compile", "works")
    return Finding("mx.compile", "computes wrongly", "mx.compile gives wrong numbers: reinstall mlx.")


def _engines() -> Iterator[Finding]:
    """Say of each engine for tokens that is installed whether its version was tried."""
    from mlxfp.inspect import token_engines

    for engine in token_engines():
        untested = "not tried with this version of tokenizers: used for ASCII alone, and only after its probe has passed"
        text = f"{engine.version}, {'tried with this version of tokenizers' if engine.tested else untested}"
        yield Finding(engine.name, text, value={"version": engine.version, "tried": engine.tested})


def _credentials() -> Iterator[Finding]:
    """Find where Kaggle's credentials are; never read them."""
    try:
        from mlxfp.app.kaggle.submitting.uploading import credentials_in
    except ImportError:  # MLX does not start, which is reported above
        return
    place = credentials_in(os.environ, Path.home())
    yield Finding("kaggle", place or "no credentials (only mlxfp submit --yes needs them)", value={"credentials": place})


def _extras() -> Iterator[Finding]:
    """Check each extra of mlxfp: the versions of its packages, or how to install them."""
    extras = [] if _version("mlxfp") is None else metadata("mlxfp").get_all("Provides-Extra") or []
    for extra in sorted(extras):
        versions = {name: _version(name) for name in dict.fromkeys(_packages("mlxfp", extra))}
        missing = any(found is None for found in versions.values())
        said = ", ".join(f"{name} {found or 'missing'}" for name, found in sorted(versions.items())) or "nothing on this platform"
        yield Finding(f"extra {extra}", said + (f': pip install "mlxfp[{extra}]"' if missing else ""), value=versions)


def _packages(distribution: str, extra: str) -> Iterator[str]:
    """Yield the packages of an extra on this platform, also of extras of other packages, such as mlx[cpu]."""
    try:
        lines = requires(distribution) or []
    except PackageNotFoundError:
        yield distribution
        return
    here = {"sys_platform": sys.platform, "platform_system": platform.system()}
    for line in lines:
        wanted, _, marker = line.partition(";")
        found = _REQUIREMENT.match(wanted.strip())
        if found is None or not re.search(rf"extra\s*==\s*['\"]{re.escape(extra)}['\"]", marker):
            continue
        if any(value != here[name] for name, value in _PLACE.findall(marker)):
            continue
        if found["name"] != distribution:
            yield found["name"]
        for inner in filter(None, map(str.strip, (found["extras"] or "").split(","))):
            yield from _packages(found["name"], inner)


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
