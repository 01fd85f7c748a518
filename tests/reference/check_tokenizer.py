"""Compares `slackline prepare --tokenizer hf:DIR` with the tokenizers package on many odd documents.

    build/reference/bin/python tests/reference/check_tokenizer.py build/cpu/slackline [COUNT]

Makes COUNT (10000) documents for each variant of tokenizer_json_golden.py, encodes them both ways,
with special tokens as text and recognized, and ends with 1 at the first document that differs.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from odd_documents import odd_documents
from tokenizer_json_golden import VARIANTS, base_tokenizer, contents, variant


def prepared(binary, folder, special):
    out = folder / "corpus"
    subprocess.run([binary, "prepare", "--input", folder / "texts.jsonl", "--tokenizer",
                    f"hf:{folder}", "--out", out, *(["--special-tokens"] if special else [])],
                   check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    index = Path(f"{out}.idx").read_bytes()
    count = int.from_bytes(index[18:26], "little")
    lengths = np.frombuffer(index, "<i4", count, 34)
    assert index[17] == 8, "16-bit tokens are expected"
    tokens = np.fromfile(f"{out}.bin", "<u2")
    return np.split(tokens, np.cumsum(lengths)[:-1])


def differences(binary, name, base, count):
    document, eos = variant(base, name)
    texts = list(odd_documents(count, f"check {name}", contents(document)))
    tokenizer = Tokenizer.from_str(json.dumps(document))
    with tempfile.TemporaryDirectory() as name_of_folder:
        folder = Path(name_of_folder)
        (folder / "tokenizer.json").write_text(json.dumps(document))
        (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": eos}))
        with open(folder / "texts.jsonl", "w", encoding="utf-8") as file:
            file.writelines(json.dumps({"text": text}) + "\n" for text in texts)
        for special in (False, True):
            tokenizer.encode_special_tokens = not special
            documents = prepared(binary, folder, special)
            assert len(documents) == len(texts), (len(documents), len(texts))
            for text, ids in zip(texts, documents):
                expected = tokenizer.encode(text, add_special_tokens=False).ids
                expected.append(tokenizer.token_to_id(eos))
                if ids.tolist() != expected:
                    yield special, text, ids.tolist(), expected


def main():
    binary, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 10000
    base = base_tokenizer()
    failed = False
    for name in VARIANTS:
        found = list(differences(binary, name, base, count))
        print(f"{name}: {2 * count} documents, {len(found)} differ")
        for special, text, ids, expected in found[:3]:
            print(f"  special tokens {special}: {text!r}\n    {ids}\n    {expected}")
        failed = failed or bool(found)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
