"""The same step of the same rank draws the same; any other draws something else."""

import os
import random
import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from elasticd.train.state import rng
from elasticd.train.state.rng import mix, reseed


def is_so(claim: Callable[[], bool]) -> bool:
    """Judge a claim in a fork, where no thread that an earlier test left draws a number too."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = int(not claim())
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def draws() -> tuple[float, float, float]:
    return float(torch.rand(())), random.random(), float(np.random.rand())


def test_all_generators_draw_the_same_after_the_same_words() -> None:
    """Whatever was drawn in between."""

    def claim() -> bool:
        reseed(mix(0, 1), 2)
        first = draws()
        draws()
        reseed(mix(0, 1), 2)
        return draws() == first

    assert is_so(claim)


def test_half_a_pair_of_gaussians_from_before_is_forgotten() -> None:
    """Python draws them two at a time; a rank that draws its first one now has none left."""

    def claim() -> bool:
        reseed(mix(0, 1), 2)
        first = random.gauss(0, 1)
        reseed(mix(0, 1), 2)
        return random.gauss(0, 1) == first

    assert is_so(claim)


def test_python_is_seeded_as_random_seed_does() -> None:
    """A state that a script saved from it is that of the same number."""

    def claim() -> bool:
        reseed(mix(0, 1), 2)
        state = random.getstate()
        random.seed(
            ((mix(0, 1) ^ 2) * rng._GOLDEN & rng._MASK)
            ^ ((mix(0, 1) ^ 2) * rng._GOLDEN & rng._MASK) >> 32
        )
        return random.getstate() == state

    assert is_so(claim)


def test_neighbouring_ranks_and_steps_draw_differently() -> None:
    """In each of the generators."""

    def claim() -> bool:
        seen = []
        for rank in range(4):
            for step in range(4):
                reseed(mix(0, rank), step)
                seen.append(draws())
        return all(len(set(column)) == 16 for column in zip(*seen, strict=True))

    assert is_so(claim)


def test_mix_has_no_collisions_among_small_numbers_and_half_of_the_bits_flip() -> None:
    """Order and count of the words matter too."""
    words = [mix(seed, rank, step) for seed in range(8) for rank in range(16) for step in range(64)]
    assert len(set(words)) == len(words)
    assert mix(1, 2) != mix(2, 1)
    assert mix(0) != mix(0, 0)
    assert 0 <= mix(-1, 5) < 1 << 64
    flipped = [(mix(0, 0, step) ^ mix(0, 0, step + 1)).bit_count() for step in range(256)]
    assert 28 < sum(flipped) / len(flipped) < 36


def test_generator_of_the_workers_own_gpu_is_seeded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever device is the current one: a replacement sees its GPU under another number."""
    seeds: list[tuple[int, int]] = []
    generators = [
        SimpleNamespace(manual_seed=lambda seed, gpu=gpu: seeds.append((gpu, seed)))
        for gpu in range(2)
    ]
    monkeypatch.setattr(torch.cuda, "default_generators", generators)
    monkeypatch.setattr("elasticd.tensors.cuda.is_used", lambda: True)
    monkeypatch.setattr(rng, "device", lambda: torch.device("cuda", 1))
    reseed(mix(0, 1), 2)
    monkeypatch.setattr(rng, "device", lambda: torch.device("cuda", 0))
    reseed(mix(0, 1), 2)
    assert [gpu for gpu, _ in seeds] == [1, 0] and seeds[0][1] == seeds[1][1]


@pytest.mark.parametrize("early", ["", "import numpy.random"])
def test_generator_that_numpy_imports_in_the_middle_of_a_step_draws_what_the_step_draws(
    early: str,
) -> None:
    """A process that repeats the step may have imported it long before."""
    script = f"""if True:
        import sys
        import numpy as np
        {early}
        from elasticd.train.state.rng import mix, reseed
        for step in range(4):
            reseed(mix(0, 1), step)
            assert step < 3 or ("numpy.random" in sys.modules) == bool({early!r})
        print(np.random.rand())
        assert not any("elasticd" in type(each).__module__ for each in sys.meta_path)
    """
    process = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    reseed(mix(0, 1), 3)
    assert float(process.stdout) == float(np.random.rand())
