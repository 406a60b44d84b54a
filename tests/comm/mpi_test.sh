#!/bin/bash
# The communicator over MPI: 2 and 3 ranks give the losses of 1 rank, twice the same bits, ordered or not; a rank that
# dies, sleeps or fails ends the others with a message that names it.
. "$SRC/tests/check.sh"
. "$SRC/tests/messages.sh"
command -v mpirun.openmpi >/dev/null || skip "mpirun.openmpi is not there"
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
    cmp a.$n c.$n || fail "$n ranks: pass order changes bits"
    [ "$(grep -c '^weights' a.$n)" = $n ] || fail "$n ranks: no checksums"
    [ "$(awk '/^weights/{print $NF}' a.$n | sort -u | wc -l)" = 1 ] || fail "$n ranks: weights differ between ranks"
    paste <(grep ^step one) <(grep ^step a.$n) | awk '{d=$5-$10; if (d<0) d=-d; if (!(d<=1e-5*$5) || $2!=$7) bad=1} END{exit bad||NR!=12}' ||
        fail "$n ranks: losses differ from one rank"
}
for n in 2 3; do check "ranks_have_the_losses_of_one_$n" ranks_have_the_losses_of_one "$n"; done

a_sleeping_rank_is_named() {
    mpi -n 3 "$ranks" stall >out 2>err && fail "stall: exit code 0"
    has_message err rank-failed rank=1 'value=?*' level=error || fail "stall: not as expected"
    # not before the deadline of 3 s
    python3 -c 'import sys; sys.exit(not float(sys.argv[1]) >= 3)' "$(message_field value err rank-failed rank=1 'value=?*')" ||
        fail "it is given up before the deadline"
}
check a_sleeping_rank_is_named
# The launcher may end the others before they can speak. Without its help they must notice themselves, and there is no deadline.
a_rank_is_named_after() { # MODE FIELD...
    local mode=$1
    shift
    mpi -n 3 "$ranks" "$mode" >out 2>err && fail "$mode: exit code 0"
    mpi -n 3 --enable-recovery "$ranks" "$mode" >out 2>err
    [ "$(count_messages err rank-failed "$@" value= level=error)" = 2 ] || { cat err; fail "$mode: the others do not name it"; }
}
check a_failed_rank_is_named a_rank_is_named_after fail rank=1
# The second rank that notices may get the error of the first, and then names it as its source.
check a_killed_rank_is_named a_rank_is_named_after kill 'text~=rank 1 exited (process'

# what is expected and does not come is looked for ever more rarely beside kernels: eight sleeps of each length
waiting_looks_ever_more_rarely() {
    case $WEFT_BUILD in */asan | */tsan) skip "the tool does not replace functions of sanitizers" ;; esac
    mpi -n 2 "$ranks" quiet >looks || fail "quiet"
    python3 - <<'P' || { cat looks; fail "other sleeps between looks"; }
us = [int(line) for line in open("looks")]
us = us[us.index(120):] # what was waited for before the message was expected
at = us.index(240)
assert set(us[:at]) == {120} and at >= 7, us
assert us[at:at + 24] == [240] * 8 + [480] * 8 + [960] * 8, us
assert set(us[at + 24:]) == {1920}, us
P
}
check waiting_looks_ever_more_rarely

# modelled links: 4 MB are never there before the modelled 0.03 s, or 0.3 s at a tenth of the speed, between nodes and inside one
link() { WEFT_LINK=$1 mpi -n 4 "$ranks" link; }
no_message_is_early_on_a_modelled_link() {
    for place in ", 1 per node" ", 4 per node; inside SPEED, 5 us" ", 1 per node; 3-0 SPEED, 5 us"; do
        fast=$(link "1 Gbit/s, 5 us${place/SPEED/1 Gbit/s}")
        slow=$(link "$([[ $place == *SPEED* ]] && echo 1 || echo 0.1) Gbit/s, 5 us${place/SPEED/0.1 Gbit/s}")
        awk -v a="$fast" -v b="$slow" 'BEGIN { exit !(a > 0.03 && b > 0.3) }' || fail "links$place: $fast s and $slow s"
    done
}
check no_message_is_early_on_a_modelled_link
an_invalid_link_is_refused() {
    WEFT_LINK="1 Gbit" mpi -n 2 "$ranks" link 2>err && fail "a link model that is none"
    has_message err environment-value key=WEFT_LINK value='1 Gbit' level=error || fail "a link model that is none: no message"
}
check an_invalid_link_is_refused
finish
