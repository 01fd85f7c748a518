"""GPT-2 in double precision: logits, loss, every gradient, and a 50-step training curve.

Writes, from transformers' GPT2LMHeadModel in float64 (2 layers, 48 channels, 3 heads, 16 positions,
vocabulary 61, no dropout, tied table):

  tests/golden/gpt2/two_layer.safetensors          weights/<name> F32, tokens I32 (3, 17),
                                                   logits F64 (3, 16, 61), loss F64 (1)
  tests/golden/gpt2/two_layer_grads_0.safetensors  grads/<name> F64: wte, wpe, h.0.*
  tests/golden/gpt2/two_layer_grads_1.safetensors  grads/<name> F64: h.1.*, ln_f
  tests/golden/gpt2/curve.safetensors              tokens I32 (50, 4, 17), losses, grad_norms, lrs
                                                   F64 (50), eval_loss F64 (1)

The gradients stand in two files only to keep each below the size limit. Inputs are
tokens[..., :-1], labels tokens[..., 1:]; the loss is the mean cross-entropy over all tokens;
grads/wte.weight is the sum of the table's input and head gradients.

The curve starts from the weights of two_layer.safetensors. Step s (from 1) of 50:
  1. loss and gradients over the step's 4 sequences; the loss is recorded before the update;
  2. norm = square root of the sum of squares over all gradients (tied table once), recorded;
     gradients are multiplied by min(1, 1.0 / norm), with no epsilon in the denominator;
  3. lr = 1e-3 * s / 5 up to s = 5, then 1e-4 + 0.5 * (1e-3 - 1e-4) * (1 + cos(pi (s - 5) / 45));
  4. AdamW: beta1 0.9, beta2 0.95, eps 1e-8, bias-corrected; decoupled decay 0.1 on the matrices of
     the blocks only (not the tables, biases, LayerNorm).
eval_loss is the loss of the last step's sequences after the last update.

The C++ tests check forward, backward, loss, clipping, schedule and AdamW against these numbers.
"""

import math

import numpy as np
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from golden_io import random_gpt2_weights, write_safetensors

LAYERS, CHANNELS, HEADS, POSITIONS, VOCAB = 2, 48, 3, 16, 61
STEPS, BATCH, WARMUP = 50, 4, 5
LR, MIN_LR, CLIP_NORM, WEIGHT_DECAY = 1e-3, 1e-4, 1.0, 0.1
PREFIX = "transformer."


def build_model(attention):
    config = GPT2Config(
        n_layer=LAYERS, n_embd=CHANNELS, n_head=HEADS, n_positions=POSITIONS, vocab_size=VOCAB,
        embd_pdrop=0.0, attn_pdrop=0.0, resid_pdrop=0.0, bos_token_id=0, eos_token_id=0,
        attn_implementation=attention)
    return GPT2LMHeadModel(config).double()


def named_parameters(model):
    return {name.removeprefix(PREFIX): tensor for name, tensor in model.named_parameters()}


def load_weights(model, weights):
    with torch.no_grad():
        for name, parameter in named_parameters(model).items():
            parameter.copy_(torch.from_numpy(weights[name]).double())


def forward(model, tokens):
    """Logits and mean cross-entropy, both in float64 (the library's own loss rounds to float32)."""
    logits = model(input_ids=tokens[:, :-1], use_cache=False).logits
    assert logits.dtype == torch.float64
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    return logits, loss


def check_no_rounding(weights, tokens, logits, loss, grads):
    """Two ways of attention agree, and a finite difference agrees, as only float64 allows."""
    other = build_model("sdpa")
    load_weights(other, weights)
    other_logits, _ = forward(other, tokens)
    assert float((other_logits - logits).detach().abs().max()) < 1e-13
    for name in ["wte.weight", "wpe.weight", "h.0.ln_1.weight", "h.1.attn.c_attn.weight"]:
        parameter = named_parameters(other)[name]
        index, delta = tuple(size // 2 for size in parameter.shape), 1e-5
        with torch.no_grad():
            parameter[index] += delta
            high = float(forward(other, tokens)[1])
            parameter[index] -= 2 * delta
            low = float(forward(other, tokens)[1])
            parameter[index] += delta
        slope = (high - low) / (2 * delta)
        assert abs(slope - float(grads[name][index])) < 1e-9, name


def write_two_layer(weights):
    rng = np.random.RandomState(7)
    tokens = rng.randint(0, VOCAB, size=(3, POSITIONS + 1)).astype(np.int32)
    model = build_model("eager")
    load_weights(model, weights)
    logits, loss = forward(model, torch.from_numpy(tokens).long())
    loss.backward()
    grads = {name: tensor.grad for name, tensor in named_parameters(model).items()}
    check_no_rounding(weights, torch.from_numpy(tokens).long(), logits, loss, grads)

    tensors = {f"weights/{name}": value for name, value in weights.items()}
    tensors |= {"tokens": tokens, "logits": logits.detach().numpy(),
                "loss": loss.detach().reshape(1).numpy()}
    write_safetensors("gpt2/two_layer.safetensors", tensors)
    parts = [{}, {}]
    for name, grad in grads.items():
        parts[name.startswith(("h.1.", "ln_f."))][f"grads/{name}"] = grad.numpy()
    for part, tensors in enumerate(parts):
        write_safetensors(f"gpt2/two_layer_grads_{part}.safetensors", tensors)


def curve_tokens():
    """A cycle of seven tokens from a random start: learnable, so that the loss falls.

    One token in sixteen is replaced in the first 20 steps. Later steps have no noise and gradient
    norms below the limit, so the curve holds steps that are clipped and steps that are not.
    """
    rng = np.random.RandomState(11)
    cycle = rng.permutation(VOCAB)[:7]
    starts = rng.randint(0, len(cycle), size=(STEPS, BATCH, 1))
    tokens = cycle[(starts + np.arange(POSITIONS + 1)) % len(cycle)]
    noise = rng.randint(0, VOCAB, size=tokens.shape)
    replaced = rng.random_sample(tokens.shape) < 1 / 16
    replaced[20:] = False
    return np.where(replaced, noise, tokens).astype(np.int32)


def learning_rate(step):
    if step <= WARMUP:
        return LR * step / WARMUP
    progress = (step - WARMUP) / (STEPS - WARMUP)
    return MIN_LR + 0.5 * (LR - MIN_LR) * (1.0 + math.cos(math.pi * progress))


def write_curve(weights):
    model = build_model("eager")
    load_weights(model, weights)
    parameters = named_parameters(model)
    decayed = [p for name, p in parameters.items() if name.startswith("h.") and p.dim() == 2]
    others = [p for name, p in parameters.items() if not (name.startswith("h.") and p.dim() == 2)]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": WEIGHT_DECAY},
         {"params": others, "weight_decay": 0.0}],
        lr=LR, betas=(0.9, 0.95), eps=1e-8)

    tokens = curve_tokens()
    losses, norms, rates = [], [], []
    for step in range(1, STEPS + 1):
        optimizer.zero_grad()
        loss = forward(model, torch.from_numpy(tokens[step - 1]).long())[1]
        loss.backward()
        norm = math.sqrt(sum(float((p.grad ** 2).sum()) for p in parameters.values()))
        for parameter in parameters.values():
            parameter.grad *= min(1.0, CLIP_NORM / norm)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step)
        optimizer.step()
        losses.append(float(loss.detach()))
        norms.append(norm)
        rates.append(learning_rate(step))
    with torch.no_grad():
        final = forward(model, torch.from_numpy(tokens[-1]).long())[1]
    assert losses[-1] < 0.6 * losses[0] and min(norms) < CLIP_NORM < max(norms), (losses, norms)
    write_safetensors("gpt2/curve.safetensors", {
        "tokens": tokens, "losses": np.array(losses), "grad_norms": np.array(norms),
        "lrs": np.array(rates), "eval_loss": np.array([float(final)])})
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}, norm {min(norms):.3f} .. {max(norms):.3f}")


def main():
    torch.set_num_threads(1)
    shapes = {name: tuple(p.shape) for name, p in named_parameters(build_model("eager")).items()}
    weights = random_gpt2_weights(shapes, seed=1)
    write_two_layer(weights)
    write_curve(weights)


if __name__ == "__main__":
    main()
