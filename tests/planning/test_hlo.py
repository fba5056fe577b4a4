"""Counting in the text of compiled programs."""

from pathlib import Path

import pytest

from specsample.planning import hlo
from specsample.planning.census import census
from specsample.planning.traffic import Moved, moved

# Two layers of a scanned model: a slice of stacked weights, a product, an all-reduce; then one of
# two branches, and a buffer of which two slots are written in place.
TEXT = Path(__file__).with_name("two_layers.txt").read_text()


@pytest.fixture
def module():
    return hlo.parse(TEXT)


def test_computations_and_types_are_read(module):
    assert module.entry == "main"
    assert [one.opcode for one in module.computations["condition"]] == [
        "parameter", "get-tuple-element", "constant", "compare",
    ]  # fmt: skip
    (loop,) = [one for one in module.computations["main"] if one.opcode == "while"]
    assert loop.operands == ["tuple"] and loop.called == ["body"]
    assert list(hlo.arrays("(bf16[2,3]{1,0}, pred[], s4[8])")) == [(12, "{1,0}"), (1, ""), (4, "")]


def test_bodies_of_loops_count_as_often_as_they_turn(module):
    counted = census(module)
    assert counted.count("all-reduce") == 2
    assert counted.unknown == 0
    assert counted.cycles == 2 * 100 + 7


def test_of_branches_the_greatest_counts(module):
    counted = census(module)
    assert counted.count("all-gather") == 1 and counted.count() == 3
    looped = {one.kind: one.looped for one in counted.collectives}
    assert looped == {"all-reduce": True, "all-gather": False}


def test_turns_that_the_compiler_wrote_down_are_believed():
    text = TEXT.replace("body=%body", 'body=%body, backend_config={"known_trip_count":{"n":"5"}}')
    assert census(hlo.parse(text)).count("all-reduce") == 5


def test_a_loop_that_depends_on_data_counts_once_and_is_reported():
    counted = census(hlo.parse(TEXT.replace("constant(2)", "parameter(1)")))
    assert (counted.count("all-reduce"), counted.unknown) == (1, 1)


@pytest.mark.parametrize(
    "groups, size",
    [
        ("{{0,1,2,3},{4,5,6,7}}", 4),
        ("[4,4]<=[16]", 4),
        ("[2,8]<=[4,4]T(1,0)", 8),
        ("{}", None),
        ("mesh['axis_0'=4,'axis_1'=1] {'axis_0'}", 4),
        ("mesh['a'=1,'b'=4,'c'=4], device_ids=([4,4]T(1,0)) {'b'}", 4),
        ("mesh['a'=2,'b'=8] {'a','b'}", 16),
        ("mesh['a'=16] {'a':(4)4}", 4),
    ],
)
def test_groups_of_devices(groups, size):
    reduce = f"  %r = f32[] all-reduce(%x), replica_groups={groups}, a=b"
    line = f"ENTRY %m (x: f32[]) -> f32[] {{\n{reduce}\n}}\n"
    ((one, _),) = census(hlo.parse(line)).collectives.items()
    assert one.group == size


def test_slices_and_what_is_written_in_place_count_as_what_they_touch(module):
    turn = 64 * 128 * 2 + 4  # one layer's weights, and the counter
    branch = 16 * 4 + 16 * 4  # what is gathered, and the slice of it
    start = 4
    assert moved(module) == Moved(
        read=2 * turn + start + branch,
        written=2 * 128 * 4 + start + 64 * 4 + 16 * 4,
    )


def test_on_chip_memory_is_free():
    text = TEXT.replace(
        "%cache = f32[32,128]{1,0:T(8,128)}", "%cache = f32[32,128]{1,0:T(8,128)S(3)}"
    )
    text = text.replace("%written = f32[32,128]{1,0:T(8,128)}", "%written = f32[32,128]{1,0:S(1)}")
    before, after = moved(hlo.parse(TEXT)), moved(hlo.parse(text))
    assert before.written - after.written == 2 * 128 * 4


def test_a_text_without_an_entry_is_refused():
    with pytest.raises(ValueError, match="no ENTRY"):
        hlo.parse("HloModule empty")


def test_moved_adds_up():
    total = Moved(1, 2)
    total.add(Moved(3, 4), times=2)
    assert total == Moved(7, 10)
