"""Random models, batches and settings, held against brute force: see grammar.py and checks.py."""
