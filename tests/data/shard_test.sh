#!/bin/bash
# weft shard on the command line: its files, a repeated run, kills, and bad input.
. "$SRC/tests/check.sh"
. "$SRC/tests/messages.sh"
source "$SRC/tests/signal_at.sh"
. "$SRC/tests/check.sh"
mkdir -p in/clips in/metas
for i in $(seq 10 29); do
    # any bytes are valid: sharding does not decode
    head -c $((20000 + i * 100)) /dev/urandom >in/clips/v$i.mp4
    echo "{\"caption\": \"clip $i\", \"frames\": $i, \"width\": 64, \"height\": 64, \"fps\": 24}" >in/metas/v$i.json
done
echo '{"caption": ' >in/metas/v28.json # damaged
rm in/metas/v29.json
touch in/clips/v31.mp4 # empty
echo '{"frames": 31}' >in/metas/v31.json
echo video >in/clips/v.30.mp4 # dots
echo video >in/clips/v.3.2.mp4
echo text >in/clips/notes.txt

shard() { "$WEFT" shard --in in --out "$@" --set max_samples=5 --set heldout=0.2 >log 2>&1; }
check "shard" shard out
cp log log.out
ls -i out/*.tar >written
check "shard, all kept" shard out
kept() { ls -i out/*.tar | diff written -; }
check "kept" kept
cp log log.kept
check "the same bytes again" shard again
for f in out/*.tar; do check "$f is reproducible" cmp -s "$f" "again/$(basename "$f")"; done
check "samples, splits and drops" python3 -S - <<'PY'
import glob, json, os, re, tarfile
keys = {}
for path in sorted(glob.glob("out/*.tar")):
    with tarfile.open(path) as archive:
        groups = []
        for member in archive:
            key, suffix = re.match(r"^((?:.*/|)[^.]+)[.]([^/]*)$", member.name).groups()
            if not groups or groups[-1][0] != key:
                groups.append((key, {}))
            assert suffix not in groups[-1][1], member.name
            groups[-1][1][suffix] = archive.extractfile(member).read()
    assert len(groups) <= 5, path
    for key, parts in groups:
        assert key not in keys, key
        keys[key] = path
        assert set(parts) == {"mp4", "json", "txt"}, (key, set(parts))
        assert parts["mp4"] == open(f"in/clips/{key}.mp4", "rb").read()
        assert parts["txt"].decode().strip() == f"clip {key[1:]}"
        assert json.loads(parts["json"])["frames"] == int(key[1:])
assert len(keys) == 18, len(keys)
assert any("heldout-" in p for p in keys.values()) and any("train-" in p for p in keys.values())
index = json.load(open("out/index.json"))
text = json.dumps(index)
assert "v28" in text and "v29" in text and "v.30" in text, text
# used + dropped = all samples, in the files and in the printed report
assert index["train"] + index["heldout"] + len(index["dropped"]) == len(os.listdir("in/clips")) == 24
assert sum(s["frames"] for s in index["shards"]) == sum(int(k[1:]) for k in keys)
import collections
counted = collections.Counter(d["reason"] for d in index["dropped"])
assert counted == {"metas/<id>.json is damaged": 1, "no metas/<id>.json": 1, "the clip is empty": 1, "not an .mp4": 1,
                   "a dot in the id would end the WebDataset key": 2}, counted
assert [d["frames"] for d in index["dropped"] if d["id"] == "v31"] == [31]
for log in ("log.out", "log.kept"):
    lines = open(log).read()
    assert "used 18 of 24 clips" in lines, lines
    assert sum(int(n) for n in re.findall(r"dropped (\d+) of 24 clips", lines)) == 6, lines
PY
# Files for Megatron-Energon: splits, counts and offsets of samples, compared with another reader of tar.
check "Energon's files" python3 -S - <<'PY'
import glob, json, re, struct, tarfile
shards = sorted(glob.glob("out/*.tar"))
counts = json.load(open("out/.nv-meta/.info.json"))["shard_counts"]
assert sum(counts.values()) == 18 and {"out/" + name for name in counts} == set(shards), counts
split, part = {}, None
for line in open("out/.nv-meta/split.yaml"):
    if m := re.match(r"  (\w+):( \[\])?$", line):
        split[part := m[1]] = []
    elif m := re.match(r"  - (.*)$", line):
        split[part].append("out/" + m[1])
assert split == {"train": [s for s in shards if "train-" in s], "val": [s for s in shards if "heldout-" in s], "test": []}, split
assert open("out/.nv-meta/dataset.yaml").read() == "__module__: megatron.energon\n__class__: CrudeWebdataset\n"
for path in shards:
    with tarfile.open(path) as archive:
        starts, last = [], None
        for m in archive:
            if m.name.split(".")[0] != last:
                starts.append(m.offset)
                last = m.name.split(".")[0]
        starts.append(archive.offset)
    data = open(path + ".idx", "rb").read()
    assert list(struct.unpack(f"<{len(data) // 8}Q", data)) == starts, path
PY
# Few clips, of which none is held out by chance: one is held out nevertheless, except with heldout=0.
mkdir -p few/clips few/metas
for i in 12 13 14; do cp in/clips/v$i.mp4 few/clips/; cp in/metas/v$i.json few/metas/; done
check "shard of three" "$WEFT" shard --in few --out three --set heldout=1e-9
python3 -S - <<'PY'
import json, os
for i in range(30):
    os.makedirs("films/clips", exist_ok=True), os.makedirs("films/metas", exist_ok=True)
    open(f"films/clips/c{i}.mp4", "wb").write(b"video" * 100)
    json.dump({"caption": "a clip", "frames": 8}, open(f"films/metas/c{i}.json", "w"))
with open("films/manifest.jsonl", "w") as f:
    for i in range(30):
        f.write(json.dumps({"id": f"c{i}", "source_video": f"film{i % 6}.mp4"}) + "\n")
PY
check "shard of films" "$WEFT" shard --in films --out by-film --set heldout=0.3
check "no film is on both sides" python3 -S - <<'PY'
import glob, re, tarfile
films = {"train": set(), "heldout": set()}
for path in glob.glob("by-film/*.tar"):
    for name in tarfile.open(path).getnames():
        if name.endswith(".mp4"):
            films["train" if "train-" in path else "heldout"].add(int(re.search(r"\d+", name)[0]) % 6)
assert films["train"] and films["heldout"] and not films["train"] & films["heldout"], films
PY
# A share that is far from the requested one is reported with its figures.
python3 -S - <<'PY'
import json
with open("films/manifest.jsonl", "w") as f:
    for i in range(30):
        f.write(json.dumps({"id": f"c{i}", "source_video": f"film{i % 2}.mp4", "frame_span": [8 * i, 8 * i + 7]}) + "\n")
PY
shard_two_films() { "$WEFT" shard --in films --out by-two --set heldout=0.05 >log 2>&1; }
check "shard of two films" shard_two_films
check "the achieved share" has_message log heldout-changed key=heldout 'text~=15 of 30 clips (50 %)' 'text~=5 %' 'text~=1 of 2 source videos'
# Clips that are held out stay held out when source videos are added one at a time.
python3 -S - <<'PY'
import glob, json, os, subprocess, tarfile
held = set()
for n in range(1, 7):
    os.makedirs("adding/clips", exist_ok=True), os.makedirs("adding/metas", exist_ok=True)
    with open("adding/manifest.jsonl", "a") as f:
        for k in range(3):
            name = f"{n}-{k}"
            open(f"adding/clips/{name}.mp4", "wb").write(b"video" * 100)
            json.dump({"caption": "a clip", "frames": 8}, open(f"adding/metas/{name}.json", "w"))
            f.write(json.dumps({"id": name, "source_video": f"film{n * 7919 % 64}.mp4", "frame_span": [8 * k, 8 * k + 7]}) + "\n")
    subprocess.run([os.environ["WEFT"], "shard", "--in", "adding", "--out", "added"], check=True, capture_output=True)
    now = {m[:-4] for p in glob.glob("added/heldout-*.tar") for m in tarfile.open(p).getnames() if m.endswith("mp4")}
    assert held <= now and now, (n, held - now)
    held = now
PY
added=$?
check "films that come one at a time" [ $added = 0 ]
check "one of three is held out" [ "$(tar tf three/heldout-000000.tar | grep -c mp4)" = 1 ]
check "two of three are for training" [ "$(tar tf three/train-000000.tar | grep -c mp4)" = 2 ]
check "shard of three, none held out" "$WEFT" shard --in few --out none --set heldout=0
check "none is held out" [ ! -e none/heldout-000000.tar ]
# A corrected caption is in the shards of the next run.
cp -r in mended
sed -i 's/clip 12/clip twelve/' mended/metas/v12.json
check "shard of what was mended" "$WEFT" shard --in mended --out again --set max_samples=5 --set heldout=0.2
check "the mended caption" grep -qa "clip twelve" again/train-000000.tar again/train-000001.tar again/train-000002.tar again/heldout-000000.tar
# A killed run leaves complete shards only. The next run has the result of an undisturbed one.
for at in 'write 1 *.tar.tmp.*' 'rename 1 *.tar' 'rename 2 *' 'rename 4 *' 'write 2 *.tar.tmp.*'; do
    read -r event count pattern <<<"$at"
    SIGNAL_ON=$event SIGNAL_COUNT=$count signal_at KILL "$pattern" "$WEFT" shard --in in --out killed --set max_samples=5 --set heldout=0.2 >/dev/null 2>&1
    status=$?
    check "killed at $at" [ $status = 137 ]
    for f in killed/*.tar; do
        [ -e "$f" ] && check "$f after a kill at $at" cmp -s "$f" "out/$(basename "$f")"
    done
done
check "after the kills" shard killed
for f in out/*.tar; do check "$f after resuming" cmp -s "$f" "killed/$(basename "$f")"; done
check "nothing temporary" test -z "$(find killed -name '*.tmp.*')"
# Files of others stay. Shards of an earlier run are removed, except if they were edited.
cp -r out theirs
echo precious >theirs/train-extra.tar
echo precious >theirs/train-notes.tar.txt
mkdir theirs/heldout-x.tar.d
printf 'x' | dd of=theirs/train-000003.tar bs=1 seek=1000 conv=notrunc 2>/dev/null
"$WEFT" shard --in in --out theirs --set max_samples=4 --set heldout=0.2 >log 2>&1
status=$?
check "a changed shard is not written over" [ $status != 0 ]
shard_to() { "$WEFT" shard --in in --out "$@" --set heldout=0.2 >log 2>&1; }
check "fewer shards" shard_to theirs --set max_samples=7
check "a changed shard is told" has_message log files-left file=*train-000003.tar
check "a foreign shard is told" has_message log files-left file=*train-extra.tar
for f in train-extra.tar train-notes.tar.txt heldout-x.tar.d train-000003.tar; do check "$f stays" [ -e theirs/$f ]; done
cp -r out fewer
check "fewer shards, none changed" shard_to fewer --set max_samples=1000
check "shards of the earlier run are gone" [ "$(ls fewer | grep -c 'train-.*tar$')" = 1 ]
check "their indexes and notes too" [ "$(ls -A fewer | grep -c 'train-00000[1-9]')" = 0 ]
mkdir mine && echo precious >mine/train-000000.tar
fails_over() { "$WEFT" shard --in in --out mine >log 2>&1 && return 1; has_message log file-exists file=mine/train-000000.tar && grep -q precious mine/train-000000.tar; }
check "another's shard is not written over" fails_over
# Captions that are not text and unreadable clips are reported.
cp -r few odd
echo '{"caption": 42, "frames": 12}' >odd/metas/v12.json
rm odd/clips/v13.mp4 && ln -s nowhere odd/clips/v13.mp4
shard_odd() { "$WEFT" shard --in odd --out odder >log 2>&1; }
check "odd clips" shard_odd
check "a caption that is a number" has_message log caption-invalid file=*v12.json 'text~=the caption is a number'
unreadable() {
    python3 -S -c '
import json
dropped = json.load(open("odder/index.json"))["dropped"]
assert [(d["id"], d["frames"]) for d in dropped] == [("v13", 13)], dropped'
}
check "a clip that cannot be read" unreadable
# Bad input: one message, an exit status, and no files.
fails() { check "refuses $*" refused "$@"; }
refused() { # ID [FIELD=VALUE...] -- ARGUMENTS...
    take_message "$@"
    set -- "${rest[@]}"
    "$WEFT" shard "$@" >log 2>&1 && fail "weft shard $* must fail"
    has_message log "${wanted[@]}" || fail "$*: another message"
}
fails '*' text~=nothere -- --in nothere --out x
mkdir -p useless/clips no/clips && cp in/clips/v10.mp4 useless/clips
fails samples-none file=no text~=rejects.jsonl -- --in no --out unused
fails samples-none file=useless 'text~=none of its 1 clips' -- --in useless --out unused
fails '*' text~=max_samples -- --in in --out x --set max_samples=0
fails '*' text~=max_sampels text~=max_samples -- --in in --out x --set max_sampels=3
fails '*' text~=/dev/null -- --in in --out /dev/null/x/y
# A full disk, as a limit on the size of files.
no_room() {
    trap '' XFSZ
    ulimit -f 60
    "$WEFT" shard --in in --out full --set max_samples=5 >log 2>&1
    [ $? = 1 ] && has_message log '*' level=error text~=full/
}
check "no room" no_room
check "no shard without room" test -z "$(find full -name '*.tar' -o -name '*.tmp.*')"
# A full disk, if this user may mount one.
mkdir -p small
if mount -t tmpfs -o size=60k none small 2>/dev/null; then
    "$WEFT" shard --in in --out small/s --set max_samples=5 >log 2>&1
    status=$?
    check "full tmpfs: status" [ $status = 1 ]
    check "full tmpfs: message" has_message log disk-full 'file=small/s/*'
    check "full tmpfs: nothing half-written" test -z "$(find small -name '*.tar' -o -name '*.tmp*')"
    umount small
fi
check "a refused run writes nothing" [ ! -e x ]
finish
