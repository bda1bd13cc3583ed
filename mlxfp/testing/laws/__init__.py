"""Laws: functions that raise `AssertionError` with the smallest failing case if a source, stage, collator or other part breaks a law.

Use the laws to check your own sources, stages, collators, losses, models and train steps. `check` selects the laws of a part and checks
them under hypothesis. You can also call each law with inputs of your own. The modules set `__tracebackhide__`, so that pytest shows the
line of your test and the message, without the frames of this package.
"""

from mlxfp.testing.laws.checking import Law as Law
from mlxfp.testing.laws.checking import check as check
from mlxfp.testing.laws.checking import laws_of as laws_of
from mlxfp.testing.laws.collators import assert_an_example_stands_alone as assert_an_example_stands_alone
from mlxfp.testing.laws.collators import assert_keeps_no_state as assert_keeps_no_state
from mlxfp.testing.laws.collators import assert_list_and_view_agree as assert_list_and_view_agree
from mlxfp.testing.laws.collators import assert_mask_counts as assert_mask_counts
from mlxfp.testing.laws.collators import assert_permutes as assert_permutes
from mlxfp.testing.laws.collators import assert_pure_collator as assert_pure_collator
from mlxfp.testing.laws.contents import assert_carries as assert_carries
from mlxfp.testing.laws.contents import assert_dtypes as assert_dtypes
from mlxfp.testing.laws.contents import assert_labels_follow as assert_labels_follow
from mlxfp.testing.laws.contents import assert_pads_with as assert_pads_with
from mlxfp.testing.laws.cursors import assert_plans_agree as assert_plans_agree
from mlxfp.testing.laws.cursors import assert_refused as assert_refused
from mlxfp.testing.laws.cursors import assert_replay_is_bounded as assert_replay_is_bounded
from mlxfp.testing.laws.cursors import assert_resumable as assert_resumable
from mlxfp.testing.laws.cursors import assert_runners_agree as assert_runners_agree
from mlxfp.testing.laws.cursors import assert_selects_columns as assert_selects_columns
from mlxfp.testing.laws.cursors import assert_transparent as assert_transparent
from mlxfp.testing.laws.datasets import assert_built_lazily as assert_built_lazily
from mlxfp.testing.laws.datasets import assert_described as assert_described
from mlxfp.testing.laws.datasets import assert_prints as assert_prints
from mlxfp.testing.laws.datasets import assert_random_access as assert_random_access
from mlxfp.testing.laws.datasets import assert_reads as assert_reads
from mlxfp.testing.laws.datasets import assert_repeatable as assert_repeatable
from mlxfp.testing.laws.datasets import assert_same_items as assert_same_items
from mlxfp.testing.laws.datasets import assert_same_value as assert_same_value
from mlxfp.testing.laws.datasets import assert_told_apart as assert_told_apart
from mlxfp.testing.laws.datasets import assert_value as assert_value
from mlxfp.testing.laws.datasets import collect as collect
from mlxfp.testing.laws.elastic import assert_elastic as assert_elastic
from mlxfp.testing.laws.families import Subject as Subject
from mlxfp.testing.laws.losses import assert_ignores as assert_ignores
from mlxfp.testing.laws.losses import assert_merges as assert_merges
from mlxfp.testing.laws.models import assert_causal as assert_causal
from mlxfp.testing.laws.models import assert_documents_stand_alone as assert_documents_stand_alone
from mlxfp.testing.laws.models import assert_generates_the_likeliest as assert_generates_the_likeliest
from mlxfp.testing.laws.models import assert_ignores_padding as assert_ignores_padding
from mlxfp.testing.laws.models import assert_rows_stand_alone as assert_rows_stand_alone
from mlxfp.testing.laws.numbers import assert_keeps_integers as assert_keeps_integers
from mlxfp.testing.laws.numbers import assert_shapes_ignore_numbers as assert_shapes_ignore_numbers
from mlxfp.testing.laws.orders import assert_conserves_tokens as assert_conserves_tokens
from mlxfp.testing.laws.orders import assert_partitions as assert_partitions
from mlxfp.testing.laws.orders import assert_shuffles as assert_shuffles
from mlxfp.testing.laws.orders import assert_stay_apart as assert_stay_apart
from mlxfp.testing.laws.processes import assert_same_in_new_process as assert_same_in_new_process
from mlxfp.testing.laws.stages import assert_chunks_do_not_matter as assert_chunks_do_not_matter
from mlxfp.testing.laws.stages import assert_fits_itself as assert_fits_itself
from mlxfp.testing.laws.stages import assert_lazy as assert_lazy
from mlxfp.testing.laws.stages import assert_pipes as assert_pipes
from mlxfp.testing.laws.stages import assert_pure_stages as assert_pure_stages
from mlxfp.testing.laws.texts import assert_encodes_each_row as assert_encodes_each_row
from mlxfp.testing.laws.texts import assert_renders_each_row as assert_renders_each_row
from mlxfp.testing.laws.training import assert_accumulates as assert_accumulates
from mlxfp.testing.laws.training import assert_compiled_equals_eager as assert_compiled_equals_eager
from mlxfp.testing.laws.training import assert_continues as assert_continues
from mlxfp.testing.laws.training import assert_keeps_events as assert_keeps_events
from mlxfp.testing.laws.training import assert_observes_lazily as assert_observes_lazily
from mlxfp.testing.laws.training import assert_pure_step as assert_pure_step
from mlxfp.testing.laws.training import assert_saves as assert_saves
from mlxfp.testing.laws.training import assert_uses_parameters as assert_uses_parameters
from mlxfp.testing.laws.writing import assert_written_alike as assert_written_alike
