#!/usr/bin/env python3
"""Makes videos with known shot boundaries from any footage, and scores `weft shots` on them.

    tools/shot_sets.py make FOOTAGE OUT [--seed N] [--films N] [--kind KIND] [--only WORD,WORD] [--without WORD,WORD]
    weft shots OUT/*.m* > found.jsonl
    tools/shot_sets.py score OUT/shots.json found.jsonl

Needs python3 and ffmpeg. Videos have about 320 x 180 and 20 s, in H.264, HEVC, VP9, MPEG-4, MPEG-2,
ProRes, Motion JPEG and AV1 (those that ffmpeg can write), 10 to 120 frames per second; some have
odd sizes, bars or noise. Kinds:

    mixed   cuts, dissolves, long ones (2 to 3 s), fades through black and white, wipes, irises;
            some flashes and shaken cameras
    cuts, long, fades, wipes   hard cuts, long dissolves, fades, wipes and irises only
    flash   cuts, and one to three flashes of one to three frames in every shot
    shake   cuts, and a shaken camera for most of every shot

Flashes and shaking are not boundaries: boundaries found there are counted separately, per minute of
such footage. The same footage and seed make the same videos with the same version of ffmpeg.

The longest part without a hard cut of each file of FOOTAGE is used (ffmpeg's scene score). Name
files that contain soft transitions with --without. --only uses files with one of these words in
their names.

In shots.json `frame` is the first frame of the new shot; start .. end are the frames that are
mixed, dimmed or a held colour."""
import argparse, json, math, os, random, re, subprocess, sys
from fractions import Fraction

W, H = 320, 180
FRAME = W * H * 3 // 2
CODECS = {  # ending, encoder, the option of its quality, the range of that
    'h264': ('mp4', ['libx264', '-preset', 'veryfast'], ['-crf'], (18, 30)),
    'hevc': ('mp4', ['libx265', '-preset', 'ultrafast', '-x265-params', 'log-level=none'], ['-crf'], (18, 30)),
    'vp9': ('mkv', ['libvpx-vp9', '-deadline', 'realtime', '-cpu-used', '8'], ['-b:v', '0', '-crf'], (24, 40)),
    'mpeg4': ('mkv', ['mpeg4'], ['-q:v'], (2, 7)),
    'mpeg2': ('mkv', ['mpeg2video', '-bf', '2', '-strict', 'unofficial'], ['-q:v'], (2, 9)),
    'prores': ('mov', ['prores_ks', '-profile:v', '0'], ['-q:v'], (4, 16)),
    'mjpeg': ('mkv', ['mjpeg', '-strict', 'unofficial'], ['-q:v'], (2, 9)),
    'av1': ('mkv', ['libsvtav1', '-preset', '12'], ['-crf'], (25, 45))}
MPEG2_RATES = (24, 25, 30, 50, 60)  # it knows no others


def run(*command, data=None):
    done = subprocess.run(command, input=data, stdin=None if data is not None else subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stderr.decode(errors='replace')[-400:]}")
    return done


# ---- Footage ---------------------------------------------------------------------------------

def single_shots(folder, only, without):
    """(file, first second, seconds) of the longest part of each file without a hard cut."""
    shots = []
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        if not os.path.isfile(path) or any(w in name for w in without) or (only and not any(w in name for w in only)):
            continue
        done = subprocess.run(['ffmpeg', '-v', 'info', '-nostdin', '-i', path, '-an', '-t', '60', '-vf',
                               "scale=64:36,select='gt(scene,0.2)',showinfo", '-f', 'null', '-'],
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        told = done.stderr.decode(errors='replace')
        length = re.search(r'Duration: (\d+):(\d+):([\d.]+)', told)
        if done.returncode or not length:
            continue
        h, m, s = length.groups()
        end = min(60, int(h) * 3600 + int(m) * 60 + float(s))
        cuts = [0] + [float(t) for t in re.findall(r'pts_time:([\d.]+)', told)] + [end]
        seconds, start = max((b - a, a) for a, b in zip(cuts, cuts[1:]))
        if seconds >= 3:
            shots.append((path, start + 0.1, seconds - 0.3))
    if len(shots) < 2:
        sys.exit(f'{folder}: fewer than two files with a shot of 3 seconds')
    return shots


def frames_of(r, shot, fps, count, shake):
    """`count` frames of a shot; `shake` is the first and last frame of a shaken camera, or None."""
    path, start, seconds = shot
    need = (count + 2) / fps
    # Where the footage is too short its frames are shown faster or slower, as another camera would.
    slow = max(1, need / seconds)
    at = start + r.random() * max(0, seconds - need / slow)
    way = f'setpts=(PTS-STARTPTS)*{slow:.4f},scale={W}:{H}:force_original_aspect_ratio=increase,crop={W}:{H},framerate=fps={fps}'
    if shake:
        swing = f'between(n,{shake[0]},{shake[1]})*(sin(n*{r.uniform(1.5, 2.6):.2f})+sin(n*{r.uniform(0.5, 1.2):.2f}))/2.2'
        way += f",scale={W * 9 // 8}:{H * 9 // 8},crop={W}:{H}:'(iw-ow)/2*(1+{swing})':'(ih-oh)/2*(1+{swing})'"
    done = run('ffmpeg', '-v', 'error', '-nostdin', '-ss', f'{at:.3f}', '-i', path, '-an', '-vf', way, '-frames:v', str(count),
               '-f', 'rawvideo', '-pix_fmt', 'yuv420p', '-')
    if done.stderr:  # damaged, or what was jumped to needs pictures from before
        return []
    raw = done.stdout
    frames = [raw[i:i + FRAME] for i in range(0, len(raw) - FRAME + 1, FRAME)]
    while frames and len(frames) < count:
        frames.append(frames[-1])
    return frames


# ---- Frames: bytes as one large integer, so that no loop runs over pixels ---------------------

def table(f):
    return bytes(max(0, min(255, int(f(v)))) for v in range(256))


def mixed(a, b, share):
    """a and b, `share` of it b."""
    first = table(lambda v: v * (1 - share) + 0.5)
    second = bytes(min(int(v * share), 255 - first[255]) for v in range(256))
    return (int.from_bytes(a.translate(first), 'little') + int.from_bytes(b.translate(second), 'little')).to_bytes(FRAME, 'little')


def masked(a, b, mask):
    m = int.from_bytes(mask, 'little')
    full = (1 << 8 * FRAME) - 1
    return ((int.from_bytes(a, 'little') & (full ^ m)) | (int.from_bytes(b, 'little') & m)).to_bytes(FRAME, 'little')


def planes(spans):
    """The mask of spans(y, height, width) -> the columns of a row that show b."""
    out = bytearray()
    for w, h in ((W, H), (W // 2, H // 2), (W // 2, H // 2)):
        for y in range(h):
            a, b = (max(0, min(w, round(x))) for x in spans(y / h, w / W, w, h))
            out += bytes(a) + b'\xff' * (b - a) + bytes(w - max(a, b)) if b > a else bytes(w)
    return bytes(out)


def wipe(kind, share):
    if kind == 'left':
        return planes(lambda y, s, w, h: (0, w * share))
    if kind == 'right':
        return planes(lambda y, s, w, h: (w * (1 - share), w))
    if kind == 'down':
        return planes(lambda y, s, w, h: (0, w) if y < share else (0, 0))
    if kind == 'up':
        return planes(lambda y, s, w, h: (0, w) if y >= 1 - share else (0, 0))
    if kind == 'diagonal':
        return planes(lambda y, s, w, h: (0, w * (2 * share - y)))
    radius = share * math.hypot(W, H) / 2

    def row(y, s, w, h):
        d = abs(y - 0.5) * H
        x = math.sqrt(radius * radius - d * d) * s if d < radius else 0
        return (w / 2 - x, w / 2 + x)
    return planes(row)


def iris(kind, a, b, share):
    return masked(a, b, wipe('iris', share)) if kind == 'open' else masked(b, a, wipe('iris', 1 - share))


def solid(level):
    return bytes([level]) * (W * H) + b'\x80' * (W * H // 2)


def distance(a, b):
    """Mean difference of a sample of luma: two shots of one scene are no fair boundary."""
    return sum(abs(a[i] - b[i]) for i in range(0, W * H, 97)) / len(range(0, W * H, 97))


def transition(kind, r, old, new, count):
    """`count` frames between a shot that ends with frames `old` and one that begins with `new`."""
    share = [(i + 1) / (count + 1) for i in range(count)]
    if kind in ('dissolve', 'long'):
        return [mixed(a, b, s) for a, b, s in zip(old, new, share)]
    if kind == 'wipe':
        way = r.choice(('left', 'right', 'up', 'down', 'diagonal'))
        return [masked(a, b, wipe(way, s)) for a, b, s in zip(old, new, share)]
    if kind == 'iris':
        way = r.choice(('open', 'close'))
        return [iris(way, a, b, s) for a, b, s in zip(old, new, share)]
    colour, held = solid(16 if kind == 'black' else 235), r.choice((0, 0, 0.1, 0.25))
    out = []
    for a, b, s in zip(old, new, share):
        if s < 0.5:
            out.append(mixed(a, colour, min(1, s / (0.5 - held / 2))))
        else:
            out.append(mixed(b, colour, min(1, (1 - s) / (0.5 - held / 2))))
    return out


# ---- Source videos -----------------------------------------------------------------------------------

SECONDS = {'dissolve': (0.4, 1.6), 'long': (2, 3), 'black': (0.6, 2), 'white': (0.6, 2), 'wipe': (0.4, 1.5), 'iris': (0.4, 1.5)}
KINDS = {'mixed': ['cut'] * 4 + ['dissolve'] * 3 + ['long', 'black', 'black', 'white', 'wipe', 'wipe', 'iris'],
         'cuts': ['cut'], 'long': ['long'], 'fades': ['black', 'white'], 'wipes': ['wipe', 'wipe', 'iris'],
         'flash': ['cut'], 'shake': ['cut']}


def film(r, shots, kind, fps, length):
    """Frames and boundaries of one video, and the positions of flashes and shaking, which are not
    boundaries."""
    frames, boundaries, before = [], [], None
    apart, source = {'flash': [], 'shake': []}, []
    while len(frames) < length * fps:
        if not source:
            source = r.sample(shots, len(shots))
        shot = source.pop()
        how = r.choice(KINDS[kind]) if before else 'start'
        over = round(r.uniform(*SECONDS[how]) * fps) if how in SECONDS else 0
        plain = round(r.uniform(1, 3.2) * fps)
        tail = round(3 * fps) + 2 if kind not in ('cuts', 'flash', 'shake') else 2  # for the next transition
        first = over + (r.randrange(plain) if kind != 'shake' else 0)
        shaken = (first, first + round(fps * 0.8) if kind != 'shake' else over + plain) if kind == 'shake' or r.random() < 0.2 else None
        now = frames_of(r, shot, fps, over + plain + tail, shaken)
        if not now or (before and distance(before[0], now[over]) < 25):
            continue
        if how == 'cut':
            boundaries.append({'type': 'hard', 'frame': len(frames)})
        elif how != 'start':
            boundaries.append({'type': 'gradual', 'kind': how, 'start': len(frames), 'end': len(frames) + over - 1})
            frames += transition(how, r, before, now, over)
        clean, at_all = now[over:over + plain], len(frames)
        if shaken:
            apart['shake'].append((at_all + shaken[0] - over, at_all + min(plain, shaken[1] - over) - 1))
        if (kind == 'flash' or r.random() < 0.2) and plain > 8:
            for _ in range(r.randrange(1, 4)):
                at, power, n = r.randrange(2, plain - 4), r.uniform(0.4, 0.95), r.randrange(1, 4)
                for i in range(at, at + n):
                    clean[i] = mixed(clean[i], solid(235), power)
                apart['flash'].append((at_all + at, at_all + at + n - 1))
        frames += clean
        before = now[over + plain:]
    return frames, boundaries, apart


def writable():
    """The codecs that this ffmpeg can write, in a fixed order."""
    known = run('ffmpeg', '-v', 'error', '-encoders').stdout.decode()
    return [c for c, row in CODECS.items() if re.search(rf'\b{row[1][0]}\b', known)]


def make(o):
    os.makedirs(o.out, exist_ok=True)
    words = [[w for w in given.split(',') if w] for given in (o.only, o.without)]
    shots, codecs, videos = single_shots(o.footage, *words), writable(), []
    for i in range(o.films):
        r = random.Random(f'{o.seed} {o.kind} {i}')
        codec = codecs[(i + o.seed) % len(codecs)]
        fps = r.choice((10, 12, 15, 24, 24, 25, 25, 25, 30, 30, 30, 50, 60, 60, 100, 120))
        if codec == 'mpeg2' and fps not in MPEG2_RATES:
            fps = r.choice(MPEG2_RATES)
        frames, boundaries, apart = film(r, shots, o.kind, fps, 20 if fps <= 30 else 12 if fps <= 60 else 8)
        way, size = [], r.choice((None, None, (426, 240), (202, 360), (318, 178), (321, 181) if codec in ('vp9', 'mjpeg') else (272, 208)))
        if r.random() < 0.3:
            way.append(f'noise=alls={r.randrange(6, 22)}:allf=t')
        if size:
            way.append(f'scale={size[0]}:{size[1]}')
        bars = r.choice((None, None, None, 'letter', 'pillar'))
        if bars and size != (321, 181):
            way.append('pad=iw:ceil(ih*1.3/2)*2:0:(oh-ih)/2' if bars == 'letter' else 'pad=ceil(iw*1.33/2)*2:ih:(ow-iw)/2:0')
        ending, encoder, quality, levels = CODECS[codec]
        name = f'{o.kind}_{o.seed}_{i:02}_{codec}_{fps}.{ending}'
        run('ffmpeg', '-v', 'error', '-y', '-f', 'rawvideo', '-pix_fmt', 'yuv420p', '-s', f'{W}x{H}', '-r', str(fps), '-i', '-',
            *(['-vf', ','.join(way)] if way else []), '-c:v', *encoder, *quality, str(r.randint(*levels)), '-g', str(r.choice((12, 48, 250))),
            '-pix_fmt', 'yuv422p10le' if codec == 'prores' else 'yuv420p', '-threads', '2', os.path.join(o.out, name), data=b''.join(frames))
        about = [codec, f'{fps} fps'] + [w for w, there in (('noise', 'noise=' in ','.join(way)), ('resized', size), ('bars', 'pad=' in ','.join(way))) if there]
        videos.append({'file': name, 'fps': str(fps), 'frames': len(frames), 'about': about, 'boundaries': boundaries, **apart})
        print(f'{name}: {len(frames)} frames, {len(boundaries)} boundaries', flush=True)
    with open(os.path.join(o.out, 'shots.json'), 'w') as f:
        json.dump({'version': 1, 'set': f'{o.kind} {o.seed}', 'videos': videos}, f, indent=1)


# ---- Scores ----------------------------------------------------------------------------------

def position(b):
    return (b['frame'], b['frame']) if 'frame' in b else (b['start'], b['end'])


def matches(truth, found):
    a, z = position(found)
    if truth['type'] == 'hard':
        n = truth['frame']
        return abs(a - n) <= 1 if found['type'] == 'cut' else a - 1 <= n <= z + 1 and z - a <= 3
    return a <= truth['end'] + 3 and z >= truth['start'] - 2


def f1(hit, all_of, false):
    return 2 * hit / max(1, hit + all_of + false)


def score(o):
    """A hard cut is matched by a cut within a frame, a transition by whatever overlaps it; each once. For fades, the
    frames of the transition that the neighbouring clips would keep; for all, the clean frames that are lost."""
    predicted, videos = {}, []
    for line in open(o.found):
        b = json.loads(line)
        predicted.setdefault(os.path.basename(b['file']), []).append(b)
    for name in o.truth:
        videos += json.load(open(name))['videos']
    kinds, groups, left, fades, lost, graduals = {}, {}, 0, 0, 0, 0
    apart = {'flash': [0, 0, 0], 'shake': [0, 0, 0], 'elsewhere': [0, 0, 0]}  # false alarms, seconds, places
    for v in videos:
        name, fps = os.path.basename(v['file']), float(Fraction(v['fps']))
        ignored = [position(i) if isinstance(i, dict) else i for i in v.get('ignore', [])]
        found = sorted((b for b in predicted.get(name, []) if not any(position(b)[0] >= a and position(b)[1] <= z for a, z in ignored)),
                       key=position)
        used, notes = set(), []
        for t in v['boundaries']:
            kind = 'cut' if t['type'] == 'hard' else t.get('kind', 'gradual')
            hits = [i for i, b in enumerate(found) if i not in used and matches(t, b)]
            tally = kinds.setdefault(kind, [0, 0])
            tally[1] += 1
            if not hits:
                notes.append(f'missed {kind} {position(t)}')
                continue
            # of several the one that overlaps most
            best = max(hits, key=lambda i: min(position(t)[1], position(found[i])[1]) - max(position(t)[0], position(found[i])[0]))
            tally[0] += 1
            used.add(best)
            (s, e), (a, z) = position(t), position(found[best])
            if t['type'] != 'hard':
                graduals += 1
                lost += max(0, s - a) + max(0, z - e)
                if kind in ('black', 'white'):
                    fades += 1
                    bad = max(max(0, a - s), max(0, e - z)) >= 3
                    left += bad
                    if bad:
                        notes.append(f'{kind} {s}-{e} found {a}-{z}')
        for where in ('flash', 'shake'):
            apart[where][1] += sum(z - a + 1 for a, z in v.get(where, [])) / fps
            apart[where][2] += len(v.get(where, []))
        apart['elsewhere'][1] += v['frames'] / fps
        for i, b in enumerate(found):
            if i not in used:
                a, z = position(b)
                where = next((w for w in ('flash', 'shake') if any(a <= y + 5 and z >= x - 5 for x, y in v.get(w, []))), 'elsewhere')
                apart[where][0] += 1
                notes.append(f'false {(a, z)} {b["type"]} {b["score"]} ({where})')
        for g in v.get('about', []):
            tally = groups.setdefault(g, [0, 0, 0])
            for k, n in enumerate((len(used), len(v['boundaries']), len(found) - len(used))):
                tally[k] += n
        if notes and not o.brief:
            print(f"{name}: {'; '.join(notes)}")
    if not o.brief:
        for g, tally in sorted(groups.items(), key=lambda row: (row[0].endswith('fps'), len(row[0]), row[0])):
            print(f'    {g:8} {tally[0]:3} of {tally[1]:3}, false {tally[2]:2}, F1 {f1(*tally):.3f}')
        for where, (n, seconds, places) in apart.items():
            print(f'    false in {where}: {n}' + (f' in {places} places, {60 * n / seconds:.2f} a minute of it' if seconds else ''))
    hit, all_of = (sum(t[k] for t in kinds.values()) for k in (0, 1))
    false = sum(row[0] for row in apart.values())
    print(' '.join(f'{k} {a}/{b}' for k, (a, b) in sorted(kinds.items())), f'false {false}', f'fades with 3 or more dimmed frames left {left}/{fades}',
          f'clean frames lost a transition {lost / max(1, graduals):.1f} F1 {f1(hit, all_of, false):.3f}')


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = p.add_subparsers(dest='verb', required=True)
    m = verbs.add_parser('make')
    m.add_argument('footage')
    m.add_argument('out')
    m.add_argument('--seed', type=int, default=1)
    m.add_argument('--films', type=int, default=12)
    m.add_argument('--kind', choices=sorted(KINDS), default='mixed')
    m.add_argument('--only', default='')
    m.add_argument('--without', default='')
    s = verbs.add_parser('score')
    s.add_argument('truth', nargs='+')
    s.add_argument('found')
    s.add_argument('--brief', action='store_true')
    o = p.parse_args()
    make(o) if o.verb == 'make' else score(o)


if __name__ == '__main__':
    main()
