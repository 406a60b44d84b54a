#!/bin/bash
# Scripts read messages by class and field (tests/messages.sh), not by their wording: no script may
# have more grep, sed or awk on a log than tests/tools/log_greps.txt allows, where each has a reason.
# The counts may only fall: GREPS=write writes them, and a script with fewer than its count fails, too.
# A page or table on standard output (weft inspect, weft doctor, weft parity, a plan) is a product of
# the verb. Scripts keep such a page in NAME.txt, and it does not count.
. "$SRC/tests/check.sh"
limits=$SRC/tests/tools/log_greps.txt
count_greps() {
    python3 -S - "$SRC" <<'PY'
import glob, os, re, sys
os.chdir(sys.argv[1])
# a log by its name: x.log, $name.log, and the names that scripts give to standard output and error
log = r"""(?:[\w$"{}/-]*\.(?:log|stop)|err|error|out|log)"?(?=[\s;)|&]|$)"""
read = re.compile(r"""\b(?:grep|sed -n|awk)\b(?:[^|;&'"]|'[^']*'|"(?:[^"\\]|\\.)*")*?\s<?""" + log)
for path in sorted(glob.glob("tests/**/*.sh", recursive=True)):
    if path.startswith("tests/tools/") or os.path.dirname(path) == "tests":
        continue
    count = sum(len(read.findall(line)) for line in open(path) if not line.lstrip().startswith("#"))
    if count:
        print(path, count)
PY
}
count_greps >counts.txt
if [ "${GREPS-}" = write ]; then # a script keeps its reason
    while read -r path count; do
        reason=$(sed -n "s|^$path [0-9]* ||p" "$limits")
        echo "$path $count ${reason:-no reason is written}"
    done <counts.txt >written.txt && cp written.txt "$limits"
fi
no_script_reads_more_prose() {
    cut -d' ' -f1,2 "$limits" | diff - counts.txt || fail "tests/messages.sh reads a class and its fields; fewer than allowed: GREPS=write"
}
check no_script_reads_more_prose
every_script_has_a_reason() { ! grep -vE '^[^ ]+ [0-9]+ .{20,}$' "$limits"; }
check every_script_has_a_reason
a_grep_of_a_log_is_counted() {
    SRC=$PWD
    mkdir -p tests/suite
    cat >tests/suite/x_test.sh <<'S'
grep -q "going on" run.log || fail
# grep -q "a comment" run.log
n=$(sed -n 's/step \([0-9]*\)/\1/p' "$name.log")
grep -q '"fps": 12' weft.json
has_message run.log run-resumed value=5
S
    [ "$(count_greps)" = "tests/suite/x_test.sh 2" ] || fail "counted: $(count_greps)"
}
check a_grep_of_a_log_is_counted
finish
