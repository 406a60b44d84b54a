#!/bin/bash
# The communicator over MPI: 2 and 3 ranks give the losses of 1 rank, repeated runs are bitwise
# identical, also with the pass comm_order. If a rank is killed, stalls or fails, the other ranks
# exit with a message that names it.
. "$SRC/tests/check.sh"
. "$SRC/tests/messages.sh"
command -v mpirun.openmpi >/dev/null || skip "mpirun.openmpi is not installed"
export OMP_NUM_THREADS=1
ranks=$WEFT_BUILD/test-tools/ranks
mpi() { mpirun.openmpi "$@"; }

"$ranks" train 12 >one || fail "one rank"
ranks_have_the_losses_of_one() { # N
    local n=$1
    mpi -n $n "$ranks" train 12 >a.$n || fail "$n ranks"
    mpi -n $n "$ranks" train 12 >b.$n || fail "$n ranks again"
    mpi -n $n "$ranks" train 12 order >c.$n || fail "$n ranks, ordered"
    cmp a.$n b.$n || fail "$n ranks: two runs differ"
    cmp a.$n c.$n || fail "$n ranks: the pass comm_order changes the results"
    [ "$(grep -c '^weights' a.$n)" = $n ] || fail "$n ranks: no checksums"
    [ "$(awk '/^weights/{print $NF}' a.$n | sort -u | wc -l)" = 1 ] || fail "$n ranks: weights differ between ranks"
    paste <(grep ^step one) <(grep ^step a.$n) | awk '{d=$5-$10; if (d<0) d=-d; if (!(d<=1e-5*$5) || $2!=$7) bad=1} END{exit bad||NR!=12}' ||
        fail "$n ranks: losses differ from one rank"
}
for n in 2 3; do check "ranks_have_the_losses_of_one_$n" ranks_have_the_losses_of_one "$n"; done

a_stalled_rank_is_named() {
    mpi -n 3 "$ranks" stall >out 2>err && fail "stall: exit code 0"
    has_message err rank-failed rank=1 'value=?*' level=error || fail "stall: another message than expected"
    # not before the timeout of 3 s
    python3 -S -c 'import sys; sys.exit(not float(sys.argv[1]) >= 3)' "$(message_field value err rank-failed rank=1 'value=?*')" ||
        fail "the rank is given up before the timeout"
}
check a_stalled_rank_is_named
# The launcher may end the other ranks before they print a message. Without the launcher
# (--enable-recovery) they must detect the failure, and this run has no timeout.
a_rank_is_named_after() { # MODE FIELD...
    local mode=$1
    shift
    mpi -n 3 "$ranks" "$mode" >out 2>err && fail "$mode: exit code 0"
    mpi -n 3 --enable-recovery "$ranks" "$mode" >out 2>err
    [ "$(count_messages err rank-failed "$@" value= level=error)" = 2 ] || { cat err; fail "$mode: the other ranks do not name rank 1"; }
}
check a_failed_rank_is_named a_rank_is_named_after fail rank=1
# The second rank that detects the failure may get the error of the first, and names the first as
# its source.
check a_killed_rank_is_named a_rank_is_named_after kill 'text~=rank 1 exited (process'

# While kernels run, a missing message is polled at growing intervals: eight sleeps of each length.
polling_intervals_grow() {
    case $WEFT_BUILD in */asan | */tsan) skip "the tool does not replace functions of sanitizers" ;; esac
    mpi -n 2 "$ranks" quiet >looks || fail "quiet"
    python3 -S - <<'P' || { cat looks; fail "other sleeps between polls"; }
us = [int(line) for line in open("looks")]
us = us[us.index(120):] # sleeps before the message was expected
at = us.index(240)
assert set(us[:at]) == {120} and at >= 7, us
assert us[at:at + 24] == [240] * 8 + [480] * 8 + [960] * 8, us
assert set(us[at + 24:]) == {1920}, us
P
}
check polling_intervals_grow

# Simulated links: 4 MB need at least 0.03 s, or 0.3 s at a tenth of the bandwidth, between nodes
# and inside a node.
link() { WEFT_LINK=$1 mpi -n 4 "$ranks" link; }
no_message_is_early_on_a_simulated_link() {
    for place in ", 1 per node" ", 4 per node; inside SPEED, 5 us" ", 1 per node; 3-0 SPEED, 5 us"; do
        fast=$(link "1 Gbit/s, 5 us${place/SPEED/1 Gbit/s}")
        slow=$(link "$([[ $place == *SPEED* ]] && echo 1 || echo 0.1) Gbit/s, 5 us${place/SPEED/0.1 Gbit/s}")
        awk -v a="$fast" -v b="$slow" 'BEGIN { exit !(a > 0.03 && b > 0.3) }' || fail "links$place: $fast s and $slow s"
    done
}
check no_message_is_early_on_a_simulated_link
an_invalid_link_is_refused() {
    WEFT_LINK="1 Gbit" mpi -n 2 "$ranks" link 2>err && fail "an invalid WEFT_LINK is accepted"
    has_message err option-invalid key=WEFT_LINK value='1 Gbit' level=error || fail "an invalid WEFT_LINK is not reported"
}
check an_invalid_link_is_refused
finish
