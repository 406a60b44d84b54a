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

# ---- places -------------------------------------------------------------------------------------
# A machine of two NUMA nodes of one core: GPUs 2 and 3 are near core 0, GPUs 0 and 1 near core 1.
part() { # NUMBER MASK FIRST_BUS
    cat <<X
 <object type="Package" os_index="$1" cpuset="$2" complete_cpuset="$2" nodeset="$2" complete_nodeset="$2" gp_index="${1}2">
  <object type="NUMANode" os_index="$1" cpuset="$2" complete_cpuset="$2" nodeset="$2" complete_nodeset="$2" gp_index="${1}3" local_memory="4000000000"/>
  <object type="Core" os_index="$1" cpuset="$2" complete_cpuset="$2" nodeset="$2" complete_nodeset="$2" gp_index="${1}4">
   <object type="PU" os_index="$1" cpuset="$2" complete_cpuset="$2" nodeset="$2" complete_nodeset="$2" gp_index="${1}5"/>
  </object>
  <object type="Bridge" gp_index="${1}6" bridge_type="0-1" depth="0" bridge_pci="0000:[$3-$(($3 + 1))]">
   <object type="PCIDev" gp_index="${1}7" pci_busid="0000:$3:00.0" pci_type="0302 [10de:2330] [10de:16c1] a1" pci_link_speed="63.015385"/>
   <object type="PCIDev" gp_index="${1}8" pci_busid="0000:$(($3 + 1)):00.0" pci_type="0302 [10de:2330] [10de:16c1] a1" pci_link_speed="63.015385"/>
  </object>
 </object>
X
}
cat >on_machine <<'S'
#!/bin/bash
export HWLOC_XMLFILE=$PWD/machine.xml HWLOC_THISSYSTEM=1
[ "$BIND" = none ] || exec taskset -c $((OMPI_COMM_WORLD_LOCAL_RANK % 2)) "$@"
exec "$@"
S
chmod +x on_machine
# places BIND LINE...: the ranks' places, by local rank
places() {
    local bind=$1
    shift
    BIND=$bind mpi -n 4 ./on_machine "$ranks" place >places 2>err || fail_with err "places of four ranks"
    diff <(printf '%s\n' "$@") <(sort places) || fail "other places than these"
}
ranks_use_gpus_near_their_cores() {
    [ "$(env -u OMP_NUM_THREADS nproc)" = "$(nproc --all)" ] && taskset -c 0,1 true && taskset -c 1 true || skip "this needs cores 0 and 1"
    {
        echo '<?xml version="1.0" encoding="UTF-8"?><!DOCTYPE topology SYSTEM "hwloc2.dtd"><topology version="2.0">'
        echo '<object type="Machine" os_index="0" cpuset="0x3" complete_cpuset="0x3" allowed_cpuset="0x3" nodeset="0x3" complete_nodeset="0x3" allowed_nodeset="0x3" gp_index="1">'
        part 0 0x1 12
        part 1 0x2 10
        echo '</object></topology>'
    } >machine.xml
    places cores "0: GPU 2, cores 0" "1: GPU 0, cores 1" "2: GPU 3, cores 0" "3: GPU 1, cores 1"
    places none "0: GPU 0, cores 1" "1: GPU 1, cores 1" "2: GPU 2, cores 0" "3: GPU 3, cores 0"
    WEFT_CUDA_BIND=off BIND=none mpi -n 2 ./on_machine "$ranks" place >places 2>err || fail_with err "without a binding"
    ! grep -qE 'cores [01]$' places || fail_with places "bound although WEFT_CUDA_BIND=off"
}
check ranks_use_gpus_near_their_cores

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
