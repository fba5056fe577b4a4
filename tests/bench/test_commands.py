"""What the commands refuse before anything is loaded or measured."""

import json

import pytest

from specsample.cli import explain, main
from specsample.errors import UserError
from tests.bench.test_prediction import curve
from tests.drafters import toys


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["bench", "--figures", "speed"], "unknown figure 'speed'"),
        (["bench", "--json", "/nowhere/x.json"], "no directory /nowhere"),
        (["explain", "--limit", "0"], "--limit 0; give 1 or more"),
        (["explain", "--curve", "/nowhere/x.json"], "no directory /nowhere"),
        (["explain", "--drafter_option", "speed=3"], "no option 'speed'"),
    ],
)
def test_wrong_input_ends_with_status_2(capsys, arguments, words):
    assert main.main(arguments) == 2
    assert words in capsys.readouterr().err


def test_a_curve_of_another_model_is_refused(tmp_path):
    path = tmp_path / "curve.json"
    path.write_text(json.dumps(curve().as_dict()))
    with pytest.raises(UserError, match="measured with 'm'"):
        explain._read(path, toys.table())
    path.write_text("{")
    with pytest.raises(UserError, match="is not JSON"):
        explain._read(path, toys.table())


def test_figures_in_the_help_are_those_that_exist():
    from specsample.bench import suite
    from specsample.cli import bench

    assert tuple(bench.FIGURES.split(", ")) == tuple(suite.GROUPS)
