"""Tables of models."""

import mlx.core as mx
import pytest
from mlx import nn
from mlx.utils import tree_flatten

from mlxfp.models import describe
from mlxfp.support.errors import ArgumentTypeError
from tests.models.samples import models


def numbers(line):
    return int(line.split()[-1].replace(",", ""))


@pytest.mark.parametrize(("name", "model"), models().items())
def test_the_lines_add_up_to_the_parameters(name, model):
    lines = describe(model).splitlines()
    total = sum(array.size for _, array in tree_flatten(model.parameters()))
    assert sum(map(numbers, lines[1:-1])) == total
    assert lines[-1].startswith(f"{total:,} parameters, {total:,} of them train, ")
    assert len({len(line) for line in lines[:-1]}) == 1


def test_blocks_that_are_alike_share_their_lines_and_others_do_not():
    table = describe(models()["modernbert"])
    assert "blocks[0].attention.inputs" in table  # the first block has no norm, so it is not like the others
    assert "blocks[1-2].attention_norm" in table
    assert "blocks[1].attention_norm" not in table


def test_what_does_not_train_is_marked():
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm(3))
    model.layers[0].freeze(keys="bias")
    lines = describe(model).splitlines()
    assert "bias[3] (does not train)" in lines[1]
    assert "running_mean[3] (does not train)" in lines[2]
    assert lines[-1] == "21 parameters, 12 of them train, 0.0 MB"


def test_arrays_of_the_model_itself_and_in_dicts_are_there():
    model = nn.Module()
    model.scale = mx.ones(3)
    model.parts = {"left": nn.Linear(1, 1), "right": [nn.Linear(1, 1)]}
    assert [line.split()[0] for line in describe(model).splitlines()[1:-1]] == ["Module", "parts.left", "parts.right[0]"]


def test_what_is_no_module_is_refused():
    with pytest.raises(ArgumentTypeError, match="model must be Module, got dict"):
        describe({})


def test_a_module_at_two_places_counts_once_in_the_sums():
    layer = nn.Linear(2, 3)
    lines = describe(nn.Sequential(layer, nn.ReLU(), layer)).splitlines()
    assert [numbers(line) for line in lines[1:-1]] == [9, 9]
    assert lines[-1] == "9 parameters, 9 of them train, 0.0 MB"
