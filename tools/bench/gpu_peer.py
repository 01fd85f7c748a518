#!/usr/bin/env python3
"""What PyTorch takes on one GPU for what gpu_bench.py times of this tree.

usage: tools/bench/gpu_peer.py step SHAPE.json-text
         the same GPT under torch.compile, fused attention, bf16 autocast, fused AdamW, from weights of the same
         distribution and on the same sequences in another order; prints the median seconds of a step, the losses of all and the size of a
         micro-batch, which is halved until it fits, as a JSON object
         (layers, hidden, heads, sequence, vocab, micro, global, steps, warmup, lr, tokens: FILE.bin)
       tools/bench/gpu_peer.py ops SIZES.json-text
         ops alone; prints the median seconds of each as a JSON object    (tokens, hidden, gradients, times)
"""

import gc
import json
import math
import statistics
import sys
import time

import torch
from torch import nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from ddp_peer import Gpt, initialize

HEAD, SEQUENCE = 64, 1024  # as cuda_bench's attention
WHOLE_ROWS = 64  # tokens: a vocabulary of a multiple of these has fast products, which its users give it
COMPILED_WHOLE = 12  # layers; of more, each block is compiled by itself, which takes a fraction of the time


def compiled(shape):
    torch.manual_seed(1)
    vocab = -(-shape["vocab"] // WHOLE_ROWS) * WHOLE_ROWS
    model = Gpt({**shape, "vocab": vocab}).cuda()
    initialize(model, shape["layers"])
    if shape["layers"] <= COMPILED_WHOLE:
        return model, torch.compile(model)
    for block in model.blocks:
        block.compile()
    model.loss = torch.compile(model.loss)
    return model, model


def batches(shape):
    """Of each step the inputs and targets, (global, sequence) each; the corpus over and over."""
    with open(shape["tokens"], "rb") as file:
        tokens = torch.frombuffer(bytearray(file.read()), dtype=torch.uint16).long().cuda()
    count = shape["global"] * shape["sequence"]
    for step in range(shape["steps"]):
        places = torch.arange(step * count, (step + 1) * count + 1, device="cuda") % len(tokens)
        taken = tokens[places]
        yield (part.view(shape["global"], shape["sequence"]) for part in (taken[:-1], taken[1:]))


def time_steps(shape):
    model, loss_of = compiled(shape)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=shape["lr"], betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, fused=True
    )
    seconds, losses = [], []
    for inputs, targets in batches(shape):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        total = torch.zeros((), device="cuda")
        parts = shape["global"] // shape["micro"]
        for part in zip(inputs.split(shape["micro"]), targets.split(shape["micro"])):
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = loss_of(*part) / parts
            loss.backward()
            total += loss.detach()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(total.item())
        seconds.append(time.perf_counter() - begin)
    return {"seconds": statistics.median(seconds[shape["warmup"] :]), "losses": losses, "micro": shape["micro"]}


def step(shape):
    torch.set_float32_matmul_precision("highest")
    while True:
        try:
            print(json.dumps(time_steps(shape)))
            return
        except torch.OutOfMemoryError:
            if shape["micro"] == 1:
                raise
        shape = {**shape, "micro": shape["micro"] // 2}
        # What is compiled refers to itself, and remembers the size it was compiled for.
        gc.collect()
        torch._dynamo.reset()
        torch.cuda.empty_cache()


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
