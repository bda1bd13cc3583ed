"""The command `mlxfp doctor`, which shows the training setup of this machine and missing components."""

import os
import platform
import re
import shutil
import sys
from argparse import Namespace
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, metadata, requires, version
from pathlib import Path

from attrs import frozen

from mlxfp.app.cli.parsing import Commands, add_command, say, start_mlx
from mlxfp.support.errors import MlxfpError

_REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)(\[(?P<extras>[\w.,\s-]+)\])?(?P<rest>.*)")
_PLATFORM = re.compile(r"(sys_platform|platform_system)\s*==\s*['\"](\w+)['\"]")


@frozen
class Finding:
    """Result of one check of this machine, such as the installed version of a package.

    `problem` is the reason why training cannot run, or empty if training can run.
    """

    name: str
    text: str
    problem: str = ""


def add(commands: Commands) -> None:
    """Add `doctor`."""
    add_command(commands, "doctor", _doctor, example="mlxfp doctor")


def _doctor(_: Namespace) -> int:
    """Show the training setup of this machine and missing components. The exit code is 1 if training cannot run."""
    free = shutil.disk_usage(Path.cwd()).free
    findings = [
        Finding("mlxfp", _version("mlxfp") or "not installed"),
        Finding("python", f"{platform.python_version()}, {sys.executable}"),
        Finding("platform", platform.platform()),
        *_mlx(),
        Finding("free disk", f"{free / 2**30:,.1f} GiB in {Path.cwd()}"),
        *_engines(),
        *_credentials(),
        *_extras(),
    ]
    problems = [finding.problem for finding in findings if finding.problem]
    width = max(len(finding.name) for finding in findings)
    for finding in findings:
        say(f"{finding.name:<{width}}  {finding.text}")
    say("\n".join(["", "Training can run." if not problems else "Training cannot run:", *(f"- {problem}" for problem in problems)]))
    return 1 if problems else 0


def _mlx() -> Iterator[Finding]:
    """Yield the findings about MLX: device, BLAS, memory limit and compilers. If MLX cannot start, yield only the error."""
    from mlxfp.runtime import report

    try:
        remarks = start_mlx()
        now = report()
    except MlxfpError as error:
        yield Finding("mlx", "does not start", str(error))
        return
    yield Finding("mlx", f"{now.mlx}, {now.backend}: {now.device}")
    yield Finding("blas", f"{now.blas}{' (the reference BLAS: slow)' if now.slow else ''}")
    yield Finding(
        "memory",
        f"MLX uses up to {now.memory / 2**30:.1f} GiB, including the cache for reuse. observers.log_memory(limit=...) sets the limit",
    )
    yield from (Finding("", remark) for remark in remarks)
    if sys.platform == "linux" and now.backend == "cpu":
        missing, compiler = "none: mx.compile needs g++ for faster steps. On Debian, as root: apt-get install g++", shutil.which("g++")
        yield Finding("C++ compiler", compiler or missing)
    yield _compiles()


def _compiles() -> Finding:
    import mlx.core as mx

    try:
        right = mx.compile(lambda x: mx.exp(x) * 0.0 + 1.0)(mx.zeros(4)).tolist() == [1.0] * 4
    except Exception as error:  # noqa: BLE001  # any error of a compiler or a driver
        return Finding("mx.compile", "fails", f"mx.compile, which every training step uses, fails: {error}")
    if right:
        return Finding("mx.compile", "works")
    return Finding("mx.compile", "wrong results", "mx.compile computes wrong numbers. Reinstall MLX: pip install --force-reinstall mlx")


def _engines() -> Iterator[Finding]:
    """Report the version of each installed tokenizing library, and whether the version was tested with the installed `tokenizers`."""
    from mlxfp.inspect import token_engines

    for engine in token_engines():
        untested = "not tested with this version of tokenizers: used only for ASCII text, and only if the engine passes a probe"
        text = f"{engine.version}, {'tested with this version of tokenizers' if engine.tested else untested}"
        yield Finding(engine.name, text)


def _credentials() -> Iterator[Finding]:
    """Report the location of Kaggle's credentials without reading the credentials."""
    try:
        from mlxfp.app.kaggle.submitting.uploading import credentials_in
    except ImportError:  # MLX cannot start: skip this check, because `_mlx` reports the reason
        return
    location = credentials_in(os.environ, Path.home())
    yield Finding("kaggle", location or "no credentials (only mlxfp submit --yes needs them)")


def _extras() -> Iterator[Finding]:
    """Yield one line with the installed extras of mlxfp and one line with the missing extras."""
    extras = sorted([] if _version("mlxfp") is None else metadata("mlxfp").get_all("Provides-Extra") or [])
    missing = [extra for extra in extras if not all(map(_version, _packages("mlxfp", extra)))]
    if complete := [extra for extra in extras if extra not in missing]:
        yield Finding("extras", ", ".join(complete))
    if missing:
        yield Finding("missing extras", f'{", ".join(missing)}. To install an extra: pip install "mlxfp[{missing[0]}]"')


def _packages(distribution: str, extra: str) -> Iterator[str]:
    """Yield the packages that an extra of a distribution installs on this platform. Nested extras such as mlx[cpu] are resolved."""
    try:
        lines = requires(distribution) or []
    except PackageNotFoundError:
        yield distribution
        return
    platform_values = {"sys_platform": sys.platform, "platform_system": platform.system()}
    for line in lines:
        wanted, _, marker = line.partition(";")
        match = _REQUIREMENT.match(wanted.strip())
        if match is None or not re.search(rf"extra\s*==\s*['\"]{re.escape(extra)}['\"]", marker):
            continue
        if any(value != platform_values[name] for name, value in _PLATFORM.findall(marker)):
            continue
        if match["name"] != distribution:
            yield match["name"]
        for inner in filter(None, map(str.strip, (match["extras"] or "").split(","))):
            yield from _packages(match["name"], inner)


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
