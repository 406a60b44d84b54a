#!/bin/bash
# Exit statuses and messages of the command line itself.
set -u
failures=0
# expect STATUS PATTERN ARGUMENTS...: exit status, and a line of the output that matches
expect() {
    local status=$1 pattern=$2
    shift 2
    "$WEFT" "$@" >out 2>&1
    local got=$?
    if [ $got != "$status" ] || ! grep -qE -- "$pattern" out; then
        echo "weft $*: status $got, expected $status and '$pattern':"
        cat out
        failures=$((failures + 1))
    fi
}
expect 0 "^weft $(cat "$SRC/VERSION")$" --version
expect 0 '^usage: weft VERB' --help
expect 2 '^usage: weft VERB'
expect 2 "unknown verb 'docter' \(did you mean 'doctor'\?\)" docter
expect 2 "unknown option '--hlep' \(did you mean '--help'\?\)" doctor --hlep
expect 2 "unexpected argument 'x'" doctor x
expect 0 '^usage: weft doctor' doctor --help
expect 0 '^usage: weft doctor' help doctor
expect 2 '--markdown needs a value' help --markdown
expect 2 '--man takes no value' help --man=1
expect 2 '--man is given twice' help --man --man
expect 0 '^# weft doctor' help --markdown=doctor
expect 1 '^weft doctor: --ranks does nothing beside --collectives' doctor --collectives 8 --measure --ranks
expect 1 '^weft doctor: --measure does nothing beside --ranks' doctor --measure --ranks
expect 1 '^weft doctor: --parallel goes with --ranks' doctor --parallel tp=2
expect 1 '^weft doctor: --out goes with --collectives' doctor --out x.json
expect 2 "^weft generate: unknown option '--bogus' \(weft generate --help lists them\)" generate --bogus
expect 2 "unknown option '--promt' \(did you mean '--prompt'\?\)" generate --promt
for option in '--ranks 4' '--iterations 2' '--svg x.svg'; do
    expect 1 "^weft train: ${option% *} has an effect only with --dry-run" train x.yaml $option
done
# an error that all ranks have is printed by one of them, errors of their own by each
if command -v mpirun >/dev/null; then
    mpirun -n 3 "$WEFT" generate --model x --prompt x --out x.mp4 --parallel foo=2 >out 2>&1
    [ "$(grep -c "unknown key 'foo'" out)" = 1 ] || { cat out; failures=$((failures + 1)); }
    mpirun -n 1 "$WEFT" generate --bogus : -n 2 "$WEFT" generate --other >out 2>&1
    [ "$(grep -c "unknown option '--bogus'" out) $(grep -c "unknown option '--other'" out)" = "1 1" ] || { cat out; failures=$((failures + 1)); }
fi
expect 2 "unknown option '--ranke'" train x.yaml --ranke 2
expect 2 "unknown option '--mode'" generate --mode x
for number in -1 65537 x 1.5 ""; do
    expect 2 "--ranks: '$number' is not an integer from 0 to 65536" train "$SRC/examples/demo/vae.yaml" --dry-run --ranks "$number"
done
for verb in $("$WEFT" help --verbs); do
    expect 0 "^usage: weft $verb" "$verb" --help
    expect 2 "unknown option '--no-such-option'" "$verb" --no-such-option
done
# a full disk behind standard output is a failure
if [ -w /dev/full ]; then
    "$WEFT" doctor >/dev/full 2>err
    [ $? = 1 ] || { echo "weft doctor >/dev/full must fail"; failures=$((failures + 1)); }
fi
exit $((failures > 0))
