"""enlarge.py OUT WIDTH FFN LAYERS TEXT_WIDTH TEXT_FFN TEXT_LAYERS VOCAB [bf16]: the golden Wan 2.2 pipeline (two experts, UMT5) in other
sizes, with random weights: heads of 64, the same tokenizer, scheduler and autoencoder."""
import json, os, random, shutil, struct, sys

out, width, ffn, layers, text, text_ffn, text_layers, vocab = sys.argv[1], *map(int, sys.argv[2:9])
half = sys.argv[9:] == ["bf16"]
golden = os.path.join(os.environ["SRC"], "tests/golden/pipelines/wan22")
random.seed(1)
noise = [random.gauss(0, 1) for _ in range(1 << 14)]


def numbers(count, scale, middle):
    bits = [struct.unpack("<I", struct.pack("<f", middle + scale * x))[0] for x in noise]
    some = b"".join(struct.pack("<H", b >> 16) for b in bits) if half else b"".join(struct.pack("<I", b) for b in bits)
    size = 2 if half else 4
    begin = random.randrange(len(noise)) * size
    some = some[begin:] + some[:begin]
    while count * size > len(some):
        some += some
    return some[:count * size]


def write(path, tensors):
    header, at = {}, 0
    for name, shape, scale, middle in tensors:
        count = 1
        for d in shape:
            count *= d
        header[name] = {"dtype": "BF16" if half else "F32", "shape": shape, "data_offsets": [at, at + count * (2 if half else 4)]}
        at = header[name]["data_offsets"][1]
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for name, shape, scale, middle in tensors:
            begin, end = header[name]["data_offsets"]
            f.write(numbers((end - begin) // (2 if half else 4), scale, middle))


def shapes(path):
    with open(path, "rb") as f:
        size, = struct.unpack("<Q", f.read(8))
        return {k: v["shape"] for k, v in json.loads(f.read(size)).items() if k != "__metadata__"}


def tensors(path, block, count, resize):
    made = []
    for name, shape in shapes(path).items():
        parts = name.split(".")
        at = parts.index(block) + 1 if block in parts else -1
        if at > 0 and parts[at] != "0":
            continue
        for i in range(count if at > 0 else 1):
            if at > 0:
                parts[at] = str(i)
            own = resize(name, shape)
            norm = "norm" in name and name.endswith("weight")
            made.append((".".join(parts), own, 0.02 if not norm and len(own) > 1 else 0.01, 1.0 if norm else 0.0))
    return made


def of_transformer(name, shape):
    to = {24: width, 144: 6 * width, 32: ffn}
    if name == "condition_embedder.text_embedder.linear_1.weight":
        return [width, text]
    return [to.get(d, d) for d in shape]


def of_text(name, shape):
    if "relative_attention_bias" in name:
        return [32, text // 64]
    return [{16: text, 32: text_ffn, 100: vocab}.get(d, d) for d in shape]


shutil.copytree(golden, out)
for part in "transformer", "transformer_2":
    path = os.path.join(out, part, "config.json")
    config = json.load(open(path))
    config.update(attention_head_dim=64, num_attention_heads=width // 64, ffn_dim=ffn, num_layers=layers, text_dim=text)
    json.dump(config, open(path, "w"))
    file = os.path.join(out, part, "diffusion_pytorch_model.safetensors")
    write(file, tensors(file, "blocks", layers, of_transformer))
path = os.path.join(out, "text_encoder/config.json")
config = json.load(open(path))
config.update(d_model=text, d_kv=64, num_heads=text // 64, d_ff=text_ffn, num_layers=text_layers, vocab_size=vocab)
json.dump(config, open(path, "w"))
file = os.path.join(out, "text_encoder/model.safetensors")
write(file, tensors(file, "block", text_layers, of_text))
