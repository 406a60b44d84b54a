#!/bin/bash
# The communicator over MPI: 2 and 3 ranks give the losses of 1 rank, twice the same bits, ordered or not; a rank that
# dies, sleeps or fails ends the others with a message that names it.
. "$SRC/tests/check.sh"
. "$SRC/tests/messages.sh"
command -v mpirun.openmpi >/dev/null || skip "mpirun.openmpi is not there"
export OMP_NUM_THREADS=1
ranks=$WEFT_BUILD/test-tools/ranks
mpi() { timeout 60 mpirun.openmpi "$@"; }

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

ends_with() { # MODE PATTERN EXTRA...: every surviving rank says PATTERN, the exit code is not 0
    local mode=$1 pattern=$2
    shift 2
    local begin=$SECONDS
    mpi -n 3 "$@" "$ranks" "$mode" >out 2>err
    local status=$?
    [ $status -ne 0 ] || fail "$mode: exit code 0"
    grep -q "$pattern" err || { cat err; fail "$mode: no message like \"$pattern\""; }
    [ $((SECONDS - begin)) -lt 40 ] || fail "$mode: took $((SECONDS - begin)) s"
}
check a_sleeping_rank_is_named ends_with stall 'rank [02] .*error\[rank-failed\]: rank [02] waited [3-9]\.[0-9] s in .* for rank 1 (alive'
check a_failed_rank_is_named ends_with fail 'rank [02] .*error\[rank-failed\]: rank 1 .*the loss is not a number'
# the launcher may end the others before they can speak; without its help they must notice themselves
a_killed_rank_is_named() {
    mpi -n 3 "$ranks" kill >out 2>err && fail "kill: exit code 0"
    mpi -n 3 --enable-recovery "$ranks" kill >out 2>err
    [ "$(grep -c 'rank [02] .*error\[rank-failed\]: .*rank 1 exited (process' err)" = 2 ] || { cat err; fail "kill: the others do not name it"; }
}
check a_killed_rank_is_named

# what is expected and does not come is looked for ever more rarely beside kernels: 200 times in 0.3 s, not 1,800
waiting_looks_ever_more_rarely() {
    looks=$(mpi -n 2 "$ranks" quiet)
    [ "${looks:-9999}" -gt 20 ] && [ "$looks" -lt 700 ] || fail "quiet: $looks looks in 0.3 s"
}
check waiting_looks_ever_more_rarely

# modelled links: 4 MB take no less than modelled, 0.32 s at a tenth of the speed, between nodes and inside one
link() { WEFT_LINK=$1 mpi -n 4 "$ranks" link; }
modelled_links_take_their_time() {
    for place in ", 1 per node" ", 4 per node; inside SPEED, 5 us" ", 1 per node; 3-0 SPEED, 5 us"; do
        fast=$(link "1 Gbit/s, 5 us${place/SPEED/1 Gbit/s}")
        slow=$(link "$([[ $place == *SPEED* ]] && echo 1 || echo 0.1) Gbit/s, 5 us${place/SPEED/0.1 Gbit/s}")
        awk -v a="$fast" -v b="$slow" 'BEGIN { exit !(a > 0 && a > 0.03 && b > 0.3 && b > a) }' || fail "links$place: $fast s and $slow s"
    done
}
check modelled_links_take_their_time
an_invalid_link_is_refused() {
    WEFT_LINK="1 Gbit" mpi -n 2 "$ranks" link 2>err && fail "a link model that is none"
    grep -q 'error\[environment-value\]: WEFT_LINK: "1 Gbit"' err || fail "a link model that is none: no message"
}
check an_invalid_link_is_refused
finish
