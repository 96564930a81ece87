"""The paper's numbers: test accuracy in percent, with half the width of a 95% interval.

Ren, Zeng, Yang, Urtasun: Learning to Reweight Examples for Robust Deep Learning, ICML 2018, tables
1 and 2. MentorNet's are quoted there from its own paper, which gives no interval.
"""

from __future__ import annotations

from ..experiment import Row, Target

OURS = "reweigh_literal"
GUARDED = Row("reweigh", "Ours, safeguarded", clean=True)

TABLE_1 = (
    Row("uniform", "Baseline"),
    Row("reed_hard", "Reed-Hard"),
    Row("s_model", "S-Model"),
    Row("mentornet", "MentorNet"),
    Row("random", "Random"),
    Row("clean_only", "Clean Only", clean=True),
    Row("uniform+ft", "Baseline +FT", clean=True),
    Row("mentornet+ft", "MentorNet +FT", clean=True),
    Row("random+ft", "Random +FT", clean=True),
    Row(OURS, "Ours", clean=True),
    GUARDED,
)
TABLE_2 = (
    Row("uniform", "Baseline"),
    Row("uniform+es", "Baseline +ES"),
    Row("random", "Random"),
    Row("weighted", "Weighted"),
    Row("reed_soft+es", "Reed Soft +ES"),
    Row("reed_hard+es", "Reed Hard +ES"),
    Row("s_model", "S-Model"),
    Row("s_model_conf", "S-Model +Conf"),
    Row("s_model_conf+es", "S-Model +Conf +ES"),
    Row("clean_only", "Clean Only", clean=True),
    Row("uniform+ft", "Baseline +FT", clean=True),
    Row("uniform+es+ft", "Baseline +ES +FT", clean=True),
    Row("weighted+ft", "Weighted +FT", clean=True),
    Row("s_model_conf+ft", "S-Model +Conf +FT", clean=True),
    Row("s_model_conf+es+ft", "S-Model +Conf +ES +FT", clean=True),
    Row(OURS, "Ours", clean=True),
    GUARDED,
)

CIFAR10_UNIFORM = (
    Target("uniform", 67.97, 0.62),
    Target("reed_hard", 69.66, 1.21),
    Target("s_model", 70.64, 3.09),
    Target("mentornet", 76.6),
    Target("random", 86.06, 0.32),
    Target("clean_only", 46.64, 3.90),
    Target("uniform+ft", 78.66, 0.44),
    Target("mentornet+ft", 78.0),
    Target("random+ft", 86.55, 0.24),
    Target(OURS, 86.92, 0.19),
)
CIFAR100_UNIFORM = (
    Target("uniform", 50.66, 0.24),
    Target("reed_hard", 51.34, 0.17),
    Target("s_model", 49.10, 0.58),
    Target("mentornet", 56.9),
    Target("random", 58.01, 0.37),
    Target("clean_only", 9.94, 0.82),
    Target("uniform+ft", 54.52, 0.40),
    Target("mentornet+ft", 59.0),
    Target("random+ft", 58.54, 0.52),
    Target(OURS, 61.34, 2.06),
)
CIFAR10_BACKGROUND = (
    Target("uniform", 59.54, 2.16),
    Target("uniform+es", 64.96, 1.19),
    Target("random", 69.51, 1.36),
    Target("weighted", 79.17, 1.36),
    Target("reed_soft+es", 63.47, 1.05),
    Target("reed_hard+es", 65.22, 1.06),
    Target("s_model", 58.60, 2.33),
    Target("s_model_conf", 68.93, 1.09),
    Target("s_model_conf+es", 79.24, 0.56),
    Target("clean_only", 15.90, 3.32),
    Target("uniform+ft", 82.82, 0.93),
    Target("uniform+es+ft", 85.19, 0.46),
    Target("weighted+ft", 85.98, 0.47),
    Target("s_model_conf+ft", 81.90, 0.85),
    Target("s_model_conf+es+ft", 85.86, 0.63),
    Target(OURS, 86.73, 0.48),
)
CIFAR100_BACKGROUND = (
    Target("uniform", 37.82, 0.69),
    Target("uniform+es", 39.08, 0.65),
    Target("random", 36.56, 0.44),
    Target("weighted", 36.56, 0.44),
    Target("reed_soft+es", 38.44, 0.90),
    Target("reed_hard+es", 39.03, 0.55),
    Target("s_model", 37.02, 0.34),
    Target("s_model_conf", 46.72, 1.87),
    Target("s_model_conf+es", 54.50, 2.51),
    Target("clean_only", 8.06, 0.76),
    Target("uniform+ft", 54.23, 1.75),
    Target("uniform+es+ft", 55.22, 1.40),
    Target("weighted+ft", 53.99, 1.62),
    Target("s_model_conf+ft", 53.11, 1.33),
    Target("s_model_conf+es+ft", 55.75, 1.26),
    Target(OURS, 59.30, 0.60),
)
