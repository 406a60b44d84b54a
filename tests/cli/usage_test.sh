#!/bin/bash
# Exit statuses and messages of the command line itself.
. "$SRC/tests/check.sh"
. "$SRC/tests/messages.sh"
unset WEFT_LOG_FORMAT # the plain form is tested, too
# expect STATUS PATTERN ARGUMENTS...: exit status, and a line of the version, usage or page
expect() { check "weft ${*:3} gives $1 and $2" expected "$@"; }
expected() {
    local status=$1 pattern=$2
    shift 2
    "$WEFT" "$@" >page.txt 2>&1
    local got=$?
    [ $got = "$status" ] && grep -qE -- "$pattern" page.txt || fail_with page.txt "weft $*: status $got, expected $status and '$pattern'"
}
expect 0 "^weft $(cat "$SRC/VERSION")$" --version
expect 0 '^usage: weft VERB' --help
expect 2 '^usage: weft VERB'
# refuse STATUS ID [FIELD=VALUE...] -- ARGUMENTS...: exit status, class and fields of the error
refuse() { check "refuses ${*:2}" refused "$@"; }
refused() {
    local status=$1 wanted=()
    shift
    while [ "$1" != -- ]; do wanted+=("$1"); shift; done
    shift
    WEFT_LOG_FORMAT=json "$WEFT" "$@" >out 2>&1
    local got=$?
    [ $got = "$status" ] && has_message out "${wanted[@]}" || fail "weft $*: status $got, expected $status and ${wanted[*]}"
}
refuse 2 verb-unknown value=docter "text~=doctor" -- docter
refuse 2 option-unknown key=--hlep verb=doctor "text~=--help" -- doctor --hlep
refuse 2 option-unknown value=x -- doctor x
expect 0 '^usage: weft doctor' doctor --help
expect 0 '^usage: weft doctor' help doctor
refuse 2 option-invalid key=--markdown -- help --markdown
refuse 2 option-invalid key=--man value=1 -- help --man=1
refuse 2 option-conflict key=--man -- help --man --man
expect 0 '^# weft doctor' help --markdown=doctor
refuse 1 option-conflict key=--ranks "text~=--collectives" -- doctor --collectives 8 --measure --ranks
refuse 1 option-conflict key=--measure "text~=--ranks" -- doctor --measure --ranks
refuse 1 option-no-effect key=--parallel "text~=--ranks" -- doctor --parallel tp=2
refuse 1 option-no-effect key=--out "text~=--collectives" -- doctor --out x.json
refuse 2 option-unknown key=--bogus verb=generate -- generate --bogus
an_unlike_option_is_not_suggested() { refused 2 option-unknown key=--bogus -- generate --bogus && ! has_message out option-unknown 'nearest=?*' 2>/dev/null; }
check an_unlike_option_is_not_suggested
only_existing_plugins_are_named() { "$WEFT" doctor >page.txt 2>&1 && ! grep -i plugin page.txt; }
check only_existing_plugins_are_named
refuse 2 option-unknown key=--promt "text~=--prompt" -- generate --promt
for option in '--ranks 4' '--iterations 2' '--svg x.svg'; do
    refuse 1 option-no-effect key="${option% *}" "text~=--dry-run" -- train x.yaml $option
done
# An error of all ranks is printed once. Different errors are printed by each rank.
ranks_share_one_error() {
    command -v mpirun >/dev/null || skip "mpirun is not installed"
    export WEFT_LOG_FORMAT=json
    mpirun -n 3 "$WEFT" generate --model x --prompt x --out x.mp4 --parallel foo=2 >out 2>&1
    [ "$(count_messages out config-unknown-key key=foo)" = 1 ] || fail_with out "not printed once"
    mpirun -n 1 "$WEFT" generate --bogus : -n 2 "$WEFT" generate --other >out 2>&1
    [ "$(count_messages out option-unknown key=--bogus) $(count_messages out option-unknown key=--other)" = "1 1" ] || fail_with out "not printed by each"
}
check ranks_share_one_error
refuse 2 option-unknown key=--ranke -- train x.yaml --ranke 2
refuse 2 option-unknown key=--mode -- generate --mode x
# A location in place of a path is named, and no folder s3: is created.
refuse 2 storage-location key=--model -- generate --model ftp://b/m --prompt x --out x.mp4
refuse 2 storage-location key=--state -- serve --model x --state s3://b/state
refuse 1 storage-location key=out -- train "$SRC/examples/demo/vae.yaml" --set out=https://b/out
no_folder_of_a_scheme() { [ ! -e s3: ]; }
check no_folder_of_a_scheme
for number in -1 65537 x 1.5 ""; do
    refuse 2 option-invalid key=--ranks value="$number" "text~=0 to 65536" -- train "$SRC/examples/demo/vae.yaml" --dry-run --ranks "$number"
done
for verb in $("$WEFT" help --verbs); do
    [ "$verb" = doctor ] || expect 0 "^usage: weft $verb" "$verb" --help
    refuse 2 option-unknown key=--no-such-option verb="$verb" -- "$verb" --no-such-option
done
# A full disk of standard output is an error.
a_full_disk_is_a_failure() {
    [ -w /dev/full ] || skip "/dev/full cannot be written"
    "$WEFT" doctor >/dev/full 2>err
    [ $? = 1 ] || fail "weft doctor >/dev/full must fail"
}
check a_full_disk_is_a_failure
# weft explain has every id of a message.
explain_lists_every_id() { "$WEFT" explain >ids && [ "$(wc -l <ids)" -gt 100 ]; }
check explain_lists_every_id
expect 0 '^config-unknown-key \(bad config\)$' explain config-unknown-key
# An id of an earlier version prints the class that it belongs to now.
former_id=$(sed -n 's/^FORMER("\([^"]*\)", RANK_FAILED)$/\1/p' "$SRC/src/base/message_former.def" | head -1)
expect 0 '^rank-failed \(communication error\)$' explain "$former_id"
refuse 1 option-invalid value=config-unknwon-key "text~=config-unknown-key" -- explain config-unknwon-key
finish
