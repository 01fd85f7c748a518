#!/usr/bin/env python3
"""A GPT trained with PyTorch over two nodes, by the clock: what time_to_loss_bench.py --peer compares with.

Needs a Python with PyTorch (2.x from pip; its CPU parts are enough) and numpy. Runs under mpirun, one process a rank;
everything travels over gloo on the interface lab0. Methods: DistributedDataParallel, the same with its PowerSGD hook
(from the third step on, warm start, error feedback), DiLoCo (workers of their own, every `period` steps an
outer step with Nesterov momentum 0.9 at rate 0.7 on the mean of what they moved).

usage: tools/bench/time_to_loss_peer.py JOB.json-text OUT      (rank 0 writes the curve of validation losses to OUT)
"""

import json
import os
import pathlib
import statistics
import sys
import time

import numpy
import torch
import torch.distributed as dist
from ddp_peer import ADDRESS, Gpt, initialize
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

OUTER_RATE, OUTER_MOMENTUM = 0.7, 0.9
DECAY = 0.1


class Windows:
    """Windows of T + 1 tokens of a .bin file: training ones at random places, by seed and rank."""

    def __init__(self, path, length, seed):
        self._tokens = torch.from_numpy(numpy.fromfile(path, dtype=numpy.uint16).astype(numpy.int64))
        self._length = length
        self._random = torch.Generator().manual_seed(seed)

    def at(self, begins):
        windows = torch.stack([self._tokens[i : i + self._length + 1] for i in begins])
        return windows[:, :-1], windows[:, 1:]

    def draw(self, count):
        most = len(self._tokens) - self._length - 1
        return self.at(torch.randint(most, (count,), generator=self._random).tolist())

    def first(self, count):
        return self.at([i * self._length for i in range(count)])


def adamw(job, model):
    """Matrices of layers decay, as with us; tables, norms and biases do not."""
    decays = [
        weight for name, weight in model.named_parameters() if weight.dim() > 1 and name.startswith("blocks.")
    ]
    kept = {id(weight) for weight in decays}
    others = [weight for weight in model.parameters() if id(weight) not in kept]
    groups = [{"params": decays, "weight_decay": DECAY}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=job["lr"], betas=(0.9, 0.95))


def set_up(job, model):
    """The model as it is called, and the optimizer."""
    if job["method"] == "diloco":
        return model, adamw(job, model)
    # The hook's second sums of several buckets are begun in whatever order the first ones end, which ends some runs
    # over gloo with ranks that wait for different ones. In one bucket there is one order.
    one_bucket = {"bucket_cap_mb": 1024} if job["method"] == "powersgd" else {}
    parallel = DistributedDataParallel(model, **one_bucket)
    if job["method"] == "powersgd":
        state = PowerSGDState(process_group=None, matrix_approximation_rank=job["rank"], start_powerSGD_iter=2)
        parallel.register_comm_hook(state, powerSGD_hook)
    return parallel, adamw(job, model)


class Outer:
    """DiLoCo's outer optimizer: what workers moved since the last round, averaged."""

    def __init__(self, model, period):
        self._model, self._period = model, period
        self._anchor = [parameter.detach().clone() for parameter in model.parameters()]
        self._optimizer = torch.optim.SGD(self._anchor, lr=OUTER_RATE, momentum=OUTER_MOMENTUM, nesterov=True)

    def after(self, step):
        """Whether a round has ended."""
        if step % self._period != 0:
            return False
        moved = torch.cat([(a - p.detach()).flatten() for a, p in zip(self._anchor, self._model.parameters())])
        dist.all_reduce(moved)
        moved /= dist.get_world_size()
        begin = 0
        for anchor in self._anchor:
            anchor.grad = moved[begin : begin + anchor.numel()].view_as(anchor)
            begin += anchor.numel()
        self._optimizer.step()
        with torch.no_grad():
            for anchor, parameter in zip(self._anchor, self._model.parameters()):
                parameter.copy_(anchor)
        return True


def validate(model, windows, count, batch):
    inputs, targets = windows.first(count)
    with torch.no_grad():
        parts = [model(inputs[i : i + batch], targets[i : i + batch]).item() for i in range(0, count, batch)]
    return statistics.mean(parts)


def agreed(value):
    """Rank 0's."""
    told = torch.tensor([value], dtype=torch.float64)
    dist.broadcast(told, 0)
    return told.item()


def train(job, rank, size):
    corpus = pathlib.Path(job["corpus"])
    training = Windows(corpus / "train.bin", job["sequence"], 1000 * job["seed"] + rank)
    validation = Windows(job["valid"] + ".bin", job["sequence"], 0)
    torch.manual_seed(job["seed"])
    model = Gpt(job)
    initialize(model, job["layers"])
    called, optimizer = set_up(job, model)
    outer = Outer(model, job["period"]) if job["method"] == "diloco" else None
    every = job["seconds"] / job["validations"]
    curve, seconds, clock, step = [], [], 0.0, 0
    while not curve or curve[-1][0] < job["seconds"]:
        step += 1
        begin = time.perf_counter()
        for group in optimizer.param_groups:
            group["lr"] = job["lr"] * min(1.0, step / job["warmup"])
        called(*training.draw(job["batch"])).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        may_stop = outer.after(step) if outer else True
        seconds.append(time.perf_counter() - begin)
        clock += seconds[-1]
        if may_stop and agreed(clock) >= (len(curve) + 1) * every:
            # Off the clock. All ranks have the same model here.
            loss = validate(model, validation, job["valid_batches"] * job["batch"] * size, job["batch"])
            curve.append((agreed(clock), loss))
    return {"curve": curve, "step_seconds": statistics.median(seconds[3:]), "steps": step}


def main():
    job, out = json.loads(sys.argv[1]), sys.argv[2]
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lab0")
    rank, size = (int(os.environ[f"OMPI_COMM_WORLD_{name}"]) for name in ("RANK", "SIZE"))
    dist.init_process_group("gloo", init_method=f"tcp://{ADDRESS}:29500", rank=rank, world_size=size)
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // size))
    found = train(job, rank, size)
    if rank == 0:
        pathlib.Path(out).write_text(json.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
