"""Cost files of GPUs that nobody here has: ops from floating-point operations, codecs from these and memory traffic."""

A100_FLOPS = 62e12  # 40 % of the TF32 peak of 156 TFLOP/s
A100_MEMORY = 1.5e12  # bytes a second
CODEC_ELEMENTS = 1 << 20  # of the message that codecs are given for; others scale


def flops_of_layer(model):
    """Operations of one token: products of the forward pass, and causal attention."""
    width = model["hidden"]
    return 24 * width * width + 2 * width * model["sequence"]


def seconds_of_ops(model, gpus):
    """Seconds of one token in each part; a layer whose activations are recomputed passes forward once more."""
    flops = gpus * A100_FLOPS
    width = model["hidden"]
    layer = flops_of_layer(model) / flops
    again = layer if model.get("recompute", "none") == "block" else 0.0
    return {
        "embedding_forward": 2 * width / flops,
        "embedding_backward": 2 * width / flops,
        "layer_forward": layer,
        "layer_backward": 2 * layer + again,
        "layer_backward_input": layer + again,
        "layer_backward_weight": layer,
        "head_forward": 2 * width / flops,
        "head_backward": 6 * width * model["vocab"] / flops,
        "element_update": 28 / (gpus * A100_MEMORY),
    }


def codec_work(setting):
    """(operations, bytes of memory) of an element: to encode, to decode. An error that is fed back is read and
    written where the value is."""
    if setting["codec"] == "low_rank":
        return (4 * setting["rank"], 12), (2 * setting["rank"], 4)
    feedback = 8 if setting.get("error_feedback", "none") != "none" else 0
    if setting["codec"] == "cast":
        return (1, 6 + feedback), (1, 6)
    assert setting["codec"] == "quantize", setting
    return (4, 8 + setting["bits"] / 8 + feedback), (2, 4 + setting["bits"] / 8)


def seconds_of_codec(setting, gpus):
    def seconds(work):
        operations, memory = work
        return CODEC_ELEMENTS * (operations / (gpus * A100_FLOPS) + memory / (gpus * A100_MEMORY))

    encode, decode = map(seconds, codec_work(setting))
    return {
        "codec": setting,
        "shape": [CODEC_ELEMENTS],
        "dtype": "fp32",
        "encode_seconds": encode,
        "decode_seconds": decode,
        "sent_bytes": 0,
    }


def cost_file(model, settings, gpus=1):
    """The costs of a rank that is `gpus` GPUs, with what these codec settings take."""
    ops = seconds_of_ops(model, gpus).items()
    return {
        "ops": [{"stage": 0, "kind": kind, "seconds": seconds} for kind, seconds in ops],
        "codecs": [seconds_of_codec(setting, gpus) for setting in settings],
    }
