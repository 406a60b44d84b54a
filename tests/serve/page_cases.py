"""Cases of page_test.sh: the page in Chromium, by selenium. Waits are for states of the page, never for seconds alone."""
import base64, json, os, sys
from serve_client import IMAGE_MODEL, MODEL, VIDEO, Server, main

PICTURE = os.path.join(MODEL, "video.png")
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

    def shot(self, name):
        if os.environ.get("WEFT_SHOTS"):
            data = self.driver.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True})["data"]
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

    def click(self, label, inside="body"):
        self.until("[...document.querySelectorAll(arguments[0] + ' button')].some(b => b.textContent === arguments[1] && !b.disabled &&"
                   " b.offsetParent)", inside, label)
        self.js("[...document.querySelectorAll(arguments[0] + ' button')].find(b => b.textContent === arguments[1] && b.offsetParent)"
                ".click()", inside, label)

    def drop(self, name, content):
        """Drops a file of text, or of the bytes of a file on disk, on the page."""
        data = base64.b64encode(content.encode() if isinstance(content, str) else content).decode()
        self.js("const bytes = Uint8Array.from(atob(arguments[1]), c => c.charCodeAt(0)), transfer = new DataTransfer();"
                "transfer.items.add(new File([bytes], arguments[0], {type: /mp4$/.test(arguments[0]) ? 'video/mp4' : ''}));"
                "document.body.dispatchEvent(new DragEvent('drop', {bubbles: true, cancelable: true, dataTransfer: transfer}))", name, data)

    def fill(self, **values):
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
    page.js("document.querySelectorAll('#jobs > li')[5].cancel.click()")
    page.until("document.querySelectorAll('#jobs > li').length === 5")
    page.click("Pause", first)
    page.until("document.querySelector(arguments[0] + ' .chip').textContent === 'paused'", first)
    page.click("Resume", first)
    page.until("document.querySelector(arguments[0] + ' .chip').textContent === 'queued'", first)
    page.click("Cancel", first)
    page.until("!document.querySelector(arguments[0])", first)
    # phone, dark, and a restart of the server and the page
    page.resize(390, 844), page.theme("dark"), page.check_width(), page.shot("queue-390-dark")
    port = s.port
    s.lock.close()
    s.stop()
    page.until("/does not answer/.test(document.getElementById('state').textContent)")
    s = held_server(port=port)
    page.until("document.querySelectorAll('#jobs > li').length === 4 && /waiting/.test(document.getElementById('state').textContent)")
    page.logs()  # the errors of connections while no server existed
    page.open()
    page.until("document.querySelectorAll('#jobs > li').length === 4")
    assert page.js("return document.getElementById('form').elements.prompt.value") == EVIL
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
    page.click("Compare seeds", "#videos li:first-child")
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
    page.js("const b = Uint8Array.from(atob(arguments[0]), c => c.charCodeAt(0)), d = new DataTransfer();"
            "d.items.add(new File([b], 'a.png', {type: 'image/png'}));"
            "for (const name of ['dragenter', 'dragover', 'drop'])"
            "  document.getElementById('drop').dispatchEvent(new DragEvent(name, {dataTransfer: d, bubbles: true, cancelable: true}));",
            base64.b64encode(open(PICTURE, "rb").read()).decode())
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
    page.resize(390, 844), page.theme("dark"), page.check_width(), page.shot("gallery-390-dark")
    page.resize(1440, 900), page.shot("gallery-1440-dark")
    # commands: the prompt is one quoted word
    page.set("model", "wan")
    page.fill(prompt="it's $(x)")
    curl, weft = page.js("return [curl(), command()]")
    import shlex
    assert "it's $(x)" in shlex.split(weft) and json.loads(shlex.split(curl)[-1])["prompt"] == "it's $(x)", (curl, weft)
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
