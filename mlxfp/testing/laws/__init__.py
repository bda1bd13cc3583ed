"""Laws: functions that raise `AssertionError` where a value breaks a law of its family, showing the smallest case.

Check your own sources, stages, collators, losses, models and steps with them: `check` picks the laws that apply and runs them under
hypothesis; each law can also be called with inputs of your own. One file per family.
"""

from mlxfp.testing.laws.checking import check
from mlxfp.testing.laws.collators import (
    assert_an_example_stands_alone,
    assert_list_and_view_agree,
    assert_mask_counts,
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
from mlxfp.testing.laws.lengths import assert_conserves_tokens
from mlxfp.testing.laws.losses import assert_adds_up, assert_merges
from mlxfp.testing.laws.models import (
    assert_causal,
    assert_documents_stand_alone,
    assert_generates_the_likeliest,
    assert_ignores_padding,
    assert_rows_stand_alone,
)
from mlxfp.testing.laws.orders import assert_partitions, assert_shuffles
from mlxfp.testing.laws.pipes import assert_pipes
from mlxfp.testing.laws.plans import assert_plans_agree
from mlxfp.testing.laws.sources import assert_random_access, assert_reads
from mlxfp.testing.laws.stages import assert_chunks_do_not_matter, assert_lazy, assert_pure_stages
from mlxfp.testing.laws.texts import assert_encodes_each_row, assert_renders_each_row
from mlxfp.testing.laws.threads import assert_transparent
from mlxfp.testing.laws.training import (
    assert_accumulates,
    assert_compiled_equals_eager,
    assert_continues,
    assert_keeps_events,
    assert_observes_lazily,
    assert_pure_step,
    assert_saves,
)

__all__ = [
    "assert_accumulates",
    "assert_adds_up",
    "assert_an_example_stands_alone",
    "assert_built_lazily",
    "assert_causal",
    "assert_chunks_do_not_matter",
    "assert_compiled_equals_eager",
    "assert_conserves_tokens",
    "assert_continues",
    "assert_described",
    "assert_documents_stand_alone",
    "assert_encodes_each_row",
    "assert_generates_the_likeliest",
    "assert_ignores_padding",
    "assert_keeps_events",
    "assert_lazy",
    "assert_list_and_view_agree",
    "assert_mask_counts",
    "assert_mask_is_exact",
    "assert_merges",
    "assert_observes_lazily",
    "assert_padding_is_inert",
    "assert_partitions",
    "assert_permutes",
    "assert_pipes",
    "assert_plans_agree",
    "assert_prints",
    "assert_pure_collator",
    "assert_pure_stages",
    "assert_pure_step",
    "assert_random_access",
    "assert_reads",
    "assert_refused",
    "assert_renders_each_row",
    "assert_repeatable",
    "assert_replay_is_bounded",
    "assert_resumable",
    "assert_rows_stand_alone",
    "assert_same_items",
    "assert_same_value",
    "assert_saves",
    "assert_shuffles",
    "assert_told_apart",
    "assert_transparent",
    "assert_value",
    "check",
    "collect",
]
