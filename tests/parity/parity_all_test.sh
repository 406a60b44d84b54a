#!/bin/bash
# weft parity --all: one table of all golden files. Every file of the repository passes. In a folder with a wrong
# value, a truncated file and an unknown class these three fail with a reason. The others are compared.
. "$SRC/tests/check.sh"
. "$SRC/tests/messages.sh"
golden=$SRC/tests/golden
all_files_of_the_repository_pass() {
    (cd "$SRC" && "$WEFT" parity --all) >all.txt 2>err || fail_with all.txt "weft parity --all"
    local files
    files=$(($(find "$golden" -maxdepth 1 -name '*.json' | wc -l) + $(find "$golden/pipelines" -name 'asked*.json' | wc -l)))
    grep -qx "$files files: $files passed, 0 failed, 0 skipped" all.txt || fail_with all.txt "not all $files files"
    grep -q '^flux2/asked_edit.json  *Flux2Pipeline  *pipeline .*passed$' all.txt || fail_with all.txt "no row of a pipeline"
    grep -q '^wan_train30.json  *WanTransformer3DModel  *training .*passed$' all.txt || fail_with all.txt "no row of a training"
}
check all_files_of_the_repository_pass

mkdir mixed
for name in wan_t2v_tiny t5 bert clip_text; do cp "$golden/$name.json" "$golden/$name.safetensors" mixed; done
cp "$golden/tok_byt5.json" mixed
ln -s "$golden/tokenizers" mixed/tokenizers
echo '{"_class_name": "NoSuchModel"}' >mixed/strange.json
cp "$golden/clip_text.safetensors" mixed/strange.safetensors
python3 -S - <<'PY'
import json, struct
data = open("mixed/t5.safetensors", "rb").read()
n = struct.unpack("<Q", data[:8])[0]
at = 8 + n + json.loads(data[8:8 + n])["out.last_hidden_state"]["data_offsets"][0]
changed = bytearray(data)
changed[at:at + 4] = struct.pack("<f", struct.unpack("<f", data[at:at + 4])[0] + 1)
open("mixed/t5.safetensors", "wb").write(changed)
whole = open("mixed/bert.safetensors", "rb").read()
open("mixed/bert.safetensors", "wb").write(whole[:len(whole) // 2])
PY
failures_are_those_of_their_files() {
    "$WEFT" parity --all mixed --json >mixed.json 2>err && fail "wrong files passed"
    has_message err parity-failed value=3 'text~=3 of 6 files' || fail_with err "the message"
    python3 -S - <<'PY' || fail_with mixed.json "the results"
import json, os
j = json.load(open("mixed.json"))
files = {os.path.basename(f["file"]): f for f in j["files"]}
failed = {name for name, f in files.items() if f["result"] == "failed"}
assert failed == {"t5.json", "bert.json", "strange.json"}, failed
assert (j["passed"], j["failed"], j["skipped"]) == (3, 3, 0), j
assert files["t5.json"]["errors"][0]["largest"] > 1e-5 and files["t5.json"]["failures"] >= 1
assert files["t5.json"]["first_failure"] == "last_hidden_state" and "comparisons failed" in files["t5.json"]["reason"]
assert "safetensors" in files["bert.json"]["reason"] or "bytes" in files["bert.json"]["reason"], files["bert.json"]
assert "NoSuchModel" in files["strange.json"]["reason"] and files["strange.json"]["class"] == "NoSuchModel"
good = files["wan_t2v_tiny.json"]
assert [e["of"] for e in good["errors"]] == ["outputs", "gradients"] and good["reason"] is None
assert all(e["largest"] <= e["limit"] for e in good["errors"]) and good["comparisons"] > 10
assert {f["family"] for f in j["families"]} >= {"WanTransformer3DModel", "NoSuchModel", "tokenizer golden"}
PY
}
check failures_are_those_of_their_files
# A NaN is the largest error, also before smaller errors. Names that are not UTF-8, or are cut inside a character, are in
# the JSON with escaped bytes.
nan_and_odd_names_are_reported() {
    mkdir odd
    cp "$golden/clip_text.json" "$golden/clip_text.safetensors" odd
    python3 -S - <<'PY'
import json, struct
data = bytearray(open("odd/clip_text.safetensors", "rb").read())
n = struct.unpack("<Q", data[:8])[0]
head = json.loads(data[8:8 + n])
at = 8 + n + head[min(name for name in head if name.startswith("grad."))]["data_offsets"][0]
data[at:at + 4] = struct.pack("<f", float("nan"))
open("odd/clip_text.safetensors", "wb").write(data)
open(b"odd/caf\xe9.json", "w").write("{}")
open("odd/long.json", "wb").write(b'{"_class_name": "x' + b"\xc3\xa9" * 60 + b'"}')
open("odd/long.safetensors", "wb").write(data)
PY
    "$WEFT" parity --all odd --json >odd.json 2>err && fail "wrong files passed"
    "$WEFT" parity odd/long.json --json >long.json 2>err && fail "an unknown class passed"
    python3 -S - <<'PY' || fail_with odd.json "the results"
import json
j = json.load(open("odd.json", encoding="utf-8"))
files = {f["file"]: f for f in j["files"]}
assert set(files) == {"odd/caf%E9.json", "odd/clip_text.json", "odd/long.json"}, set(files)
assert [e["largest"] is None for e in files["odd/clip_text.json"]["errors"]] == [False, True], files
assert {f["family"]: f["largest_share_of_limit"] for f in j["families"]}["CLIPTextModel"] is None, j["families"]
assert json.load(open("long.json", encoding="utf-8"))["result"] == "failed"
PY
}
check nan_and_odd_names_are_reported
# The shot detector's file has no weights; without --weights it is skipped, not failed.
a_file_that_needs_an_option_is_skipped() {
    [ -f "$WEFT_SHARED/golden/transnetv2_real_a.json" ] || skip "no golden file without weights"
    mkdir shots
    cp "$WEFT_SHARED"/golden/transnetv2_real_a.* shots
    "$WEFT" parity --all shots >shots.txt 2>err || fail_with shots.txt "a file that needs --weights failed"
    grep -qx '1 files: 0 passed, 0 failed, 1 skipped' shots.txt || fail_with shots.txt "the counts"
}
check a_file_that_needs_an_option_is_skipped
a_folder_without_golden_files_is_an_error() {
    mkdir none
    "$WEFT" parity --all none >out 2>err && fail "an empty folder passed"
    has_message err file-not-found file=none || fail_with err "the message"
}
check a_folder_without_golden_files_is_an_error
one_pipeline() {
    local cases
    cases=$(ls "$SRC/tests/golden/pipelines/latte/"asked*.json | wc -l)
    "$WEFT" parity --all "$SRC/tests/golden/pipelines/latte" >one.txt 2>err || fail_with one.txt "the folder of a pipeline"
    grep -q "^$cases files: $cases passed, 0 failed" one.txt || fail_with one.txt "not the $cases cases"
}
check one_pipeline
finish
