"""Start of MLX in commands."""

import sys
import warnings

from mlxfp.app.cli import parsing


def test_a_warning_about_the_machine_is_printed_once(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("mlxfp.runtime.use_fast_blas", lambda **_: warnings.warn("OpenBLAS is\nmissing.", RuntimeWarning, stacklevel=2))
    parsing.start_mlx_quietly()
    assert capsys.readouterr().err == (
        "mlxfp: OpenBLAS is\nmissing. This warning is printed once. `mlxfp doctor` shows the state of the machine.\n"
    )
    parsing.start_mlx_quietly()
    assert capsys.readouterr().err == ""
    assert parsing.start_mlx() == ("OpenBLAS is\nmissing.",)  # for mlxfp doctor


def test_commands_name_busy_cores_once_and_doctor_always(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(parsing, "threads_by_load", lambda: (1, "OpenBLAS has 1 of 2 threads."))
    monkeypatch.setattr("mlxfp.runtime.use_fast_blas", lambda threads: None)
    monkeypatch.delitem(sys.modules, "mlx.core", raising=False)
    for text in ("mlxfp: OpenBLAS has 1 of 2 threads. This warning is printed once. `mlxfp doctor` shows the state of the machine.\n", ""):
        assert parsing.start_mlx() == ("OpenBLAS has 1 of 2 threads.",)
        parsing.start_mlx_quietly()
        assert capsys.readouterr().err == text


def test_a_home_folder_without_write_permission_prints_the_warning_again(tmp_path, monkeypatch, capsys):
    (tmp_path / "mlxfp").write_text("a file instead of a folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("mlxfp.runtime.use_fast_blas", lambda **_: warnings.warn("slow", RuntimeWarning, stacklevel=2))
    for _ in range(2):
        parsing.start_mlx_quietly()
        assert "mlxfp: slow This warning" in capsys.readouterr().err
