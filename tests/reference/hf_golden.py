"""Tiny Hugging Face GPT-2 directories, and the loss the library itself computes on them.

Writes (2 layers, 32 channels, 4 heads, 32 positions, vocabulary 53, fp32, no zero bias):

  tests/golden/hf/gpt2/{config.json,model.safetensors}      saved by transformers: names carry the
                                                            prefix `transformer.`, no lm_head.weight
  tests/golden/hf/gpt2_old/{config.json,model.safetensors}  the older spelling of the same weights:
      no prefix; lm_head.weight present and equal to wte.weight; causal-mask buffers
      h.{i}.attn.bias [1, 1, 32, 32] (U8 in layer 0, BOOL in layer 1) and h.{i}.attn.masked_bias
      (0-d F32), which are no parameters and must be ignored
  tests/golden/hf/expected.json   {"tokens": [[33 ids] x 4], "loss": float64, the mean
                                  cross-entropy over all 128 predictions, the same for both}

The C++ tests import both directories, compare the loss, and check that an export holds the same
bytes. check_export.py reads such an export with transformers.
"""

import json
import shutil

import numpy as np
import torch
from safetensors.numpy import load_file
from transformers import GPT2Config, GPT2LMHeadModel

from check_export import window_loss
from golden_io import golden_path, random_gpt2_weights, report, write_json, write_safetensors

LAYERS, CHANNELS, HEADS, POSITIONS, VOCAB = 2, 32, 4, 32, 53
PREFIX = "transformer."


def save_current(folder):
    config = GPT2Config(
        n_layer=LAYERS, n_embd=CHANNELS, n_head=HEADS, n_positions=POSITIONS, vocab_size=VOCAB,
        embd_pdrop=0.0, attn_pdrop=0.0, resid_pdrop=0.0, bos_token_id=0, eos_token_id=0)
    model = GPT2LMHeadModel(config).float()
    parameters = {name.removeprefix(PREFIX): p for name, p in model.named_parameters()}
    weights = random_gpt2_weights({n: tuple(p.shape) for n, p in parameters.items()}, seed=2)
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(torch.from_numpy(weights[name]))
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    for file in sorted(folder.iterdir()):
        report(file)
    saved = load_file(folder / "model.safetensors")
    assert set(saved) == {PREFIX + name for name in weights}
    assert all(np.array_equal(saved[PREFIX + name], value) for name, value in weights.items())
    return weights


def save_old(name, weights):
    mask = np.tril(np.ones((POSITIONS, POSITIONS), np.uint8))[None, None]
    tensors = dict(weights)
    tensors["lm_head.weight"] = weights["wte.weight"].copy()
    for layer in range(LAYERS):
        tensors[f"h.{layer}.attn.bias"] = mask if layer == 0 else mask.astype(bool)
        tensors[f"h.{layer}.attn.masked_bias"] = np.array(-1e4, np.float32)
    write_safetensors(f"{name}/model.safetensors", tensors, {"format": "pt"})
    write_json(f"{name}/config.json", {
        "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"],
        "attn_pdrop": 0.0, "bos_token_id": 0, "embd_pdrop": 0.0, "eos_token_id": 0,
        "initializer_range": 0.02, "layer_norm_epsilon": 1e-05, "model_type": "gpt2",
        "n_ctx": POSITIONS, "n_embd": CHANNELS, "n_head": HEADS, "n_layer": LAYERS,
        "n_positions": POSITIONS, "resid_pdrop": 0.0, "vocab_size": VOCAB})


def main():
    torch.set_num_threads(1)
    folder, old_folder = golden_path("hf/gpt2"), golden_path("hf/gpt2_old")
    weights = save_current(folder)
    save_old("hf/gpt2_old", weights)
    tokens = np.random.RandomState(3).randint(0, VOCAB, size=(4, POSITIONS + 1)).tolist()
    loss = window_loss(folder, tokens, torch.float64)
    assert abs(window_loss(old_folder, tokens, torch.float64) - loss) < 1e-13
    write_json("hf/expected.json", {"tokens": tokens, "loss": loss})
    print(json.dumps({"loss": loss, "fp32": window_loss(folder, tokens, torch.float32)}))


if __name__ == "__main__":
    main()
