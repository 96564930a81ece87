"""Reports: figures, tables and pages made from results on disk; needs no torch."""
