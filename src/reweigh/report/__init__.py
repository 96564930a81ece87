"""Reports: tables, figures and pages from what lies on the disk; needs no torch.

folder           which report a folder gets, by what is in it: `write_report`
demo             the page of `reweigh demo`
run              the page of a run on a user's own data
experiment       the page of a results folder, made of
  tables           its numbers in the paper's order, its settings in words
  paper_figures    which figures it gets: histograms, confusion matrices
  lines            and lines, against a variable or during training
bench            the figure of `reweigh bench`
page, figures    what all have in common: templates, and drawing for the page and for paper
"""

from .bench import write_bench_figure
from .folder import write_report
