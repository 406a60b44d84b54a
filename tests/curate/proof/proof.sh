#!/bin/bash
# Corruption that the decoder does not report (HEVC and VP9 have no checksum of their data) is found
# where frames jump and where coded pictures do not end with their data. Damaged frames are cut out;
# without video.check_corruption they are in the clips. Intact videos lose no frame, even with cuts,
# flashes, noise and strong compression.
set -e
. "$SRC/tests/check.sh"
mkdir raw clean
make_video() { # NAME SOURCE ARGUMENTS...
    local name=$1 source=$2
    shift 2
    ffmpeg -v error -nostdin -f lavfi -i "$source" -pix_fmt yuv420p -colorspace bt709 -color_primaries bt709 -color_trc bt709 "$@" "$name"
}
hevc="-c:v libx265 -preset veryfast -x265-params log-level=none:keyint=48:min-keyint=48:scenecut=0 -crf 22"
vp9="-c:v libvpx-vp9 -cpu-used 8 -deadline realtime -crf 30 -b:v 0 -g 36"
make_video hevc.mkv "testsrc2=s=320x240:r=24" -t 4 $hevc
make_video vp9.webm "testsrc2=s=640x360:r=24" -t 3 $vp9
python3 -S - <<'PY'
import random, subprocess
def damage(video, name, first, key, where):  # 60 bytes of noise in a large packet
    text = subprocess.run(['ffprobe', '-v', 'error', '-select_streams', 'v', '-show_entries', 'packet=size,pos,flags', '-of', 'csv=p=0', video],
                          capture_output=True, text=True).stdout
    packets = [line.split(',') for line in text.splitlines()[first:first + 18]]
    size, pos = max((int(p[0]), int(p[1])) for p in packets if ('K' in p[2]) == key)
    data, at = bytearray(open(video, 'rb').read()), pos + int(size * where)
    data[at:at + 60] = random.Random(name).randbytes(60)
    open('raw/' + name, 'wb').write(data)
damage('hevc.mkv', 'inter.mkv', 52, False, 0.2)
damage('hevc.mkv', 'key.mkv', 40, True, 0.2)
damage('vp9.webm', 'tile.webm', 38, False, 0.1)
PY
cp hevc.mkv vp9.webm clean
make_video clean/cut.mkv "testsrc2=s=320x240:r=24,hue=h='if(gt(t,1),180,0)',eq=brightness='if(between(n,32,33),0.5,0)':eval=frame" -t 2 $hevc
make_video clean/noise.mkv "testsrc2=s=320x240:r=24,noise=alls=30:allf=t" -t 2 ${hevc/crf 22/crf 40}
make_video clean/black.mkv "color=black:s=320x240:r=24:d=1[b];testsrc2=s=320x240:r=24:d=1[t];[b][t]concat" $hevc
make_video clean/two.mp4 "testsrc=s=320x240:r=24" -t 2 -c:v libx264 -preset veryfast -x264-params slices=4:keyint=30:cabac=0
options="--set duplicates.on=false --set clips.min_seconds=0.2 --set clips.min_frames=4 --set quality.max_motion=99 --set quality.min_motion=0
         --set quality.min_sharpness=0 --set quality.min_brightness=0 --set clips.preset=ultrafast --set clips.crf=10 --set video.max_concealed=1"
$WEFT curate --in raw --out on --set workers=1 $options >/dev/null 2>log
$WEFT curate --in raw --out off --set workers=1 $options --set video.check_corruption=false >/dev/null 2>>log
$WEFT curate --in clean --out whole --set workers=1 $options >/dev/null 2>>log
damage_is_found_and_intact_videos_lose_no_frame() {
    python3 -S - <<'PY'
import json, math, subprocess
def gray(path):
    return subprocess.run(['ffmpeg', '-v', 'error', '-nostdin', '-i', path, '-vf', 'scale=320:180:flags=area', '-f', 'rawvideo', '-pix_fmt', 'gray', '-'],
                          capture_output=True).stdout
size, whole = 320 * 180, {'mkv': gray('hevc.mkv'), 'webm': gray('vp9.webm')}
def bad_frames(out):
    bad, kept = {}, {}
    for line in map(json.loads, open(out + '/manifest.jsonl')):
        video, (start, end), clip = line['source_video'], line['frame_span'], gray(out + '/' + line['clip'])
        kept[video] = kept.get(video, 0) + end - start + 1
        then = whole[video.split('.')[1]]
        for i in range(end - start + 1):
            a, b = clip[i * size:(i + 1) * size:5], then[(start + i) * size:(start + i + 1) * size:5]
            error = sum((x - y) ** 2 for x, y in zip(a, b)) / len(b)
            if error > 255 ** 2 / 1000:
                bad.setdefault(video, []).append(start + i)
    return bad, kept
off, _ = bad_frames('off')
on, kept = bad_frames('on')
print('off', {k: len(v) for k, v in off.items()}, 'on', on, 'kept', kept)
assert set(off) == {'inter.mkv', 'key.mkv', 'tile.webm'}, off
assert not on, on
assert kept['inter.mkv'] >= 48 and kept['key.mkv'] >= 30 and kept['tile.webm'] >= 36, kept
rejects = [json.loads(l) for l in open('on/rejects.jsonl')]
assert {r['source'] for r in rejects if r['operator'] == 'damaged' and 'do not end with their data' in r['reason']} == set(off), rejects
lost = [l for l in open('whole/rejects.jsonl') if '"damaged"' in l or '"decode"' in l]
assert not lost, lost
metas = [json.loads(l) for l in open('whole/manifest.jsonl')]
assert metas and all(m['damaged_source'] == 0 for m in metas)
PY
}
check damage_is_found_and_intact_videos_lose_no_frame
finish
