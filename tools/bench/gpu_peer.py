#!/usr/bin/env python3
"""What PyTorch takes on one GPU for what gpu_bench.py times of this tree.

usage: tools/bench/gpu_peer.py step SHAPE.json-text
         the same GPT under torch.compile, fused attention, bf16 autocast, fused AdamW; prints the median seconds of a
         step    (layers, hidden, heads, sequence, vocab, micro, accumulate)
       tools/bench/gpu_peer.py ops SIZES.json-text
         ops alone; prints the median seconds of each as a JSON object    (tokens, hidden, gradients, times)
"""

import json
import statistics
import sys
import time

import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from ddp_peer import Gpt

STEPS, WARMUP = 16, 6
HEAD, SEQUENCE = 64, 1024  # as cuda_bench's attention


def step(shape):
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


def median_seconds(op, times):
    """Between events of the stream, after two calls that count for nothing."""
    seconds = []
    for turn in range(times + 2):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        op()
        end.record()
        end.synchronize()
        if turn >= 2:
            seconds.append(1e-3 * begin.elapsed_time(end))
    return statistics.median(seconds)


def cudnn_attention(sizes):
    """Forward and backward in bf16, by cuDNN. Rows lie as this tree has them: tokens, then heads."""
    length = min(SEQUENCE, sizes["tokens"])
    shape = (sizes["tokens"] // length, length, sizes["hidden"] // HEAD, HEAD)
    q, k, v, d_out = (torch.randn(shape, device="cuda", dtype=torch.bfloat16).transpose(1, 2) for _ in range(4))
    for operand in (q, k, v):
        operand.requires_grad_(True)

    def forward():
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        out = forward()
        return {
            "attention forward  bf16": median_seconds(forward, sizes["times"]),
            "attention backward bf16": median_seconds(
                lambda: torch.autograd.grad(out, (q, k, v), d_out, retain_graph=True), sizes["times"]
            ),
        }


def top_k(sizes):
    """What encoding does: gradients onto the residual, then the largest 1 % of the sums with their places."""
    gradients, residual = (torch.randn(sizes["gradients"], device="cuda") for _ in range(2))
    kept = sizes["gradients"] // 100

    def encode():
        residual.add_(gradients)
        places = torch.topk(residual.abs(), kept, sorted=False).indices
        return places, residual[places]

    return {"encode top-k 1 % of all gradients": median_seconds(encode, sizes["times"])}


def main():
    what, sizes = sys.argv[1], json.loads(sys.argv[2])
    if what == "step":
        step(sizes)
    else:
        torch.manual_seed(1)
        print(json.dumps({**cudnn_attention(sizes), **top_k(sizes)}))


if __name__ == "__main__":
    main()
