"""The same step inside other people's loops; each needs its own extra.

    sklearn        ReweighClassifier, ReweighRegressor      pip install 'reweigh[skorch]'
    lightning      ReweighMixin                             pip install 'reweigh[lightning]'
    transformers   ReweighTrainer                           pip install 'reweigh[transformers]'

Import the one you need: `from reweigh.integrations.sklearn import ReweighClassifier`.
"""
