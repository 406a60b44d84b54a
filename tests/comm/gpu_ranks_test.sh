#!/bin/bash
# Ranks on emulated GPUs, one each. Losses and weights are bitwise the same over pinned memory and
# over NCCL's messages, and close with NCCL's sums. A killed rank is named.
. "$SRC/tests/check.sh"
. "$SRC/tests/messages.sh"
command -v mpirun.openmpi >/dev/null || skip "mpirun.openmpi is not installed"
ranks=$WEFT_BUILD/test-tools/ranks
export OMP_NUM_THREADS=1 WEFT_EMU_DEVICES=4
export WEFT_CUDA_LIBRARY=$WEFT_BUILD/emu/libcuda.so.1 WEFT_NCCL_LIBRARY=$WEFT_BUILD/emu/libnccl.so.2
[ -e "$WEFT_NCCL_LIBRARY" ] || skip "no emulated NCCL"
mpi() { mpirun.openmpi "$@"; }

"$ranks" train 4 plain cuda >one 2>err || {
    has_message err gpu-kernels && skip "no clang"
    fail_with err "one rank"
}
# near A B: the losses of two runs differ by rounding only
near() {
    paste <(grep ^step "$1") <(grep ^step "$2") | awk '{d=$5-$10; if (d<0) d=-d; if (!(d<=1e-5*$5) || $2!=$7) bad=1} END{exit bad||NR!=4}'
}
run() { # MODE N
    WEFT_NCCL=$1 WEFT_EMU_NCCL_COUNT=$PWD/count.$1.$2 mpi -n "$2" "$ranks" train 4 plain cuda >"$1.$2" 2>err || fail_with err "$2 ranks, $1"
    [ "$(awk '/^weights/{print $NF}' "$1.$2" | sort -u | wc -l)" = 1 ] || fail "$2 ranks, $1: weights differ between ranks"
    near one "$1.$2" || fail "$2 ranks, $1: losses differ from one rank"
}
# counted FILE N: each of N ranks has more than no messages, or collectives
counted() { awk -v n="$2" -v c="$3" '$c > 0 {m++} END {exit m != n}' "$1"; }
gpus_exchange() { # N
    run off "$1"
    [ ! -e "count.off.$1" ] || fail "NCCL is used although it is off"
    run exact "$1"
    counted "count.exact.$1" "$1" 1 || fail "NCCL sends nothing"
    cmp "off.$1" "exact.$1" || fail "NCCL changes the bits"
    run fast "$1"
    counted "count.fast.$1" "$1" 2 || fail "no sums of NCCL"
}
for n in 2 4; do check "gpus_exchange_$n" gpus_exchange "$n"; done

# All ranks print the same rates, of NCCL; without NCCL the rates are 0.
rates_of_connections() {
    mpi -n 2 "$ranks" gpus >rates 2>err || fail_with err "the rates of two GPUs"
    python3 -S - <<'PY' || fail_with rates "not two equal lines with rates of NCCL"
import json
first, second = [json.loads(line) for line in open("rates")]
assert first == second and first["library"] == "NCCL" and first["ring"] > 0 and first["all_reduce"] > 0, first
PY
    WEFT_NCCL=off mpi -n 2 "$ranks" gpus >rates 2>err || fail_with err "two GPUs without NCCL"
    [ "$(sort -u rates)" = '{"library": "", "ring": 0, "all_reduce": 0}' ] || fail_with rates "rates without NCCL"
}
check rates_of_connections

# Two ranks share a GPU, which NCCL refuses: their messages pass pinned memory.
ranks_that_share_a_gpu_do_without() {
    needs gpus_exchange_2
    WEFT_EMU_DEVICES=1 WEFT_EMU_NCCL_COUNT=$PWD/count.shared mpi -n 2 "$ranks" train 4 plain cuda >shared 2>err || fail_with err "a shared GPU"
    cmp off.2 shared || fail "a shared GPU changes the bits"
    [ ! -e count.shared ] || fail "NCCL connects ranks of one GPU"
}
check ranks_that_share_a_gpu_do_without

a_killed_rank_is_named() { # MODE
    WEFT_NCCL=$1 mpi -n 2 --enable-recovery "$ranks" kill 5 plain cuda >out 2>err
    has_message err rank-failed rank=1 level=error || fail_with err "$1: rank 0 does not name rank 1"
}
for mode in off exact; do check "a_killed_rank_is_named_$mode" a_killed_rank_is_named "$mode"; done
finish
