"""Tables 1 and 2: CIFAR-10 and CIFAR-100 with 40% of the labels flipped, and the paper's numbers.

These are test accuracy in percent, with half the width of a 95% interval, from Ren, Zeng, Yang,
Urtasun: Learning to Reweight Examples for Robust Deep Learning, ICML 2018. MentorNet's are quoted
there from its own paper, which gives no interval.
"""

from dataclasses import dataclass

from ..experiment import GUARDED, OURS, TUNED_OURS, Block, Experiment, Row, Target
from ..training_setup import Setting, Value
from .cifar import BACKGROUND, NOTES, SMOKE, SUBSET_NOTES, SUBSETS, UNIFORM, full, medium, small

DATASETS = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}
REPEATED = (
    "uniform",
    OURS.method,
    GUARDED.method,
)  # of the small scale, where the rest has one seed
TELLING = (
    "random",
    "clean_only",
    "uniform+ft",
    "weighted+ft",
    "mentornet",
)  # medium repeats these too
# What labels are flipped to, and the title of the methods with clean images.
WORDS: dict[Value, tuple[str, str]] = {
    "uniform": ("any other class", "Using clean images"),
    "background": ("one background class", "Using 10 clean images per class"),
}
Number = tuple[float, float | None]


@dataclass(frozen=True)
class PaperLine:
    """A line of the paper's table: a method as typed, its name there, and its numbers."""

    method: str
    name: str
    cifar10: Number
    cifar100: Number

    @property
    def row(self) -> Row:
        """With the clean images: what trains on them, what is tuned on them, and ours."""
        clean = self.method in ("clean_only", OURS.method) or self.method.endswith("+ft")
        return Row(self.method, self.name, clean)


TABLE_1 = (
    PaperLine("uniform", "Baseline", (67.97, 0.62), (50.66, 0.24)),
    PaperLine("reed_hard", "Reed-Hard", (69.66, 1.21), (51.34, 0.17)),
    PaperLine("s_model", "S-Model", (70.64, 3.09), (49.10, 0.58)),
    PaperLine("mentornet", "MentorNet", (76.6, None), (56.9, None)),
    PaperLine("random", "Random", (86.06, 0.32), (58.01, 0.37)),
    PaperLine("clean_only", "Clean Only", (46.64, 3.90), (9.94, 0.82)),
    PaperLine("uniform+ft", "Baseline +FT", (78.66, 0.44), (54.52, 0.40)),
    PaperLine("mentornet+ft", "MentorNet +FT", (78.0, None), (59.0, None)),
    PaperLine("random+ft", "Random +FT", (86.55, 0.24), (58.54, 0.52)),
    PaperLine(OURS.method, "Ours", (86.92, 0.19), (61.34, 2.06)),
)
TABLE_2 = (
    PaperLine("uniform", "Baseline", (59.54, 2.16), (37.82, 0.69)),
    PaperLine("uniform+es", "Baseline +ES", (64.96, 1.19), (39.08, 0.65)),
    PaperLine("random", "Random", (69.51, 1.36), (36.56, 0.44)),
    PaperLine("weighted", "Weighted", (79.17, 1.36), (36.56, 0.44)),
    PaperLine("reed_soft+es", "Reed Soft +ES", (63.47, 1.05), (38.44, 0.90)),
    PaperLine("reed_hard+es", "Reed Hard +ES", (65.22, 1.06), (39.03, 0.55)),
    PaperLine("s_model", "S-Model", (58.60, 2.33), (37.02, 0.34)),
    PaperLine("s_model_conf", "S-Model +Conf", (68.93, 1.09), (46.72, 1.87)),
    PaperLine("s_model_conf+es", "S-Model +Conf +ES", (79.24, 0.56), (54.50, 2.51)),
    PaperLine("clean_only", "Clean Only", (15.90, 3.32), (8.06, 0.76)),
    PaperLine("uniform+ft", "Baseline +FT", (82.82, 0.93), (54.23, 1.75)),
    PaperLine("uniform+es+ft", "Baseline +ES +FT", (85.19, 0.46), (55.22, 1.40)),
    PaperLine("weighted+ft", "Weighted +FT", (85.98, 0.47), (53.99, 1.62)),
    PaperLine("s_model_conf+ft", "S-Model +Conf +FT", (81.90, 0.85), (53.11, 1.33)),
    PaperLine("s_model_conf+es+ft", "S-Model +Conf +ES +FT", (85.86, 0.63), (55.75, 1.26)),
    PaperLine(OURS.method, "Ours", (86.73, 0.48), (59.30, 0.60)),
)


def _table(number: int, lines: tuple[PaperLine, ...], dataset: str, setting: Setting) -> Experiment:
    name = f"{dataset}-{setting['noise']}"
    flips, clean_title = WORDS[setting["noise"]]
    rows = (*(line.row for line in lines), GUARDED, TUNED_OURS)
    methods = tuple(row.method for row in rows)
    return Experiment(
        id=name,
        title=f"{DATASETS[dataset]}, 40% of the labels flipped to {flips}",
        paper=f"Table {number}",
        shows="table",
        rows=rows,
        targets=tuple(Target(line.method, *getattr(line, dataset)) for line in lines),
        blocks={
            "smoke": (Block(SMOKE, methods, (setting,), seeds=1),),
            "small": (
                Block(small(name), methods, (setting,), seeds=1),
                Block(small(name), REPEATED, (setting,), seeds=3),
            ),
            "medium": (
                Block(medium(name), methods, (setting,), seeds=1),
                Block(
                    medium(name),
                    tuple(m for m in methods if m in (*REPEATED, *TELLING)),
                    (setting,),
                    seeds=3,
                ),
            ),
            "paper": (Block(full(name), methods, (setting,), seeds=5),),
        },
        published={"paper": (Block(full(name, published=True), methods, (setting,), seeds=5),)},
        clean_title=clean_title,
        notes=SUBSET_NOTES if dataset in SUBSETS else NOTES,
    )


TABLES = tuple(
    _table(number, lines, dataset, setting)
    for number, lines, setting in ((1, TABLE_1, UNIFORM), (2, TABLE_2, BACKGROUND))
    for dataset in DATASETS
)
