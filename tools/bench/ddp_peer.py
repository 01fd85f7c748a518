#!/usr/bin/env python3
"""The same GPT under PyTorch's DistributedDataParallel, timed: what do_no_harm_bench.py --peer compares with.

Needs a Python with PyTorch (2.x from pip; its CPU parts are enough). Runs under mpirun, one process a rank; gradients
travel over gloo on the interface lab0. rank > 0: DDP's PowerSGD hook of that rank, which compresses
from the third step on with warm start and error feedback.

usage: tools/bench/ddp_peer.py SHAPE.json-text OUT    (rank 0 writes the median seconds of a step to OUT)
"""

import json
import math
import os
import pathlib
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

ADDRESS = "10.0.0.1"  # of the first node


def initialize(model, layers):
    """GPT-2's initial distribution, which is ours."""
    for name, weight in model.named_parameters():
        if weight.dim() > 1:
            scaled = name.endswith(("out.weight", "down.weight"))
            nn.init.normal_(weight, std=0.02 / math.sqrt(2 * layers) if scaled else 0.02)
        elif name.endswith("bias"):
            nn.init.zeros_(weight)


class Block(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        batch, length, hidden = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, -1).transpose(1, 2)
            for part in self.qkv(self.ln_1(x)).split(hidden, dim=2)
        )
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, hidden))
        return x + self.down(functional.gelu(self.up(self.ln_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, shape):
        super().__init__()
        hidden = shape["hidden"]
        self.tokens = nn.Embedding(shape["vocab"], hidden)
        self.positions = nn.Embedding(shape["sequence"], hidden)
        self.blocks = nn.ModuleList(Block(hidden, shape["heads"]) for _ in range(shape["layers"]))
        self.ln = nn.LayerNorm(hidden)

    def forward(self, inputs, targets):
        x = self.tokens(inputs) + self.positions.weight[: inputs.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.loss(x, targets)

    def loss(self, x, targets):
        logits = self.ln(x) @ self.tokens.weight.T
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def main():
    shape, out = json.loads(sys.argv[1]), sys.argv[2]
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lab0")
    rank, size = (int(os.environ[f"OMPI_COMM_WORLD_{name}"]) for name in ("RANK", "SIZE"))
    torch.manual_seed(1234)
    dist.init_process_group(
        "gloo", init_method=f"tcp://{ADDRESS}:29500", rank=rank, world_size=size
    )
    model = Gpt(shape)
    initialize(model, shape["layers"])
    model = DistributedDataParallel(model)
    if shape["rank"] > 0:
        state = PowerSGDState(
            process_group=None, matrix_approximation_rank=shape["rank"], start_powerSGD_iter=2
        )
        model.register_comm_hook(state, powerSGD_hook)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    size_of_batch = (shape["batch"], shape["sequence"])
    seconds = []
    for _ in range(shape["steps"]):
        inputs, targets = (torch.randint(shape["vocab"], size_of_batch) for _ in range(2))
        begin = time.perf_counter()
        loss = model(inputs, targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        seconds.append(time.perf_counter() - begin)
    if rank == 0:
        settled = seconds[shape["first"] - 1 :]
        pathlib.Path(out).write_text(json.dumps({"step_seconds": statistics.median(settled)}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
