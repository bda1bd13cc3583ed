"""Names that other libraries use for features of mlxfp, for hints in error messages.

A name stands for an argument of mlxfp or for a hint text. Case, underscores and dashes in names are ignored: batch_size, batchSize
and batch-size are equal.
"""

from collections.abc import Collection, Mapping

# Maps an argument of mlxfp to the names of the same argument in other libraries.
# A key with spaces is a hint sentence, for arguments of other libraries without a counterpart in mlxfp.
ARGUMENTS: Mapping[str, str] = {
    "accumulate": "gradient_accumulation_steps grad_accum grad_accum_steps accumulate_grad_batches accumulation_steps grad_accumulation",
    "betas": "beta1 beta2 b1 b2",
    "buffer": "buffer_size shuffle_buffer window_size",
    "checkpoint_blocks": "gradient_checkpointing grad_checkpoint grad_checkpointing activation_checkpointing",
    "clip_norm": (
        "grad_clip clip_grad clip_grad_norm max_grad_norm gradient_clip gradient_clip_val grad_clip_norm max_norm gradient_clip_norm"
    ),
    "columns": "names usecols column_names",
    "compute_dtype": "dtype precision fp16 bf16 half amp mixed_precision torch_dtype",
    "count": "n_splits n_folds num_folds folds k num_shards",
    "delimiter": "sep separator delim",
    "depth": "buffer_size prefetch_factor",
    "drop_last": "drop_remainder drop_last_batch",
    "ema": "ema_decay use_ema",
    "epochs": "epoch num_epochs n_epochs num_train_epochs max_epochs train_epochs",
    "eps": "epsilon adam_epsilon",
    "fractions": "test_size train_size lengths",
    "function": "fn func map_func transform",
    "group": "groups group_by",
    "hidden_size": "d_model dim embed_dim n_embd model_dim",
    "intermediate_size": "d_ff dim_feedforward ffn_dim d_hidden",
    "keep": "save_total_limit save_top_k keep_last max_checkpoints",
    "label": "label_column label_name labels target",
    "labels": "num_labels num_classes n_classes out_features",
    "learning_rate": "lr max_lr peak_lr initial_lr base_lr eta",
    "log_every": "logging_steps log_every_n_steps log_interval log_steps",
    "max_length": "max_len max_seq_len max_seq_length seq_len seq_length sequence_length model_max_length context_length block_size",
    "metric": "monitor metric_for_best_model",
    "name": "competition_name dataset_name",
    "num_attention_heads": "n_heads n_head nhead heads num_heads",
    "num_hidden_layers": "n_layers n_layer num_layers layers",
    "offsets": "return_offsets_mapping",
    "pad_id": "pad_token_id padding_value pad_value",
    "pad_multiple": "pad_to_multiple_of",
    "patience": "early_stopping early_stop early_stopping_patience early_stopping_rounds",
    "quote": "quotechar",
    "rate": "lr learning_rate init_value init base_lr max_lr",
    "schema": "dtype dtypes schema_overrides features output_signature column_types",
    "seed": "random_seed random_state manual_seed global_seed rng_seed rng generator",
    "side": "padding_side",
    "size": (
        "batch_size batch bs mini_batch_size train_batch_size per_device_train_batch_size per_device_batch_size global_batch_size "
        "micro_batch_size"
    ),
    "special": "add_special_tokens",
    "steps": "max_steps num_steps total_steps num_training_steps decay_steps T_max",
    "stop": "stopping_strategy",
    "stratify": "stratify_by_column",
    "warmup": "warmup_ratio warmup_steps warmup_fraction num_warmup_steps pct_start",
    "weight_decay": "wd l2 decay",
    "workers": "num_workers num_proc num_parallel_calls num_parallel_reads n_jobs num_threads threads",
    "the first line of a CSV file names the columns; without such a line, pass columns=": "header has_header index_col",
    "fp.read_csv reads ISO dates as dates, or declare schema={'date': pa.timestamp('s')}": "parse_dates try_parse_dates date_format",
    'null_values replaces the default values, and na_values of pandas adds values; write null_values=["", "NA", "k.A."]': "na_values",
    "fp.take(count) after the source keeps the first rows": "nrows max_rows num_rows limit",
    "fp.map_chunks(function) processes whole chunks": "batched",
    "the result of the function replaces the example, and fp.drop_columns(columns) removes columns": "remove_columns",
    "a loss returns a sum and a weight, and the step divides": "reduction",
    "fp.collate(collator) converts a group to arrays": "collate collate_fn collator data_collator",
    "fp.shuffle(seed=0) before fp.batch(size) shuffles": "shuffle reshuffle_each_iteration sampler batch_sampler",
    "fp.cache(folder) after the stage keeps its rows": "load_from_cache_file cache_file_name keep_in_memory",
    "use an observer: fp.pipe(fp.fit(step, state, batches), fp.observers.progress())": "callbacks callback",
    "fp.observers.evaluate_every(...) evaluates during a run": "eval_dataset validation_data val_dataloader eval_steps eval_strategy",
    "fp.best(events) is the evaluation with the best state": "restore_best_weights load_best_model_at_end",
    "fp.load_latest(folder) returns the state and the cursor to continue from": "resume_from_checkpoint ckpt_path resume",
    "the collator pads, as in fp.collators.text(pad_id=0)": "padding pad_to_max_length return_tensors",
    "random choices depend only on the seed, the epoch and the row": "worker_init_fn deterministic",
    "workers start and stop with the loop": "persistent_workers multiprocessing_context timeout",
    "MLX runs on the device of this machine": "device pin_memory use_cuda no_cuda gpus accelerator",
    "files are safetensors and tokenizer.json, in the cache of huggingface_hub": "trust_remote_code cache_dir use_fast token",
}

# Maps an argument name of mlxfp to a hint, for functions without the argument. The hint shows a function that has the argument.
_ELSEWHERE: Mapping[str, str] = {
    "accumulate": "fp.train_step(model, loss, optimizer, accumulate=4) accumulates gradients",
    "clip_norm": "fp.train_step(model, loss, optimizer, clip_norm=1.0) clips gradients",
    "compute_dtype": "fp.train_step(model, loss, optimizer, compute_dtype=mx.bfloat16) computes in another dtype",
    "depth": "fp.prefetch(depth) at the end of the pipeline prepares batches in a thread",
    "drop_last": "fp.batch(size, drop_last=True) drops a short last group",
    "epochs": "fp.fit(step, state, batches, epochs=3) or fp.repeat(3) repeats the data",
    "learning_rate": "set the value in the optimizer, as in fp.optimizers.adamw(1e-3)",
    "max_length": "fp.tokenize(tokenizer, max_length=128) truncates texts",
    "metric": "fp.observers.early_stopping and fp.best take a metric",
    "patience": "fp.observers.early_stopping('loss', mode='min', patience=3) ends a run",
    "schema": "the argument schema= of the source declares types",
    "seed": "each random stage has its own seed, as in fp.shuffle(seed=0)",
    "size": "fp.batch(size) groups examples",
    "warmup": "set the value in a schedule, as in fp.schedules.cosine_decay(1e-3, steps=100, warmup=10)",
    "weight_decay": "set the value in the optimizer, as in fp.optimizers.adamw(1e-3, weight_decay=0.01)",
    "workers": 'fp.prefetch(2, workers=4) runs all earlier stages in 4 threads, or in processes with kind="processes"',
}

# Each key is code that uses mlxfp. Each value lists functions, classes and methods of other libraries that this code replaces.
_NAMES: Mapping[str, str] = {
    "fp.pipe(rows, fp.shuffle(seed=0), fp.batch(32), fp.collate(collator), fp.prefetch(2))": "DataLoader StatefulDataLoader",
    "fp.last(fp.fit(step, state, batches))": "Trainer SFTTrainer Learner train",
    "fp.from_hf(load_dataset(...)), or a reader of files such as fp.read_csv(path)": "load_dataset load_from_disk",
    "fp.from_table(table)": (
        "from_pandas from_polars from_arrow from_dict from_numpy from_duckdb from_tensor_slices from_tensors TensorDataset DataFrame"
    ),
    "fp.from_iterable(function)": "from_generator IterableDataset",
    "fp.from_table(pandas.read_excel(path))": "read_excel",
    "fp.from_examples(rows)": "from_list from_records from_dicts buffer_from_vector",
    "fp.read_csv(path)": "scan_csv from_csv read_table stream_csv_reader",
    "fp.read_jsonl(path)": "read_json from_json read_ndjson scan_ndjson",
    "fp.read_parquet(path)": "scan_parquet from_parquet",
    "fp.read_arrow(path)": "read_ipc scan_ipc read_feather",
    "fp.read_images(path)": "ImageFolder imread",
    "fp.split([0.8, 0.2], seed=0)": "train_test_split random_split",
    "fp.concat([first, second])": "concat concatenate concatenate_datasets ConcatDataset ChainDataset",
    "fp.interleave([first, second])": "interleave interleave_datasets",
    "fp.mix([first, second], [0.7, 0.3])": "mix sample_from_datasets WeightedRandomSampler",
    "fp.select(indices)": "Subset gather",
    "fp.shard(index, count)": "DistributedSampler partition split_dataset_by_node",
    "fp.map(function)": "apply with_columns assign random_map sample_transform key_transform with_transform set_transform",
    "fp.map_chunks(function)": "map_batches map_partitions",
    "fp.filter(predicate)": "where query",
    "fp.map(function, seed=0), or fp.collators.masked(...)": "replace_tokens",
    "fp.drop_columns(['x'])": "remove_columns drop",
    "fp.rename_columns({'old': 'new'})": "rename_column rename",
    "fp.take(count)": "head limit",
    "fp.bucket_by_length(...)": "bucket_by_sequence_length dynamic_batch",
    "fp.batch(size)": "padded_batch",
    "fp.windows(length)": "window sliding_window",
    "fp.collate(collator)": "default_collate collate_fn with_format set_format",
    "fp.collators.text(pad_id=0)": "DataCollatorWithPadding pad_sequence",
    "fp.collators.causal(...) or fp.collators.masked(...)": "DataCollatorForLanguageModeling",
    "fp.collators.seq2seq(...)": "DataCollatorForSeq2Seq",
    "fp.load_tokenizer(path)": "AutoTokenizer PreTrainedTokenizerFast",
    "fp.models.load(folder)": "AutoModel AutoModelForCausalLM AutoModelForSequenceClassification from_pretrained load_model",
    "fp.cache(folder), or fp.load() for memory": "persist snapshot save_to_disk",
    "fp.prefetch(depth)": "mp_prefetch ordered_prefetch to_iter_dataset",
    "fp.schema(rows).names": "column_names",
    "fp.schema(rows)": "schema features dtypes element_spec collect_schema",
    "len(rows), or fp.length(rows)": "length count num_rows shape cardinality",
    "fp.explain(rows)": "explain explain_write",
    "fp.inspect.column_stats(rows, columns)": "column_stats_at describe",
    "numpy.corrcoef(numbers, range(len(numbers))), for the numbers of rows in the order of the source": "shuffle_quality ShuffleQuality",
    "fp.inspect.preview(rows)": "preview show",
    "fp.inspect.fingerprint(rows)": "fingerprint",
    "from mlxfp.testing import laws": "laws",
    "fp.iterate(rows), which yields a cursor with every item": "iterate state_dict load_state_dict get_state set_state",
    "fp.iterate(rows, epoch=1)": "set_epoch",
    "for row in rows": "as_numpy_iterator iterrows itertuples",
    "pandas.DataFrame(iter(rows))": "to_pandas",
    "list(rows)": "to_list collect",
    "fp.observers.early_stopping('loss', mode='min', patience=3)": "EarlyStopping EarlyStoppingCallback",
    "fp.observers.checkpoint(folder, steps=100)": "ModelCheckpoint",
    "fp.observers": "Callback TrainerCallback",
    "fp.optimizers.adamw(1e-3)": "AdamW Adam optim",
    "fp.schedules.cosine_decay(1e-3, steps=100)": "lr_scheduler CosineAnnealingLR get_scheduler",
    "fp.losses.cross_entropy": "CrossEntropyLoss cross_entropy",
    "the seed of each random stage, as in fp.shuffle(seed=0)": "seed set_seed manual_seed seed_everything",
}

# Maps a namespace such as `fp.inspect` to names that were directly in `fp` in the previous version of mlxfp.
_MOVED: Mapping[str, str] = {
    "audio": "crop_waveforms log_mel",
    "distributed": "World",
    "errors": (
        "ArgumentError ArgumentTypeError CheckpointError ConfigError CursorError CursorMismatchError DataError FingerprintError "
        "MissingExtraError MissingFileError NonFiniteError PipelineError RankError SchemaError UnknownNameError WorkerError"
    ),
    "inspect": (
        "BatchView Manifest Origin Profile Proportion ShapePlan SkippedRow batch_shapes checksum column_stats diff fingerprint "
        "mixture_proportions preview profile row_origins show_batch skipped_rows trace_row"
    ),
    "kaggle": "tasks",
    "observers": "Control plot_run",
    "optimizers": "ema_weights",
    "parts": "Combinator Wrapper",
    "runs": "config report",
}


def plain(name: str) -> str:
    """Return a name in lower case without dashes and underscores.

    >>> plain("batch_size") == plain("batchSize") == plain("batch-size")
    True
    """
    return name.lower().replace("_", "").replace("-", "")


def argument_hint(name: str, known: Collection[str]) -> str:
    """Return a hint for an argument name from another library, or an empty string. `known` are the argument names of the called function.

    >>> argument_hint("batch_size", ["size", "drop_last"]), argument_hint("unheard", ["size"])
    ('batch_size is size here.', '')
    >>> argument_hint("lr", ["model", "loss"])
    'Instead of lr: set the value in the optimizer, as in fp.optimizers.adamw(1e-3).'
    """
    candidates = [ours for ours, names in ARGUMENTS.items() if plain(name) in map(plain, [ours, *names.split()])]
    argument = next((ours for ours in candidates if ours in known), None)
    hint = argument or next((_ELSEWHERE.get(ours, ours) for ours in candidates if ours in _ELSEWHERE or " " in ours), None)
    return f"{name} is {argument} here." if argument else f"Instead of {name}: {hint}." if hint else ""


def name_hint(name: str) -> str:
    """Return the mlxfp code that replaces a function, class or method of another library, such as pandas. Return "" for an unknown name.

    >>> name_hint("column_names"), name_hint("unheard")
    ('fp.schema(rows).names', '')
    """
    if name.startswith("_"):
        return ""
    return next((ours for ours, names in _NAMES.items() if plain(name) in map(plain, names.split())), "")


def moved_name(name: str) -> str:
    """Return the new name of a function or class that moved from `fp` to a namespace such as `fp.inspect`, or an empty string.

    >>> moved_name("preview"), moved_name("tasks"), moved_name("unheard")
    ('fp.inspect.preview', 'fp.kaggle', '')
    """
    family = next((family for family, names in _MOVED.items() if name in names.split()), "")
    return f"fp.{family}" if name in ("config", "tasks") else f"fp.{family}.{name}" if family else ""
