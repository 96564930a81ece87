"""The local page to go through suspects: `reweigh review RUN`.

run         source.json: what the data are, and where
suspects    suspects.parquet, a row at a time
decisions   decisions.jsonl, append-only
selection   which suspects to show: class, suggestion, suspicion, state, search
desk        the three together: where to go next, how far we are
showing     labels, cells and texts made fit to be shown
images      the file of a suspect, and nothing else
exports     corrected data, confirmed rows, the list of changes
pages       addresses and what they answer; `gate` decides who may ask
serving     loopback, port, browser, Ctrl-C
"""
