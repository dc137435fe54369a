"""Times of steps that take turns, so that a busy machine slows all of them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

Step = Callable[[], object]


class Times(NamedTuple):
    """Of one step, over the rounds, in seconds."""

    cpu: list[float]
    wall: list[float]

    def numbers(self) -> dict[str, float]:
        """Medians, and the range of the CPU time."""
        spread = {"cpu_least": min(self.cpu), "cpu_most": max(self.cpu)}
        return {"cpu_seconds": statistics.median(self.cpu), **spread, "wall_seconds": statistics.median(self.wall)}

    def over(self, other: Times) -> float:
        """Median over the rounds of the ratio of CPU times within a round."""
        return statistics.median(a / b for a, b in zip(self.cpu, other.cpu, strict=True))


def in_turns(steps: Mapping[str, Step], rounds: int, advance: Callable[[], None] = lambda: None) -> dict[str, Times]:
    """The times of each step, after one to warm up."""
    found = {name: Times([], []) for name in steps}
    for number in range(rounds + 1):
        for name, step in steps.items():
            cpu, wall = time.process_time(), time.perf_counter()
            step()
            cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
            if number:
                found[name].cpu.append(cpu)
                found[name].wall.append(wall)
        advance()
    return found
