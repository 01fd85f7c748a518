"""PyTorch's own PowerSGD communication hook: what it makes of gradients, step by step.

Four processes of torch.distributed (gloo, on this machine) train under DistributedDataParallel with
powerSGD_hook: error feedback and warm start on, every matrix compressed, no epsilon, its own
orthogonalization (Gram-Schmidt up to rank 2, QR beyond). The model's loss is the sum of parameters
times given matrices, so that each process's gradients are these matrices. The hook leaves the first
two steps alone, as it must; they are not recorded.

Writes tests/golden/powersgd/hook.safetensors, all F32, for matrices `square` (24, 20), `wide`
(9, 33) and `tiny` (3, 5), 5 steps, 4 processes and R of 1, 2 and 4:

  input/<matrix>          (5, 4, n, m)  gradients of every step and process, for every R
  rank_<R>/right/<matrix> (r, m)        the first right factor, orthonormal, transposed (the hook
                                        keeps (m, r)); r = min(n, m, R)
  rank_<R>/sum/<matrix>   (5, n, m)     the gradient that the hook gives all processes, times 4:
                                        the hook gives means where Slackline adds up

The C++ test starts codecs of four ranks from the same right factors and compares sums. The hook
makes its right factors orthonormal before each step and Slackline does not: the space they span,
and so the result, is the same.
"""

import os
import tempfile

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as powersgd

from golden_io import write_safetensors

WORLD, STEPS, RANKS = 4, 5, (1, 2, 4)
SHAPES = {"square": (24, 20), "wide": (9, 33), "tiny": (3, 5)}
PLAIN_STEPS = 2  # the hook's least


def inputs():
    """Low rank that all processes share, drifting from step to step, and noise of their own."""
    rng = np.random.RandomState(3)
    tensors = {}
    for name, (n, m) in SHAPES.items():
        left, right = rng.standard_normal((n, 3)), rng.standard_normal((3, m))
        drift = 0.3 * rng.standard_normal((STEPS, 1, n, 3))
        noise = 0.5 * rng.standard_normal((STEPS, WORLD, n, m))
        tensors[name] = ((left + drift) @ right + noise).astype(np.float32)
    return tensors


class Given(torch.nn.Module):
    """Parameters whose gradients are the matrices it is given."""

    def __init__(self):
        super().__init__()
        self.matrices = torch.nn.ParameterDict(
            {name: torch.zeros(shape) for name, shape in SHAPES.items()})

    def forward(self, gradients):
        return sum((self.matrices[name] * gradients[name]).sum() for name in SHAPES)


def record_first_right_factors(found):
    """The hook makes each right factor orthonormal as soon as it is drawn; nothing else before."""
    orthogonalize = powersgd._orthogonalize

    def recording(matrices, epsilon=0):
        orthogonalize(matrices, epsilon)
        if len(found) < len(SHAPES):
            name = next(name for name, (_, m) in SHAPES.items() if m == matrices.shape[1])
            found[name] = matrices[0].T.contiguous().clone().numpy()

    powersgd._orthogonalize = recording
    return orthogonalize


def steps_of_hook(given, process, approximation_rank):
    model = torch.nn.parallel.DistributedDataParallel(Given())
    state = powersgd.PowerSGDState(
        None, matrix_approximation_rank=approximation_rank, start_powerSGD_iter=PLAIN_STEPS,
        min_compression_rate=0.001, use_error_feedback=True, warm_start=True)
    model.register_comm_hook(state, powersgd.powerSGD_hook)
    right, sums = {}, {name: [] for name in SHAPES}
    original = record_first_right_factors(right)
    for step in range(-PLAIN_STEPS, STEPS):
        model.zero_grad()
        model({name: torch.from_numpy(value[max(step, 0), process])
               for name, value in given.items()}).backward()
        for name, parameter in model.module.matrices.items():
            if step >= 0:
                sums[name].append(WORLD * parameter.grad.numpy())
    powersgd._orthogonalize = original
    assert state.total_numel_after_compression > 0 and len(right) == len(SHAPES)
    return right, sums


def run(process, store, given, results):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=process, world_size=WORLD)
    for approximation_rank in RANKS:
        right, sums = steps_of_hook(given, process, approximation_rank)
        if process == 0:
            results[approximation_rank] = (right, {n: np.stack(s) for n, s in sums.items()})
    dist.barrier()
    dist.destroy_process_group()


def main():
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    given = inputs()
    with tempfile.TemporaryDirectory() as folder, torch.multiprocessing.Manager() as manager:
        results = manager.dict()
        torch.multiprocessing.spawn(run, (f"{folder}/store", given, results), nprocs=WORLD)
        tensors = {f"input/{name}": value for name, value in given.items()}
        for approximation_rank, (right, sums) in results.items():
            prefix = f"rank_{approximation_rank}"
            tensors |= {f"{prefix}/right/{name}": value for name, value in right.items()}
            tensors |= {f"{prefix}/sum/{name}": value for name, value in sums.items()}
    write_safetensors("powersgd/hook.safetensors", tensors)


if __name__ == "__main__":
    main()
