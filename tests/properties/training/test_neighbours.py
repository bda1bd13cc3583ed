"""Models of mlx-lm and mlx-embeddings train with our step as with their own, and our pipeline feeds mlx-lm's trainer."""

from itertools import islice
from pathlib import Path
from types import SimpleNamespace

import mlx.core as mx
import numpy as np
import pytest
from attrs import frozen
from mlx import nn, optimizers

import mlxfp as fp
from mlxfp.data.lengths.batching import batch
from mlxfp.support.trees import flatten, paths
from mlxfp.testing.laws import assert_compiled_equals_eager, assert_pure_step
from tests.properties.project.test_docs import blocks

PAGE = Path(__file__).parents[3] / "docs/how-to/mlx-lm.md"
STEPS = 3
KINDS = ["whole", "lora", "quantized lora"]


def rows(count=20):
    """Documents of several lengths, shuffled."""
    draw = np.random.default_rng(0)
    return fp.pipe(
        fp.from_examples([{"input_ids": draw.integers(1, 64, draw.integers(5, 17)).tolist()} for _ in range(count)]), fp.shuffle(seed=0)
    )


def documents():
    """The same in batches, padded: five in all."""
    return fp.pipe(rows(), batch(4), fp.collate(fp.collators.text(pad_id=0, pad_multiple=32)))


def llama(kind, dropout=0.0):
    """A small Llama of mlx-lm, its weights drawn with a fixed seed."""
    models = pytest.importorskip("mlx_lm.models.llama", reason="mlx-lm is not installed: pip install 'mlxfp[mlx-lm]'")
    from mlx_lm.tuner.utils import linear_to_lora_layers

    mx.random.seed(0)
    model = models.Model(
        models.ModelArgs(
            model_type="llama",
            hidden_size=64,
            num_hidden_layers=2,
            intermediate_size=96,
            num_attention_heads=4,
            num_key_value_heads=2,
            rms_norm_eps=1e-5,
            vocab_size=64,
        )
    )
    if kind == "quantized lora":
        nn.quantize(model, group_size=32, bits=4)
    if "lora" in kind:
        model.freeze()
        linear_to_lora_layers(model, 2, {"rank": 4, "scale": 2.0, "dropout": dropout})
    mx.eval(model.parameters())
    return model


@pytest.fixture
def feed():
    """The function on the page about mlx-lm that reads a pipeline for its trainer."""
    code = next(code for _, code in blocks(PAGE.read_text("utf-8")) if "def feed(" in code)
    names = {"fp": fp, "tokenizer": SimpleNamespace(pad_id=0)}
    exec(code, names)
    return names["feed"]


@frozen
class Group:
    """Several ranks, as MLX describes them."""

    number: int
    count: int

    def rank(self):
        return self.number

    def size(self):
        return self.count


def their_loss(model, batch):
    from mlx_lm.tuner.trainer import default_loss

    lengths = batch["attention_mask"].sum(axis=1)
    mean, weight = default_loss(model, batch["input_ids"], mx.stack([mx.zeros_like(lengths), lengths], axis=1))
    return mean * weight, weight


def trained(model, loss, batches, optimizer, **options):
    """Our own way: a few steps."""
    step, state = fp.train_step(model, loss, optimizer, **options), fp.train_state(model, optimizer)
    for each, _ in zip(batches, range(STEPS), strict=False):
        state, _ = step(state, each)
    return state


def assert_same_weights(params, model):
    structure, ours = flatten(params)
    _, theirs = flatten(model.trainable_parameters())
    for name, a, b in zip(paths(structure), ours, theirs, strict=True):
        assert np.allclose(np.array(a), np.array(b), rtol=1e-5, atol=1e-6), f"{name} differs by {mx.abs(a - b).max().item()}"


def adam():
    return optimizers.Adam(1e-3, eps=1e-5)  # with 1e-8, rounding alone decides the sign of updates where gradients are almost zero


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_of_mlx_lm_trains_as_in_its_own_trainer_fed_by_our_pipeline(kind, feed, tmp_path):
    model, ours = llama(kind), trained(llama(kind), their_loss, documents(), adam())
    from mlx_lm.tuner.trainer import TrainingArgs, train

    before = mx.array(flatten(model.trainable_parameters())[1][0])
    arguments = TrainingArgs(batch_size=4, iters=STEPS, max_seq_length=32, adapter_file=str(tmp_path / "adapters.safetensors"))
    train(model, adam(), rows(), args=arguments, iterate_batches=feed)
    assert not np.allclose(np.array(before), np.array(flatten(model.trainable_parameters())[1][0]))
    assert_same_weights(ours.params, model)


def test_the_trainer_of_mlx_lm_gets_the_same_from_our_pipeline_as_from_its_own_batches(feed, tmp_path):
    models = [llama("lora", dropout=0.5), llama("lora", dropout=0.5)]
    from mlx_lm.tuner import trainer

    held = [(row["input_ids"], 0) for row in rows(24)]
    np.random.seed(0)  # noqa: NPY002  # the generator that mlx-lm reads
    order = [
        ids[:length]
        for padded, ranges in trainer.iterate_batches(held, 4, 32)
        for ids, (_, length) in zip(padded.tolist(), ranges.tolist(), strict=True)
    ]
    valid = rows(10)
    runs = []
    for model, part, check, batches in (
        (models[0], held, [(row["input_ids"], 0) for row in valid][:8], trainer.iterate_batches),
        (models[1], fp.from_examples([{"input_ids": ids} for ids in order]), fp.from_examples(list(valid)[:8]), feed),
    ):
        seen = SimpleNamespace(losses=[], checks=[])
        seen.on_train_loss_report = lambda said, seen=seen: seen.losses.append(said["train_loss"])
        seen.on_val_loss_report = lambda said, seen=seen: seen.checks.append(said["val_loss"])
        arguments = trainer.TrainingArgs(
            batch_size=4,
            iters=6,
            max_seq_length=32,
            steps_per_report=1,
            steps_per_eval=6,
            val_batches=-1,
            adapter_file=str(tmp_path / "a.safetensors"),
        )
        mx.random.seed(0)
        np.random.seed(0)  # noqa: NPY002  # the same
        trainer.train(model, adam(), part, check, args=arguments, iterate_batches=batches, training_callback=seen)
        runs.append(seen)
    assert runs[0].losses == runs[1].losses
    assert len(runs[0].losses) == 6
    assert runs[0].checks == pytest.approx(runs[1].checks, rel=1e-5)
    assert len(runs[0].checks) == 2
    for a, b in zip(*(flatten(model.trainable_parameters())[1] for model in models), strict=True):
        assert np.array_equal(np.array(a), np.array(b))


@pytest.mark.parametrize("count", [1, 2, 4])
def test_ranks_that_are_fed_read_the_global_batches_of_one_rank(count, feed):
    def read(group, *, loop, of=20):
        return [(tokens.tolist(), ranges.tolist()) for tokens, ranges in islice(feed(rows(of), 8, 32, loop=loop, comm_group=group), 6)]

    alone = read(None, loop=True)
    parts = [read(Group(rank, count), loop=True) for rank in range(count)]
    assert [len(each) for each in parts] == [6] * count
    for place, (tokens, ranges) in enumerate(alone):
        assert sorted(tokens) == sorted(row for each in parts for row in each[place][0])
        assert sorted(ranges) == sorted(row for each in parts for row in each[place][1])
    check = [read(Group(rank, count), loop=False, of=21) for rank in range(count)]  # an evaluation leaves no row out
    assert sum(len(tokens) for each in check for tokens, _ in each) == 21


def test_only_the_adapters_of_lora_have_gradients_and_moments():
    state = fp.train_state(llama("lora"), adam())
    names = paths(flatten(state.params)[0])
    assert names
    assert all(name.endswith(("lora_a", "lora_b")) for name in names)
    assert sum(leaf.size for leaf in flatten(state.opt)[1]) < sum(leaf.size for leaf in flatten(state.buffers)[1]) / 4


@pytest.mark.parametrize("options", [{}, {"checkpoint_blocks": True}, {"compute_dtype": mx.bfloat16, "accumulate": 2, "ema": 0.9}])
def test_a_step_of_a_foreign_model_with_dropout_obeys_the_laws(options):
    model = llama("lora", dropout=0.5)
    step, state = fp.train_step(model, their_loss, adam(), **options), fp.train_state(model, adam())
    state, _ = step(state, next(iter(documents())))
    assert_pure_step(step, state, next(iter(documents())))
    assert_compiled_equals_eager(step, state, next(iter(documents())), tolerance=3e-2 if options.get("compute_dtype") else 1e-5)


def test_checkpointing_gives_exact_gradients_with_the_dropout_of_lora():
    kept, twice = (
        trained(llama("lora", dropout=0.5), their_loss, documents(), optimizers.SGD(1.0), checkpoint_blocks=checkpointed)
        for checkpointed in (False, True)
    )
    for a, b in zip(flatten(kept.params)[1], flatten(twice.params)[1], strict=True):
        assert np.allclose(np.array(a), np.array(b), rtol=1e-5, atol=1e-6)


def test_mlx_lm_checkpointing_gives_other_gradients_with_the_dropout_of_lora(monkeypatch):
    """The trap that our own option avoids. mlx-lm edits the class of the blocks: it is put back."""
    model = llama("lora", dropout=0.5)
    from mlx_lm.models.llama import TransformerBlock
    from mlx_lm.tuner.trainer import grad_checkpoint

    def gradients():
        mx.random.seed(0)
        each = next(iter(documents()))
        return nn.value_and_grad(model, lambda model: their_loss(model, each)[0])(model)

    model.train()
    value, exact = gradients()
    monkeypatch.setattr(TransformerBlock, "__call__", TransformerBlock.__call__)
    grad_checkpoint(model.layers[0])
    again, wrong = gradients()
    assert value.item() == pytest.approx(again.item(), rel=1e-5)
    assert any(not np.allclose(np.array(a), np.array(b), atol=1e-3) for a, b in zip(flatten(exact)[1], flatten(wrong)[1], strict=True))


def bert():
    models = pytest.importorskip(
        "mlx_embeddings.models.bert", reason="mlx-embeddings is not installed: pip install 'mlxfp[mlx-embeddings]'"
    )
    mx.random.seed(0)
    return models.Model(
        models.ModelArgs(
            model_type="bert",
            num_hidden_layers=2,
            num_attention_heads=2,
            hidden_size=32,
            intermediate_size=48,
            max_position_embeddings=32,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            vocab_size=64,
        )
    )


def embedding_loss(model, batch):
    made = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"])
    return fp.losses.mse(made.text_embeds @ made.text_embeds.T, mx.eye(4))


def test_a_model_of_mlx_embeddings_trains_as_in_a_loop_of_mlx():
    model, optimizer = bert(), adam()
    ours = trained(model, embedding_loss, documents(), adam())
    gradient = nn.value_and_grad(model, lambda batch: embedding_loss(model, batch)[0] / 16)
    for each, _ in zip(documents(), range(STEPS), strict=False):
        _, gradients = gradient(each)
        optimizer.update(model, gradients)
    assert_same_weights(ours.params, model)
