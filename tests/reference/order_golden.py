"""Megatron's sample order, blends and splits, with NumPy's legacy generator as the only library.

Writes to tests/golden/order (I64 unless said otherwise):

  shuffle.safetensors     seed_<s>/n_<n>: arange(n) shuffled by a fresh RandomState(s);
                          chain_<s>/sizes, chain_<s>/values: arrays of those sizes shuffled one
                          after the other by one generator, back to back
  samples_<case>.safetensors
      inputs   lengths (tokens of every sequence of the file), documents (ids of the split), seed,
               sequence, num_samples (requested), each of shape (1) where a number
      results  epochs, tokens_per_epoch, separate_last_epoch (0 or 1), document_index,
               sample_index (n + 1, 2): (position in document_index, token offset), shuffle_index,
               token_positions (first samples, sequence + 1): for sample i = 0, 1, ... in training
               order the places of its tokens in the .bin file
  blend_<case>.safetensors
      weights F64 as given, normalized F64, target (1), member_samples (samples each member must be
      built with), dataset_index (200), sample_index (200)
  splits.safetensors      weights F64 (rows, 3), counts, bounds (rows, counts, 4): part p of a file
                          of counts[c] sequences is [bounds[w, c, p], bounds[w, c, p + 1])

The C++ tests check the shuffle, the sampler, the blend and the split against these arrays.
Every array of the samples, blends and splits was compared once with what megatron-core 0.16.1
computes for the same inputs (token_positions and member_samples follow from the rules): all equal.
"""

import math

import numpy as np

from golden_io import write_safetensors


def whole(value):
    return np.atleast_1d(np.asarray(value, dtype=np.int64))


def write_shuffles():
    tensors = {}
    chain = [3, 10, 0, 1, 2, 100, 64, 65, 257]
    for seed in (0, 42, 1234):
        for n in (0, 1, 2, 10, 1000):
            values = np.arange(n, dtype=np.int64)
            np.random.RandomState(seed).shuffle(values)
            tensors[f"seed_{seed}/n_{n}"] = values
        rng, parts = np.random.RandomState(seed), []
        for n in chain:
            parts.append(np.arange(n, dtype=np.int64))
            rng.shuffle(parts[-1])
        tensors[f"chain_{seed}/sizes"] = whole(chain)
        tensors[f"chain_{seed}/values"] = np.concatenate(parts)
    write_safetensors("order/shuffle.safetensors", tensors)


def shuffled_documents(documents, epochs, rng):
    index = np.tile(np.asarray(documents, dtype=np.int32), epochs)
    rng.shuffle(index)
    return index


def build_sample_index(lengths, document_index, sequence, count):
    """Row j is where sample j starts; it ends with the token at which sample j + 1 starts."""
    rows, position, offset = [(0, 0)], 0, 0
    for _ in range(count):
        missing = sequence + 1
        while True:
            available = lengths[document_index[position]] - offset
            if missing <= available:
                offset += missing - 1  # the last token is shared with the next sample
                break
            missing -= available
            position, offset = position + 1, 0
        rows.append((position, offset))
    return np.array(rows, dtype=np.int64)


def shuffled_samples(first, total, rng):
    """[0, first) and [first, total) shuffled apart; one piece where first equals total."""
    pieces = [np.arange(0, first, dtype=np.uint32)]
    if first < total:
        pieces.append(np.arange(first, total, dtype=np.uint32))
    for piece in pieces:
        rng.shuffle(piece)
    return np.concatenate(pieces)


def sample_order(lengths, documents, seed, sequence, num_samples):
    tokens_per_epoch = int(sum(lengths[d] for d in documents))
    epochs = 1
    while epochs * tokens_per_epoch < num_samples * sequence + 1:
        epochs += 1
    total = (epochs * tokens_per_epoch - 1) // sequence
    before_last = ((epochs - 1) * tokens_per_epoch - 1) // sequence if epochs > 1 else 0
    separate = False
    if epochs > 1:
        per_epoch = (tokens_per_epoch - 1) // sequence
        separate = num_samples - before_last < int(0.8 * per_epoch)

    rng = np.random.RandomState(seed)
    if separate:
        document_index = np.concatenate([shuffled_documents(documents, epochs - 1, rng),
                                         shuffled_documents(documents, 1, rng)])
    else:
        document_index = shuffled_documents(documents, epochs, rng)
    sample_index = build_sample_index(lengths, document_index, sequence, total)
    shuffle_index = shuffled_samples(before_last if separate else total, total, rng)
    assert sorted(shuffle_index.tolist()) == list(range(total))
    return {"epochs": whole(epochs), "tokens_per_epoch": whole(tokens_per_epoch),
            "separate_last_epoch": whole(separate), "document_index": whole(document_index),
            "sample_index": sample_index, "shuffle_index": whole(shuffle_index)}


def token_positions(lengths, order, sequence, limit):
    """File positions of the tokens of the first samples, read off the walk itself."""
    starts = np.concatenate([[0], np.cumsum(lengths)])
    walk = np.concatenate([np.arange(starts[d], starts[d + 1]) for d in order["document_index"]])
    before = np.concatenate([[0], np.cumsum([lengths[d] for d in order["document_index"]])])
    rows = []
    for sample in order["shuffle_index"][:limit]:
        position, offset = order["sample_index"][sample]
        begin = before[position] + offset
        assert begin == sample * sequence  # the index and the plain walk agree
        rows.append(walk[begin:begin + sequence + 1])
    return np.array(rows, dtype=np.int64)


def write_samples():
    rng = np.random.RandomState(5)
    mixed = rng.randint(1, 60, size=40)
    short = rng.randint(1, 6, size=50)
    cases = {  # lengths, documents of the split, seed, sequence, requested samples
        "one_epoch": (mixed, range(40), 1234, 16, 50),
        "one_epoch_exact": (np.array([9, 8, 16]), range(3), 7, 8, 4),
        "several_epochs": (mixed, range(4, 31), 42, 16, 225),
        "last_epoch_separate": (mixed, range(40), 1234, 16, 165),
        "short_documents": (short, range(50), 0, 32, 12),
        "one_long_document": (np.array([777]), range(1), 1234, 16, 120),
        "second_split": (mixed, range(30, 40), 1234, 16, 10),
        "empty_documents": (np.array([5, 0, 7, 0, 0, 11, 30, 0]), range(8), 99, 4, 30),
    }
    separate = {}
    for name, (lengths, documents, seed, sequence, num_samples) in cases.items():
        order = sample_order(lengths, documents, seed, sequence, num_samples)
        positions = token_positions(lengths, order, sequence, limit=40)
        separate[name] = (int(order["epochs"][0]), bool(order["separate_last_epoch"][0]),
                          len(order["shuffle_index"]))
        write_safetensors(f"order/samples_{name}.safetensors", {
            "lengths": whole(lengths), "documents": whole(list(documents)), "seed": whole(seed),
            "sequence": whole(sequence), "num_samples": whole(num_samples),
            "token_positions": positions} | order)
    print(separate)
    assert separate["one_epoch"][0] == separate["one_epoch_exact"][0] == 1
    assert separate["several_epochs"][0] > 2 and not separate["several_epochs"][1]
    assert separate["last_epoch_separate"][0] > 1 and separate["last_epoch_separate"][1]


def write_blends():
    cases = {"even": [1.0, 1.0], "skewed": [0.7, 0.2, 0.1], "raw": [949.0, 50.0, 1.0, 300.0, 77.5]}
    size = 200
    for name, weights in cases.items():
        weights = np.array(weights, dtype=np.float64)
        normalized = weights / np.sum(weights)
        counts = np.zeros(len(weights), dtype=np.int64)
        dataset_index, sample_index = [], []
        for step in range(size):
            errors = normalized * max(float(step), 1.0) - counts
            chosen = int(np.argmax(errors))  # the lowest index among equals
            dataset_index.append(chosen)
            sample_index.append(counts[chosen])
            counts[chosen] += 1
        members = [math.ceil(math.ceil(size * w) * (1 + 0.005)) for w in normalized]
        assert all(counts <= members)
        write_safetensors(f"order/blend_{name}.safetensors", {
            "weights": weights, "normalized": normalized, "target": whole(size),
            "member_samples": whole(members), "dataset_index": whole(dataset_index),
            "sample_index": whole(sample_index)})


def write_splits():
    """Bounds are round(running sum of normalized weights x count), halves to the even number."""
    weights = np.array([[949, 50, 1], [0.95, 0.05, 0], [1, 0, 0], [0.5, 0.5, 0], [1, 1, 1],
                        [98, 2, 0], [0, 1, 1], [0.25, 0.25, 0.5], [969, 30, 1]], dtype=np.float64)
    counts = [0, 1, 2, 3, 5, 7, 9, 10, 15, 30, 50, 99, 100, 101, 1000, 12345, 1000000]
    bounds = np.zeros((len(weights), len(counts), 4), dtype=np.int64)
    for row, parts in enumerate(weights):
        shares = (parts / np.sum(parts)).tolist()
        for column, count in enumerate(counts):
            total = 0.0
            for part, share in enumerate(shares):
                total += share
                bounds[row, column, part + 1] = int(round(total * float(count)))
    write_safetensors("order/splits.safetensors",
                      {"weights": weights, "counts": whole(counts), "bounds": bounds})


def main():
    write_shuffles()
    write_samples()
    write_blends()
    write_splits()


if __name__ == "__main__":
    main()
