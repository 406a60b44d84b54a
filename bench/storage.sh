#!/bin/bash
# bench/storage.sh: weft next to `aws s3 cp` and rclone on objects of a server of this machine. Then the
# loader's samples/s from the server, next to a folder, webdataset and MosaicML streaming. Every round
# runs all programs in turn; the figures are medians. $STORAGE_TOOLS: folder with juicefs, rclone, aws
# (each is optional, but for one server). $STORAGE_PYTHON: Python with webdataset and streaming. MIB:
# size of the object. ROUNDS: rounds. SERVERS: some of both servers. B: one part (objects, samples,
# cold or clips); default: all. STEPS: milliseconds of steps. The figures need a machine without other load.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
program=${PROGRAM-$here/../build/bench/storage}
PATH=${STORAGE_TOOLS:+$STORAGE_TOOLS:}$PATH
mib=${MIB-256} rounds=${ROUNDS-3} part=${B-} steps=${STEPS-1 2 4 8}
scratch=$(mktemp -d)
pids=()
trap 'kill "${pids[@]}" 2>/dev/null || :; wait; rm -rf "$scratch"' EXIT
cd "$scratch"
export HOME=$scratch AWS_ACCESS_KEY_ID=testkey1 AWS_SECRET_ACCESS_KEY=testsecret12 AWS_REGION=us-east-1
export AWS_EC2_METADATA_DISABLED=true AWS_REQUEST_CHECKSUM_CALCULATION=when_required
export AWS_RESPONSE_CHECKSUM_VALIDATION=when_required WEFT_CACHE=$scratch/cache
port=$((20000 + RANDOM % 20000))
serve() { # SERVER: starts it and sets AWS_ENDPOINT_URL
    port=$((port + 1))
    export AWS_ENDPOINT_URL=http://127.0.0.1:$port
    case $1 in
    juicefs)
        juicefs format --storage file --bucket "$scratch/data/" --trash-days 0 "sqlite3://$scratch/meta.db" test >log 2>&1
        MINIO_ROOT_USER=testkey1 MINIO_ROOT_PASSWORD=testsecret12 juicefs gateway --no-bgjob --backup-meta 0 \
            --no-usage-report --multi-buckets --keep-etag --object-meta --no-banner --cache-dir "$scratch/jfs" \
            --log "$scratch/gw.log" "sqlite3://$scratch/meta.db" 127.0.0.1:$port >log 2>&1 &
        ;;
    rclone)
        mkdir -p served
        rclone serve s3 --config /dev/null --addr 127.0.0.1:$port --auth-key testkey1,testsecret12 \
            --vfs-cache-mode off served >log 2>&1 &
        ;;
    esac
    pids+=($!)
    for _ in $(seq 100); do (: <>"/dev/tcp/127.0.0.1/$port") 2>/dev/null && break || sleep 0.1; done
    aws s3 mb s3://bucket >/dev/null
}
mbps() { # COMMAND...: MB/s of moving the object
    local began=$EPOCHREALTIME
    "$@" >log 2>&1 || { cat log >&2; return 1; }
    python3 -IS -c "print('%.1f' % ($mib * 1.048576 / ($EPOCHREALTIME - $began)))"
}
synced() { "$@" && sync got; } # with the wait for the disk that weft's copies have
rcl() { rclone --config /dev/null --s3-provider Other --s3-env-auth --s3-endpoint "$AWS_ENDPOINT_URL" --s3-force-path-style "$@"; }
median() { tr ' ' '\n' <<<"$*" | sed '/^$/d' | sort -g | sed -n "$((($# + 1) / 2))p"; }
over() { python3 -IS -c 'import sys; a, b = sys.argv[1:]; print("%.2f" % (float(a) / float(b)) if a and b else "-")' "$1" "$2"; }

head -c "$((mib << 20))" /dev/urandom >object
servers=()
for server in ${SERVERS-juicefs rclone}; do command -v $server >/dev/null && servers+=($server); done
objects() {
    echo "| server | direction | weft MB/s | aws s3 cp MB/s | rclone MB/s | to the faster |"
    echo "|---|---|---|---|---|---|"
    for server in "${servers[@]}"; do
        serve $server
        up=() down=() aws_up=() aws_down=() rcl_up=() rcl_down=() copy=() aws_copy=() rcl_copy=()
        for _ in $(seq "$rounds"); do
            rm -rf cache got
            up+=("$("$program" put s3://bucket a object)")
            aws_up+=("$(mbps aws s3 cp object s3://bucket/b)")
            rcl_up+=("$(mbps rcl copyto --ignore-times object :s3:bucket/c)")
            down+=("$("$program" get s3://bucket a)")
            aws_down+=("$(mbps aws s3 cp s3://bucket/a got)")
            rm -f got
            rcl_down+=("$(mbps rcl copyto --ignore-times :s3:bucket/a got)")
            rm -rf got copies
            copy+=("$("$program" copy s3://bucket a copies)")
            aws_copy+=("$(mbps synced aws s3 cp s3://bucket/a got)")
            rm -f got
            rcl_copy+=("$(mbps synced rcl copyto --ignore-times :s3:bucket/a got)")
        done
        line() { # DIRECTION WEFT AWS RCLONE
            local best
            best=$(printf '%s\n' "$3" "$4" | sort -g | tail -1)
            echo "| $server | $1 | $2 | $3 | $4 | $(over "$2" "$best") |"
        }
        line up "$(median "${up[@]}")" "$(median "${aws_up[@]}")" "$(median "${rcl_up[@]}")"
        line down "$(median "${down[@]}")" "$(median "${aws_down[@]}")" "$(median "${rcl_down[@]}")"
        line "copy, on the disk" "$(median "${copy[@]}")" "$(median "${aws_copy[@]}")" "$(median "${rcl_copy[@]}")"
        one=$(rm -rf cache; "$program" threads s3://bucket a 1) many=$(rm -rf cache; "$program" threads s3://bucket a 9)
        echo "$server $(((many - one) / 8))" >>connections
    done
    echo
    echo "| server | connections | memory per connection MiB |"
    echo "|---|---|---|"
    while read -r server kib; do python3 -IS -c "print('| $server | 9 | %.1f |' % ($kib / 1024))"; done <connections
}
if [ -z "$part" ] || [ "$part" = objects ]; then objects; else serve "${servers[0]}"; fi

# ---- samples/s -----------------------------------------------------------------------------------
export AWS_ENDPOINT_URL
python=${STORAGE_PYTHON-$(command -v python3)}
peer() { "$python" "$here/peer_storage.py" "$@" 2>peer.log || { tail -1 peer.log >&2; echo; }; }
row() { # DATA PASSES WEFT FOLDER WDS MDS
    echo "| $1 | $2 | $3 | $(python3 -IS -c "print('%.0f' % (100 * $3 / $4))") | ${5:--} | $(over "$3" "$5") | ${6:--} | $(over "$3" "$6") |"
}
latents() {
    "$program" make set 4 $((mib / 4))
    "$program" make s3://bucket/set 4 $((mib / 4)) # with indexes of the objects
    local one many _
    folder=() cold=() warm=() long=() folder_long=() wds=() wds_folder=() mds=() mds_folder=()
    peer mds-write set mdsset >/dev/null && [ -d mdsset ] && aws s3 cp --recursive --quiet mdsset s3://bucket/mdsset || :
    for _ in $(seq "$rounds"); do
        rm -rf cache
        cold+=("$("$program" samples s3://bucket/set 1)")
        warm+=("$("$program" samples s3://bucket/set 1)")
        long+=("$("$program" samples s3://bucket/set 20)")
        folder+=("$("$program" samples set 1)")
        folder_long+=("$("$program" samples set 20)")
        wds+=("$(peer wds s3://bucket/set 4)")
        wds_folder+=("$(peer wds set 4)")
        mds+=("$(peer mds s3://bucket/mdsset)")
        mds_folder+=("$(peer mds mdsset)")
    done
    echo
    echo "| data | passes | weft samples/s | share of the folder % | webdataset samples/s | weft to webdataset | streaming samples/s | weft to streaming |"
    echo "|---|---|---|---|---|---|---|---|"
    one=$(median "${folder[@]}") many=$(median "${folder_long[@]}")
    row folder 1 "$one" "$one" "$(median "${wds_folder[@]}")" "$(median "${mds_folder[@]}")"
    row "bucket, empty cache" 1 "$(median "${cold[@]}")" "$one" "$(median "${wds[@]}")" "$(median "${mds[@]}")"
    row "bucket, filled cache" 1 "$(median "${warm[@]}")" "$one" "" ""
    row folder 20 "$many" "$many" "" ""
    row "bucket, filled cache" 20 "$(median "${long[@]}")" "$many" "" ""
}
# evict FOLDER...: its files leave the memory of this machine, so that the next read is from the disk.
evict() {
    python3 -IS - "$@" <<'PY'
import os, sys
for root in sys.argv[1:]:
    for folder, _, names in os.walk(root):
        for name in names:
            file = os.open(os.path.join(folder, name), os.O_RDONLY)
            os.fsync(file)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(file)
PY
}
# discard PREFIX: samples/s of curl, which discards the bytes: four connections, ranges of at most 64 MiB, as
# weft's prefetch. The URLs are signed before the time begins. A bound of any reader of this server.
discard() {
    local name bytes at url
    : >ranges
    for name in $(aws s3 ls "s3://bucket/$1/" | awk '/[.]tar$/ { print $4 }'); do
        url=$(aws s3 presign "s3://bucket/$1/$name")
        bytes=$(stat -c %s "set/$name")
        for ((at = 0; at < bytes; at += 64 << 20)); do
            [ ! -s ranges ] || echo next >>ranges # options are those of one URL
            printf 'url = "%s"\nrange = %d-%d\noutput = /dev/null\nwrite-out = "%%{size_download}\\n"\nfail\nsilent\n' "$url" $at $((at + (64 << 20) < bytes ? at + (64 << 20) - 1 : bytes - 1)) >>ranges
        done
    done
    local began=$EPOCHREALTIME
    curl --parallel --parallel-immediate --parallel-max 4 -K ranges >sizes 2>log || { cat log >&2; return 1; }
    python3 -IS -c "
received = sum(map(int, open('sizes')))
assert received >= $mib << 20, '%d bytes arrived' % received
print('%.1f' % ($mib / ($EPOCHREALTIME - $began)))"
}
# copied PREFIX: samples/s of rclone, which writes files, as the cache does.
copied() {
    rm -rf got
    local began=$EPOCHREALTIME
    rcl copy --transfers 4 --multi-thread-streams 4 ":s3:bucket/$1" got >log 2>&1 || { cat log >&2; return 1; }
    python3 -IS -c "print('%.1f' % ($mib / ($EPOCHREALTIME - $began)))"
}
# Latents with an empty cache next to a folder and to other readers of the server. With `disk`, neither the reader nor the
# server has the files in memory. Steps: milliseconds per sample that pass after each batch.
from_empty_cache() {
    local -A rates=()
    local place reader name step
    [ -d set ] || "$program" make set 4 $((mib / 4))
    "$program" make s3://bucket/cold 4 $((mib / 4))
    one() { # FILES READER COMMAND...
        [ "$1" = memory ] || evict set data jfs
        rm -rf cache
        rates[$1,$2]+=" $("${@:3}")"
    }
    local readers=("weft, folder" "weft, bucket" "rclone, writes files" "curl, discards the bytes")
    for _ in $(seq "$rounds"); do
        for place in memory disk; do
            one $place "${readers[0]}" "$program" samples set 1
            one $place "${readers[1]}" "$program" samples s3://bucket/cold 1
            one $place "${readers[2]}" copied cold
            one $place "${readers[3]}" discard cold
        done
        for step in $steps; do
            one memory "weft, folder, $step" "$program" samples set 1 "$step"
            one memory "weft, bucket, $step" "$program" samples s3://bucket/cold 1 "$step"
        done
    done
    share() { # FILES READER FOLDER: samples/s, and its share of the folder
        local rate folder
        rate=$(median ${rates[$1,$2]}) folder=$(median ${rates[$1,$3]})
        echo "$rate | $(python3 -IS -c "print('%.0f' % (100 * $rate / $folder))")"
    }
    echo
    echo "| files are in | reader | samples/s | share of the folder % |"
    echo "|---|---|---|---|"
    for place in memory disk; do
        for reader in "${readers[@]}"; do echo "| $place | $reader | $(share $place "$reader" "${readers[0]}") |"; done
    done
    echo
    echo "| step, ms per sample | folder samples/s | bucket samples/s | share of the folder with the step % |"
    echo "|---|---|---|---|"
    for step in $steps; do echo "| $step | $(median ${rates[memory,weft, folder, $step]}) | $(share memory "weft, bucket, $step" "weft, folder, $step") |"; done
}
# The same for clips, which take longer to decode than to read.
clips() {
    local one folder=() cold=() warm=()
    mkdir -p footage
    for i in $(seq 48); do
        ffmpeg -v error -nostdin -y -f lavfi -i "testsrc2=size=640x360:rate=24,noise=alls=6:allf=t:all_seed=$i" -frames:v 49 -c:v libx264 \
            -preset veryfast -pix_fmt yuv420p "footage/$i.mp4"
    done
    "$program" pack clipset 4 footage/*.mp4
    "$program" pack s3://bucket/clipset 4 footage/*.mp4
    for _ in $(seq "$rounds"); do
        rm -rf cache
        cold+=("$("$program" clips s3://bucket/clipset 1)")
        warm+=("$("$program" clips s3://bucket/clipset 1)")
        folder+=("$("$program" clips clipset 1)")
    done
    one=$(median "${folder[@]}")
    echo
    echo "| clips | passes | weft clips/s | share of the folder % |"
    echo "|---|---|---|---|"
    share() { echo "| $1 | 1 | $2 | $(python3 -IS -c "print('%.0f' % (100 * $2 / $one))") |"; }
    share folder "$one"
    share "bucket, empty cache" "$(median "${cold[@]}")"
    share "bucket, filled cache" "$(median "${warm[@]}")"
}
[ -n "$part" ] && [ "$part" != samples ] || latents
[ -n "$part" ] && [ "$part" != cold ] || from_empty_cache
[ -n "$part" ] && [ "$part" != clips ] || clips
