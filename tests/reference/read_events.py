"""Reads a TensorBoard event file with TensorBoard's own reader and prints it as JSON lines.

  python tests/reference/read_events.py FILE

Prints {"step", "tag", "value"} for every scalar, in file order. The reader checks the checksum of
every record and stops, silently, at one that is damaged or cut short; this program then says where
the last good record ends and exits with 1. For a person who checks the event files that a run
writes. Writes nothing.
"""

import argparse
import json
import os
import sys

from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.util import tensor_util

RECORD_FRAME_BYTES = 16  # u64 length and its checksum before the data, the data's checksum after

def scalar_of(value):
    kind = value.WhichOneof("value")
    if kind == "simple_value":
        return value.simple_value
    if kind == "tensor":
        array = tensor_util.make_ndarray(value.tensor)
        return array.item() if array.size == 1 and array.dtype.kind in "fiu" else None
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", metavar="FILE")
    path = parser.parse_args().file
    end, size = 0, os.path.getsize(path)
    for raw in RawEventFileLoader(path).Load():
        end += len(raw) + RECORD_FRAME_BYTES
        event = Event.FromString(raw)
        for value in event.summary.value:
            number = scalar_of(value)
            if number is not None:
                print(json.dumps({"step": event.step, "tag": value.tag, "value": number}))
    if end != size:
        sys.exit(f"{path}: the last good record ends at byte {end} of {size}")


if __name__ == "__main__":
    main()
