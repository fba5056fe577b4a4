import pytest

from specsample.errors import UserError
from specsample.launch import accelerators


@pytest.mark.parametrize(
    "name, chips, hosts, topology, machine, service",
    [
        ("v4-8", 4, 1, "2x2x1", "ct4p-hightpu-4t", "v4-8"),
        ("v4-32", 16, 4, "2x2x4", "ct4p-hightpu-4t", "v4-32"),
        ("v4-4096", 2048, 512, "8x16x16", "ct4p-hightpu-4t", "v4-4096"),
        ("v5e-1", 1, 1, "1x1", "ct5lp-hightpu-1t", "v5litepod-1"),
        ("v5e-4", 4, 1, "2x2", "ct5lp-hightpu-4t", "v5litepod-4"),
        ("v5e-8", 8, 1, "2x4", "ct5lp-hightpu-8t", "v5litepod-8"),
        ("v5litepod-16", 16, 4, "4x4", "ct5lp-hightpu-4t", "v5litepod-16"),
        ("v5e-256", 256, 64, "16x16", "ct5lp-hightpu-4t", "v5litepod-256"),
        ("v5p-8", 4, 1, "2x2x1", "ct5p-hightpu-4t", "v5p-8"),
        ("v5p-256", 128, 32, "4x4x8", "ct5p-hightpu-4t", "v5p-256"),
        ("v5p-12288", 6144, 1536, "16x16x24", "ct5p-hightpu-4t", "v5p-12288"),
        ("v6e-8", 8, 1, "2x4", "ct6e-standard-8t", "v6e-8"),
        ("v6e-64", 64, 16, "8x8", "ct6e-standard-4t", "v6e-64"),
    ],
)
def test_slices_are_what_the_services_say(name, chips, hosts, topology, machine, service):
    found = accelerators.find(name)
    assert (found.chips, found.hosts, found.topology) == (chips, hosts, topology)
    assert (found.machine, found.service_name) == (machine, service)
    assert found.chips == found.hosts * found.host_chips


def test_every_name_is_found_and_says_itself():
    for name in accelerators.names():
        found = accelerators.find(name)
        assert found.name == name
        assert found.hosts * found.host_chips == found.chips
        assert accelerators.find(found.service_name) == found


def test_a_topology_that_is_meant_is_taken():
    assert accelerators.find("v4-32", "2x2x4") == accelerators.find("v4-32")


@pytest.mark.parametrize(
    "name, topology, text",
    [
        ("v5e-1x", "", "did you mean v5e-1? known are v4-{8,16,32"),
        ("h100-8", "", "v6e-{1,4,8,16,32,64,128,256}"),
        ("v4", "", "unknown accelerator 'v4'"),
        ("", "", "unknown accelerator ''"),
        ("v4-32", "2x2x2", "topology '2x2x2' has 8 chips and v4-32 has 16; use 2x2x4"),
        ("v5e-16", "2x2x4", "topology '2x2x4' is not the shape of v5e-16; use 4x4"),
        ("v4-32", "$(id)", "is not the shape of v4-32"),
    ],
)
def test_what_does_not_exist_is_refused(name, topology, text):
    with pytest.raises(UserError) as error:
        accelerators.find(name, topology)
    assert text in str(error.value) and "\n" not in str(error.value)
