#!/bin/bash
# Weights are copied from the mapped file in pieces: while a model is loaded, its largest tensor is
# not in memory twice. A text encoder with a table of 256 MB (a sparse file) needs about that much
# more memory than the same encoder with a small table.
. "$SRC/tests/check.sh"
cp -r "$SRC/tests/golden/pipelines/ltx_i2v" small
cp -r small large
python3 -S - <<'P' || fail "writing the large table"
import json, struct
path = "large/text_encoder/model.safetensors"
raw = open(path, "rb").read()
size, = struct.unpack("<Q", raw[:8])
header, data = json.loads(raw[8:8 + size]), raw[8 + size:]
header.pop("__metadata__", None)
table = "shared.weight" if "shared.weight" in header else "encoder.embed_tokens.weight"
out, at = {}, 0
for name, t in header.items():  # the table is last, as a hole of the file
    if name != table:
        n = (t["data_offsets"][1] - t["data_offsets"][0]) // 2  # f32 to bf16: the upper halves
        out[name] = {**t, "dtype": "BF16", "data_offsets": [at, at + n]}
        at += n
rows, width = 8_000_000, header[table]["shape"][1]
out[table] = {"dtype": "BF16", "shape": [rows, width], "data_offsets": [at, at + 2 * rows * width]}
text = json.dumps(out).encode()
text += b" " * (-len(text) % 8)
with open(path, "wb") as f:
    f.write(struct.pack("<Q", len(text)) + text)
    for name, t in header.items():
        if name != table:
            begin, end = t["data_offsets"]
            f.write(b"".join(data[i + 2:i + 4] for i in range(begin, end, 4)))
    f.truncate(8 + len(text) + out[table]["data_offsets"][1])
config = json.load(open("large/text_encoder/config.json"))
config["vocab_size"] = rows
json.dump(config, open("large/text_encoder/config.json", "w"))
P
peak() { # FOLDER: prints the peak in MiB
    python3 -S - "$1" <<'P'
import os, resource, subprocess, sys
done = subprocess.run([os.environ["WEFT"], "generate", "--model", sys.argv[1], "--prompt", "a red cat", "--steps", "1", "--frames", "9",
                       "--height", "32", "--width", "32", "--out", sys.argv[1] + ".mp4"], capture_output=True, text=True)
if done.returncode:
    sys.exit(done.stderr)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024)
P
}
one_copy_in_memory() {
    local small large
    small=$(peak small) || fail "small: $small"
large=$(peak large) || fail "large: $large"
echo "peak of $small MiB, and of $large MiB with a table of 244 MiB"
[ $((large - small)) -ge 200 ] && [ $((large - small)) -le 300 ] || fail "the table of 244 MiB needs $((large - small)) MiB"
}
check one_copy_in_memory
finish
