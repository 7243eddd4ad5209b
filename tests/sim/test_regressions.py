"""Seeds that once broke a rule, each with what it found.

A seed draws its schedule through `schedule` and `fault`: who changes what they draw makes these
play something else. The stories behind them are told for good in `test_scenarios` and in the unit
tests; the seeds are kept because they are cheap.
"""

import pytest

from tests.sim.schedule import play

SEEDS = {
    56: "a proposer's own record was judged by what the watch had shown of it so far",
    76: "two formations in a row used one store twice, as the node's record still listed it",
    104: "a world of strangers was formed while a member that only left slowly still trained",
    126: "a node dropped and taken back within milliseconds was given the same process number",
    170: "workers that exit with 0 on SIGTERM made a stopped job SUCCEEDED",
    308: "a status seen before its world charged the budget twice and failed the job",
    407: "a node that missed its own record changed what it watches on every list, without end",
    564: "the only survivor of a world that never formed came back; its old world was over",
    21115: "a node that never came to start the last world could not prove that it was over",
    33458: "a deadline that passed while the job waited kept the late nodes out for good",
    107448: "a node whose record was gone never wrote it again",
    9900468: "of two lives of a node that were both found dead the agents knew one, in turn",
    9903870: "three that were found dead and came back waited for each other to propose",
    90031553: "one of the oldest members was gone, and the others waited for it to propose",
    1069: "a dead agent among the oldest members made an outsider change its watches without end",
}


@pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: f"seed-{seed}")
def test_seed_that_once_broke_a_rule(seed: int) -> None:
    """See SEEDS for what each of them found."""
    play(seed)
