"""Every name in a run folder. No other package spells one of them.

Written while training (any call of `training.fit`):
    config.json         the settings, and a fingerprint of the data
    metrics.jsonl       one evaluation per line; the last line of a finished run has the key FINAL
    weights.parquet     what each training example counted
    model.safetensors   the trained model
    checkpoints/        where to go on from

Written by `reweigh train` besides those:
    options.json        what was asked                                  app.Options
    source.json         what the data are, and where                    RunSource
    network.json        the model's shape, its inputs and outputs       ModelDescription
    preprocess.json     the fitted encoder; preprocess.npz its arrays   EncoderState
    audit.parquet       every training row, ranked by suspicion         AuditRow
    suspects.parquet    the first of them, with the row itself          Suspect
    voices.parquet      checked rows that speak against and for the very first      Voice
    sentinels.npz       checked rows under right and wrong labels, judged as train rows are
    unreadable.txt      files that could not be decoded
    stdin.csv           the rows that standard input had (or .jsonl, ...)
    encoded/            the encoded rows, while the run is not finished
    compare/METHOD/     the runs it was compared with
    candidates/NAME.npz what the checked rows said of a candidate
    winner.json         which candidate was kept; its arrays are in winner.safetensors      Winner
                        (without them: the network of model.safetensors)
    summary.json        figures and warnings; written last, so a run that has one is finished
                                                                        RunSummary
    report.html         the page

Written by `reweigh audit` and `reweigh review`:
    audit.csv           the ranking as a list
    decisions.jsonl     what people decided, in that order
    confirmed.csv, dropped.csv, corrected.csv (.tsv, .parquet, .jsonl, .xlsx), changes.diff

Written by `reweigh fix` into a folder of its own:
    corrected.csv (or as above)   the data with new labels, without the rows that are set aside
    fixes.csv           every row that changed, and why                 LabelFix
    set_aside.csv       index of the rows that are set aside
    fix.json            what was done, and what it is worth; written last     FixSummary
"""

FINAL = "final"
"""The key of the last line of metrics.jsonl."""


class RunFile:
    """A name in a run folder: `folder / RunFile.SUMMARY`."""

    CONFIG, METRICS, WEIGHTS = "config.json", "metrics.jsonl", "weights.parquet"
    MODEL, CHECKPOINTS = "model.safetensors", "checkpoints"

    OPTIONS, SOURCE, NETWORK = "options.json", "source.json", "network.json"
    PREPROCESS, PREPROCESS_ARRAYS = "preprocess.json", "preprocess.npz"
    AUDIT, SUSPECTS, UNREADABLE = "audit.parquet", "suspects.parquet", "unreadable.txt"
    VOICES = "voices.parquet"
    SENTINELS = "sentinels.npz"
    ENCODED, COMPARE, CANDIDATES = "encoded", "compare", "candidates"
    WINNER, WINNER_ARRAYS = "winner.json", "winner.safetensors"
    SUMMARY, REPORT = "summary.json", "report.html"
    STDIN = "stdin"  # and an ending

    AUDIT_LIST, DECISIONS = "audit.csv", "decisions.jsonl"
    CONFIRMED, DROPPED, CHANGES = "confirmed.csv", "dropped.csv", "changes.diff"
    CORRECTED_TEXT, CORRECTED_PARQUET = "corrected.csv", "corrected.parquet"
    CORRECTED_TABS, CORRECTED_LINES = "corrected.tsv", "corrected.jsonl"
    CORRECTED_SHEET = "corrected.xlsx"

    FIX, FIXES, SET_ASIDE = "fix.json", "fixes.csv", "set_aside.csv"
