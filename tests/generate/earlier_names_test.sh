#!/bin/bash
# Files with the names and keys of earlier versions. A generation resumes bitwise from
# `NAME.walk.safetensors` and its feature caches and removes these files. Latents with the key
# "weft.kept" are decoded.
. "$SRC/tests/check.sh"
. "$SRC/tests/messages.sh"
export OMP_NUM_THREADS=1
source "$SRC/tests/signal_at.sh"
wan=$SRC/tests/golden/pipelines/wan_over
video=(--prompt "a red cat" --height 32 --width 32 --frames 17 --model "$wan" --steps 20 --frames-npy)
cat >earlier.py <<'P'
# renames the metadata key to the key of earlier versions
import json, struct, sys
for path in sys.argv[1:]:
    data = open(path, "rb").read()
    end = 8 + struct.unpack("<Q", data[:8])[0]
    head = json.loads(data[8:end])
    head["__metadata__"]["weft.kept"] = head["__metadata__"].pop("weft.saved_latents")
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 64)
    open(path, "wb").write(struct.pack("<Q", len(text)) + text + data[end:])
P
rename_to_earlier() { # NAME: renames the saved files of NAME.mp4 to the names of earlier versions
    local file
    python3 earlier.py "$1.sampling.safetensors" || fail "renaming the key of $1"
    for file in "$1".sampling.*; do mv "$file" "$1.walk.${file#"$1".sampling.}"; done
}
saved() { find . -name "$1.*.safetensors" | sort; }
resumes_from_earlier_names() { # plain or cached
    local kind=$1 options
    options=("${video[@]}")
    [ $kind = plain ] || options+=(--feature-cache attention:3,warm=0)
    "$WEFT" generate "${options[@]}" --save-latents --out $kind-whole.mp4 >$kind.log 2>&1 || { cat $kind.log; fail "$kind"; }
    signal_at KILL "*$kind.sampling.safetensors" "$WEFT" generate "${options[@]}" --out $kind.mp4 >$kind.stop 2>&1
    rename_to_earlier $kind
    [ -e $kind.walk.safetensors ] && [ ! -e $kind.sampling.safetensors ] || { ls; fail "$kind: was not interrupted"; }
    [ $kind = plain ] || [ "$(saved $kind | grep -c 'walk\.cache-0-of-1-[0-9]*\.safetensors')" -ge 1 ] || { ls; fail "no feature caches were saved"; }
    # interrupted again after the next step: the saved state has the present name
    "$WEFT" generate "${options[@]}" --seed 1 --resume --out $kind.mp4 >other.log 2>&1 && fail "$kind: another seed is not refused"
    has_message other.log latents-mismatch "file=$kind.walk.safetensors" key=seed || fail "$kind: another seed is not refused"
    signal_at INT "*$kind.sampling.safetensors" "$WEFT" generate "${options[@]}" --resume --out $kind.mp4 >$kind.stop 2>&1
    has_message $kind.stop run-resumed file=$kind.walk.safetensors 'value=[1-9]*' || fail "$kind: started from step 0"
    [ -e $kind.sampling.safetensors ] && ! saved $kind | grep -q 'walk\.' || { saved $kind; fail "$kind: the files with earlier names were not removed"; }
    "$WEFT" generate "${options[@]}" --resume --out $kind.mp4 >$kind.log 2>&1 || { cat $kind.log; fail "$kind: --resume"; }
    cmp $kind.npy $kind-whole.npy || fail "$kind: the frames differ after resuming"
    [ -z "$(saved $kind)" ] || { saved $kind; fail "$kind: saved files were not removed"; }
}
for kind in plain cached; do check "resumes_from_earlier_names_$kind" resumes_from_earlier_names $kind; done
# A new video removes saved files with earlier names.
earlier_files_of_a_new_video_are_removed() {
    signal_at KILL "*done.sampling.safetensors" "$WEFT" generate "${video[@]}" --out done.mp4 >done.stop 2>&1
    rename_to_earlier done
    "$WEFT" generate "${video[@]}" --out done.mp4 >done.log 2>&1 && [ -z "$(saved done)" ] || { cat done.log; saved done; fail "files with earlier names were not removed"; }
}
check earlier_files_of_a_new_video_are_removed
earlier_latents_are_decoded() {
    needs resumes_from_earlier_names_plain
    python3 earlier.py plain-whole.latents.safetensors
    "$WEFT" generate --decode-latents plain-whole.latents.safetensors --model "$wan" --frames-npy --out decoded.mp4 >decoded.log 2>&1 &&
        cmp decoded.npy plain-whole.npy || { cat decoded.log; fail "decoding latents of an earlier version"; }
}
check earlier_latents_are_decoded
finish
