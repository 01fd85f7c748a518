"""Loads an exported GPT-2 directory with transformers and prints its loss on given windows.

  python tests/reference/check_export.py DIR TOKENS_JSON [--expect LOSS]

TOKENS_JSON holds {"tokens": [[ids], ...]}; of each window all but the last token are inputs and
all but the first are labels. Prints {"fp32": loss, "fp64": loss, "tokens": number of predictions}.
With --expect, exits with 1 if either loss is further than 1e-5 from LOSS, or if the library misses
a weight or finds one it does not know. Writes nothing.
"""

import argparse
import json
import sys
from pathlib import Path

import torch
from transformers import GPT2LMHeadModel

TOLERANCE = 1e-5
MASK_BUFFERS = (".attn.bias", ".attn.masked_bias")  # of older files; no parameters


def load_model(folder, dtype):
    model, info = GPT2LMHeadModel.from_pretrained(
        folder, local_files_only=True, output_loading_info=True)
    unknown = [key for key in info["unexpected_keys"] if not key.endswith(MASK_BUFFERS)]
    missing = [key for key in info["missing_keys"] if key != "lm_head.weight"]
    if unknown or missing or info["mismatched_keys"]:
        raise SystemExit(f"{folder}: missing {missing}, unknown {unknown}, "
                         f"mismatched {info['mismatched_keys']}")
    return model.to(dtype).eval()


def window_loss(folder, windows, dtype):
    """Mean cross-entropy over all windows; model and loss in dtype."""
    tokens = torch.tensor(windows)
    with torch.no_grad():
        logits = load_model(folder, dtype)(input_ids=tokens[:, :-1], use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    assert loss.dtype == dtype
    return float(loss)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", metavar="DIR", type=Path)
    parser.add_argument("tokens", metavar="TOKENS_JSON", type=Path)
    parser.add_argument("--expect", metavar="LOSS", type=float)
    args = parser.parse_args()
    windows = json.loads(args.tokens.read_text(encoding="utf-8"))["tokens"]
    losses = {"fp32": window_loss(args.folder, windows, torch.float32),
              "fp64": window_loss(args.folder, windows, torch.float64)}
    print(json.dumps(losses | {"tokens": sum(len(window) - 1 for window in windows)}))
    if args.expect is not None:
        for name, loss in losses.items():
            if not abs(loss - args.expect) <= TOLERANCE:
                sys.exit(f"{name} loss {loss} differs from {args.expect} by more than {TOLERANCE}")


if __name__ == "__main__":
    main()
