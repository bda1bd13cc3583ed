"""Option names of other libraries. Each name leads to the mlxfp option with the same meaning, or to an explanation."""

from collections.abc import Mapping

from mlxfp.support.foreign_names import ARGUMENTS, plain

_SPEC = "a spec names the columns: write a spec with mlxfp data infer PATH --target COLUMN --out spec.yaml, and set data.spec=spec.yaml"
_COMPETITION = "a run reads the competition from the files in data.path, and mlxfp submit RUN --competition NAME sends the submission"
_MEMORY = "there is no memory option: a run keeps its rows in memory, and at most data.prefetch batches more; data.limit=N reads fewer rows"
_DEVICE = "there is no device option: MLX uses the device of this machine, see mlxfp doctor"

# Each key is an option of mlxfp. Each value lists names of the option in other libraries. Case, underscores and dashes are ignored.
# For a common option that mlxfp lacks, the key is an explanation for the error message, such as `_DEVICE`.
_NAMES = {
    "name": "runname experiment experimentname expname projectname",
    "output": "out outputdir outdir savedir logdir logsdir resultsdir workdir",
    "data.path": "datadir datapath dataset datasets datafolder trainfile traindata trainpath inputdir root",
    "data.target": "targetcolumn targetcol label labels labelcolumn labelcol",
    "data.limit": "nrows maxrows numrows maxsamples maxtrainsamples samples subset",
    "data.prefetch": "prefetchfactor prefetchsize buffersize",
    "data.workers": "numworkers dataloadernumworkers njobs numproducers numproc numthreads",
    "data.cache": "cachedir cachefolder cachepath",
    "media.side": "imagesize imgsize resolution inputsize",
    "media.rate": "samplerate samplingrate sr",
    "media.mels": "nmels nummels",
    "text.column": "textcolumn textfield",
    "text.form": "format textformat",
    "text.max_length": ARGUMENTS["max_length"],
    "text.overflow": "truncation truncate",
    "text.tokenizer": "tokenizername tokenizerpath",
    "text.vocab_size": "vocab numtokens",
    "model.name": "architecture arch modelname modeltype backbone",
    "model.path": "modelnameorpath modelpath pretrained pretrainedmodel pretrainedmodelnameorpath weights initfrom",
    "model.dropout": "dropoutrate dropoutprob hiddendropout hiddendropoutprob",
    "optimizer.name": "optim optimizername optimizertype optimtype",
    "optimizer.learning_rate": ARGUMENTS["learning_rate"],
    "optimizer.weight_decay": ARGUMENTS["weight_decay"],
    "optimizer.clip_norm": ARGUMENTS["clip_norm"],
    "schedule.name": "scheduler schedulertype lrscheduler lrschedulertype lrschedule",
    "schedule.warmup": ARGUMENTS["warmup"],
    "training.seed": ARGUMENTS["seed"],
    "training.epochs": ARGUMENTS["epochs"],
    "training.size": ARGUMENTS["size"],
    "training.accumulate": ARGUMENTS["accumulate"],
    "training.compute_dtype": ARGUMENTS["compute_dtype"],
    "training.checkpoint_blocks": ARGUMENTS["checkpoint_blocks"],
    "training.ema": ARGUMENTS["ema"],
    "observers.every": f"log_every {ARGUMENTS['log_every']}",
    "observers.evaluate_every": "evalsteps evalevery evalinterval evaluationsteps valcheckinterval evalfreq evalstrategy",
    "observers.patience": ARGUMENTS["patience"],
    "observers.checkpoint_every": "savesteps saveevery saveinterval savefreq checkpointinterval checkpointsteps",
    "observers.keep": ARGUMENTS["keep"],
    "observers.minutes": "maxtime timelimit timebudget maxminutes",
    "observers.mlflow": "trackinguri mlflowuri mlflowtrackinguri reportto logger",
    "observers.tensorboard": "tensorboarddir logdir loggingdir",
    "validation.method": "cv split splitter splitmethod kfold crossvalidation stratify",
    "validation.folds": "nfolds numfolds nsplits k kfolds cvfolds fold",
    "validation.repeats": "nrepeats numrepeats",
    "competition.metric": "scoring evalmetric metricname metricforbestmodel",
    "competition.views": "tta ttaviews nviews",
    "competition.submission": "submissionfile submissionpath submissionname",
    _SPEC: "idcolumn idcol groupcolumn timecolumn classes columns features",
    _COMPETITION: "kaggle kagglecompetition competitionname",
    _MEMORY: "cachesize cachesizemb cachesizegb memorylimit memorylimitgb memorylimitmb maxmemory",
    _DEVICE: "device gpu gpus cuda accelerator devices numgpus ngpu nocuda",
}
COMMON_NAMES: Mapping[str, str] = {name: meaning for meaning, names in _NAMES.items() for name in map(plain, names.split())}
