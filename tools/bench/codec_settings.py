"""Codec settings as the `compress` section of a config holds them (configs/README.md).

`error_feedback` says what becomes of the error that a codec makes: "none", "immediate" or "lazy". A setting without it
leaves that to the binary. `more` holds the keys that few settings have, as `scale`, `factors` or `always`."""


def setting(codec, error_feedback, **keys):
    feedback = {} if error_feedback is None else {"error_feedback": error_feedback}
    return {"codec": codec, **keys, **feedback}


def cast(error_feedback=None, **more):
    """Numbers travel as bf16."""
    return setting("cast", error_feedback, **more)


def integers(bits, error_feedback=None, **more):
    return setting("quantize", error_feedback, bits=bits, **more)


def low_rank(rank, error_feedback=None, **more):
    return setting("low_rank", error_feedback, rank=rank, **more)


def top_k(ratio, error_feedback=None, **more):
    """The largest numbers travel, `ratio` of all."""
    return setting("top_k", error_feedback, ratio=ratio, **more)


def sums(gradients, table=None):
    """The sites of sums over data ranks. The tied table's codec is the gradients' unless it is given."""
    return {"data_gradient": gradients, "embedding": table or gradients}


def integer_sums(bits, scale, table_scale=None, units="values", **more):
    """Sums in integers. `scale` says which numbers of a gradient share a scale, `table_scale` which of the table's."""
    scales = (scale, table_scale or scale)
    return sums(*(integers(bits, "immediate", scale=one, units=units, **more) for one in scales))


def low_rank_sums(rank):
    return sums(low_rank(rank, "immediate", factors="bf16"))


def boundaries(forward, backward):
    """The sites of messages between stages."""
    return {"pipeline_forward": forward, "pipeline_backward": backward}


def codec_name(codec):
    """Names a setting by its codec and strength in a table; None is a transfer without a codec."""
    if codec is None:
        return "plain"
    strength = next((codec[key] for key in ("rank", "bits", "ratio") if key in codec), "")
    return f"{codec['codec']} {strength}".strip()
