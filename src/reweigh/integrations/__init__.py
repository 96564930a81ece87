"""The reweighted step inside the training loops of other libraries; each needs its own extra.

    sklearn        ReweighClassifier, ReweighRegressor      pip install 'reweigh[skorch]'
    lightning      ReweighMixin                             pip install 'reweigh[lightning]'
    transformers   ReweighTrainer                           pip install 'reweigh[transformers]'
    trl            ReweighSFTTrainer, ReweighRewardTrainer, ReweighDPOTrainer      pip install 'reweigh[trl]'
    datalab        label_issues                             pip install 'reweigh[app]'
    opendataval    ReweighEvaluator                         pip install --no-deps opendataval

Import the one you need: `from reweigh.integrations.sklearn import ReweighClassifier`. There is no
import of all of them here, because each needs a library that may not be installed.

Read in this order: `lightning`, `transformers` (with `sequence_loss`, `token_parts`), `trl` (with `pair_loss`), `sklearn` (with `estimator`,
`skorch_net`). `numbered` gives examples their number for the ledger; `clean_draws` says which clean
rows a step uses.
"""
