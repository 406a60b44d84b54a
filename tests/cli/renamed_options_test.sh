#!/bin/bash
# Earlier names of options: each is accepted with one message that has the new name, printed by rank 0
# only. Both names of an option are a repetition. Suggestions have new names only. The help lists all.
. "$SRC/tests/check.sh"
. "$SRC/tests/messages.sh"
unset WEFT_LOG_FORMAT
# arguments with which each verb reads its command line and then stops
declare -A beside=(
    [generate]="--model none --prompt x" [eval]="cache --model none" [inspect]="model none" [plan]="cascades none.yaml"
    [profile]="none.yaml" [estimate]="--model none" [convert]="none none/out" [curate]="--in none --out none/out" [shots]="none.mp4" [simulate]="none.json"
    [synth]="--out /dev/null/x" [tokenize]="none x" [report]="--out /dev/null/x.html"
)
cat >names <<'N'
generate --guidance --guidance-scale 3
generate --guide --guidance-method cfg
generate --guidance-low --guidance-scale-2 3
generate --guidance-from --guidance-start 0.1
generate --guidance-until --guidance-end 0.9
generate --boundary --boundary-ratio 0.5
generate --negative --negative-prompt x
generate --noise --init-latents none.npy
generate --latents --latents-npy
generate --keep-latents --save-latents
generate --decode --decode-latents none.safetensors
generate --raw --frames-npy
generate --preview --preview-interval 2
generate --windows --window-mode blend
generate --identity --identity-image none.png
generate --identity-module --identity-encoder none
generate --cache --feature-cache fast
generate --slices --comm-overlap off
generate --tile --vae-tile on
generate --memory --memory-limit 1GiB
generate --batch --batch-size 2
generate --cluster --on h100
eval --try --setting steps=3
eval --least --timing-runs 2
eval --seen --training-combinations 2
eval --repeats --seeds 2
eval --guidance --guidance-scale 3
eval --guidance-from --guidance-start 0.1
eval --guidance-until --guidance-end 0.9
eval --tile --vae-tile on
eval --memory --memory-limit 1GiB
eval --batch --batch-size 2
eval --cluster --on h100
inspect --text --text-tokens 3
inspect --latents --latent-size
inspect --train --training-step
inspect --slices --comm-overlap off
inspect --batch --batch-size 2
inspect --cluster --on h100
plan --for --run-config none.yaml
plan --blocking --blocking-sends
plan --keys --list-keys
plan --memory --memory-limit 1GiB
plan --cluster --on h100
profile --against --compare none.json
profile --hidden --hidden-size 128
profile --tile --vae-tile on
profile --memory --memory-limit 1GiB
profile --batch --batch-size 2
profile --guidance --guidance-scale 3
convert --for --lora-format kohya
curate --forget --prune-missing
shots --mix --interpolate 0
simulate --folds --pass-splits 2
simulate --cluster --on h100
estimate --cluster --on h100
estimate --guide --guidance-method cfg
estimate --guidance-low --guidance-scale-2 3
estimate --guidance-from --guidance-start 0.1
estimate --guidance-until --guidance-end 0.9
estimate --boundary --boundary-ratio 0.5
estimate --windows --window-mode blend
estimate --identity --identity-image none.png
estimate --identity-module --identity-encoder none
estimate --cache --feature-cache fast
synth --nameless --unnamed-colour-share 0.5
tokenize --length --max-length 3
report --truth --reference-videos none
report --times --step-times none.json
N
accepted() { # VERB OLD NEW VALUE
    local verb=$1 old=$2 new=$3 value=$4
    export WEFT_LOG_FORMAT=json
    # shellcheck disable=SC2086
    "$WEFT" $verb ${beside[$verb]} $old $value >out 2>&1 </dev/null
    [ "$(count_messages out option-renamed "$old=$new")" = 1 ] || { cat out; fail "weft $verb $old: no message"; }
    for id in option-unknown option-conflict option-invalid; do
        [ "$(count_messages out $id)" = 0 ] || { cat out; fail "weft $verb $old: not accepted"; }
    done
    # shellcheck disable=SC2086
    "$WEFT" $verb ${beside[$verb]} $new $value >out 2>&1 </dev/null
    [ "$(count_messages out option-renamed "$old=?*")$(count_messages out option-unknown)" = 00 ] || fail_with out "weft $verb $new"
}
while read -r verb old new value; do check "weft $verb $old" accepted $verb $old $new "$value"; done <names

# The help has exactly these names.
help_lists_earlier_names() {
    for verb in $("$WEFT" help --verbs); do
        "$WEFT" help --markdown "$verb" | sed -nE "s/^\| \`(--[a-z0-9-]+).*also written \`(--[a-z0-9-]+)\`.*/$verb \2 \1/p"
    done | sort >listed
    cut -d' ' -f1-3 names | sort | diff - listed || fail "the help and this test list other names"
    "$WEFT" help --markdown shots | grep -q '^| `--interpolate LEVELS` .*; also written `--mix` |$' || fail "the Markdown page"
    "$WEFT" help --man shots | grep -q 'also written \\-\\-mix' || fail "the man page"
    ! "$WEFT" help --bash | grep -qE -- ' --(mix|guide|raw)[ "]' || fail "completion offers an earlier name"
}
check help_lists_earlier_names

# One message for all names, with its class, on rank 0 only; none with --help.
one_message_of_rank_0() {
    WEFT_LOG_FORMAT=json "$WEFT" generate --model none --prompt x --guidance 3 --raw --tile=on --decode a --decode b >out 2>&1
    has_message out option-renamed level=info --guidance=--guidance-scale --raw=--frames-npy --tile=--vae-tile --decode=--decode-latents ||
        fail "several"
    [ "$(count_messages out option-renamed)" = 1 ] || fail "several messages"
    export WEFT_LOG_FORMAT=json
    OMPI_COMM_WORLD_RANK=1 "$WEFT" tokenize none x --length 3 >out 2>&1
    [ "$(count_messages out option-renamed)" = 0 ] || { cat out; fail "rank 1 prints the names, too"; }
    "$WEFT" tokenize --length 3 --help >out 2>&1
    [ "$(count_messages out option-renamed)" = 0 ] || fail "a message with the help"
}
check one_message_of_rank_0

# Both names in one command are a repeated option.
both_names_are_a_repetition() {
    for pair in '--guidance 3 --guidance-scale 3' '--guidance-scale 3 --guidance 4' '--guidance 3 --guidance 3'; do
        # shellcheck disable=SC2086
        WEFT_LOG_FORMAT=json "$WEFT" generate --model none --prompt x $pair >out 2>&1
        [ $? = 2 ] && has_message out option-conflict key=--guidance-scale || fail "$pair"
    done
}
check both_names_are_a_repetition
# A suggestion is the new name, also for a mistyped earlier name.
suggestions_are_new_names() {
    for typed in --guidence --guidanc; do
        WEFT_LOG_FORMAT=json "$WEFT" generate $typed 3 >out 2>&1
        has_message out option-unknown key=$typed 'nearest=--guidance-?*' || { cat out; fail "$typed"; }
    done
    WEFT_LOG_FORMAT=json "$WEFT" generate --kep-latents >out 2>&1
    has_message out option-unknown nearest=--save-latents || fail "--kep-latents"
}
check suggestions_are_new_names
finish
