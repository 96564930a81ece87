"""The time left over all stages of a run, by a clock of our own."""

from dataclasses import dataclass

from reweigh.cli.time_left import LINE_SECONDS, TimeLeft


@dataclass
class Piece:
    name: str
    work: float


def test_the_time_left_is_that_of_all_stages():
    time, lines, shares = [0.0], [], []
    watch = TimeLeft(lambda what, share: shares.append(share), lines.append, clock=lambda: time[0])
    watch.at("encoding data", 0.5)
    watch.plan([Piece("training a", 100.0), Piece("judging b", 300.0)])
    watch.at("training a", 0.0)
    time[0] = 20.0
    watch.at("training a", 0.5, detail="5 of 10")  # 50 of 400 in 20 seconds: 140 are left
    assert lines[-1] == "training a: 5 of 10, about 2 min left"
    time[0] = 30.0
    watch.at("training other", 0.8)  # not planned: what the stage before it does
    assert shares[-1] == 0.2
    time[0] = 80.0
    watch.at("judging b", 1 / 3)  # 200 of 400 in 80 seconds
    assert lines[-1] == "judging b: 33%, about 80 s left"
    assert shares[-1] == 0.5


def test_a_run_that_goes_on_counts_from_where_it_began():
    time, lines = [0.0], []
    watch = TimeLeft(line=lines.append, clock=lambda: time[0])
    watch.plan([Piece("training a", 100.0), Piece("judging b", 100.0)])
    watch.at("judging b", 0.0)
    assert lines == []
    time[0] = 10.0
    watch.at("judging b", 0.5)
    assert lines == ["judging b: 50%, about 10 s left"]


def test_lines_come_every_few_seconds_and_no_time_is_told_too_early():
    time, lines = [0.0], []
    watch = TimeLeft(line=lines.append, clock=lambda: time[0])
    watch.plan([Piece("training a", 1.0)])
    for tick in range(101):
        time[0] = 0.1 * tick
        watch.at("training a", tick * 1e-5)
    assert len(lines) == int(10 / LINE_SECONDS)
    assert lines == ["training a: 0%"] * 2
