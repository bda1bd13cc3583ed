"""Laws: functions that raise `AssertionError` where a value breaks a law of its family, showing the smallest case.

Hold your own sources, stages and collators to them, under hypothesis or with inputs of your own. One file a family.
"""

from mlxfp.testing.laws.collators import (
    assert_list_and_view_agree,
    assert_mask_is_exact,
    assert_padding_is_inert,
    assert_permutes,
    assert_pure_collator,
)
from mlxfp.testing.laws.cursors import assert_refused, assert_replay_is_bounded, assert_resumable
from mlxfp.testing.laws.datasets import (
    assert_built_lazily,
    assert_described,
    assert_prints,
    assert_repeatable,
    assert_same_items,
    assert_same_value,
    assert_told_apart,
    assert_value,
    collect,
)
from mlxfp.testing.laws.orders import assert_shuffles
from mlxfp.testing.laws.pipes import assert_pipes
from mlxfp.testing.laws.sources import assert_random_access, assert_reads
from mlxfp.testing.laws.stages import assert_chunks_do_not_matter, assert_lazy, assert_pure_stages
from mlxfp.testing.laws.texts import assert_encodes_each_row, assert_renders_each_row
from mlxfp.testing.laws.threads import assert_transparent

__all__ = [
    "assert_built_lazily",
    "assert_chunks_do_not_matter",
    "assert_described",
    "assert_encodes_each_row",
    "assert_lazy",
    "assert_list_and_view_agree",
    "assert_mask_is_exact",
    "assert_padding_is_inert",
    "assert_permutes",
    "assert_pipes",
    "assert_prints",
    "assert_pure_collator",
    "assert_pure_stages",
    "assert_random_access",
    "assert_reads",
    "assert_refused",
    "assert_renders_each_row",
    "assert_repeatable",
    "assert_replay_is_bounded",
    "assert_resumable",
    "assert_same_items",
    "assert_same_value",
    "assert_shuffles",
    "assert_told_apart",
    "assert_transparent",
    "assert_value",
    "collect",
]
