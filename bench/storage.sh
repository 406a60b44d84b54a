#!/bin/bash
# bench/storage.sh: weft next to `aws s3 cp` and rclone on objects of a server of this machine. Then the
# loader's samples/s from the server, next to a folder, webdataset and MosaicML streaming. Every round
# runs all programs in turn; the figures are medians. $STORAGE_TOOLS: folder with juicefs, rclone, aws
# (each is optional, but for one server). $STORAGE_PYTHON: Python with webdataset and streaming. MIB:
# size of the object. ROUNDS: rounds. SERVERS: some of both servers. B: one part (objects, samples,
# disk or clips); default: all. The figures need a machine without other load.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
program=${PROGRAM-$here/../build/bench/storage}
PATH=${STORAGE_TOOLS:+$STORAGE_TOOLS:}$PATH
mib=${MIB-256} rounds=${ROUNDS-3} part=${B-}
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
# Latents that are not in memory, neither of the reader nor of the server.
from_disk() {
    local folder=() cold=() one
    [ -d set ] || "$program" make set 4 $((mib / 4))
    "$program" make s3://bucket/disk 4 $((mib / 4))
    for _ in $(seq "$rounds"); do
        rm -rf cache
        evict set data jfs
        folder+=("$("$program" samples set 1)")
        evict set data jfs
        cold+=("$("$program" samples s3://bucket/disk 1)")
    done
    one=$(median "${folder[@]}")
    echo
    echo "| latents on the disk | weft samples/s | share of the folder % |"
    echo "|---|---|---|"
    echo "| folder | $one | 100 |"
    echo "| bucket, empty cache | $(median "${cold[@]}") | $(python3 -IS -c "print('%.0f' % (100 * $(median "${cold[@]}") / $one))") |"
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
[ -n "$part" ] && [ "$part" != disk ] || from_disk
[ -n "$part" ] && [ "$part" != clips ] || clips
