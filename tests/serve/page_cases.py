"""Cases of page_long_test.sh: the page in Chromium, by selenium. Waits are for states of the page, never for seconds alone."""
import base64, json, os, re, shutil, signal, sqlite3, time
from serve_client import IMAGE_MODEL, MODEL, SRC, VIDEO, Server, at_event, main, write_lora

PICTURE = os.path.join(MODEL, "video.png")
FLF_MODEL, VACE_MODEL = (os.path.join(SRC, "tests/golden/pipelines", name) for name in ("wan_flf", "wan_vace"))
EVIL = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>'; DROP TABLE job; --"


class Page:
    def __init__(self, server, width=1440, height=900):
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service
        options = webdriver.ChromeOptions()
        options.binary_location = "/usr/bin/chromium"
        for flag in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--hide-scrollbars", "--disable-gpu"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
        self.server = server
        self.resize(width, height)
        self.open()

    def open(self):
        self.driver.get(f"http://127.0.0.1:{self.server.port}/")

    def resize(self, width, height):
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": width, "height": height, "deviceScaleFactor": 1,
                                                                           "mobile": width < 600})

    def theme(self, name):
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": name}]})

    def shot(self, name, whole=True):
        """Stores a screenshot of the page, or of its visible part."""
        if whole:
            self.js("scrollTo({top: 0, behavior: 'instant'})")  # the head of the page stays at the top of the window
        if os.environ.get("WEFT_SHOTS"):
            data = self.driver.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": whole})["data"]
            open(os.path.join(os.environ["WEFT_SHOTS"], name + ".png"), "wb").write(base64.b64decode(data))

    def js(self, script, *args):
        return self.driver.execute_script(script, *args)

    def until(self, script, *args):
        from selenium.webdriver.support.ui import WebDriverWait
        try:
            return WebDriverWait(self.driver, 120, 0.05).until(lambda d: d.execute_script("return " + script, *args))
        except Exception:
            raise AssertionError((script, self.js("return document.body.innerText"), self.logs()[:9]))

    def set(self, name, value):
        self.js("const f = document.forms.form || document.getElementById('form'), e = f.elements[arguments[0]]; e.value = arguments[1];"
                "e.dispatchEvent(new Event('input', {bubbles: true})); e.dispatchEvent(new Event('change', {bubbles: true}));", name, value)

    def press(self, find, *args):
        """Clicks the element that a script finds with the mouse, in the middle, where it must be visible and nothing may cover it."""
        from selenium.common.exceptions import StaleElementReferenceException
        from selenium.webdriver.common.action_chains import ActionChains
        for _ in range(100):  # an element may move between the look and the click
            element = self.until(find, *args)
            try:
                free = self.js("const e = arguments[0]; window.pressed = false; e.addEventListener('click', () => { window.pressed = true; }, {once: true});"
                               "e.scrollIntoView({block: 'center', behavior: 'instant'}); const b = e.getBoundingClientRect();"
                               "return e.contains(document.elementFromPoint(b.x + b.width / 2, b.y + b.height / 2))", element)
                if free:
                    ActionChains(self.driver).move_to_element(element).click().perform()
                if free and self.js("return window.pressed !== false"):  # the click may load the page again
                    return
            except StaleElementReferenceException:
                continue
        raise AssertionError(("no click reaches the element", find, args))

    def click(self, label, inside="body"):
        self.press("[...document.querySelectorAll(arguments[0] + ' button')].find(b => b.textContent === arguments[1] && !b.disabled &&"
                   " b.offsetParent)", inside, label)

    def drop(self, name, content):
        """Drops a file of text, or of the bytes of a file on disk, on the page."""
        data = base64.b64encode(content.encode() if isinstance(content, str) else content).decode()
        self.js("const bytes = Uint8Array.from(atob(arguments[1]), c => c.charCodeAt(0)), transfer = new DataTransfer();"
                "transfer.items.add(new File([bytes], arguments[0], {type: /mp4$/.test(arguments[0]) ? 'video/mp4' : ''}));"
                "document.body.dispatchEvent(new DragEvent('drop', {bubbles: true, cancelable: true, dataTransfer: transfer}))", name, data)

    def drop_on(self, name, path, type):
        """Drops a file on a tile of the form."""
        data = base64.b64encode(open(path, "rb").read()).decode()
        self.until("document.querySelector(arguments[0])", f'.tile[data-input="{name}"]')
        self.js("const b = Uint8Array.from(atob(arguments[1]), c => c.charCodeAt(0)), d = new DataTransfer();"
                "d.items.add(new File([b], arguments[2], {type: arguments[3]}));"
                "for (const name of ['dragenter', 'dragover', 'drop'])"
                "  document.querySelector(arguments[0]).dispatchEvent(new DragEvent(name, {dataTransfer: d, bubbles: true, cancelable: true}));",
                f'.tile[data-input="{name}"]', data, os.path.basename(path), type)

    def tiles(self):
        return self.js("return document.getElementById('inputs').hidden ? [] : [...document.querySelectorAll('.tile')].map(t => t.dataset.input)")

    def shots(self, name):
        """Screenshots of a phone and of a desk, in both themes. Nothing is wider than the window."""
        for width, height, theme in ((390, 844, "dark"), (390, 844, "light"), (1440, 900, "dark"), (1440, 900, "light")):
            self.resize(width, height), self.theme(theme), self.check_width(), self.shot(f"{name}-{width}-{theme}")

    def fill(self, **values):
        self.until("document.getElementById('form').elements.width.value")  # the model's values came, which would replace others
        for name, value in {**dict(prompt="a red cat", width=32, height=32, frames=17, steps=20), **values}.items():
            self.set(name, value)

    def logs(self):
        return self.driver.get_log("browser")

    def check_width(self):
        widths = self.js("return [document.documentElement.scrollWidth, innerWidth]")
        assert widths[0] <= widths[1], widths

    def close(self):
        errors = [entry for entry in self.logs() if entry["level"] in ("SEVERE", "WARNING")]
        self.driver.quit()
        assert not errors, errors


def held_server(*options, **more):
    """A server whose worker does not start: another process has its lock."""
    import fcntl
    s = Server("state", *options, **more)
    s.lock = open("state/worker.lock", "a")
    fcntl.flock(s.lock, fcntl.LOCK_EX)
    return s


def the_queue_is_used():
    s = held_server()
    page = Page(s)
    page.fill()
    # only legal values: a size snaps to the nearest one
    page.set("width", "35"), page.set("frames", "18")
    assert page.js("const f = document.getElementById('form').elements; return [f.width.value, f.frames.value]") == ["32", "17"]
    page.until("/of memory/.test(document.getElementById('price').textContent)")
    page.set("grid", "3")
    page.until("/for 3 videos/.test(document.getElementById('price').textContent)")
    page.click("Add to queue")
    page.until("document.querySelectorAll('#jobs > li').length === 3")
    page.set("grid", "1"), page.set("prompt", EVIL)
    page.click("Add to queue")
    page.until("document.querySelectorAll('#jobs > li').length === 4")
    assert page.js("return document.title") == "weft" and page.js("return document.querySelectorAll('#jobs img[src=x]').length") == 0
    assert page.js("return document.querySelectorAll('#jobs > li .words')[3].textContent") == EVIL
    page.check_width(), page.shot("queue-1440-light")
    order = lambda: page.js("return [...document.querySelectorAll('#jobs > li')].map(li => li.dataset.id)")
    ids = order()
    # reorder by keyboard, edit, duplicate, pause, resume, cancel
    from selenium.webdriver.common.keys import Keys
    page.until("!document.querySelectorAll('#jobs > li')[3].up.disabled")
    page.js("document.querySelectorAll('#jobs > li')[3].up.focus()")
    page.driver.switch_to.active_element.send_keys(Keys.ENTER)
    page.until("document.querySelectorAll('#jobs > li')[2].dataset.id === arguments[0]", ids[3])
    first = f'#jobs > li[data-id="{ids[0]}"]'
    page.click("Edit", first)
    page.set("prompt", "a blue dog"), page.set("steps", "3")
    page.shot("edit-1440-light")
    page.click("Save changes")
    page.until("document.querySelector(arguments[0] + ' .words').textContent === 'a blue dog'", first)
    assert s.call("GET", "/v1/jobs/" + ids[0])["request"]["steps"] == 3
    assert page.js("return document.getElementById('form').elements.prompt.value") == EVIL  # the draft of before
    page.click("Duplicate", first)
    page.until("document.querySelectorAll('#jobs > li').length === 5")
    # the exported queue, dropped on the page, adds the same jobs
    page.js("const real = URL.createObjectURL; URL.createObjectURL = blob => { blob.text().then(t => { window.exported = t; });"
            "return real.call(URL, blob); }")
    page.click("Export queue")
    exported = page.until("window.exported")
    requests = [json.loads(line) for line in exported.splitlines()]
    assert len(requests) == 5 and requests[0]["prompt"] == "a blue dog" and requests[0]["steps"] == 3, requests
    page.drop("queue.jsonl", exported.splitlines()[0] + "\n")
    page.until("document.querySelectorAll('#jobs > li').length === 6")
    newest = max(s.call("GET", "/v1/jobs")["data"], key=lambda job: job["queue_position"])
    assert newest["request"] == s.call("GET", "/v1/jobs/" + ids[0])["request"], newest
    page.press("document.querySelectorAll('#jobs > li')[5].cancel")
    page.until("document.querySelectorAll('#jobs > li').length === 5")
    page.click("Pause", first)
    page.until("document.querySelector(arguments[0] + ' .chip').textContent === 'paused'", first)
    page.click("Resume", first)
    page.until("document.querySelector(arguments[0] + ' .chip').textContent === 'queued'", first)
    page.click("Cancel", first)
    page.until("!document.querySelector(arguments[0])", first)
    page.shots("queue")
    # an open page outlives the server: a video that is added meanwhile is added once, and the models come from the new server
    port = s.port
    s.lock.close()
    s.stop()
    page.until("/does not answer/.test(document.getElementById('state').textContent)")
    page.set("prompt", "a late fox")
    page.click("Add to queue")
    page.until("/as soon as it does/.test(document.getElementById('price').textContent)")
    page.shot("lost-1440-light")
    s = held_server(port=port, models=("wan=" + MODEL, "image=" + IMAGE_MODEL))
    page.until("document.querySelectorAll('#jobs > li').length === 5 && /waiting/.test(document.getElementById('state').textContent)")
    page.until("[...document.getElementById('form').elements.model.options].map(o => o.value).join() === 'wan,image'")
    page.until("/of memory/.test(document.getElementById('price').textContent) && !document.getElementById('submit').disabled")
    assert [job["request"]["prompt"] for job in s.call("GET", "/v1/jobs")["data"]].count("a late fox") == 1
    page.logs()  # the errors of connections while no server existed
    page.open()
    page.until("document.querySelectorAll('#jobs > li').length === 5")
    assert page.js("return document.getElementById('form').elements.prompt.value") == "a late fox"
    page.close()
    s.lock.close()
    s.stop()


def videos_are_shown():
    s = Server(models=("wan=" + MODEL, "image=" + IMAGE_MODEL))
    page = Page(s)
    page.fill(steps=4, grid=2)
    page.click("Add to queue")
    page.until("document.querySelectorAll('#videos .chip.completed').length === 2")
    page.until("[...document.querySelectorAll('#videos video')].filter(v => v.readyState >= 1 && v.videoWidth === 32).length === 2")
    page.check_width(), page.shot("gallery-1440-light")
    page.js("document.querySelectorAll('#videos video')[0].currentTime = 0.5")
    page.until("!document.querySelectorAll('#videos video')[0].seeking")
    page.click("Compare variants", "#videos li:first-child")
    page.until("document.querySelectorAll('#side video').length === 2 && [...document.querySelectorAll('#side video')].every(v => v.videoWidth)")
    page.shot("compare-1440-light")
    page.click("Close", "#comparison")
    page.set("prompt", "other")
    page.click("Reuse settings", "#videos li:first-child")
    assert page.js("return document.getElementById('form').elements.prompt.value") == "a red cat"
    # a dropped video has its settings; a file without settings changes nothing
    newest = page.js("return document.querySelector('#videos > li').job")
    page.fill(prompt="other", steps=9, seed=0)
    page.drop("x.mp4", open(PICTURE, "rb").read())
    page.until("/no settings/.test(document.getElementById('toast').textContent)")
    page.drop("x.mp4", open(f"state/jobs/{newest['id']}/video.mp4", "rb").read())
    page.until("document.getElementById('form').elements.prompt.value === 'a red cat'")
    values = page.js("return values()")
    for name in ("prompt", "width", "height", "frames", "steps", "seed", "guidance_scale"):
        assert values[name] == newest["request"][name], (name, values, newest["request"])
    # an image is dropped on the form of the model that needs one
    page.set("model", "image")
    page.fill(steps=2, grid=1)
    page.until("/starts from an image/.test(document.getElementById('price').textContent)")
    page.drop_on("input_reference", PICTURE, "image/png")
    page.until("/of memory/.test(document.getElementById('price').textContent)")
    page.shot("image-1440-light")
    page.click("Add to queue")
    page.until("document.querySelectorAll('#videos .chip.completed').length === 3")
    # presets
    page.js("window.prompt = () => 'mine'")
    page.click("Save preset")
    page.set("prompt", "other")
    page.js("const p = document.getElementById('preset'); p.value = 'mine'; p.dispatchEvent(new Event('change'))")
    assert page.js("return document.getElementById('form').elements.prompt.value") == "a red cat"
    page.js("window.confirm = () => true")
    page.click("Delete", "#videos li:first-child")
    page.until("document.querySelectorAll('#videos > li').length === 2")
    page.shots("gallery")
    # commands: the prompt is one quoted word
    page.set("model", "wan")
    page.fill(prompt="it's $(x)")
    curl, weft = page.js("return [curl(), command()]")
    import shlex
    assert "it's $(x)" in shlex.split(weft) and json.loads(shlex.split(curl)[-1])["prompt"] == "it's $(x)", (curl, weft)
    page.close()
    s.stop()


def running_videos_are_followed():
    """Phase, steps and preview of a running video, whose worker stops itself at a preview; pause, resume and cancel; a failure."""
    write_lora("style.safetensors")
    s = Server("state", "--lora", "style=style.safetensors", env=at_event(signal.SIGSTOP, "*video.preview.png", count=3, once="held"))
    page = Page(s)
    page.fill(prompt="a red cat\n\na blue dog", negative_prompt="fog", preview=1)
    page.press("document.getElementById('form').elements.lines")
    page.until("/for 2 videos/.test(document.getElementById('price').textContent)")
    page.click("Add to queue")
    page.until("document.querySelectorAll('#jobs > li').length === 2")
    ids = page.js("return [...document.querySelectorAll('#jobs > li')].map(li => li.dataset.id)")
    assert [s.call("GET", "/v1/jobs/" + id)["request"]["negative_prompt"] for id in ids] == ["fog"] * 2
    first, second = (f'#jobs > li[data-id="{id}"]' for id in ids)
    worker = s.held_worker()
    page.until("/^denoising [1-9]+ of 20/.test(document.querySelector(arguments[0] + ' .chip').textContent)", first)
    page.until("document.querySelector(arguments[0] + ' img.preview').naturalWidth === 32", first)
    value = page.js("const bar = document.querySelector(arguments[0] + ' progress'); return bar.hidden ? null : bar.value", first)
    assert value in (1 / 20, 2 / 20, 3 / 20), value
    place = page.js("return [arguments[0], arguments[1]].map(s => document.querySelector(s).place.textContent)", first, second)
    assert re.search("ends about .*\\d", place[0]) and re.search("place 1, starts about .*\\d.*, ends about .*\\d", place[1]), place
    page.until("/^generating, 1 waiting/.test(document.getElementById('state').textContent)")
    facts = page.js("return Object.fromEntries([...document.querySelectorAll('#facts dt')].map(dt => [dt.textContent, dt.nextSibling.textContent]))")
    assert all(re.search(r"\d", facts[name]) for name in ("Processors", "Memory", "Worker", "Disk", "Workers")), facts
    assert "transformer of wan" in facts["Loaded"] and "vae of wan" in facts["Loaded"] and facts["Models"] == "wan", facts
    page.shots("running")
    # the pause is shown at once, and ends when the worker has stopped
    page.click("Pause", first)
    page.until("document.querySelector(arguments[0] + ' .chip').textContent === 'pausing'", first)
    os.kill(worker, signal.SIGCONT)
    page.until("document.querySelector(arguments[0] + ' .chip').textContent === 'paused'", first)
    page.click("Resume", first)
    page.until("document.querySelectorAll('#videos .chip.completed').length === 2")
    # a running video is cancelled
    id = s.call("POST", "/v1/jobs", dict(VIDEO, steps=4000, preview=1))["id"]
    page.until("/^denoising/.test((document.querySelector(arguments[0] + ' .chip') || {}).textContent)", f'#jobs > li[data-id="{id}"]')
    os.kill(worker, signal.SIGSTOP)  # the video does not end before the click
    page.click("Cancel", f'#jobs > li[data-id="{id}"]')
    os.kill(worker, signal.SIGCONT)
    page.until("(document.querySelector(arguments[0] + ' .chip') || {}).textContent === 'cancelled'", f'#videos > li[data-id="{id}"]')
    # the download is the file under the name of the job
    page.js("HTMLAnchorElement.prototype.click = function() { window.saved = [this.href, this.download]; }")
    page.click("Download", f'#videos > li[data-id="{ids[0]}"]')
    assert page.until("window.saved") == [f"http://127.0.0.1:{s.port}/v1/videos/{ids[0]}/content", ids[0] + ".mp4"]
    # a failure is shown in words, and the job can be tried again
    os.rename("style.safetensors", "kept"), open("style.safetensors", "w").close()
    id = s.call("POST", "/v1/jobs", dict(VIDEO, steps=2, lora="style"))["id"]
    failed = f'#videos > li[data-id="{id}"]'
    page.until("(document.querySelector(arguments[0] + ' .chip') || {}).textContent === 'failed'", failed)
    why = page.js("return document.querySelector(arguments[0] + ' .why').textContent", failed)
    assert why and why == s.call("GET", "/v1/jobs/" + id)["error"]["message"], why
    page.until("[...document.querySelectorAll('#facts dt')].some(dt => dt.textContent === 'Last failure' && dt.nextSibling.textContent === arguments[0])", why)
    page.shots("failure")
    os.rename("kept", "style.safetensors")
    page.click("Try again", failed)
    page.until("(document.querySelector(arguments[0] + ' .chip') || {}).textContent === 'completed'", failed)
    page.close()
    s.stop()


def types_of_numbers_are_chosen():
    """The selects begin with the server's defaults; a job without a value was computed in the type of weft."""
    s = held_server("--precision", "bf16")
    page = Page(s)
    chosen = lambda: page.js("const f = document.getElementById('form').elements; return [f.precision.value, f.vae_precision.value, f.weights.value]")
    page.until("document.getElementById('form').elements.precision.options.length === 4")
    assert chosen() == ["bf16", "f32", "stored"], chosen()
    page.fill()
    page.set("weights", "int8"), page.set("vary", "precision"), page.set("varied", "f32, f16")
    page.until("/is not a value/.test(document.getElementById('price').textContent)")
    page.set("varied", "f32, bf16")
    page.until("/of memory/.test(document.getElementById('price').textContent)")
    weft = page.js("return command()")
    assert "--precision 'bf16'" in weft and "--weights 'int8'" in weft and "vae" not in weft, weft
    page.click("Add to queue")
    page.until("document.querySelectorAll('#jobs > li').length === 2")
    requests = [job["request"] for job in sorted(s.call("GET", "/v1/jobs")["data"], key=lambda job: job["queue_position"])]
    assert [r.get("precision") for r in requests] == [None, "bf16"] and {r["weights"] for r in requests} == {"int8"}, requests
    assert "weights int8" in page.js("return document.querySelector('#jobs > li').textContent")
    page.shots("precision")
    page.set("weights", "stored")
    page.click("Edit", "#jobs > li")
    page.until("document.getElementById('form').elements.precision.value === 'f32'")
    assert chosen() == ["f32", "f32", "int8"], chosen()
    page.click("Stop editing")
    page.until("document.getElementById('form').elements.weights.value === 'stored'")
    assert chosen() == ["bf16", "f32", "stored"], chosen()
    page.close()
    s.lock.close()
    s.stop()


def further_options_and_hidden_tabs():
    """The options that the model takes are part of the form, the price, the job and the commands. A tab in the background, even a
    frozen one, shows what happened as soon as it is visible."""
    s = held_server(models=("wan=" + MODEL, "sky=" + os.path.join(SRC, "tests/golden/pipelines/skyreels")))
    page = Page(s)
    names = lambda: page.js("return [...document.querySelectorAll('#options label')].map(label => label.input.name)")
    page.until("document.querySelectorAll('#options label').length > 9")
    assert "frame_lag" not in names() and "guidance_end" in names(), names()
    page.press("document.querySelector('#more summary')")
    page.fill()
    page.set("window", "10")
    page.until("/^window: .*nearest is 9/.test(document.getElementById('price').textContent)")
    page.set("window", ""), page.set("guidance_end", "0.5"), page.set("fit", "crop")
    page.until("/of memory/.test(document.getElementById('price').textContent)")
    weft = page.js("return command()")
    assert "--guidance-end '0.5'" in weft and "--fit 'crop'" in weft and "--window" not in weft, weft
    assert '"guidance_end":0.5' in page.js("return curl()")
    page.shots("options")
    page.click("Add to queue")
    page.until("document.querySelectorAll('#jobs > li').length === 1")
    job, = s.call("GET", "/v1/jobs")["data"]
    assert job["request"]["guidance_end"] == 0.5 and job["request"]["fit"] == "crop" and "window" not in job["request"], job
    # edited options: a cleared one has its default again
    page.set("guidance_end", "")
    page.click("Edit", "#jobs > li")
    page.until("document.getElementById('form').elements.guidance_end.value === '0.5'")
    page.set("guidance_end", ""), page.set("shift", "3")
    page.click("Save changes")
    page.until("/New|Add to queue/.test(document.getElementById('submit').textContent)")
    request = s.call("GET", "/v1/jobs/" + job["id"])["request"]
    assert "guidance_end" not in request and request["shift"] == 3 and request["fit"] == "crop", request
    page.set("model", "sky")
    page.until("document.getElementById('form').elements.frame_lag")
    assert "history" in page.js("return [...document.getElementById('form').elements.window_mode.options].map(o => o.value)")
    # hidden, then frozen
    shown = "document.querySelectorAll('#jobs > li').length === "
    hide = "Object.defineProperty(document, 'hidden', {configurable: true, get: () => arguments[0]});"\
           "document.dispatchEvent(new Event('visibilitychange'))".replace("arguments[0]", "%s")
    page.js(hide % "true")
    page.js("window.asked = 0; const before = window.fetch; window.fetch = (...a) => { window.asked++; return before(...a); }")
    page.js("clearTimeout(readTimer)")  # as a browser that delays the timers of hidden tabs
    s.call("POST", "/v1/jobs", dict(VIDEO, seed=77))
    assert page.js("return " + shown + "1")
    page.js(hide % "false")
    page.until(shown + "2")
    page.driver.execute_cdp_cmd("Page.setWebLifecycleState", {"state": "frozen"})
    s.call("POST", "/v1/jobs", dict(VIDEO, seed=78))
    page.driver.execute_cdp_cmd("Page.setWebLifecycleState", {"state": "active"})
    page.until(shown + "3")
    # only prices of illegal values are refused
    errors = [entry["message"] for entry in page.logs() if entry["level"] in ("SEVERE", "WARNING")]
    assert all("/v1/jobs/price" in message and "400 (Bad Request)" in message for message in errors), errors
    page.close()
    s.lock.close()
    s.stop()


def files_and_masks():
    """Only the files that the model takes can be added; a mask is painted with the pointer and with keys."""
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys
    s = Server(models=("wan=" + MODEL, "flf=" + FLF_MODEL, "vace=" + VACE_MODEL))
    id = s.call("POST", "/v1/jobs", dict(VIDEO, frames=9, steps=1))["id"]
    s.finish(id)
    source = f"state/jobs/{id}/video.mp4"
    page = Page(s)
    page.fill(frames=9, steps=2)
    assert page.tiles() == ["video"], page.tiles()
    # a last frame needs a first one
    page.set("model", "flf")
    page.fill(frames=9, steps=2)
    assert page.tiles() == ["input_reference", "video"], page.tiles()
    page.until("/starts from an image/.test(document.getElementById('price').textContent)")
    page.drop_on("input_reference", source, "video/mp4")  # is no image: its settings are used, which are those of the form
    page.until("/settings of the file/.test(document.getElementById('toast').textContent)")
    page.set("model", "flf")
    page.fill(frames=9, steps=2)
    page.drop_on("input_reference", FLF_MODEL + "/image.png", "image/png")
    page.until("/ends with an image/.test(document.getElementById('price').textContent)")
    page.drop_on("last_image", FLF_MODEL + "/last_image.png", "image/png")
    page.until("/of memory/.test(document.getElementById('price').textContent)")
    page.shots("frames")
    page.click("Add to queue")
    page.until("document.querySelectorAll('#videos .chip.completed').length === 2")
    # a control video excludes a video to change, and brings the mask
    page.set("model", "vace")
    page.fill(frames=9, steps=2)
    assert page.tiles() == ["video", "control", "reference_image"], page.tiles()
    page.drop_on("control", source, "video/mp4")
    page.until("[...document.querySelectorAll('.tile')].map(t => t.dataset.input).join() === 'control,reference_image,mask'")
    page.until("document.querySelector('.tile[data-input=control] video').videoWidth === 32")
    # the brush: a stroke of the pointer, undo, a stroke by keys, invert, erase
    page.click("Draw", '.tile[data-input="mask"]')
    page.until("document.getElementById('masking').open")
    canvas = page.driver.find_element(By.ID, "mask-canvas")
    share = lambda: page.js("const d = maskLayer.getContext('2d').getImageData(0, 0, 32, 32).data;"
                            "let n = 0; for (let i = 3; i < d.length; i += 4) n += d[i] > 127; return n / 1024")
    width = canvas.size["width"]
    ActionChains(page.driver).move_to_element_with_offset(canvas, -width // 4, 0).click_and_hold().move_by_offset(width // 2, 0).release().perform()
    drawn = share()
    assert 0.02 < drawn < 0.5, drawn
    page.shots("mask")
    page.click("Undo", "#masking")
    assert share() == 0
    page.js("document.getElementById('mask-canvas').focus()")
    for key in [Keys.ARROW_LEFT] * 3 + [" "]:
        page.driver.switch_to.active_element.send_keys(key)
    by_keys = share()
    assert 0 < by_keys < 0.2, by_keys
    page.click("Invert", "#masking")
    assert abs(share() - (1 - by_keys)) < 0.02, (share(), by_keys)
    page.click("Erase", "#masking")
    page.driver.find_element(By.ID, "mask-erase")
    ActionChains(page.driver).move_to_element_with_offset(canvas, 0, -width // 4).click().perform()
    kept = share()
    assert kept < 1 - by_keys, kept
    page.click("Use mask", "#masking")
    page.until("!document.getElementById('masking').open && document.querySelector('.tile[data-input=mask] img')")
    page.until("/of memory/.test(document.getElementById('price').textContent)")
    page.shots("control")
    # the files survive a reload of the page
    page.open()
    page.until("document.querySelectorAll('.tile img, .tile video').length === 2")
    curl, weft = page.js("return [curl(), command()]")
    import shlex
    assert 'control=@"video.mp4"' in shlex.split(curl) and shlex.split(weft)[-4:] == ["--control", "video.mp4", "--mask", "mask.png"], (curl, weft)
    page.click("Add to queue")
    page.until("document.querySelectorAll('#videos .chip.completed').length === 3")
    job = next(j for j in s.call("GET", "/v1/jobs")["data"] if j["request"]["model"] == "vace")
    assert job["request"]["control"] == "input-control.mp4" and job["request"]["mask"] == "input-mask.png", job
    # the server has the painted mask, in black and white
    white = page.js("const done = arguments[1]; return fetch('/v1/jobs/' + arguments[0] + '/inputs/mask').then(r => r.blob()).then(createImageBitmap)"
                    ".then(b => { const c = document.createElement('canvas'); c.width = b.width; c.height = b.height; const x = c.getContext('2d');"
                    "x.drawImage(b, 0, 0); const d = x.getImageData(0, 0, b.width, b.height).data; let n = 0;"
                    "for (let i = 0; i < d.length; i += 4) { if (d[i] !== 0 && d[i] !== 255) return -1; n += d[i] === 255; } return n / 1024; })", job["id"])
    assert white == kept, (white, kept)
    # settings of a result bring its files back
    page.js("for (const {name} of INPUTS) setFile(name, null)")
    page.click("Reuse settings", f'#videos li[data-id="{job["id"]}"]')
    page.until("document.querySelectorAll('.tile img, .tile video').length === 2")
    # video to video, with a strength
    page.click("Remove", '.tile[data-input="control"]')
    page.set("model", "wan")
    page.fill(frames=9, steps=4)
    page.drop_on("video", source, "video/mp4")
    page.set("strength", "0.5")
    page.click("Add to queue")
    page.until("document.querySelectorAll('#videos .chip.completed').length === 4")
    job = max(s.call("GET", "/v1/jobs")["data"], key=lambda job: job["created_at"])
    assert job["request"]["video"] == "input-video.mp4" and job["request"]["strength"] == 0.5 and job["request"]["mask"] == "input-mask.png", job
    page.close()
    s.stop()


def refinements_and_settings():
    """A coarse video brings its fields, frames and guidance; a distilled adapter its steps; images of an identity repeat one option."""
    longcat = os.path.join(SRC, "tests/golden/pipelines/longcat")
    write_lora("dist.safetensors", steps=3, guidance_scale=1)
    s = Server("state", "--lora", "dist=dist.safetensors", models=("longcat=" + longcat, "wan=" + MODEL))
    page = Page(s)
    of = lambda *names: page.js("return arguments[0].map(name => field[name] ? field[name].value : null)", names)
    usual = of("steps", "guidance_scale")
    page.press("loraRows()[0].chosen")
    assert of("steps", "guidance_scale") == ["3", "1"] != usual
    page.press("loraRows()[0].chosen")
    assert of("steps", "guidance_scale") == usual
    page.fill(width=48, steps=20)
    assert "refine" in page.tiles() and of("refine_level", "refine_frames") == [None, None], page.tiles()
    page.drop_on("refine", longcat + "/refine_refine.png", "image/png")
    page.until("field.guidance_scale.value === '1' && field.refine_frames && field.frames.step === '2'")
    assert int(of("frames")[0]) % 2 == 0 and page.tiles() == ["input_reference", "refine"], (of("frames"), page.tiles())
    page.set("refine_frames", "same")
    assert page.js("return field.frames.step") == "1"
    page.set("frames", 5)
    page.until("/of memory/.test(document.getElementById('price').textContent)")
    assert page.js("return command()").endswith("--refine 'refine_refine.png'"), page.js("return command()")
    page.click("Add to queue")
    page.until("document.querySelectorAll('#videos .chip.completed').length === 1")
    request = s.call("GET", "/v1/jobs")["data"][0]["request"]
    assert (request["frames"], request["guidance_scale"], request["refine_frames"]) == (5, 1, "same"), request
    page.js("setFile('refine', null)")
    assert of("guidance_scale", "refine_frames") == [usual[1], None], of("guidance_scale", "refine_frames")
    page.js("capabilities.models[0].reference_images = 2; for (const name of ['reference_image', 'reference_image_2']) setFile(name, new File([], name + '.png'))")
    assert page.js("return command()").endswith("--reference-image 'reference_image.png' --reference-image 'reference_image_2.png'"), page.js("return command()")
    page.js("capabilities.models[0].reference_images = 0")
    page.js("capabilities.models[0].identity_images = 2; for (const name of ['identity_image', 'identity_image_2']) setFile(name, new File([], name + '.png'))")
    assert page.js("return command()").endswith("--identity-image 'identity_image.png' --identity-image 'identity_image_2.png'"), page.js("return command()")
    page.close()
    s.stop()


def grids_and_adapters():
    """A grid of seeds and values side by side, and adapters with weights."""
    write_lora("style.safetensors")
    s = Server("state", "--lora", "style=style.safetensors", "--lora", "grain=style.safetensors")
    page = Page(s)
    page.fill(frames=9, steps=2, grid=2, vary="guidance_scale", varied="1, 5")
    page.until("/for 4 videos/.test(document.getElementById('price').textContent)")
    page.press("loraRows()[1].chosen")
    page.js("const row = loraRows()[1]; row.weight.value = 0.5; row.weight.dispatchEvent(new Event('input', {bubbles: true}))")
    page.shots("grid")
    page.click("Add to queue")
    page.until("document.querySelectorAll('#videos .chip.completed').length === 4")
    found = sorted((j["request"]["guidance_scale"], j["request"]["seed"], j["request"]["lora"]) for j in s.call("GET", "/v1/jobs")["data"])
    assert found == [(g, i, "grain:0.5") for g in (1, 5) for i in (0, 1)], found
    page.click("Compare variants", "#videos li:first-child")
    page.until("document.querySelectorAll('#side video').length === 4 && [...document.querySelectorAll('#side video')].every(v => v.videoWidth)")
    captions = page.js("return [...document.querySelectorAll('#side figcaption')].map(c => c.textContent.split(' · ').slice(0, 2).join())")
    assert captions == ["seed 0,guidance scale 1", "seed 1,guidance scale 1", "seed 0,guidance scale 5", "seed 1,guidance scale 5"], captions
    assert page.js("return getComputedStyle(document.getElementById('side')).gridTemplateColumns").count("px") == 2
    page.shots("compare-grid")
    page.click("Close", "#comparison")
    # the weights of a result come back; an illegal value is not sent
    page.js("setLoras('')")
    page.click("Reuse settings", "#videos li:first-child")
    assert page.js("return loraText()") == "grain:0.5"
    page.set("vary", "sampler"), page.set("varied", "magic")
    page.until("/not a sampler/.test(document.getElementById('price').textContent)")
    page.set("vary", "lora style"), page.set("varied", "0.2, 20")
    page.until("/of memory/.test(document.getElementById('price').textContent)")
    assert page.js("return requests().map(r => r.lora)") == ["grain:0.5,style:0.2", "grain:0.5,style:10"]
    page.close()
    s.stop()


def a_phone_is_enough():
    """The way of a video at a width of 390: typed, submitted, moved, edited, paused, cancelled, played, compared, downloaded, deleted."""
    from selenium.webdriver.common.keys import Keys
    s = held_server()
    page = Page(s, 390, 844)
    page.fill(steps=2)
    page.press("document.getElementById('form').elements.prompt")
    page.driver.switch_to.active_element.send_keys(Keys.CONTROL + "a")
    page.driver.switch_to.active_element.send_keys("typed words")
    for count in (1, 2, 3):
        page.until("/of memory/.test(document.getElementById('price').textContent)")
        page.click("Add to queue")
        page.until(f"document.querySelectorAll('#jobs > li').length === {count}")
    ids = page.js("return [...document.querySelectorAll('#jobs > li')].map(li => li.dataset.id)")
    first, second, third = (f'#jobs > li[data-id="{id}"]' for id in ids)
    page.press("document.querySelector(arguments[0]).up", second)
    page.until("document.querySelectorAll('#jobs > li')[0].dataset.id === arguments[0]", ids[1])
    page.click("Edit", third)
    page.set("prompt", "other words")
    page.click("Save changes")
    page.until("document.querySelector(arguments[0] + ' .words').textContent === 'other words'", third)
    page.click("Pause", third)
    page.until("document.querySelector(arguments[0] + ' .chip').textContent === 'paused'", third)
    page.click("Resume", third)
    page.until("document.querySelector(arguments[0] + ' .chip').textContent === 'queued'", third)
    page.click("Duplicate", first)
    page.until("document.querySelectorAll('#jobs > li').length === 4")
    page.click("Cancel", first)
    page.until("!document.querySelector(arguments[0])", first)
    page.check_width()
    s.lock.close()  # the worker starts
    page.until("document.querySelectorAll('#videos .chip.completed').length === 3")
    page.until("[...document.querySelectorAll('#videos video')].some(v => v.videoWidth === 32)")
    page.js("HTMLAnchorElement.prototype.click = function() { window.saved = this.download; }")
    page.click("Download", f'#videos > li[data-id="{ids[1]}"]')
    assert page.until("window.saved") == ids[1] + ".mp4"
    page.click("Reuse settings", f'#videos > li[data-id="{ids[2]}"]')
    page.until("document.getElementById('form').elements.prompt.value === 'other words'")
    page.js("window.confirm = () => true")
    page.click("Delete", f'#videos > li[data-id="{ids[1]}"]')
    page.until("!document.querySelector(arguments[0])", f'#videos > li[data-id="{ids[1]}"]')
    s.error(404, "not_found", "GET", "/v1/jobs/" + ids[1])
    assert not os.path.exists("state/jobs/" + ids[1])
    page.check_width(), page.shot("phone-390-light")
    page.close()
    s.stop()


def five_hundred_results():
    """The page has players for the visible videos only, and shows older videos on request."""
    s = Server()
    id = s.call("POST", "/v1/jobs", dict(VIDEO, frames=9, steps=1))["id"]
    s.finish(id)
    s.stop()
    db = sqlite3.connect("state/queue.sqlite")
    names = [row[1] for row in db.execute("PRAGMA table_info(job)") if row[1] not in ("number", "id", "created", "finished", "fingerprint")]
    for i in range(1, 500):
        other = f"video_{i:024x}"
        db.execute(f"INSERT INTO job ({', '.join(names)}, id, created, finished, fingerprint) SELECT {', '.join(names)}, ?, created + ?, finished + ?, ?"
                   " FROM job WHERE id = ?", (other, i, i, other, id))
        shutil.copytree("state/jobs/" + id, "state/jobs/" + other, copy_function=os.link)
    db.commit()
    db.close()
    s = Server()
    page = Page(s)
    shown = "document.querySelectorAll('#videos > li').length"
    page.until(shown + " === 100")
    for i in range(2, 6):
        page.click("Show older videos", "#gallery")
        page.until(f"{shown} === {100 * i}")
    assert page.js("return document.getElementById('older').hidden")
    page.until("document.querySelectorAll('#videos video').length > 0")
    for at in range(0, 101, 10):  # down to the end: players are created and removed
        page.js("scrollTo(0, arguments[0] / 100 * document.documentElement.scrollHeight)", at)
        page.until("[...document.querySelectorAll('#videos > li')].some(li => { const b = li.getBoundingClientRect();"
                   "return b.bottom > 0 && b.top < innerHeight && li.holder.firstChild && li.holder.firstChild.videoWidth === 32; })"
                   " || scrollY < document.getElementById('gallery').offsetTop || scrollY + innerHeight > document.getElementById('machine').offsetTop")
        assert page.js("return document.querySelectorAll('#videos video').length") < 60
    page.shot("results-1440-light", False)
    page.js("window.confirm = () => true; document.querySelectorAll('#videos > li')[499].scrollIntoView({behavior: 'instant'})")
    page.click("Delete", "#videos > li:last-child")
    page.until(shown + " === 499")
    page.resize(390, 844), page.check_width(), page.shot("results-390-light", False)
    page.click("Delete", "#videos > li:nth-child(250)")
    page.until(shown + " === 498")
    page.close()
    s.stop()


def a_token_is_asked_for():
    import subprocess
    token = subprocess.run([os.environ["WEFT"], "serve", "--state", "state", "--new-token", "a"], check=True, capture_output=True,
                           text=True).stdout.strip()
    s = Server()
    s.token = token
    page = Page(s)
    page.until("document.getElementById('login').open")
    page.logs()  # the refused request
    page.shot("login-1440-light")
    page.js("document.getElementById('token').value = arguments[0]", token)
    page.click("Use token")
    page.until("/idle/.test(document.getElementById('state').textContent)")
    id = s.call("POST", "/v1/jobs", dict(VIDEO, steps=2))["id"]
    page.until("[...document.querySelectorAll('#videos video')].some(v => v.videoWidth === 32)")
    assert page.js("return document.querySelector('#videos video').src").startswith("blob:"), id
    page.close()
    s.stop()


main(globals())
