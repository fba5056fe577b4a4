"""The test of samples against laws."""

from specsample.verification.monte_carlo import compare


def test_the_sample_test_can_fail():
    law = {(0,): 0.5, (1,): 0.5}
    assert compare({(0,): 4096, (1,): 4096}, law).p_value > 0.9
    assert compare({(0,): 4500, (1,): 3692}, law).p_value < 1e-6
    assert compare({(0,): 4000, (1,): 4191, (2,): 1}, law).p_value < 1e-6
    assert compare({(0,): 8192}, law).low > 0.4
