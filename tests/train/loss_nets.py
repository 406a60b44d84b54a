# a trunk and heads of lpips with few channels: python3 nets.py vgg|alex DIR
import json, random, struct, sys, os
def write(path, tensors):
    header, body = {}, b""
    for name, (shape, data) in tensors.items():
        raw = struct.pack(f"<{len(data)}f", *data)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(body), len(body) + len(raw)]}
        body += raw
    text = json.dumps(header).encode()
    open(path, "wb").write(struct.pack("<Q", len(text)) + text + body)
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
write(f"{out}/trunk.safetensors", trunk); write(f"{out}/heads.safetensors", heads)
