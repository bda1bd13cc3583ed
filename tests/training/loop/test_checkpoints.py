"""What is saved comes back bit for bit, or not at all."""

import os
from contextlib import suppress
from pathlib import Path

import attrs
import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlx import nn, optimizers

import mlxfp as fp
from mlxfp.support.errors import ArgumentTypeError, CheckpointError, CursorMismatchError, MissingFileError
from mlxfp.testing.laws import assert_saves
from mlxfp.training.loop.checkpoints import Checkpoint, load_latest, load_state, name_of, numbered, save_state
from tests.support.damage import run_child
from tests.training.samples import dataset, group, net, setting

DTYPES = [mx.float32, mx.float16, mx.bfloat16, mx.int8, mx.uint64, mx.bool_, mx.complex64]


@st.composite
def arrays(draw):
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    dtype = draw(st.sampled_from(DTYPES))
    raw = np.frombuffer(draw(st.binary(min_size=dtype.size * 27, max_size=dtype.size * 27)), np.uint8)
    if dtype == mx.bool_:
        raw = raw % 2
    flat = mx.array(raw).view(dtype)[: int(np.prod(shape))]
    return flat.reshape(shape[::-1]).transpose() if draw(st.booleans()) else flat.reshape(shape)


NAMES = st.one_of(st.sampled_from(["0", "1", "a.b", "weight", ""]), st.text(max_size=3))
PARAMS = st.recursive(
    arrays(), lambda inner: st.one_of(st.dictionaries(NAMES, inner, max_size=3), st.lists(inner, max_size=3)), max_leaves=6
)


@given(PARAMS, PARAMS, st.integers(0, 2**63), st.integers(0, 2**64))
def test_any_state_comes_back_bit_for_bit(tmp_path_factory, params, opt, step, seed):
    assert_saves(fp.TrainState(params, {}, opt, step, seed), tmp_path_factory.mktemp("law"))


def test_the_law_catches_a_file_that_rounds(tmp_path, monkeypatch):
    state = fp.TrainState({"w": mx.array([0.1])}, {}, {}, 0, 0)
    exact = mx.save_safetensors
    monkeypatch.setattr(mx, "save_safetensors", lambda name, given, meta: exact(name, {k: v + 1e-8 for k, v in given.items()}, meta))
    with pytest.raises(AssertionError, match=r"the loaded state differs at params\.w"):
        assert_saves(state, tmp_path)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("make", [lambda: nn.Linear(8, 1), lambda: nn.Sequential(nn.Linear(8, 1), nn.Linear(1, 1))])
def test_case_a15_a_loaded_state_goes_on_bit_for_bit_although_an_axis_has_length_1(tmp_path, make, seed):
    mx.random.seed(seed)
    model, optimizer = make(), optimizers.SGD(0.01)
    batches = [{"x": mx.random.normal((2, 8)), "y": mx.random.normal((2, 1))} for _ in range(6)]
    step = fp.train_step(model, lambda model, batch: fp.losses.mse(model(batch["x"]), batch["y"]), optimizer)
    state = fp.train_state(model, optimizer)
    for batch in batches[:2]:
        state, _ = step(state, batch)
    fp.save_state(tmp_path / "state", state)
    loaded = fp.load_state(tmp_path / "state", fp.train_state(model, optimizer)).state
    for batch in batches[2:]:
        (state, _), (loaded, _) = step(state, batch), step(loaded, batch)
    assert state == loaded


def test_a_cursor_is_saved_with_the_state(tmp_path):
    _, state = setting()
    _, cursor = next(iter(fp.iterate(dataset())))
    save_state(tmp_path / "a", state, cursor=cursor)
    checkpoint = load_state(tmp_path / "a", state)
    assert checkpoint.state == state
    assert [batch["name"] for batch, _ in fp.iterate(dataset(), checkpoint.cursor)] == [batch["name"] for batch in dataset()][1:]
    save_state(str(tmp_path / "a"), state)
    assert load_state(str(tmp_path / "a"), state).cursor is None


def test_the_configuration_and_the_history_are_saved_with_the_state(tmp_path):
    _, state = setting()
    _, cursor = next(iter(fp.iterate(dataset())))
    history = (fp.events.Evaluation(1, {"loss": 0.5, "accuracy": float("inf")}), fp.events.Evaluation(2, {}))
    config = {"rate": 0.1, "layers": [1, {"width": None}], "name": "ü"}
    save_state(tmp_path / "a", state, cursor=cursor, history=history, config=config)
    found = load_state(tmp_path / "a", state)
    assert (found.history, found.config) == (history, config)
    assert found.fingerprint is not None
    assert Checkpoint(state).fingerprint is None
    assert found.fingerprint == Checkpoint(state, next(iter(fp.iterate(dataset())))[1]).fingerprint
    assert found.fingerprint != Checkpoint(state, next(iter(fp.iterate(dataset(size=3))))[1]).fingerprint
    with pytest.raises(CursorMismatchError):
        fp.iterate(dataset(size=3), found.cursor)


def test_metrics_may_be_numbers_of_numpy_and_configurations_no_objects(tmp_path):
    _, state = setting()
    save_state(tmp_path / "a", state, history=[fp.events.Evaluation(1, {"loss": np.float32(0.5)})])
    assert load_state(tmp_path / "a", state).history == (fp.events.Evaluation(1, {"loss": 0.5}),)
    with pytest.raises(ArgumentTypeError, match=r"The config of a checkpoint must be representable in JSON.*to text"):
        save_state(tmp_path / "a", state, config={"folder": tmp_path})


def test_the_latest_checkpoint_is_that_of_the_most_steps(tmp_path):
    _, state = setting()
    for step in (9, 123_456_789, 10):
        save_state(tmp_path / name_of(step), attrs.evolve(state, step=step))
    (tmp_path / "step-final.safetensors").touch()
    assert load_latest(tmp_path, state).state.step == 123_456_789
    assert sorted(numbered(tmp_path)) == [9, 10, 123_456_789]
    with pytest.raises(ArgumentTypeError, match=r"like must be a TrainState, got NoneType\. Make one with train_state"):
        load_latest(tmp_path, None)


def test_a_damaged_newest_checkpoint_is_skipped_with_a_warning(tmp_path):
    _, state = setting()
    for step in (9, 10, 11):
        save_state(tmp_path / name_of(step), attrs.evolve(state, step=step))
    newest = tmp_path / name_of(11)
    newest.write_bytes(newest.read_bytes()[:-5])
    with pytest.warns(RuntimeWarning, match=r"step-00000011.*continues from step-00000010"):
        assert load_latest(tmp_path, state).state.step == 10
    for path in tmp_path.iterdir():
        path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(CheckpointError, match=r"step-00000011.* is damaged"):
        load_latest(tmp_path, state)


def test_case_e3_400_drawn_changes_of_a_checkpoint_give_an_equal_state_or_a_checkpoint_error(tmp_path):
    """Damage in a child process, because native code reads the file."""
    run_child(
        """
        import random, sys
        from pathlib import Path
        import mlx.core as mx
        import mlxfp as fp
        from mlx import nn
        from tests.support.damage import damaged

        chance, folder = random.Random(0), Path(sys.argv[1])
        state = fp.train_state(nn.Linear(20, 30), fp.optimizers.adamw(1e-3), seed=7)
        model = fp.models.Bert(fp.models.BertConfig(vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=2))
        fp.save_state(folder / "state.safetensors", state, config={"a": 1})
        fp.models.save(folder / "model", model)
        files = [folder / "state.safetensors", folder / "model" / "model.safetensors"]
        weights = fp.models.load(folder / "model").parameters()
        for number in range(400):
            path = files[number % 4 == 0]
            content = path.read_bytes()
            path.write_bytes(damaged(content, chance))
            try:
                if path is files[0]:
                    loaded = fp.load_state(path, state)
                    assert loaded.state == state and loaded.config == {"a": 1}
                else:
                    assert str(fp.models.load(folder / "model").parameters()) == str(weights)
            except fp.MlxfpError as error:
                assert str(path) in str(error), error
            except Exception as error:
                raise AssertionError(f"change {number} of {path}") from error
            finally:
                path.write_bytes(content)
        """,
        tmp_path,
    )


def test_what_was_loaded_stays_when_the_file_is_written_again(tmp_path):
    step, state = setting()
    save_state(tmp_path / "a", state)
    loaded = load_state(tmp_path / "a", state).state
    after, _ = step(state, group())
    save_state(tmp_path / "a", after)
    assert loaded == state
    assert load_state(tmp_path / "a", state).state == after


def test_mx_load_alone_reads_what_was_written_later(tmp_path):
    path = tmp_path / "a.safetensors"
    mx.save_safetensors(str(path), {"w": mx.zeros(1000)})
    lazy = mx.load(str(path))
    with path.open("r+b") as file:  # in place, as mx.save_safetensors writes too
        file.seek(-4000, os.SEEK_END)
        file.write(b"\x01" * 4000)
    assert lazy["w"].sum().item() != 0


def test_every_difference_is_named_at_once(tmp_path):
    _, state = setting()
    save_state(tmp_path / "a", state)
    params = {**state.params, "new": mx.zeros((2, 3)), "last": {"weight": mx.zeros((5, 8)), "bias": mx.zeros(2, mx.float16)}}
    del params["first"]
    with pytest.raises(CheckpointError) as raised:
        load_state(tmp_path / "a", attrs.evolve(state, params=params))
    assert str(raised.value).splitlines()[1:] == [
        "  missing: params.new float32[2, 3]",
        "  unexpected: params.first.bias float32[8]",
        "  unexpected: params.first.weight float32[8, 3]",
        "  different: params.last.weight is float32[2, 8], expected float32[5, 8]",
        "  different: params.last.bias is float32[2], expected float16[2]",
    ]


def test_a_checkpoint_of_another_optimizer_is_refused(tmp_path):
    _, state = setting()
    save_state(tmp_path / "a", state)
    with pytest.raises(CheckpointError, match=r"unexpected: opt\.first\.bias\.m float32\[8\]"):
        load_state(tmp_path / "a", fp.train_state(net(), optimizers.SGD(0.1)))


def test_a_damaged_file_is_named_wherever_it_was_cut(tmp_path):
    _, state = setting()
    save_state(tmp_path / "a", state)
    whole = (tmp_path / "a").read_bytes()
    for size in [*range(64), *range(64, len(whole), 97), len(whole) - 1]:
        (tmp_path / "a").write_bytes(whole[:size])
        with pytest.raises(CheckpointError, match="is not a checkpoint, or is damaged"):
            load_state(tmp_path / "a", state)


@given(st.data())
def test_a_changed_byte_in_the_header_is_never_anything_but_a_checkpoint_error(tmp_path_factory, data):
    folder = tmp_path_factory.getbasetemp()
    state = fp.TrainState({"w": mx.zeros(3)}, {}, {"step": mx.array(3, mx.uint64)}, 5, 7)
    save_state(folder / "b", state)
    whole = bytearray((folder / "b").read_bytes())
    whole[data.draw(st.integers(0, len(whole) - 21))] ^= data.draw(st.integers(1, 255))
    (folder / "b").write_bytes(whole)
    with suppress(CheckpointError):
        load_state(folder / "b", state)


def test_another_safetensors_file_or_version_is_no_checkpoint(tmp_path):
    _, state = setting()
    mx.save_safetensors(str(tmp_path / "model.safetensors"), {"w": mx.zeros(2)})
    with pytest.raises(CheckpointError, match=r"model\.safetensors is not a checkpoint, or is damaged: 'mlxfp'"):
        load_state(tmp_path / "model.safetensors", state)
    for version in (1, 2, 99):
        rest = f'{{"format": "mlxfp.state", "version": {version}, "step": 0, "seed": 0, "cursor": null}}'
        mx.save_safetensors(str(tmp_path / "other.safetensors"), {"w": mx.zeros(2)}, {"mlxfp": rest})
        with pytest.raises(CheckpointError, match=rf"has the format \('mlxfp\.state', {version}\), but the installed mlxfp reads"):
            load_state(tmp_path / "other.safetensors", state)


def test_missing_files_and_folders_are_named(tmp_path):
    _, state = setting()
    with pytest.raises(MissingFileError, match=r"There is no checkpoint at .*nothing"):
        load_state(tmp_path / "nothing", state)
    with pytest.raises(MissingFileError, match=r"There is no folder .*gone to write a into"):
        save_state(tmp_path / "gone" / "a", state)


def test_a_failure_while_writing_leaves_the_old_checkpoint(tmp_path, monkeypatch):
    step, state = setting()
    save_state(tmp_path / "a", state)

    def full(file):
        raise OSError("No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        save_state(tmp_path / "a", step(state, group())[0])
    assert load_state(tmp_path / "a", state).state == state
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_float64_is_refused_by_name(tmp_path):
    with mx.stream(mx.cpu):
        state = fp.TrainState({"w": mx.zeros(2, mx.float64)}, {}, {}, 0, 0)
    with pytest.raises(CheckpointError, match=r"cannot hold float64, got float64 in params\.w"):
        save_state(tmp_path / "a", state)


def test_only_states_can_be_saved(tmp_path):
    with pytest.raises(ArgumentTypeError, match="state must be a TrainState, got dict"):
        save_state(tmp_path / "a", {})


def test_what_cannot_be_written_is_named_and_leaves_nothing_behind(tmp_path, monkeypatch):
    _, state = setting()
    (tmp_path / "folder").mkdir()
    with pytest.raises(CheckpointError, match=r"folder is a folder.*Give a file in the folder"):
        save_state(tmp_path / "folder", state)

    def full(name, arrays, metadata):
        Path(name).touch()
        raise RuntimeError("[write] Unable to write 145220 bytes to file.")

    monkeypatch.setattr(mx, "save_safetensors", full)
    with pytest.raises(CheckpointError, match=r"/a could not be written: \[write\] Unable.*Is the disk full"):
        save_state(tmp_path / "a", state)
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]
