#!/bin/bash
# weft eval pairs: one page with the videos of two models. The page's script runs in Chromium, if that is installed.
. "$SRC/tests/check.sh"
. "$SRC/tests/messages.sh"
models=$SRC/tests/golden/pipelines
pairs() { "$WEFT" eval pairs "$@" >pairs.txt 2>pairs.log; }

models_are_compared() {
    printf 'a red cat\na blue <dog> & "bird"\n' >prompts.txt
    pairs --model "$models/wan_over" --other-model "$models/wan_vace" --prompts prompts.txt --frames 5 --height 32 --width 32 --steps 1 \
        --seed 7 --out made --json pairs.json || fail_with pairs.log "weft eval pairs"
    python3 -S - pairs.html pairs.json <<'PY' || fail "another page"
import base64, html, json, re, sys
page, result = open(sys.argv[1]).read(), json.load(open(sys.argv[2]))
assert result["pairs"] == 2 and result["without_partner"] == 0, result
assert [v["prompt"] for v in result["b"]["each"]] == ["a red cat", 'a blue <dog> & "bird"'], result
embedded = [base64.b64decode(x) for x in re.findall(r'<video[^>]* src="data:video/mp4;base64,([^"]*)"></video>', page)]
files = [open(f"made/{side}/{i:04d}.mp4", "rb").read() for i in range(2) for side in "ab"]
assert embedded == files, "other videos than those of the folders"
outside = re.findall(r'(?:src|href|url)\s*[=(]\s*"?(?!"?data:)[^"\s>]+', re.sub(r"<script>.*?</script>", "", page, flags=re.S))
assert not outside and "://" not in page, outside
ids = re.findall(r'data-id="([0-9a-f]{16})"', page)
assert len(ids) == 1 and int(ids[0], 16), ids
facts = [json.loads(html.unescape(x)) for x in re.findall(r'data-pair="([^"]*)"', page)]
assert [(f["prompt"], f["seed"], f["order"]) for f in facts] == [("a red cat", 7, "ab"), ('a blue <dog> & "bird"', 8, "ab")], facts
for i, box in enumerate(re.findall(r"<section.*?</section>", page, flags=re.S)):
    cells = dict((r[0], r[1:]) for r in re.findall(r"<tr><td>([^<]*)</td><td[^>]*>([^<]*)</td><td[^>]*>([^<]*)</td></tr>", box))
    assert cells["seed"] == (str(7 + i),) * 2 and cells["steps"] == ("1", "1"), cells
    assert cells["flicker"] == tuple("%.5g" % result[s]["each"][i]["flicker"] for s in "ab"), (cells, result)
assert "<dog>" not in re.sub("<script>.*", "", page, flags=re.S), "a prompt is not escaped"
PY
}
check models_are_compared

# Each model has its own steps and guidance scale, which options replace.
models_have_own_settings() {
    cp -r "$models/wan_over" few && echo '{"frames": 5, "height": 32, "width": 32, "steps": 2, "guidance_scale": 1}' >few/weft.json
    sed 's/"steps": 2/"steps": 3/; s/scale": 1/scale": 5/' few/weft.json >weft.json
    cp -r "$models/wan_vace" more && mv weft.json more
    echo "a red cat" >prompt.txt
    pairs --model few --other-model more --prompts prompt.txt --out own --page own.html || fail_with pairs.log "models of other steps"
    pairs --model few --other-model more --prompts prompt.txt --out asked --page asked.html --steps 1 --guidance-scale 4 || fail_with pairs.log "steps of the options"
    python3 -S - <<'PY' || fail "other settings"
import re
for page, steps, scale in (("own", ("2", "3"), ("1", "5")), ("asked", ("1", "1"), ("4", "4"))):
    cells = dict((r[0], r[1:]) for r in re.findall(r"<tr><td>([^<]*)</td><td[^>]*>([^<]*)</td><td[^>]*>([^<]*)</td></tr>", open(page + ".html").read()))
    assert cells["steps"] == steps and cells["guidance"] == scale, cells
PY
}
check models_have_own_settings

# Three of four videos have a partner, in another order; the fourth has another seed.
folders_are_paired_by_prompt_and_seed() {
    needs models_are_compared
    mkdir -p left right
    cp made/a/0000.mp4 left/x.mp4 && cp made/a/0001.mp4 left/y.mp4 && cp made/b/0000.mp4 right/u.mp4 && cp made/b/0001.mp4 right/v.mp4
    printf '%s\n' '{"file": "x.mp4", "prompt": "one", "seed": 1}' '{"file": "y.mp4", "prompt": "two", "seed": 5}' \
        '{"file": "x.mp4", "prompt": "one", "seed": 3}' >left/prompts.jsonl
    printf '%s\n' '{"file": "u.mp4", "prompt": "two", "seed": 6}' '{"file": "v.mp4", "prompt": "one", "seed": 3}' >right/prompts.jsonl
    pairs --videos left --other-videos right --page folders.html --json folders.json || fail_with pairs.log "weft eval pairs"
    python3 -S - <<'PY' || fail "other pairs"
import html, json, re
result = json.load(open("folders.json"))
assert result["pairs"] == 1 and result["without_partner"] == 2, result
fact = json.loads(html.unescape(re.search(r'data-pair="([^"]*)"', open("folders.html").read()).group(1)))
assert (fact["file"], fact["other_file"], fact["seed"]) == ("x.mp4", "v.mp4", 3), fact
PY
    has_message pairs.log sample-skipped || fail "videos without a pair are not reported"
    rm right/prompts.jsonl
    pairs --videos left --other-videos right && fail "folders without a pair are accepted"
    has_message pairs.log samples-none file=right || fail "the folder is not named"
    cp right/u.mp4 right/x.mp4
    pairs --videos left --other-videos right --json names.json || fail_with pairs.log "pairs by name"
    cp pairs.html names.html && cp right/v.mp4 right/x.mp4
    pairs --videos left --other-videos right || fail_with pairs.log "pairs by name"
    [ "$(grep -o 'data-id="[^"]*"' names.html)" != "$(grep -o 'data-id="[^"]*"' pairs.html)" ] || fail "pages of other videos share votes"
    python3 -S -c 'import json; r = json.load(open("names.json")); assert r["pairs"] == 1 and r["a"]["each"][0]["file"] == "x.mp4", r' || fail "names"
}
check folders_are_paired_by_prompt_and_seed

# Either model is on the left in some of 16 pairs, and the videos are in the order that data-pair states.
blind_pages_draw_the_sides() {
    needs models_are_compared
    mkdir -p many_a many_b
    for i in $(seq 16); do
        for side in a b; do
            cp made/$side/0000.mp4 many_$side/$i.mp4
            echo "{\"file\": \"$i.mp4\", \"prompt\": \"p\", \"seed\": $i, \"fps\": 16.0}" >>many_$side/prompts.jsonl
        done
    done
    pairs --videos many_a --other-videos many_b --page blind.html --blind || fail_with pairs.log "weft eval pairs --blind"
    python3 -S - <<'PY' || fail "sides"
import base64, html, json, re
page = open("blind.html").read()
assert re.search(r'<body class="blind"', page)
sections = re.findall(r"<section.*?</section>", page, flags=re.S)
video = {side: base64.b64encode(open(f"made/{side}/0000.mp4", "rb").read()).decode() for side in "ab"}
orders = []
for box in sections:
    order = json.loads(html.unescape(re.search(r'data-pair="([^"]*)"', box).group(1)))["order"]
    assert re.findall(r"base64,([^\"]*)", box) == [video[side] for side in order], order
    orders.append(order)
assert 3 <= orders.count("ab") <= 13, orders
PY
}
check blind_pages_draw_the_sides

# A script drives the page and writes the result as the document's title.
the_page_is_used() {
    command -v chromium >/dev/null || skip "no chromium"
    needs blind_pages_draw_the_sides
    python3 -S - <<'PY'
page = open("blind.html").read()
driver = """<script>
(async () => {
    const press = (key) => document.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true, cancelable: true }));
    const wait = (ms) => new Promise((r) => setTimeout(r, ms));
    const shown = (selector) => getComputedStyle(document.querySelector(selector)).display !== 'none';
    const fact = { hidden: !shown('.model') && !shown('.facts'), requests: 0 };
    const both = () => pairs[state.at].videos.map((v) => v.currentTime);
    const until = async (test) => { for (let i = 0; i < 20000 && !test(); i++) await wait(25); return test(); };
    fact.loaded = await until(() => pairs[0].videos.every((v) => v.readyState >= 2));
    fact.error = pairs[0].videos[0].error ? pairs[0].videos[0].error.message : null;
    fact.played = await until(() => both().some((t) => t > 0));
    // synchronize(): pairs [duration, time] of the left and the right video, before and after
    const after = (...videos) => {
        const pair = { fact: { fps: 10 }, videos: videos.map(([duration, currentTime]) => ({
            duration, currentTime, paused: true, ended: currentTime >= duration, seeking: false,
            play() { this.paused = false; return Promise.resolve(); }, pause() { this.paused = true; } })) };
        synchronize(pair);
        return pair.videos.map((v) => [v.currentTime, v.paused]);
    };
    fact.late_follower = after([2, 1], [2, 0.9]);
    fact.near_follower = after([2, 1], [2, 1.04]);
    fact.shorter = after([1, 0.99], [2, 1.5]);
    fact.end = after([1, 0.99], [2, 2]);
    press(' ');
    fact.stopped = await until(() => pairs[0].videos.every((v) => v.paused));
    press('r');
    press('ArrowRight');
    press('ArrowRight');
    fact.stepped = both().map((t) => Math.floor(t * 16));
    press('ArrowLeft');
    fact.back = both().map((t) => Math.floor(t * 16));
    press('1');
    press('j');
    fact.second = state.at;
    press('2');
    press('j');
    press('0');
    press('k');
    press('k');
    press('k');
    fact.first = state.at;
    fact.orders = pairs.slice(0, 2).map((p) => p.fact.order);
    let saved = null;
    URL.createObjectURL = (blob) => { saved = blob; return '#'; };
    HTMLAnchorElement.prototype.click = function () { fact.name = this.download; };
    press('s');
    fact.saved = JSON.parse(await saved.text());
    document.getElementById('reveal').click();
    fact.shown = shown('.model') && shown('.facts');
    fact.ended = localStorage.getItem(storageKey + ' revealed');
    press('2');
    fact.late = pairs[0].preferred;
    fact.requests = performance.getEntriesByType('resource').filter((r) => !/^(data|blob):/.test(r.name)).length;
    document.title = 'fact ' + JSON.stringify(fact);
})().catch((e) => { document.title = 'fact ' + JSON.stringify(String(e)); });
</script></body>"""
open("driven.html", "w").write(page.replace("</body>", driver))
PY
    timeout 120 chromium --headless --no-sandbox --disable-gpu --user-data-dir="$PWD/profile" --autoplay-policy=no-user-gesture-required \
        --virtual-time-budget=1200000 --dump-dom "file://$PWD/driven.html" >dom.html 2>chromium.log || fail_with chromium.log "chromium"
    python3 -S - <<'PY' || fail "the page"
import html, json, re
title = html.unescape(re.search(r"<title>fact (.*?)</title>", open("dom.html").read(), flags=re.S).group(1))
fact = json.loads(title)
print(json.dumps(fact)[:600])
assert fact["hidden"] and fact["loaded"] and fact["played"] and fact["stopped"] and fact["error"] is None, fact
assert fact["late_follower"] == [[1, False], [1, False]] and fact["near_follower"] == [[1, False], [1.04, False]], fact
assert fact["shorter"] == [[0.99, True], [1.5, False]] and fact["end"] == [[0, False], [0, False]], fact
assert fact["stepped"] == [2, 2] and fact["back"] == [1, 1], fact
assert (fact["second"], fact["first"], fact["requests"]) == (1, 0, 0), fact
saved = fact["saved"]
choices = [v["choice"] for v in saved["votes"]]
assert choices == [fact["orders"][0][0], fact["orders"][1][1], "tie"] + [None] * 13, (choices, fact["orders"])
assert saved["models"] == ["many_a", "many_b"] and saved["blind"] and fact["name"] == "votes.json", saved
assert saved["votes"][0]["preferred"] == "many_" + choices[0] and saved["votes"][1]["seed"] == 2, saved["votes"][:2]
assert fact["shown"] and fact["ended"] == "1" and fact["late"] == choices[0], fact
PY
}
check the_page_is_used

errors_name_their_cause() {
    pairs --videos made/a && fail "one folder is accepted"
    has_message pairs.log option-required key=--other-videos || fail "--other-videos is not named"
    pairs --model "$models/wan_over" --other-model "$models/wan_vace" && fail "models without prompts are accepted"
    has_message pairs.log option-required key=--prompts || fail "--prompts is not named"
}
check errors_name_their_cause
several_ranks_are_refused() {
    command -v mpirun >/dev/null || skip "mpirun is not installed"
    mkdir -p left right
    WEFT_LOG_FORMAT=json mpirun -n 2 "$WEFT" eval pairs --videos left --other-videos right --page ranks.html >log 2>&1 && return 1
    has_message log comm-unsupported level=error && [ ! -e ranks.html ]
}
check several_ranks_are_refused
finish
