# shellcheck shell=bash
# A Slurm cluster of two nodes, n1 and n2, on this machine, for scripts of `make test-long`. Needs the Debian packages
# slurmctld, slurmd, slurm-client and munge; skips the script without them. The daemons belong to this folder: own ports,
# keys and sockets, on 127.0.0.1 only. Source this file after check.sh:
#   start_cluster           returns when both nodes are idle, and ends the cluster with the script
#   start_node NODE         starts the daemon of a node again
#   kill_node NODE          kills the daemon alone; its jobs run on
#   state_of JOB            PENDING, RUNNING, COMPLETED, FAILED, CANCELLED, ...
#   until_true COMMAND...   waits until the command succeeds; after five minutes the check fails
#   start_now JOB           waits until a requeued job is queued, and ends its delay of two minutes
for tool in slurmctld slurmd sbatch srun munged mungekey; do
    [ -x "$(PATH=$PATH:/usr/sbin command -v $tool)" ] || skip "no $tool (Debian: slurmctld slurmd slurm-client munge)"
done
[ "$(id -u)" = 0 ] || skip "only root can start the daemons of a cluster"
PATH=$PATH:/usr/sbin
cluster=$PWD/cluster
export SLURM_CONF=$cluster/slurm.conf

write_slurm_conf() { # FIRST PORT
    cat >"$SLURM_CONF" <<CONF
ClusterName=weft
SlurmctldHost=localhost(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$cluster/munge.socket
CredType=cred/munge
SlurmctldPort=$1
StateSaveLocation=$cluster/state
SlurmdSpoolDir=$cluster/spool/%n
SlurmctldPidFile=$cluster/slurmctld.pid
SlurmdPidFile=$cluster/slurmd-%n.pid
SlurmctldLogFile=$cluster/slurmctld.log
SlurmdLogFile=$cluster/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SwitchType=switch/none
TmpFS=$cluster/tmp/%n
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
SlurmdTimeout=10
SlurmctldTimeout=10
KillWait=30
MinJobAge=900
SchedulerParameters=sched_interval=2,batch_sched_delay=0
JobRequeue=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
NodeName=n[1-2] NodeHostname=localhost NodeAddr=127.0.0.1 Port=[$(($1 + 1))-$(($1 + 2))] CPUs=2 RealMemory=2000 State=UNKNOWN
PartitionName=low Nodes=ALL Default=YES MaxTime=60 PriorityTier=1 State=UP
PartitionName=high Nodes=ALL MaxTime=60 PriorityTier=10 PreemptMode=off State=UP
CONF
}
until_true() {
    local tries=0
    until "$@"; do
        [ $((tries += 1)) -lt 3000 ] || fail "not reached in five minutes: $*"
        sleep 0.1
    done
}
# Daemons are direct children: $! is the number.
start_node() {
    slurmd -D -N "$1" >"$cluster/$1.out" 2>&1 &
    echo $! >"$cluster/$1.number"
}
kill_node() { kill -KILL "$(cat "$cluster/$1.number")"; }
nodes_are_idle() { [ "$(sinfo -hNo '%N %T' | sort -u | grep -c ' idle$')" = 2 ]; }
controller_answers() { scontrol ping 2>/dev/null | grep -q UP; }
state_of() { scontrol show job "$1" 2>/dev/null | sed -n 's/.*JobState=\([A-Z_]*\).*/\1/p' | head -n 1; }
has_state() { [[ " ${*:2} " = *" $(state_of "$1") "* ]]; }
start_now() {
    until_true has_state "$1" PENDING
    until_true scontrol update "jobid=$1" StartTime=now
}
stop_cluster() {
    local name
    scancel --state=RUNNING --signal=KILL 2>/dev/null
    scancel --state=PENDING 2>/dev/null
    scontrol shutdown >/dev/null 2>&1
    for name in slurmctld n1 n2; do
        timeout 20 tail --pid="$(cat "$cluster/$name.number")" -f /dev/null || kill -KILL "$(cat "$cluster/$name.number")"
    done 2>/dev/null
    kill "$(cat "$cluster/munge.pid")"
}
start_cluster() {
    local tries port
    mkdir -p "$cluster"/{state,spool/n1,spool/n2,tmp/n1,tmp/n2,munge}
    chmod 755 "$cluster" && chmod 700 "$cluster/munge"
    mungekey --create --keyfile="$cluster/munge/key" || fail "no key of munge"
    munged --force --key-file="$cluster/munge/key" --socket="$cluster/munge.socket" --pid-file="$cluster/munge.pid" \
        --seed-file="$cluster/munge/seed" --log-file="$cluster/munge/log" 2>/dev/null || fail_with "$cluster/munge/log" munged
    trap stop_cluster EXIT
    for tries in 1 2 3 4 5; do # another cluster may have the ports
        port=$((20000 + RANDOM % 12000))
        write_slurm_conf $port
        slurmctld -D -c >"$cluster/slurmctld.out" 2>&1 &
        echo $! >"$cluster/slurmctld.number"
        for _ in $(seq 100); do
            controller_answers && break 2
            kill -0 "$(cat "$cluster/slurmctld.number")" 2>/dev/null || break
            sleep 0.1
        done
    done
    controller_answers || fail_with "$cluster/slurmctld.log" "slurmctld does not start"
    start_node n1
    start_node n2
    until_true nodes_are_idle
}
