"""Plans that take turns within one run: so they meet the same machine, whose compute varies by a tenth from run to run."""

import statistics

BLOCK = 4  # steps of a plan in a round; the first of them does not count


class Block:
    """Steps under one plan in one round."""

    def __init__(self, steps):
        self.seconds = statistics.median(step["step_seconds"] for step in steps)
        self.exposed = statistics.median(step["seconds"]["exposed"] for step in steps)
        self.bytes = sum(axis["sent_bytes"] for axis in steps[-1]["axes"].values())


def take_turns(place, job, launch, plans, rounds, ranks=1):
    """Rounds of blocks by name of the plan, a list of classes; each round begins with another."""
    names = list(plans)
    turns = [names[(turn + turn // len(names)) % len(names)] for turn in range(rounds * len(names))]
    history = [
        {"from_step": 1 + i * BLOCK, "predicted_step_seconds": None, "classes": plans[name]}
        for i, name in enumerate(turns)
    ]
    replay = {"policy": "replay", "plan": place.write("plans.json", history), "guard": {"every": 0}}
    job = {**job, "run": {**job["run"], "steps": len(turns) * BLOCK}, "compress": replay}
    steps = place.train(job, launch=launch, ranks=ranks).steps
    blocks = [(name, Block(steps[i * BLOCK + 1 : (i + 1) * BLOCK])) for i, name in enumerate(turns)]
    return [dict(blocks[first : first + len(names)]) for first in range(0, len(blocks), len(names))]


def quartiles(values):
    if len(values) == 1:
        return values * 3
    return statistics.quantiles(values, n=4, method="inclusive")
