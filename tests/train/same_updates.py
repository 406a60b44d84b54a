"""same_updates.py BEGUN ONE OTHER: compares what training changed in two runs, tensor by tensor.

BEGUN is a run that trained with lr: 0, so its model has the initial weights. ONE and OTHER are runs of the same
training in two layouts. The test compares the updates (weights minus initial weights), not the weights: a weight that
a layout does not update differs from its initial value by 0, an error of 100 %, whatever the rate is.

A tensor passes if |update of OTHER - update of ONE| <= 3e-4 |update of ONE| + floor, in Euclidean norms. Layouts sum
about 1e4 products in other orders, each sum within 2^-24 sqrt(1e4) = 6e-6; up to 6.4e-5 was
measured. The floor is
- the rounding of the stored f32 weights: every step and the average round each weight by at most 2^-24 of it;
- 1e-6 of the largest mean update of any tensor: the rounding of a gradient that is zero except for rounding, such as that
  of a bias of attention keys, which the softmax cancels.
The runs need optimizer.eps: 1e-3, far above the rounding of gradients. AdamW's step is then proportional to a small
gradient. With eps: 1e-8 the step of a gradient that is zero except for rounding has full length and a random sign.

Fails also if fewer than 85 % of a trained model's tensors are updated by more than 100 floors."""
import array
import json
import os
import struct
import sys

STEPS = 12  # at most, in these runs
TOLERANCE = 3e-4


def read(run):
    tensors = {}
    root = os.path.join(run, "model")
    for folder in sorted(os.listdir(root)):
        if not os.path.isdir(os.path.join(root, folder)):
            continue
        for name in sorted(os.listdir(os.path.join(root, folder))):
            if not name.endswith(".safetensors"):
                continue
            raw = open(os.path.join(root, folder, name), "rb").read()
            n = struct.unpack("<Q", raw[:8])[0]
            head = json.loads(raw[8:8 + n])
            head.pop("__metadata__", None)
            for key, value in head.items():
                assert value["dtype"] == "F32", (run, key, value)
                first, last = value["data_offsets"]
                tensors[folder + "." + key] = value["shape"], array.array("f", raw[8 + n + first:8 + n + last])
    return tensors


def length(values):
    return sum(v * v for v in values) ** 0.5


begun, one, other = (read(run) for run in sys.argv[1:4])
assert one.keys() == other.keys() == begun.keys(), (sys.argv[3], (one.keys() ^ other.keys()) | (one.keys() ^ begun.keys()))
update = {key: length(x - w for x, w in zip(a, begun[key][1])) for key, (_, a) in one.items()}
largest = max(update[key] / max(len(a), 1) ** 0.5 for key, (_, a) in one.items())
trained = {key.split(".")[0] for key in one if update[key] > 0}
worst, moved, all_, bad = 0, 0, 0, []
for key, (shape, a) in one.items():
    assert shape == other[key][0], (key, shape, other[key][0])
    difference = length(x - y for x, y in zip(a, other[key][1]))
    floor = STEPS * 2 ** -24 * length(a) + 1e-6 * largest * len(a) ** 0.5
    all_ += key.split(".")[0] in trained
    if update[key] > 100 * floor:
        moved += 1
        worst = max(worst, difference / update[key])
    if not difference <= TOLERANCE * update[key] + floor:
        bad.append(f"{key}: update {update[key]:.3g}, difference {difference:.3g}, floor {floor:.3g}")
print(f"{sys.argv[3]}: {moved} of {all_} tensors updated, within {worst:.1e}")
if bad or not moved >= 0.85 * all_:
    print(f"{len(bad)} tensors differ:", *bad[:12], sep="\n  ")
    print("not updated:", *[k for k in one if k.split(".")[0] in trained and update[k] == 0][:12], sep="\n  ")
    sys.exit(1)
