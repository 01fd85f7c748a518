"""The configurations that tools/golden_bits trains.

Each is BASE with some keys changed. BASE sets every key whose default may change some day, so that
such a change moves no bits here; KNOWN_ONLY_SOMETIMES holds keys that only newer commits know, and
they are set only for those.
"""

import json
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).resolve().parent
STEPS = 4

BASE = {
    "run.seed": 1234, "run.steps": STEPS, "run.log_every": 1, "run.eval_every": 2,
    "run.eval_batches": 1, "run.save_every": 2, "run.keep": 2, "run.on_nonfinite": "stop",
    "device": "cpu", "precision": "fp32", "trace": False, "debug.check_sync": False,
    "model.architecture": "gpt2", "model.layers": 4, "model.hidden": 32, "model.heads": 4,
    "model.sequence": 32, "model.vocab": 257, "model.ffn": 128, "model.dropout": 0.0,
    "model.tie_embeddings": True, "model.recompute": "none",
    "data.train": [{"path": "corpus/first", "weight": 1.0}], "data.split": [0.8, 0.2, 0],
    "batch.global": 8, "batch.micro": 1,
    "parallel.tensor": 1, "parallel.pipeline": 1, "parallel.data": 1, "parallel.schedule": "1f1b",
    "parallel.chunks": 1, "parallel.sequence_parallel": False,
    "parallel.data_strategy": "replicate", "parallel.transfers": "asynchronous",
    "parallel.embedding_sync": "fused",
    "optimizer.lr": 1e-2, "optimizer.min_lr": 1e-4, "optimizer.schedule": "cosine",
    "optimizer.warmup_steps": 2, "optimizer.beta1": 0.9, "optimizer.beta2": 0.95,
    "optimizer.eps": 1e-8, "optimizer.weight_decay": 0.1, "optimizer.decay_embeddings": False,
    "optimizer.clip_norm": 1.0,
    "compress.policy": "none", "compress.warmup_steps": 0, "compress.guard.every": 3,
    "compress.guard.max_error": None,
    "network.timeout_seconds": 60,
}
KNOWN_ONLY_SOMETIMES = {"compress.guard.budget": None, "network.collectives": "direct"}

# Nodes of one rank each with a slow network between them: what `plan` chooses for.
CLUSTER = {"nodes": [{"count": 8, "devices": 1, "memory_bytes": 1e9}],
           "links": [{"scope": "network", "latency_seconds": 1e-5, "bytes_per_second": 2e6,
                      "duplex": True, "shared_by": "pair", "source": "assumed"}]}
COSTS = FOLDER / "costs.json"
PLAN = FOLDER / "plan.json"


class Configuration(NamedTuple):
    """What is run: a training run, or `slackline plan` if `plan` is true."""

    name: str
    ranks: int
    changes: dict
    resumed_with: dict = None  # changes of a second run that goes on from step 2 of the first
    plan: bool = False
    used: bool = False  # afterwards the checkpoint is evaluated and generates text

    def document(self, knows, resumed=False):
        """The config as JSON text. `knows` tells whether the commit knows a key."""
        values = {**BASE, **{k: v for k, v in KNOWN_ONLY_SOMETIMES.items() if knows(k)},
                  **self.changes, "run.dir": self.run_dir(resumed)}
        if resumed:
            values.update(self.resumed_with)
            values["checkpoint.resume_from"] = f"{self.run_dir(False)}/checkpoints/step-00000002"
        return json.dumps(nested(values), indent=1)

    def run_dir(self, resumed):
        return f"{self.name}/{'resumed' if resumed else 'run'}"


def nested(values):
    """{"a.b": 1} as {"a": {"b": 1}}."""
    document = {}
    for key, value in values.items():
        *sections, last = key.split(".")
        section = document
        for name in sections:
            section = section.setdefault(name, {})
        section[last] = value
    return document


def mesh(tensor, pipeline, data, **changes):
    return {"parallel.tensor": tensor, "parallel.pipeline": pipeline, "parallel.data": data,
            **{f"parallel.{key}": value for key, value in changes.items()}}


def codec(kind, feedback="none", **details):
    return {"codec": kind, **details, "error_feedback": feedback}


def low_rank(feedback, rank=2, **details):
    return codec("low_rank", feedback, rank=rank, orthogonalization="blocked",
                 factors="fp32", **details)


def sites(backward=None, forward=None, gradient=None, embedding=None, policy="all"):
    named = {"pipeline_backward": backward, "pipeline_forward": forward,
             "data_gradient": gradient, "embedding": embedding}
    return {"compress.policy": policy,
            **{f"compress.{site}": setting for site, setting in named.items() if setting}}


BF16 = {"precision": "bf16"}
P2D2 = mesh(1, 2, 2)
T2P2D2 = mesh(2, 2, 2, sequence_parallel=True, data_strategy="zero1")
ALL_SITES = sites(low_rank("lazy"),
                  codec("quantize", "immediate", bits=8, scale="channel", rounding="nearest"),
                  low_rank("immediate"), codec("top_k", "immediate", ratio=0.2, values="fp32"))
OPTIMUS = {**sites(low_rank("lazy"), gradient=low_rank("immediate"), policy="optimus_cc"),
           "compress.epilogue_only": True, "compress.stages": 3}
CHOICE = {"compress.policy": "critical_path",
          "compress.pipeline_backward": {"candidates": [codec("cast"), low_rank("lazy")]},
          "compress.pipeline_forward": {"candidates": [codec("cast")]},
          "compress.data_gradient": {"candidates": [codec("cast"), low_rank("immediate")]},
          "compress.embedding": {"candidates": [codec("cast"), low_rank("immediate", 4)]}}
LISTED = {"compress.policy": "list", "compress.pipeline_backward": low_rank("immediate"),
          "compress.classes": [
              {"site": "pipeline_backward", "phase": "cooldown"},
              {"site": "pipeline_forward", "stage": 0, "codec": codec("cast")},
              {"site": "data_gradient", "stage": 1, "phase": "step",
               "codec": codec("top_k", "immediate", ratio=0.1, values="bf16")}]}
TWO_DATA_SETS = {"data.train": [{"path": "corpus/first", "weight": 0.7},
                                {"path": "corpus/second", "weight": 0.3}]}

LAYOUTS = [
    Configuration("one_rank", 1, {"batch.micro": 4}, used=True),
    Configuration("one_rank_bf16", 1, {**BF16, "batch.micro": 4}),
    Configuration("tensor_2", 2, mesh(2, 1, 1)),
    Configuration("tensor_4_sequence_parallel", 4, mesh(4, 1, 1, sequence_parallel=True)),
    Configuration("tensor_2_bf16", 2, {**mesh(2, 1, 1, sequence_parallel=True), **BF16}),
    Configuration("data_2", 2, mesh(1, 1, 2)),
    Configuration("data_4_zero1", 4, mesh(1, 1, 4, data_strategy="zero1")),
    Configuration("data_2_zero1_bf16", 2, {**mesh(1, 1, 2, data_strategy="zero1"), **BF16}),
    Configuration("zero3_in_groups", 8, mesh(1, 2, 4, group=2, data_strategy="zero3")),
    Configuration("outer_rounds", 8, {**mesh(1, 2, 4, group=2, data_strategy="zero1"),
                                      "outer.method": "co2", "outer.period": 2}),
    Configuration("eager_rounds_coded", 4, {
        **mesh(1, 1, 4, group=2), "outer.method": "co2", "outer.period": 2, "outer.eager": True,
        "outer.lr": 0.5, "outer.momentum": 0.2, "outer.nesterov": False,
        "compress.policy": "all",
        "compress.outer": codec("top_k", "immediate", ratio=0.1, values="fp32")}),
    Configuration("rounds_of_fragments", 2, {
        **mesh(1, 1, 2, group=1), "outer.method": "diloco", "outer.period": 2,
        "outer.fragments": 2}),
    Configuration("mesh_2x2x2", 8, T2P2D2),
    Configuration("mesh_2x2x2_bf16", 8, {**T2P2D2, **BF16}),
]

SCHEDULES = [
    Configuration("gpipe", 2, mesh(1, 2, 1, schedule="gpipe")),
    Configuration("one_forward_one_backward", 4, mesh(1, 4, 1)),
    Configuration("interleaved", 4, mesh(1, 2, 2, schedule="interleaved", chunks=2)),
    Configuration("zb_h1", 4, mesh(1, 4, 1, schedule="zb_h1")),
    Configuration("zb_h1_tensor_2_bf16", 4, {**mesh(2, 2, 1, schedule="zb_h1"), **BF16}),
    Configuration("zb_h1_zero1", 4, mesh(1, 2, 2, schedule="zb_h1", data_strategy="zero1")),
    Configuration("blocking_transfers", 4, mesh(1, 2, 2, transfers="blocking")),
    Configuration("uneven_stages", 2, mesh(1, 2, 1, stage_layers=[1, 3])),
    Configuration("separate_embedding_sync", 4, mesh(1, 2, 2, embedding_sync="separate")),
    Configuration("untied", 4, {**P2D2, "model.tie_embeddings": False}),
    Configuration("recompute", 2, {**mesh(1, 2, 1), "model.recompute": "block"}),
    Configuration("dropout", 8, {**T2P2D2, "model.dropout": 0.1}),
    Configuration("dropout_recompute_bf16", 2,
                  {**mesh(1, 2, 1), **BF16, "model.dropout": 0.1, "model.recompute": "block"}),
]

OPTIMIZER_AND_DATA = [
    Configuration("decay_embeddings_unclipped", 1, {
        "optimizer.decay_embeddings": True, "optimizer.clip_norm": 0.0,
        "optimizer.schedule": "linear"}),
    Configuration("wsd", 1, {"optimizer.schedule": "wsd", "optimizer.warmup_steps": 0}),
    Configuration("skipped_steps", 2, {
        **mesh(1, 1, 2), **sites(gradient=low_rank("immediate")), "run.on_nonfinite": "skip",
        "optimizer.lr": 1e30, "optimizer.min_lr": 1e30, "optimizer.schedule": "constant",
        "optimizer.warmup_steps": 0, "optimizer.clip_norm": 0.0}),
    Configuration("two_data_sets", 2, {**mesh(1, 1, 2), **TWO_DATA_SETS}),
    Configuration("resumed", 4, {**P2D2, "model.dropout": 0.1}, resumed_with={}),
    Configuration("resumed_on_another_layout", 4, P2D2, resumed_with=mesh(2, 1, 2)),
    Configuration("resumed_with_codecs", 4, {**P2D2, **ALL_SITES}, resumed_with={}),
]

CODECS = [
    Configuration("codecs_on_all_sites", 4, {**P2D2, **ALL_SITES}, used=True),
    Configuration("codecs_bf16_mesh_2x2x2", 8, {**T2P2D2, **BF16, **ALL_SITES}),
    Configuration("codecs_interleaved", 2, {
        **mesh(1, 2, 1, schedule="interleaved", chunks=2),
        **sites(low_rank("lazy"), codec("cast", "immediate"))}),
    Configuration("codecs_zb_h1", 4, {
        **mesh(1, 2, 2, schedule="zb_h1"),
        **sites(low_rank("immediate"), gradient=low_rank("immediate"))}),
    Configuration("top_k", 4, {**P2D2, **sites(*[
        codec("top_k", feedback, ratio=0.1, values=values) for feedback, values in
        [("lazy", "bf16"), ("none", "fp32"), ("immediate", "bf16"), ("none", "fp32")]])}),
    Configuration("random_k", 4, {**P2D2, **sites(*[
        codec("random_k", feedback, ratio=0.25, values=values) for feedback, values in
        [("immediate", "fp32"), ("none", "bf16"), ("immediate", "fp32"), ("none", "fp32")]])}),
    Configuration("cast", 4, {**P2D2, **sites(codec("cast", "lazy"), codec("cast"),
                                              codec("cast", "immediate"), codec("cast"))}),
    Configuration("quantize", 4, {**P2D2, **sites(
        codec("quantize", "lazy", bits=4, scale="token", rounding="nearest"),
        codec("quantize", bits=8, scale="tensor", rounding="stochastic"),
        codec("quantize", "immediate", bits=2, scale="group", group=16, rounding="stochastic"),
        codec("quantize", "immediate", bits=8, scale="channel", rounding="nearest"))}),
    Configuration("quantize_both", 4, {**P2D2, **sites(
        codec("quantize", bits=8, scale="both"),
        codec("quantize", "lazy", bits=4, scale="both", rounding="stochastic"),
        codec("quantize", "immediate", bits=2, scale="both"),
        codec("quantize", "immediate", bits=2, scale="both"))}),
    Configuration("quantize_moments", 4, {**P2D2, **sites(
        gradient=codec("quantize", "immediate", bits=2, scale="both", units="moments"),
        embedding=codec("quantize", "immediate", bits=4, scale="token", units="moments"))}),
    Configuration("sums_of_passes", 4, {
        **mesh(1, 1, 4, group=2, data_strategy="IGG"),
        **sites(gradient=codec("quantize", "immediate", bits=4, scale="channel"))}),
    Configuration("sums_between_groups", 4, {
        **mesh(1, 1, 4, group=2, data_strategy="NIG"),
        **sites(gradient=low_rank("immediate"), embedding=codec("cast"))}),
    Configuration("low_rank_factors_bf16", 4, {**P2D2, **sites(*[
        codec("low_rank", feedback, rank=rank, factors="bf16", orthogonalization="gram_schmidt",
              always=True)
        for feedback, rank in [("none", 2), ("lazy", 3), ("none", 4), ("immediate", 2)]])}),
]

POLICIES = [
    Configuration("policy_list", 4, {**P2D2, **LISTED}),
    Configuration("policy_optimus_cc", 8, {**mesh(1, 4, 2), **OPTIMUS}),
    Configuration("policy_optimus_cc_all_messages", 4, {
        **P2D2, **OPTIMUS, "compress.epilogue_only": False, "compress.stages": 1}),
    Configuration("policy_replay", 4, {
        **P2D2, "compress.policy": "replay", "compress.plan": str(PLAN)}),
    Configuration("compression_from_step_3", 4, {**P2D2, **ALL_SITES, "compress.warmup_steps": 2}),
    Configuration("guard_tightens", 4, {
        **P2D2, **sites(low_rank("lazy", 1), gradient=low_rank("immediate", 1)),
        "run.steps": 8, "run.save_every": 4, "compress.guard.every": 2,
        "compress.guard.max_error": 0.3}),
    Configuration("choice_pipeline_data", 4, {**P2D2, **CHOICE}, plan=True),
    Configuration("choice_mesh_2x2x2_bf16", 8, {**T2P2D2, **BF16, **CHOICE}, plan=True),
    Configuration("choice_zb_h1", 8, {**mesh(1, 4, 2, schedule="zb_h1"), **CHOICE}, plan=True),
]

# Kernels of the CUDA backend on the processor (tests/emulated_cuda).
CUDA = {"device": "cuda", "run.cuda_graphs": False, "run.eval_every": 0, "batch.global": 4}
EMULATED_CUDA = [
    Configuration("cuda_one_rank", 1, {**CUDA, "model.dropout": 0.1}),
    Configuration("cuda_bf16", 1, {**CUDA, **BF16, "model.recompute": "block"}),
    Configuration("cuda_mesh_2x2", 4, {**CUDA, **mesh(2, 2, 1, sequence_parallel=True), **BF16}),
    Configuration("cuda_codecs", 4, {**CUDA, **P2D2, **ALL_SITES}),
    Configuration("cuda_quantize", 2, {**CUDA, **mesh(1, 1, 2, data_strategy="zero1"), **sites(
        gradient=codec("quantize", "immediate", bits=4, scale="group", group=16,
                       rounding="stochastic"))}),
]

ALL = [*LAYOUTS, *SCHEDULES, *OPTIMIZER_AND_DATA, *CODECS, *POLICIES, *EMULATED_CUDA]
