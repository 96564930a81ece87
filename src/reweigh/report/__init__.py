"""Reports: tables, figures and pages from what lies on the disk; needs no torch.

folder           which report a folder gets, by what is in it: `write_report`
demo             the page of `reweigh demo`
run              the page of a run on a user's own data
experiment       the page of a results folder, made of
  tables           its numbers in the paper's order
  paper_figures    which figures it gets, drawn by lines, curves, confusions and weights
  settings         its settings in words
bench            the figure of `reweigh bench`
page, figures    what all have in common: templates, and drawing for the page and for paper
"""

from .bench import write_bench_figure
from .folder import write_report

__all__ = ["write_bench_figure", "write_report"]
