#!/bin/bash
# Files of a run with the names and keys of earlier versions are read: the latent cache
# (account.json, no_text.npy) and state.json ("made_of").
source "$SRC/tests/train/common.sh"
. "$SRC/tests/messages.sh"
make_shards
write_configs
"$WEFT" train vae.yaml --set stages.0.steps=2 >vae.log 2>&1 || { cat vae.log; fail "weft train vae.yaml"; }
"$WEFT" train dit.yaml --set stages.0.steps=1 --set stages.1.steps=1 --set out=runs/begin >begin.log 2>&1 || { cat begin.log; fail "training the text encoder"; }
sed '/class: WeftBytesEncoder/,/config: {dim/d' dit.yaml | sed 's|^text_encoders:|text_encoders:\n  - weights: runs/begin/model/text_encoder|' >stays.yaml
train() { # LOG OPTIONS...
    local log=$1
    shift
    "$WEFT" train stays.yaml --set stages.0.steps=4 --set stages.1.steps=2 --set data.latents=cache "$@" >"$log" 2>&1
}
train now.log --set out=runs/now || { cat now.log; fail "the run with the present names"; }
for folder in cache/*/; do
    mv "$folder/data-report.json" "$folder/account.json" && mv "$folder/empty-caption.npy" "$folder/no_text.npy" || fail "renaming the files of the cache"
done
an_earlier_cache_is_read() {
    train earlier.log --set out=runs/earlier || { cat earlier.log; fail "training with a cache of an earlier version"; }
    diff <(losses runs/now) <(losses runs/earlier) || fail "other losses with a cache of an earlier version"
    has_message earlier.log data-report key=latents "text~=24 of 24" || fail "the data report of the cache is not printed"
    [ -z "$(find cache -name 'data-report.json' -o -name 'empty-caption.npy')" ] || fail "the complete cache was encoded again"
}
check an_earlier_cache_is_read

an_earlier_checkpoint_resumes() {
    needs an_earlier_cache_is_read
    rm -r runs/earlier/model
    python3 -S - <<'P' || fail "rewriting state.json as an earlier version"
import glob, json, os, re, subprocess
paths = glob.glob("runs/earlier/checkpoints/step-*/state.json")
for path in paths:
    state = json.load(open(path))
    state["made_of"] = state.pop("provenance")
    json.dump(state, open(path, "w"))
assert paths
# the new checksum of state.json: the refusal prints it with the one in the file
command = [os.environ["WEFT"], "train", "stays.yaml", "--set", "data.latents=cache", "--set", "out=runs/earlier"]
refusal = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout
messages = [json.loads(line) for line in refusal.splitlines() if line.startswith("{")]
found = [(m["file"], *re.findall(r"\b[0-9a-f]{16}\b", m["message"])) for m in messages if m["level"] == "warning" and m.get("file", "").endswith("state.json")]
assert len(found) == len(paths), refusal
for path, now, before in found:
    text = open(path).read()
    assert before in text
    open(path, "w").write(text.replace(before, now))
P
    train other.log --set out=runs/earlier --set stages.1.steps=3 --set stages.1.batch=4 && fail "a changed run was accepted"
    has_message other.log checkpoint-mismatch level=error text~=stages.1 || fail "the error does not name the changed stage"
    train more.log --set out=runs/earlier --set stages.1.steps=3 || { cat more.log; fail "resuming from a checkpoint of an earlier version"; }
    has_message more.log run-resumed value=6 || fail "did not resume from step 6"
    newest=$(ls -d runs/earlier/checkpoints/step-* | tail -1)
    grep -q '"provenance"' "$newest/state.json" || fail "the new state.json does not have the present key"
}
check an_earlier_checkpoint_resumes
finish
