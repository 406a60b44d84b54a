# A trunk and heads of LPIPS with few channels: python3 loss_nets.py vgg|alex DIR. The trunk is safetensors, the
# heads are as lpips ships them: torch's older stream of pickles, with an OrderedDict as Python 2 wrote it.
import json, os, pickle, random, struct, sys
def write(path, tensors):
    header, body = {}, b""
    for name, (shape, data) in tensors.items():
        raw = struct.pack(f"<{len(data)}f", *data)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(body), len(body) + len(raw)]}
        body += raw
    text = json.dumps(header).encode()
    open(path, "wb").write(struct.pack("<Q", len(text)) + text + body)
def text(s):
    return b"X" + struct.pack("<I", len(s)) + s.encode()
def numbers(shape):
    return b"(" + b"".join(b"J" + struct.pack("<i", n) for n in shape) + b"t"
def write_older(path, tensors):
    pairs, body = b"", b""
    for i, (name, (shape, data)) in enumerate(tensors.items()):
        storage = b"(" + text("storage") + b"ctorch\nFloatStorage\n" + text(str(i)) + text("cuda:0") + b"\x8a\x02" + struct.pack("<h", len(data)) + b"NtQ"
        strides = [len(data) // shape[0]] + [1] * (len(shape) - 1)
        pairs += b"](" + text(name) + b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + b"K\x00" + numbers(shape) + numbers(strides) + b"\x89NtRe"
        body += struct.pack("<q", len(data)) + struct.pack(f"<{len(data)}f", *data)
    with open(path, "wb") as f:
        for part in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}):
            f.write(pickle.dumps(part, 2))
        f.write(b"\x80\x02ccollections\nOrderedDict\n](" + pairs + b"e\x85R.")
        f.write(pickle.dumps([str(i) for i in range(len(tensors))], 2) + body)
net, out = sys.argv[1:3]
rng = random.Random(1)
rows = {"vgg": [(0, 3, 4), (2, 3, 4), (5, 3, 6), (7, 3, 6), (10, 3, 8), (12, 3, 8), (14, 3, 8), (17, 3, 8), (19, 3, 8), (21, 3, 8), (24, 3, 8), (26, 3, 8), (28, 3, 8)],
        "alex": [(0, 11, 6), (3, 5, 8), (6, 3, 10), (8, 3, 8), (10, 3, 8)]}[net]
taps = {"vgg": [1, 3, 6, 9, 12], "alex": [0, 1, 2, 3, 4]}[net]
trunk, wide = {}, 3
for place, k, n in rows:
    count = n * wide * k * k
    trunk[f"features.{place}.weight"] = ([n, wide, k, k], [rng.gauss(0, (2 / (wide * k * k)) ** .5) for _ in range(count)])
    trunk[f"features.{place}.bias"] = ([n], [rng.gauss(0, .1) for _ in range(n)])
    wide = n
heads = {f"lin{i}.model.1.weight": ([1, rows[t][2], 1, 1], [abs(rng.gauss(0, 1)) for _ in range(rows[t][2])]) for i, t in enumerate(taps)}
trunk["classifier.1.bias"] = ([4], [0.0] * 4)
os.makedirs(out, exist_ok=True)
write(f"{out}/trunk.safetensors", trunk); write_older(f"{out}/heads.pth", heads)
