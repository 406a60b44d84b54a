#!/bin/bash
# weft doctor --ranks prints a line per rank. The axes of a run have the ranks of its mesh. If the
# launcher places ranks round-robin, they are numbered machine by machine.
. "$SRC/tests/check.sh"
. "$SRC/tests/messages.sh"
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive
MPIRUN="$(command -v mpirun.openmpi || command -v mpirun)"
# both links of rank 2 have little bandwidth, both links of rank 0 much latency
WEFT_LINK="1 Gbit/s, 20 us, 1 per node; 1-2 0.1 Gbit/s, 20 us; 2-3 0.1 Gbit/s, 20 us; 0-1 1 Gbit/s, 1000 us; 0-3 1 Gbit/s, 1000 us" \
    "$MPIRUN" --oversubscribe -n 4 "$WEFT" doctor --ranks --parallel dp=2 --parallel cp=2 >doctor.txt 2>doctor.log || { cat doctor.log; fail "doctor"; }
every_rank_has_a_line() {
    for r in 0 1 2 3; do
        grep -qE "^ +$r  .*any.* GFLOP/s .* GB/s .* GB/s, .* us$" doctor.txt || { cat doctor.txt; fail "rank $r has no line"; }
    done
}
check every_rank_has_a_line
# A link model delays messages: load only adds to a measured latency, and takes from a bandwidth.
# Which ranks are outliers of such measurements: tests/doctor/rank_report_test.c
slow_links_are_measured() {
    python3 -S - <<'PY' || { cat doctor.txt; fail "a link is faster than its model"; }
import re
links = {int(m[1]): (float(m[2]), float(m[3]))
         for m in re.finditer(r"^ +(\d) .* ([\d.]+) GB/s, ([\d.]+) us$", open("doctor.txt").read(), re.M)}
assert links[0][1] >= 999 and all(links[r][1] >= 20 for r in links), links
assert links[2][0] < 0.0625, links # GB/s; 0.0125 in the model
PY
}
check slow_links_are_measured
axes_are_listed() {
    grep -qE '^dp +2 +2 .*rank 0 with 2$' doctor.txt && grep -qE '^cp +2 +1 .*rank 0 with 1$' doctor.txt || { cat doctor.txt; fail "the ranks of the axes"; }
}
check axes_are_listed
too_few_ranks_are_refused() {
    "$WEFT" doctor --ranks --parallel tp=2 >one.log 2>&1 && fail "tp=2 on one rank is not refused"
    has_message one.log layout-invalid text~=2 text~=1 || fail "the number of ranks is not named"
}
check too_few_ranks_are_refused
hosts_are_numbered_by_machine() {
unshare --uts hostname other >/dev/null 2>&1 || skip "this machine allows no second host name"
cat >host.sh <<'S'
#!/bin/bash
exec unshare --uts bash -c "hostname node$((OMPI_COMM_WORLD_RANK % 2)); exec \"\$@\"" sh "$@"
S
chmod +x host.sh
"$MPIRUN" --oversubscribe -n 4 ./host.sh "$WEFT" doctor --ranks --parallel tp=2 >hosts.txt 2>hosts.log || { cat hosts.log; fail "two hosts"; }
grep -q "the launcher started them as 0 2 1 3$" hosts.txt || { cat hosts.txt; fail "ranks are not numbered by machine"; }
[ "$(awk '$1 ~ /^[0-3]$/ {print $2}' hosts.txt | tr '\n' ' ')" = "node0 node0 node1 node1 " ] || { cat hosts.txt; fail "the hosts of the ranks"; }
grep -qE '^tp +2 +1  2 inside a machine: ' hosts.txt && grep -qE '^dp +2 +2  2 between machines: ' hosts.txt || { cat hosts.txt; fail "the axes over two hosts"; }
}
check hosts_are_numbered_by_machine
finish
