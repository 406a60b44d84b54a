"""Weights of AMT-S for tests. write(PATH, SHAPES) writes a safetensors file of these names and shapes. Its values are drawn once and
repeated. Needs no package."""
import array
import json
import math
import random
import struct

PERIOD = 65521


def write(path, shapes):
    draw = random.Random(5)
    table = array.array("f", (draw.gauss(0, 1) for _ in range(PERIOD)))
    header, parts, at = {}, [], 0
    for index, (name, shape) in enumerate(sorted(shapes.items())):
        count = math.prod(shape)
        # a transposed convolution has its inputs first, and 4 of its 16 weights for each output
        inputs = shape[0] * 4 if name.endswith("convblock.2.weight") else math.prod(shape[1:])
        scale, shift = (0.6 / math.sqrt(inputs), 0) if len(shape) > 1 else (0.05, 0.2 if name.endswith("weight") else 0)
        start = index * 7919 % PERIOD
        values = (table * (count // PERIOD + 2))[start:start + count]
        data = array.array("f", (scale * v + shift for v in values)).tobytes()
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + len(data)]}
        parts.append(data)
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(parts))
