#!/usr/bin/env python3
"""The same GPT on one GPU under PyTorch: torch.compile, fused attention, bf16 autocast, fused AdamW. What gpu_bench.py
compares with; prints the median seconds of a step.

usage: tools/bench/gpu_peer.py SHAPE.json-text    (layers, hidden, heads, sequence, vocab, micro, accumulate)
"""

import json
import statistics
import sys
import time

import torch

from ddp_peer import Gpt

STEPS, WARMUP = 16, 6


def main():
    shape = json.loads(sys.argv[1])
    torch.set_float32_matmul_precision("highest")
    torch.manual_seed(1)
    model = Gpt(shape).cuda()
    loss_of = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    inputs = torch.randint(shape["vocab"], (shape["micro"], shape["sequence"]), device="cuda")
    targets = torch.randint(shape["vocab"], (shape["micro"], shape["sequence"]), device="cuda")
    seconds = []
    for _ in range(STEPS):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(shape["accumulate"]):
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = loss_of(inputs, targets) / shape["accumulate"]
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
    print(statistics.median(seconds[WARMUP:]))


if __name__ == "__main__":
    main()
