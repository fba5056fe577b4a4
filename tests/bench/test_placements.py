"""What placements cost is counted alike on every machine."""

from specsample.bench import placements, suite
from specsample.bench.figures import Workbench
from specsample.cli import bench as command


def test_two_programs_a_step_and_no_law_where_none_is_read():
    (figure,) = placements.placements(Workbench(model=None))
    assert figure.met and figure.measured.median == 2.0
    counts = figure.details
    assert counts["shared"]["bytes"] == 0
    law = 4 * placements.ROWS * (placements.GAMMA + 1) * 512
    assert law < counts["disjoint"]["bytes"] < law + 1024
    assert counts["disjoint, match"]["bytes"] < 1024
    assert 2 < counts["ahead"]["programs"] <= 3


def test_the_command_names_every_figure():
    assert [name.strip() for name in command.FIGURES.split(",")] == list(suite.GROUPS)
