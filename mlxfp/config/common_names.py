"""Names that other libraries have for the options of a run: each leads to the option with that meaning, or to a sentence."""

from collections.abc import Mapping

_SPEC = "a spec names the columns: mlxfp data infer PATH --target COLUMN --out spec.yaml writes one, and data.spec=spec.yaml uses it"
_DEVICE = "MLX runs on the device of this machine, and there is no option for it; mlxfp doctor shows it"

# By option or sentence, the names without underscores and dashes, in small letters: batch_size, batchSize and batch-size are one name.
_NAMES = {
    "name": "runname experiment experimentname expname projectname",
    "output": "outputdir outdir savedir logdir logsdir resultsdir workdir",
    "data.path": "datadir datapath dataset datasets datafolder trainfile traindata trainpath inputdir root",
    "data.limit": "nrows maxrows numrows maxsamples maxtrainsamples samples subset",
    "data.prefetch": "numworkers workers prefetchfactor dataloadernumworkers njobs",
    "media.side": "imagesize imgsize resolution inputsize",
    "media.rate": "samplerate samplingrate sr",
    "media.mels": "nmels nummels",
    "text.column": "textcolumn textfield",
    "text.form": "format textformat",
    "text.max_length": "maxlen maxseqlen maxseqlength seqlen seqlength sequencelength modelmaxlength contextlength blocksize",
    "text.overflow": "truncation truncate",
    "text.tokenizer": "tokenizername tokenizerpath",
    "text.vocab_size": "vocab numtokens",
    "model.name": "architecture arch modelname modeltype backbone",
    "model.path": "modelnameorpath modelpath pretrained pretrainedmodel pretrainedmodelnameorpath weights initfrom",
    "model.dropout": "dropoutrate dropoutprob hiddendropout hiddendropoutprob",
    "optimizer.name": "optim optimizername optimizertype",
    "optimizer.learning_rate": "lr maxlr peaklr initiallr baselr eta",
    "optimizer.weight_decay": "wd l2 decay",
    "optimizer.clip_norm": "gradclip clipgrad clipgradnorm maxgradnorm gradientclip gradientclipval gradclipnorm maxnorm",
    "schedule.name": "scheduler schedulertype lrscheduler lrschedulertype lrschedule",
    "schedule.warmup": "warmupratio warmupsteps warmupfraction numwarmupsteps pctstart",
    "training.seed": "randomseed randomstate manualseed globalseed rngseed",
    "training.epochs": "epoch numepochs nepochs numtrainepochs maxepochs trainepochs",
    "training.size": (
        "batchsize batch bs minibatchsize trainbatchsize perdevicetrainbatchsize perdevicebatchsize globalbatchsize microbatchsize"
    ),
    "training.accumulate": "gradientaccumulationsteps gradaccum gradaccumsteps accumulategradbatches accumulationsteps gradaccumulation",
    "training.compute_dtype": "dtype precision fp16 bf16 half amp mixedprecision torchdtype",
    "training.checkpoint_blocks": "gradientcheckpointing gradcheckpoint gradcheckpointing activationcheckpointing",
    "training.ema": "emadecay useema",
    "observers.every": "loggingsteps logevery logeverynsteps loginterval logsteps",
    "observers.evaluate_every": "evalsteps evalevery evalinterval evaluationsteps valcheckinterval evalfreq",
    "observers.patience": "earlystopping earlystop earlystoppingpatience earlystoppingrounds",
    "observers.checkpoint_every": "savesteps saveevery saveinterval savefreq checkpointinterval checkpointsteps",
    "observers.keep": "savetotallimit savetopk keeplast maxcheckpoints",
    "observers.minutes": "maxtime timelimit timebudget maxminutes",
    "observers.mlflow": "trackinguri mlflowuri mlflowtrackinguri reportto logger",
    "validation.method": "cv split splitter splitmethod kfold crossvalidation stratify",
    "validation.folds": "nfolds numfolds nsplits k kfolds cvfolds fold",
    "validation.repeats": "nrepeats numrepeats",
    "competition.metric": "scoring evalmetric metricname metricforbestmodel",
    "competition.views": "tta ttaviews nviews",
    "competition.submission": "submissionfile submissionpath submissionname",
    _SPEC: "target targetcolumn targetcol label labels labelcolumn labelcol idcolumn idcol groupcolumn timecolumn classes columns features",
    _DEVICE: "device gpu gpus cuda accelerator devices numgpus ngpu nocuda",
}
COMMON_NAMES: Mapping[str, str] = {name: meaning for meaning, names in _NAMES.items() for name in names.split()}
