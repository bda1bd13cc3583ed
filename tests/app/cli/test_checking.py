"""`mlxfp doctor`: what is there, what is missing, and whether training can run."""

import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import mlx.core as mx
import pytest

from mlxfp.app.cli import checking, main
from mlxfp.runtime import Runtime
from mlxfp.support.errors import MissingExtraError
from mlxfp.text.engines import choosing

LIMIT = "observers.log_memory(limit=...)"


def found(capsys) -> tuple[int, dict[str, str], str]:
    """The exit code, what was found by name, and the verdict."""
    code = main(["doctor"])
    table, _, verdict = capsys.readouterr().out.partition("\n\n")
    width = table.index("0") if table.startswith("mlxfp ") else 0
    return code, {line[:width].strip(): line[width:] for line in table.splitlines()}, verdict


def test_a_machine_that_can_train_is_told_so(capsys):
    code, said, verdict = found(capsys)
    assert (code, verdict) == (0, "Training can run.\n")
    assert said["mx.compile"] == "works"
    assert (
        said["memory"] == f"MLX uses up to {mx.get_memory_limit() / 2**30:.1f} GiB, including the cache for reuse. {LIMIT} sets the limit"
    )
    assert said["python"].endswith(sys.executable)
    assert said["free disk"].endswith(f"GiB in {Path.cwd()}")
    assert "testing" in said["extras"].split(", ")
    assert not any(name.startswith("extra ") for name in said)


def test_the_contents_of_credentials_are_never_said(capsys, monkeypatch, tmp_path):
    for name in ("KAGGLE_API_TOKEN", "KAGGLE_CONFIG_DIR", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("KAGGLE_USERNAME", "ada")
    monkeypatch.setenv("KAGGLE_KEY", "secret")
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    _, said, _ = found(capsys)
    assert said["kaggle"] == "KAGGLE_USERNAME and KAGGLE_KEY"
    monkeypatch.delenv("KAGGLE_KEY")
    _, said, _ = found(capsys)
    assert said["kaggle"].startswith("no credentials")
    assert "secret" not in str(said)


def test_without_a_backend_it_says_what_to_install(capsys, monkeypatch):
    def stop() -> tuple[str, ...]:
        raise MissingExtraError('MLX cannot start: no backend. Install it with: pip install "mlxfp[cpu]"')

    monkeypatch.setattr(checking, "start_mlx", stop)
    code, said, verdict = found(capsys)
    assert (code, said["mlx"]) == (1, "does not start")
    assert "mx.compile" not in said
    assert verdict == 'Training cannot run:\n- MLX cannot start: no backend. Install it with: pip install "mlxfp[cpu]"\n'


def test_where_mlx_is_not_there_it_still_says_the_rest():
    code = "import sys; sys.modules['mlx'] = sys.modules['mlx.core'] = None; from mlxfp.app.cli import main; sys.exit(main(['doctor']))"
    ended = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (1, "")
    assert "- MLX cannot start:" in ended.stdout
    assert "extras" in ended.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="on other systems MLX needs no compiler of ours")
def test_without_a_compiler_it_says_so(tmp_path):
    environment = {**os.environ, "PATH": str(tmp_path)}
    ended = subprocess.run([sys.executable, "-m", "mlxfp", "doctor"], capture_output=True, text=True, env=environment, check=False)
    if ", cpu: " not in ended.stdout:
        pytest.skip("MLX computes on a GPU here")
    assert "none: mx.compile needs g++" in ended.stdout


def test_a_slow_blas_is_a_remark_and_no_obstacle(capsys, monkeypatch):
    slow = Runtime(mlx="1", backend="cpu", device="cpu", blas="libblas.so.3", slow=True, memory=2**34)
    monkeypatch.setattr("mlxfp.runtime.report", lambda: slow)
    monkeypatch.setattr(checking, "start_mlx", lambda: ("use_fast_blas() changed nothing: OpenBLAS is not installed.",))
    code, said, _ = found(capsys)
    assert (code, said["blas"]) == (0, "libblas.so.3 (the reference BLAS: slow)")
    assert said[""] == "use_fast_blas() changed nothing: OpenBLAS is not installed."


@pytest.mark.parametrize(
    ("compile_", "state", "problem"),
    [
        (lambda function: 1 / 0, "fails", "- mx.compile, which every training step uses, fails: division by zero\n"),
        (
            lambda function: lambda x: x,
            "wrong results",
            "- mx.compile computes wrong numbers. Reinstall MLX: pip install --force-reinstall mlx\n",
        ),
    ],
)
def test_where_compiling_fails_training_cannot_run(compile_, state, problem, capsys, monkeypatch):
    monkeypatch.setattr(mx, "compile", compile_)
    code, said, verdict = found(capsys)
    assert (code, said["mx.compile"]) == (1, state)
    assert verdict.endswith(problem)


def test_packages_of_extras_are_those_of_this_platform_through_extras_of_others(monkeypatch):
    here, linux = sys.platform, "Linux"
    lines = {
        "mlxfp": [
            "numpy>=2",
            f"mlx[cpu]>=0.31; (sys_platform == '{here}') and extra == 'cpu'",
            "elsewhere; sys_platform == 'nowhere' and extra == 'cpu'",
            'mlxfp[cpu,vision]; extra == "dev"',
            "pillow>=11; extra == 'vision'",
            "unknown[fast]; extra == 'vision'",
        ],
        "mlx": [f'mlx-cpu==0.32; platform_system == "{linux}" and extra == "cpu"', "torch; extra == 'dev'"],
    }

    def requires(name: str) -> list[str]:
        if name not in lines:
            raise PackageNotFoundError(name)
        return lines[name]

    monkeypatch.setattr(checking, "requires", requires)
    monkeypatch.setattr(checking.platform, "system", lambda: linux)
    assert list(checking._packages("mlxfp", "cpu")) == ["mlx", "mlx-cpu"]
    assert list(checking._packages("mlxfp", "dev")) == ["mlx", "mlx-cpu", "pillow", "unknown", "unknown"]
    assert list(checking._packages("mlxfp", "none")) == []


def test_an_extra_that_is_missing_says_how_to_install_it(monkeypatch):
    versions = {"mlxfp": "1", "pillow": "11.0"}
    monkeypatch.setattr(checking, "_version", versions.get)
    monkeypatch.setattr(checking, "_packages", lambda _, extra: {"vision": ["pillow"], "hf": ["datasets", "pillow"]}.get(extra, []))
    said = {finding.name: finding.text for finding in checking._extras()}
    assert said["missing extras"] == 'hf. To install an extra: pip install "mlxfp[hf]"'
    assert {"vision", "dev"} <= set(said["extras"].split(", "))
    versions.clear()
    assert list(checking._extras()) == []


def test_it_says_which_engines_for_tokens_were_tried(capsys, monkeypatch):
    pytest.importorskip("gigatoken")
    monkeypatch.setattr(choosing, "_is_tested", lambda kind: True)  # of the version of tokenizers that is installed, it may not be true
    _, said, _ = found(capsys)
    assert said["gigatoken"].endswith(", tested with this version of tokenizers")
    monkeypatch.setattr(choosing, "_is_tested", lambda kind: False)
    _, said, _ = found(capsys)
    assert said["gigatoken"].endswith("used only for ASCII text, and only if the engine passes a probe")
