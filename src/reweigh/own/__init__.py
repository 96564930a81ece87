"""Your own data: train, predict and audit without writing code.

    train(options, out)     a table, image folder or texts with doubtful labels, and a few checked
    load(run)               the trained model with its pre-processing: labels and probabilities
"""
