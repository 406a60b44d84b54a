"""Cases of videos_test.sh."""
import base64, concurrent.futures, glob, hashlib, json, os, re, shutil, subprocess, sys, time
from serve_client import IMAGE_MODEL, MODEL, SRC, VIDEO, Server, main, undisturbed, write_lora


def form(fields, file=None, files=1, more=None):
    """A multipart body and its headers. `more`: bytes of further files by field."""
    boundary, parts = "xyzxyz", []
    for key, value in fields.items():
        parts.append(f'--{boundary}\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n'.encode())
    for _ in range(files if file is not None else 0):
        parts.append((f'--{boundary}\r\nContent-Disposition: form-data; name="input_reference"; filename="../../a.png"\r\n'
                      "Content-Type: image/png\r\n\r\n").encode() + file + b"\r\n")
    for field, content in (more or {}).items():
        parts.append(f'--{boundary}\r\nContent-Disposition: form-data; name="{field}"; filename="a"\r\n\r\n'.encode() + content + b"\r\n")
    return b"".join(parts) + f"--{boundary}--\r\n".encode(), {"Content-Type": f"multipart/form-data; boundary={boundary}"}


def a_video_is_that_of_weft_generate():
    s = Server()
    request = dict(VIDEO, seed=7, prompt='a "red" cat\n--out /tmp/x <b>&; ünï')
    video = s.call("POST", "/v1/videos", request)
    assert video["object"] == "video" and video["status"] == "queued" and video["model"] == "wan", video
    assert video["size"] == "32x32" and video["seconds"] == "1.062" and video["prompt"] == request["prompt"] and video["error"] is None
    s.finish(video["id"])
    done = s.call("GET", "/v1/videos/" + video["id"])
    assert done["status"] == "completed" and done["progress"] == 100 and done["completed_at"] >= done["created_at"], done
    head, data = s.content(video["id"])
    assert head["Content-Type"] == "video/mp4" and data == undisturbed("whole", request)
    # parameters in the names of other servers
    other = s.call("POST", "/v1/videos", {"prompt": "a red cat", "width": 32, "height": 32, "num_frames": 17,
                                          "num_inference_steps": 5, "guidance_scale": 1, "seed": "3", "seconds": None})
    s.finish(other["id"])
    assert s.content(other["id"])[1] == undisturbed("other", dict(VIDEO, steps=5, seed=3, guidance_scale=1))
    assert s.stop() == 130
    left = sorted(os.listdir("state/jobs/" + video["id"]))
    assert left == ["request.jsonl", "video.mp4"], left


def lists_pages_and_deletes():
    s = Server()
    ids = [s.call("POST", "/v1/videos", dict(VIDEO, steps=2, seed=i))["id"] for i in range(4)]
    s.finish(*ids)
    page = s.call("GET", "/v1/videos?limit=3")
    assert [v["id"] for v in page["data"]] == ids[:0:-1] and page["has_more"] and page["first_id"] == ids[3], page
    page = s.call("GET", "/v1/videos?limit=3&after=" + page["last_id"])
    assert [v["id"] for v in page["data"]] == ids[:1] and not page["has_more"]
    page = s.call("GET", "/v1/videos?order=asc&after=" + ids[1])
    assert [v["id"] for v in page["data"]] == ids[2:]
    s.error(400, "invalid_limit", "GET", "/v1/videos?limit=0")
    s.error(400, "invalid_order", "GET", "/v1/videos?order=up")
    s.error(404, "not_found", "GET", "/v1/videos?after=video_0")
    answer = s.call("DELETE", "/v1/videos/" + ids[1])
    assert answer == {"id": ids[1], "object": "video.deleted", "deleted": True}
    assert not os.path.exists("state/jobs/" + ids[1])
    s.error(404, "not_found", "GET", "/v1/videos/" + ids[1])
    s.error(404, "not_found", "DELETE", "/v1/videos/" + ids[1])
    assert [v["id"] for v in s.call("GET", "/v1/videos?order=asc")["data"]] == [ids[0], *ids[2:]]
    s.stop()


def illegal_requests_are_refused():
    s = Server()
    def refused(code, field, **values):
        request = {k: v for k, v in dict(VIDEO, **values).items() if v != "absent"}
        answer = s.error(400, code, "POST", "/v1/videos", request)
        assert answer["param"] == field and answer["type"] == "invalid_request_error", answer
        return answer["message"]
    assert "32" in refused("video-size", "height", size="32x33")
    assert "17" in refused("video-size", "frames", frames=18)
    refused("request-invalid", "size", size="big")
    refused("request-invalid", "size", size="32x")
    refused("request-invalid", "prompt", prompt=" ")
    refused("request-invalid", "prompt", prompt="absent")
    refused("request-invalid", "prompt", prompt=["x"])
    refused("request-invalid", "steps", steps=0)
    refused("request-invalid", "steps", steps=1.5)
    refused("request-invalid", "steps", steps="many")
    refused("request-invalid", "seed", seed=-1)
    refused("request-invalid", "sampler", sampler="magic")
    refused("request-invalid", "model", model="other")
    refused("request-invalid", "sead", sead=1)
    refused("request-invalid", "seconds", seconds="4")
    refused("request-invalid", "frames", frames="absent")  # this model has no trained size
    assert s.call("GET", "/v1/videos")["data"] == []
    for body in b"", b"[]", b"{", b'{"prompt": "a", "prompt": "b"}', b'{"prompt": "\xff"}', b'{"prompt": "a\\u0000b"}':
        s.error(400, "request-invalid", "POST", "/v1/videos", body, {"Content-Type": "application/json"})
    s.error(415, "unsupported_type", "POST", "/v1/videos", b"{}", {"Content-Type": "text/plain"})
    for path, allow in (("/v1/videos", "GET, HEAD, POST"), ("/v1/jobs/x", "GET, HEAD, PATCH, DELETE"), ("/v1/jobs/price", "POST"),
                        ("/v1/jobs/x/cancel", "POST"), ("/health", "GET, HEAD"), ("/v1/models", "GET, HEAD")):
        s.error(405, "method_not_allowed", "PUT", path)
        assert s.raw("PUT", path)[1]["Allow"] == allow, path
    s.error(404, "not_found", "GET", "/v2/videos")
    seconds = s.call("POST", "/v1/videos", dict(VIDEO, frames=None, seconds="1.1", fps=16))  # 17.6 frames
    assert seconds["seconds"] == "1.062", seconds
    s.finish(seconds["id"])
    s.stop()


def refused_texts_name_the_values():
    """The text has the value, and the range or the legal names, also if it has a slash."""
    s = Server()
    def refused(field, *words, **values):
        answer = s.error(400, "request-invalid", "POST", "/v1/videos", dict(VIDEO, **values))
        assert answer["param"] == field and all(word in answer["message"] for word in words), answer
    refused("sampler", "up/down", "euler", "unipc", sampler="up/down")
    refused("model", "Other/Model", "wan", model="Other/Model")
    refused("seed", "9007199254740993", "9007199254740991", seed=2**53 + 1)
    refused("seed", "9007199254740992", seed=str(2**53))
    refused("seed", "0 to ", seed=10**30)
    refused("seed", "1.5", seed=1.5)
    refused("seed", "true", seed=True)
    for text in "0x10", " 1", "1 ", "inf", "nan", "", "1e", "+1", "1,5":
        refused("steps", json.dumps(text), "1 to 10000", steps=text)
        refused("guidance_scale", json.dumps(text), "0 to 100", guidance_scale=text)
    refused("prompt", "33000", "32768", prompt="x" * 33000)
    refused("size", "big", "832x480", size="big")
    refused("ü" * 255, **{"ü" * 400: 1})
    for size in "+32x32", " 32x32", "32x32 ", "0x32", "32x16385", "32x32x32":
        refused("size", size, size=size)
    # two fields that set one value
    refused("width", "48", "32x32", width=48)
    refused("height", "48", "32x32", height=48)
    refused("seconds", "17", seconds=1)
    refused("num_frames", "17", "21", num_frames=21)
    refused("num_inference_steps", "20", "21", num_inference_steps=21)
    same = s.call("POST", "/v1/videos", dict(VIDEO, width=32, height=32, num_frames=17, num_inference_steps="20", seed=2**53 - 1),
                  {"Idempotency-Key": "a"})
    again = dict(VIDEO, seed=2**53 - 1, request_id="b")
    assert s.error(400, "request-invalid", "POST", "/v1/videos", again, {"Idempotency-Key": "a"})["param"] == "Idempotency-Key"
    assert s.call("POST", "/v1/videos", dict(again, request_id="a"), {"Idempotency-Key": "a"})["id"] == same["id"]
    s.finish(same["id"])
    for limit in "0x10", "1.5", "101", "-1", "1e1":
        s.error(400, "invalid_limit", "GET", "/v1/videos?limit=" + limit)
    s.stop()


def an_image_is_a_file():
    """Text in its place is refused, with the field and the remedy; so is a second file."""
    picture = open(os.path.join(MODEL, "video.png"), "rb").read()
    s = Server(models=("image=" + IMAGE_MODEL, "text=" + MODEL))
    for path in "/v1/videos", "/v1/jobs", "/v1/jobs/price":
        for request in (dict(VIDEO, input_reference="a.png"), dict(VIDEO, input_reference=""), dict(VIDEO, input_reference={"image_url": "x"})):
            answer = s.error(400, "request-invalid", "POST", path, request)
            assert answer["param"] == "input_reference" and "multipart/form-data" in answer["message"], answer
        for text in "data:image/png;base64,AAAA", "":
            answer = s.error(400, "request-invalid", "POST", path, *form(dict(VIDEO, input_reference=text)))
            assert answer["param"] == "input_reference" and "multipart/form-data" in answer["message"], answer
        s.error(400, "request-invalid", "POST", path, *form(VIDEO, picture, 2))
        body, headers = form(VIDEO)
        s.error(400, "request-invalid", "POST", path, body.replace(b"--xyzxyz\r\n", b'--xyzxyz\r\nContent-Disposition: form-data; '
                                                                   b'name="seed"\r\n\r\n1\r\n' b"--xyzxyz\r\n", 2), headers)
    assert s.call("GET", "/v1/videos")["data"] == []
    s.finish(s.call("POST", "/v1/videos", dict(VIDEO, model="text", steps=1, input_reference=None))["id"])
    # the estimate finds that the model needs an image; the answer has the name of the field
    assert s.error(400, "video-input", "POST", "/v1/videos", VIDEO)["param"] == "input_reference"
    s.stop()


def forms_and_images():
    picture = open(os.path.join(MODEL, "video.png"), "rb").read()
    s = Server(models=("text=" + MODEL, "image=" + IMAGE_MODEL))
    body, headers = form(dict(VIDEO, model="text"))
    plain = s.call("POST", "/v1/videos", body, headers)
    s.finish(plain["id"])
    assert s.content(plain["id"])[1] == undisturbed("plain", VIDEO)
    body, headers = form(dict(VIDEO, model="text"), picture)
    s.error(400, "request-invalid", "POST", "/v1/videos", body, headers)
    body, headers = form(dict(VIDEO, model="image"), b"no image")
    assert s.error(400, "request-invalid", "POST", "/v1/videos", body, headers)["param"] == "input_reference"
    jpeg, webp = b"\xff\xd8\xff\xe0" + b"x" * 100, b"RIFF\xff\x00\x00\x00WEBPVP8 " + b"x" * 100
    for cut in picture[:-1], picture[:len(picture) // 2], picture[:8], picture[:40], jpeg, webp:
        answer = s.error(400, "request-invalid", "POST", "/v1/videos", *form(dict(VIDEO, model="image"), cut))
        assert answer["param"] == "input_reference" and str(len(cut)) in answer["message"], answer
    body, headers = form(dict(VIDEO, model="image", steps=2), picture)
    with_image = s.call("POST", "/v1/videos", body, headers)
    job, = s.finish(with_image["id"])
    assert job["status"] == "completed", job
    assert sorted(os.listdir("state/jobs")) == sorted([plain["id"], with_image["id"]])
    assert sorted(os.listdir("state/jobs/" + with_image["id"])) == ["input.png", "request.jsonl", "video.mp4"]
    subprocess.run([os.environ["WEFT"], "generate", "--model", IMAGE_MODEL, "--prompt", VIDEO["prompt"], "--image",
                    os.path.join(MODEL, "video.png"), "--frames", "17", "--height", "32", "--width", "32", "--steps", "2",
                    "--out", "own.mp4"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert s.content(with_image["id"])[1] == open("own.mp4", "rb").read()
    # a duplicate has the image, also after its job was deleted
    twin = s.call("POST", f"/v1/jobs/{with_image['id']}/duplicate")["id"]
    s.call("DELETE", "/v1/videos/" + with_image["id"])
    s.finish(twin)
    assert s.content(twin)[1] == open("own.mp4", "rb").read()
    # an interrupted upload leaves nothing
    import socket
    with socket.create_connection(("127.0.0.1", s.port)) as c:
        c.sendall((f"POST /v1/videos HTTP/1.1\r\nHost: localhost\r\nContent-Type: {headers['Content-Type']}\r\n"
                   f"Content-Length: {len(body)}\r\n\r\n").encode() + body[:len(body) - 40])
    s.call("GET", "/health")
    assert s.stop() == 130
    assert len(os.listdir("state/jobs")) == 2
    assert sorted(os.listdir("state")) == ["jobs", "lock", "price.png", "queue.sqlite", "worker.lock"], os.listdir("state")


def inputs_of_sections_and_edits():
    """Models that edit images, and models that denoise section by section or block by block, have no video to change. An image to edit
    is needed."""
    here = os.path.join(SRC, "tests/golden/pipelines")
    names = ("qwen_image", "qwen_edit", "flux2", "helios", "framepack", "causal_wan", "motif")
    s = Server(models=[f"{name}={here}/{name}" for name in names])
    models = {m["id"]: m for m in s.call("GET", "/capabilities")["models"]}
    facts = {name: [models[name][k] for k in ("input_reference", "needs_input_reference", "video", "mask")] for name in names}
    assert facts == {"qwen_image": [False, False, True, True], "qwen_edit": [True, True, False, False], "flux2": [True, False, True, True],
                     "helios": [True, False, False, False], "framepack": [True, True, False, False],
                     "causal_wan": [False, False, False, False], "motif": [True, False, True, True]}, facts
    read = lambda path: open(os.path.join(here, path), "rb").read()
    image = read("qwen_edit/image.png")
    edit = dict(prompt="a red cat", model="qwen_edit", size="96x64", frames=1, steps=2)
    assert s.error(400, "video-input", "POST", "/v1/jobs", edit)["param"] == "input_reference"
    for model, frames in ("helios", 33), ("causal_wan", 9):
        answer = s.error(400, "request-invalid", "POST", "/v1/jobs",
                         *form(dict(edit, model=model, frames=frames, size="32x32"), more={"video": image}))
        assert answer["param"] == "video", answer
    answer = s.error(400, "request-invalid", "POST", "/v1/jobs", *form(edit, more={"input_reference": image, "video": image}))
    assert answer["param"] == "video", answer
    job = s.call("POST", "/v1/jobs", *form(edit, more={"input_reference": image}))
    assert s.finish(job["id"])[0]["status"] == "completed", s.call("GET", "/v1/jobs/" + job["id"])
    s.stop()


def frames_videos_and_masks():
    """Each file is the one of the option of `weft generate`, and files that a model does not take are refused before a job exists."""
    here = os.path.join(SRC, "tests/golden/pipelines")
    read = lambda path: open(os.path.join(here, path), "rb").read()
    s = Server(models=("wan=" + MODEL, "flf=" + here + "/wan_flf", "vace=" + here + "/wan_vace"))
    models = {m["id"]: m for m in s.call("GET", "/capabilities")["models"]}
    facts = lambda m: [m[k] for k in ("input_reference", "last_image", "needs_last_image", "video", "control", "mask")]
    assert [models[k]["reference_images"] for k in ("wan", "flf", "vace")] == [0, 0, 4]
    assert [facts(models[k]) for k in ("wan", "flf", "vace")] == [
        [False, False, False, True, False, True], [True, True, True, True, False, True], [False, False, False, True, True, True]]
    small = dict(VIDEO, frames=9, steps=2)
    source = s.call("POST", "/v1/videos", dict(small, steps=1))["id"]
    s.finish(source)
    open("source.mp4", "wb").write(s.content(source)[1])
    video, mask = open("source.mp4", "rb").read(), read("wan_vace/mask.png")
    def refused(field, model, files, **values):
        for path in "/v1/jobs", "/v1/jobs/price":
            answer = s.error(400, "request-invalid", "POST", path, *form(dict(small, model=model, **values), more=files))
            assert answer["param"] == field, answer
    image = read("wan_flf/image.png")
    refused("last_image", "wan", {"last_image": image})
    refused("last_image", "vace", {"last_image": image})
    refused("control", "wan", {"control": video})
    refused("mask", "wan", {"mask": mask})
    refused("control", "vace", {"control": video, "video": video})
    refused("reference_image", "wan", {"reference_image": image})
    refused("reference_image", "vace", {"reference_image": video})
    refused("video", "vace", {"reference_image": image, "video": video})
    refused("strength", "wan", {}, strength=0.5)
    refused("strength", "wan", {"video": video}, strength=1.5)
    for cut in video[:-1], video[:200], b"\x1a\x45\xdf\xa3", b"#!/bin/sh", b"\0\0\0\x08ftyp", b"GIF89a":
        refused("video", "wan", {"video": cut})
    refused("input_reference", "flf", {"input_reference": video, "last_image": image})
    s.error(400, "request-invalid", "POST", "/v1/jobs", dict(small, video="source.mp4"))
    s.error(400, "video-input", "POST", "/v1/jobs", *form(dict(small, model="flf"), image))
    assert len(s.call("GET", "/v1/jobs")["data"]) == 1
    def body(values, files): # field_2 is the second file of a field
        data, head = form(values, more={})
        for field, content in files.items():
            data = data[:-len(b"--xyzxyz--\r\n")] + form({}, more={field.removesuffix("_2"): content})[0]
        return data, head
    def check(model, files, names, *options, **values):
        job = s.call("POST", "/v1/jobs", *body(dict(small, model=model, **values), files))
        assert {k: v for k, v in job["request"].items()
                if k in ("image", "last_image", "video", "control", "mask") or k.startswith("reference")} == {"image": "", **names}
        assert s.finish(job["id"])[0]["status"] == "completed", s.call("GET", "/v1/jobs/" + job["id"])
        for field, content in files.items():
            status, head, data = s.raw("GET", f"/v1/jobs/{job['id']}/inputs/{field}")
            assert status == 200 and data == content and head["Content-Type"] == ("video/mp4" if content == video else "image/png"), head
        subprocess.run([os.environ["WEFT"], "generate", "--model", f"{here}/{os.path.basename(MODEL) if model == 'wan' else 'wan_' + model}",
                        "--prompt", VIDEO["prompt"], "--frames", "9", "--height", "32", "--width", "32", "--steps", "2", "--out", "own.mp4",
                        *options], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        assert s.content(job["id"])[1] == open("own.mp4", "rb").read(), (model, files.keys())
        return job
    check("flf", {"input_reference": image, "last_image": read("wan_flf/last_image.png")},
          {"image": "input.png", "last_image": "input-last.png"}, "--image", here + "/wan_flf/image.png",
          "--last-image", here + "/wan_flf/last_image.png")
    check("vace", {"control": video, "mask": mask}, {"control": "input-control.mp4", "mask": "input-mask.png"}, "--control", "source.mp4",
          "--mask", here + "/wan_vace/mask.png")
    check("vace", {"control": video}, {"control": "input-control.mp4"}, "--control", "source.mp4", "--control-scale", "0.5", control_scale=0.5)
    check("vace", {"reference_image": image, "reference_image_2": read("wan_flf/last_image.png")},
          {"reference_image": "input-reference.png", "reference_image_2": "input-reference_2.png"}, "--reference-image", here + "/wan_flf/image.png",
          "--reference-image", here + "/wan_flf/last_image.png")
    job = check("wan", {"video": video, "mask": mask}, {"video": "input-video.mp4", "mask": "input-mask.png"}, "--video", "source.mp4", "--mask",
                here + "/wan_vace/mask.png", "--strength", "0.5", strength=0.5)
    # half of the steps are predicted to take less time, and a copy has the files
    price = lambda share: s.call("POST", "/v1/jobs/price", *form(dict(small, model="wan", strength=share), more={"video": video}))["seconds"]
    assert price(0.5) < price(1)
    s.error(404, "no_input", "GET", f"/v1/jobs/{job['id']}/inputs/control")
    s.error(404, "no_input", "GET", f"/v1/jobs/{job['id']}/inputs/request.jsonl")
    copy = s.call("POST", f"/v1/jobs/{job['id']}/duplicate")
    s.finish(copy["id"])
    assert s.content(copy["id"])[1] == s.content(job["id"])[1] and copy["request"] == job["request"]
    # the parts of the list
    assert s.call("GET", "/v1/jobs?part=unfinished")["data"] == [] and len(s.call("GET", "/v1/jobs?part=final")["data"]) == 7
    s.error(400, "invalid_part", "GET", "/v1/jobs?part=x")
    s.stop()


def a_character_is_moved():
    """Wan Animate: the image, the poses, the face, and a background with its mask are the options of `weft generate`."""
    here = os.path.join(SRC, "tests/golden/pipelines/wan_animate")
    read = lambda name: open(f"{here}/{name}.png", "rb").read()
    s = Server(models=("animate=" + here, "wan=" + MODEL))
    facts = {m["id"]: [m[k] for k in ("input_reference", "video", "control", "needs_control", "needs_face", "mask")]
             for m in s.call("GET", "/capabilities")["models"]}
    assert facts == {"animate": [True, True, True, True, True, True], "wan": [False, True, False, False, False, True]}, facts
    small = dict(VIDEO, model="animate", frames=9, steps=2, size="32x32", guidance_scale=1)
    files = {"input_reference": read("image"), "control": read("control"), "face": read("face")}
    background = {"video": read("video_replace"), "mask": read("mask_replace")}
    def refused(code, field, more, **values):
        for path in "/v1/jobs", "/v1/videos", "/v1/jobs/price":
            answer = s.error(400, code, "POST", path, *form(dict(small, **values), more=more))
            assert answer["param"] == field, answer
    for field in files:
        refused("video-input", field, {k: v for k, v in files.items() if k != field})
    refused("request-invalid", "mask", dict(files, video=background["video"]))
    refused("request-invalid", "video", dict(files, mask=background["mask"]))
    refused("request-invalid", "face", {"face": files["face"]}, model="wan")
    assert s.call("GET", "/v1/jobs")["data"] == []
    names = {"input_reference": "image", "control": "control", "face": "face", "video": "video_replace", "mask": "mask_replace"}
    options = {"input_reference": "--image", "control": "--control", "face": "--face", "video": "--video", "mask": "--mask"}
    for path, sent in ("/v1/videos", files), ("/v1/jobs", {**files, **background}):
        assert s.call("POST", "/v1/jobs/price", *form(small, more=sent))["seconds"] > 0
        job = s.call("POST", path, *form(small, more=sent))["id"]
        assert s.finish(job)[0]["status"] == "completed", s.call("GET", "/v1/jobs/" + job)
        status, head, data = s.raw("GET", f"/v1/jobs/{job}/inputs/face")
        assert status == 200 and data == files["face"] and head["Content-Type"] == "image/png", head
        own = [word for field in sent for word in (options[field], f"{here}/{names[field]}.png")]
        subprocess.run([os.environ["WEFT"], "generate", "--model", here, "--prompt", VIDEO["prompt"], "--frames", "9", "--height", "32", "--width", "32",
                        "--steps", "2", "--guidance-scale", "1", "--out", "own.mp4", *own], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        assert s.content(job)[1] == open("own.mp4", "rb").read(), path
    s.stop()


def images_of_an_identity():
    """Files of the repeated field are the images of `weft generate`, in their order."""
    here, parts = os.path.join(SRC, "tests/golden/identity"), os.path.join(SRC, "tests/golden/pipelines/wan_animate")
    shutil.copytree(here + "/patches", "who/identity")
    shutil.copytree(here + "/image_encoder", "who/identity/image_encoder")
    shutil.copytree(here + "/transformer", "who/transformer")
    for part in "vae", "text_encoder", "tokenizer", "scheduler":
        shutil.copytree(f"{parts}/{part}", "who/" + part)
    with open("who/model_index.json", "w") as f:
        json.dump({"_class_name": "WanPipeline", "transformer": ["diffusers", "WanTransformer3DModel"]}, f)
    names = ["front/walk", "side/walk", "front/jump", "stills/walk"]
    files = [open(f"{here}/{name}.png", "rb").read() for name in names]
    s = Server(models=("who=who", "wan=" + MODEL))
    facts = {m["id"]: [m["identity_image"], m["identity_images"]] for m in s.call("GET", "/capabilities")["models"]}
    assert facts == {"who": [True, 3], "wan": [False, 0]}, facts
    small = dict(VIDEO, model="who", frames=9, steps=2, size="32x32", guidance_scale=1)
    def body(images, **values):
        data, head = form(dict(small, **values))
        cut = len(b"--xyzxyz--\r\n")
        for image in images:
            data = data[:-cut] + form({}, more={"identity_image": image})[0]
        return data, head
    def refused(images, word, field="identity_image", **values):
        for path in "/v1/jobs", "/v1/videos", "/v1/jobs/price":
            answer = s.error(400, "request-invalid", "POST", path, *body(images, **values))
            assert answer["param"] == field and word in answer["message"], answer
    refused(files, "up to 3")
    refused(files[:1], "no identity", model="wan")
    refused([files[0], b"text"], "PNG", "identity_image_2")
    for count in 1, 3:
        assert s.call("POST", "/v1/jobs/price", *body(files[:count]))["seconds"] > 0
        job = s.call("POST", "/v1/videos", *body(files[:count]))["id"]
        assert s.finish(job)[0]["status"] == "completed", s.call("GET", "/v1/jobs/" + job)
        for i in range(count):
            field = "identity_image" + (f"_{i + 1}" if i else "")
            assert s.raw("GET", f"/v1/jobs/{job}/inputs/{field}")[2] == files[i], field
        own = [word for name in names[:count] for word in ("--identity-image", f"{here}/{name}.png")]
        subprocess.run([os.environ["WEFT"], "generate", "--model", "who", "--prompt", VIDEO["prompt"], "--frames", "9", "--height", "32", "--width", "32",
                        "--steps", "2", "--guidance-scale", "1", "--out", "own.mp4", *own], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        assert s.content(job)[1] == open("own.mp4", "rb").read(), count

def a_coarse_video_is_refined():
    """LongCat-Video: the coarse video and an image that begins the refined video are the options of `weft generate`. The length is twice
    that of the coarse video, and guidance is off by default."""
    here = os.path.join(SRC, "tests/golden/pipelines/longcat")
    read = lambda name: open(f"{here}/{name}.png", "rb").read()
    s = Server(models=("longcat=" + here, "wan=" + MODEL))
    models = {m["id"]: m for m in s.call("GET", "/capabilities")["models"]}
    assert [models[name]["refine"] for name in ("longcat", "wan")] == [True, False], models
    options = {name: {o["name"] for o in m["options"]} for name, m in models.items()}
    own = {"refine_level", "refine_frames", "block_sparse"}
    assert own <= options["longcat"] and not own & options["wan"], options
    small = {key: value for key, value in VIDEO.items() if key not in ("guidance_scale", "frames", "seconds")} | dict(model="longcat", steps=20, size="48x32")
    coarse = {"refine": read("refine_refine")}
    def refused(code, field, more, **values):
        for path in "/v1/jobs", "/v1/videos", "/v1/jobs/price":
            answer = s.error(400, code, "POST", path, *form(dict(small, **values), more=more))
            assert answer["param"] == field, answer
    refused("request-invalid", "refine", coarse, model="wan", frames=9)
    for field in "refine_level", "refine_frames":
        refused("request-invalid", field, {}, frames=9, **{field: {"refine_level": 0.6, "refine_frames": "same"}[field]})
    refused("request-invalid", "block_sparse", {}, model="wan", frames=9, block_sparse="on")
    refused("request-invalid", "refine_level", coarse, frames=10, refine_level=1.5)
    refused("video-size", "frames", coarse, frames=9)
    refused("request-invalid", "frames", coarse)
    for field in "video", "mask", "control", "face":
        refused("request-invalid", field, dict(coarse, **{field: read("video_video")}), frames=10)
    assert s.call("GET", "/v1/jobs")["data"] == []
    price = lambda **values: s.call("POST", "/v1/jobs/price", *form(dict(small, **values), more=coarse))["seconds"]
    assert price(frames=10) < price(frames=34) and price(frames=10) < price(frames=10, refine_level=0.9)
    image = {"input_reference": read("image_refine_image")}
    for path, sent, values, arguments in (
            ("/v1/videos", coarse, dict(frames=10), ["--frames", "10"]),
            ("/v1/jobs", coarse | image, dict(frames=5, refine_frames="same", refine_level=0.7, block_sparse="off"),
             ["--frames", "5", "--refine-frames", "same", "--refine-level", "0.7", "--image", f"{here}/image_refine_image.png"])):
        job = s.call("POST", path, *form(dict(small, **values), more=sent))["id"]
        assert s.finish(job)[0]["status"] == "completed", s.call("GET", "/v1/jobs/" + job)
        subprocess.run([os.environ["WEFT"], "generate", "--model", here, "--prompt", VIDEO["prompt"], "--height", "32", "--width", "48", "--steps", "20",
                        "--refine", f"{here}/refine_refine.png", "--seed", str(VIDEO.get("seed", 0)), "--out", "own.mp4", *arguments],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        assert s.content(job)[1] == open("own.mp4", "rb").read(), path
    s.stop()


def refined_videos_have_the_rate_of_their_file():
    """Length and frames of a refined video follow the rate of the coarse file, and not the one of the model."""
    s = Server(models=("longcat=" + os.path.join(SRC, "tests/golden/pipelines/longcat"),))
    small = dict(prompt="a red cat", size="48x32", steps=20)
    first = s.call("POST", "/v1/videos", dict(small, frames=9, fps=8, steps=2))
    s.finish(first["id"])
    coarse = {"refine": s.content(first["id"])[1]}
    def made(length, expected, **values):
        video = s.call("POST", "/v1/videos", *form(dict(small, **values), more=coarse))
        request = s.call("GET", "/v1/jobs/" + video["id"])["request"]
        assert (request["frames"], video["seconds"]) == (length, expected) and "refined_fps" not in request, (video, request)
        return video["id"]
    id = made(10, "0.625", frames=10)
    made(16, "1", seconds=1)
    made(8, "1", seconds=1, refine_frames="same")
    made(10, "2", frames=10, fps=5)
    price = s.call("POST", "/v1/jobs/price", *form(dict(small, seconds=1), more=coarse))
    assert price["request"]["frames"] == 16 and "refined_fps" not in price["request"], price
    # the file of the job to vary
    remix = s.call("POST", f"/v1/videos/{id}/remix", {"prompt": "a dog", "refine_frames": "same", "frames": 8})
    assert remix["seconds"] == "1", remix
    # another process of the program reads the file
    with open("coarse.mp4", "wb") as f:
        f.write(coarse["refine"])
    assert float(subprocess.run([os.environ["WEFT"], "stills", "--rate", "coarse.mp4"], check=True, capture_output=True).stdout) == 8
    # the boxes of a video without their contents
    answer = s.error(400, "request-invalid", "POST", "/v1/videos", *form(dict(small, frames=10), more={"refine": b"\0\0\0\x10ftypisom\0\0\0\0\0\0\0\x08moov\0\0\0\x08mdat"}))
    assert answer["param"] == "refine" and "decoded" in answer["message"], answer
    s.stop()


def further_options():
    """Options of `weft generate` for windows, schedules, guidance and families: listed for the models that take them, part of the
    price, refused before a job exists, and with the video of the same command."""
    here = os.path.join(SRC, "tests/golden/pipelines")
    shutil.copytree(os.path.join(here, "ltx2"), "ltx2")  # with an encoder that takes the texts of the published one
    with open(os.path.join(here, "ltx2/text_encoder/config.json")) as f:
        config = json.load(f)
    config["text_config"]["sliding_window"] = 1024
    with open("ltx2/text_encoder/config.json", "w") as f:
        json.dump(config, f)
    s = Server(models=("wan=" + MODEL, "ltx2=ltx2", *(f"{name}={here}/{name}" for name in ("skyreels", "framepack", "chronoedit", "helios_mid"))))
    options = {m["id"]: {o["name"]: o for o in m["options"]} for m in s.call("GET", "/capabilities")["models"]}
    own = {"skyreels": "frame_lag", "framepack": "sections", "chronoedit": "reasoning_steps", "helios_mid": "stage_steps",
           "ltx2": "audio_guidance_scale"}
    for name in own.values():
        assert [m for m in options if name in options[m]] == [m for m in own if own[m] == name], (name, options)
    assert options["wan"]["window_mode"]["values"] == ["blend", "continue"] and "history" in options["skyreels"]["window_mode"]["values"]
    assert options["wan"]["guidance_end"]["default"] == 1 and options["wan"]["window"]["type"] == "integer", options["wan"]
    small = dict(VIDEO, model="wan", frames=9, steps=4)
    for field, value, code in (("frame_lag", 3, "request-invalid"), ("audio_guidance_scale", 3, "request-invalid"), ("control_scale", 3, "request-invalid"), ("window_mode", "x", "request-invalid"), ("eta", 2, "request-invalid"),
                               ("sigmas", "1/2", "request-invalid"), ("window", 10, "video-size"), ("guidance_start", 1, "option-invalid"),
                               ("sigmas", "1,2", "option-invalid"), ("guidance_method", "x", "option-invalid")):
        answer = s.error(400, code, "POST", "/v1/jobs", dict(small, **{field: value}))
        assert answer["param"] == field, answer
    price = lambda **more: s.call("POST", "/v1/jobs/price", dict(small, steps=20, **more))["seconds"]
    assert price(guidance_end=0.5) < price() < price(sampler="heun"), "half the steps have guidance; heun computes steps twice"
    assert price(guidance_end=1, window=0, fit="stretch") == price(), "defaults are no options"
    # the same bytes as the command
    request = dict(small, shift=2, guidance_rescale="0.5", guidance_end=0.5, sigmas="1,0.7,0.4,0")
    job = s.call("POST", "/v1/jobs", request)
    assert job["request"]["shift"] == 2 and job["request"]["guidance_rescale"] == 0.5 and job["request"]["steps"] == 3, job
    s.finish(job["id"])
    with open("list.jsonl", "w") as f:
        f.write(json.dumps({"prompt": small["prompt"], "frames": 9, "width": 32, "height": 32}) + "\n")
    generate = lambda model, *more: subprocess.run([os.environ["WEFT"], "generate", "--model", model, "--prompts", "list.jsonl", "--out", "own.mp4", *more],
                                                   check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) and open("own.mp4", "rb").read()
    assert s.content(job["id"])[1] == generate(MODEL, "--shift", "2", "--guidance-rescale", "0.5", "--guidance-end", "0.5", "--sigmas", "1,0.7,0.4,0",
                                               "--guidance-scale", "4")
    other = s.call("POST", f"/v1/jobs/{job['id']}/duplicate", {"shift": 0, "priority": -5})
    assert "shift" not in other["request"] and other["request"]["sigmas"] == request["sigmas"], other
    s.finish(other["id"])
    answer = s.error(400, "video-size", "POST", "/v1/jobs", dict(small, model="helios_mid", frames=33, size="96x64"))
    assert answer["param"] in ("width", "size"), answer
    stages = s.call("POST", "/v1/jobs", dict({k: v for k, v in small.items() if k != "steps"}, model="helios_mid", frames=33, size="64x64", stage_steps="3,1,2", zero_init_steps=1))
    assert stages["request"]["steps"] == 6, stages
    assert s.finish(stages["id"])[0]["status"] == "completed", s.call("GET", "/v1/jobs/" + stages["id"])
    lag = s.call("POST", "/v1/jobs", dict(small, model="skyreels", frames=21, frame_lag=2))
    s.finish(lag["id"])
    with open("list.jsonl", "w") as f:
        f.write(json.dumps({"prompt": small["prompt"], "frames": 21, "width": 32, "height": 32, "steps": 4,
                            "guidance": lag["request"]["guidance_scale"]}) + "\n")
    assert s.content(lag["id"])[1] == generate(here + "/skyreels", "--frame-lag", "2")
    guided = dict({k: v for k, v in small.items() if k != "size"}, model="ltx2", width=64, height=64, max_sequence_length=32, guidance_scale=1)
    assert s.call("POST", "/v1/jobs/price", guided)["seconds"] < s.call("POST", "/v1/jobs/price", dict(guided, audio_guidance_scale=3))["seconds"]
    sound = s.call("POST", "/v1/jobs", dict(guided, audio_guidance_scale=3))
    s.finish(sound["id"])
    with open("list.jsonl", "w") as f:
        f.write(json.dumps({"prompt": small["prompt"], "frames": 9, "width": 64, "height": 64, "steps": 4, "guidance": 1}) + "\n")
    assert s.content(sound["id"])[1] == generate("ltx2", "--audio-guidance-scale", "3", "--max-sequence-length", "32")
    other = s.call("POST", f"/v1/jobs/{lag['id']}/duplicate", {"model": "wan"})
    assert "frame_lag" not in other["request"], other  # an option of the other model
    s.stop()


def ranges_of_the_content():
    s = Server()
    id = s.call("POST", "/v1/videos", dict(VIDEO, steps=2))["id"]
    s.finish(id)
    _, whole = s.content(id)
    size = len(whole)
    head, part = s.content(id, {"Range": "bytes=10-19"}, 206)
    assert part == whole[10:20] and head["Content-Range"] == f"bytes 10-19/{size}", head
    head, part = s.content(id, {"Range": "bytes=-7"}, 206)
    assert part == whole[-7:] and head["Accept-Ranges"] == "bytes"
    head, _ = s.content(id, {"Range": f"bytes={size}-"}, 416)
    assert head["Content-Range"] == f"bytes */{size}", head
    status, head, data = s.raw("HEAD", f"/v1/videos/{id}/content")
    assert status == 200 and int(head["Content-Length"]) == size and data == b""
    s.error(400, "variant_unsupported", "GET", f"/v1/videos/{id}/content?variant=film")
    s.stop()


def image_of(name, data):
    """The pixels of an image as (width, height, bytes of RGB), by ffmpeg."""
    with open(name, "wb") as f:
        f.write(data)
    size = subprocess.check_output(["ffprobe", "-v", "error", "-show_entries", "stream=width,height", "-of", "csv=p=0", name], text=True)
    width, height = map(int, size.split(","))
    return width, height, subprocess.check_output(["ffmpeg", "-v", "error", "-i", name, "-f", "rawvideo", "-pix_fmt", "rgb24", "-"])


def thumbnail_and_sprite_sheet():
    """Images of a finished video, compared with the frames that ffmpeg decodes: close, because JPEG and WebP are lossy."""
    s = Server()
    ids = [s.call("POST", "/v1/videos", dict(VIDEO, steps=2, seed=seed, size="48x32"))["id"] for seed in (1, 2)]
    s.error(409, "not_completed", "GET", f"/v1/videos/{ids[1]}/content?variant=thumbnail")
    s.finish(*ids)
    path = lambda id, name: f"/v1/videos/{id}/content?variant={name}"
    # requests for two videos at a time, before any image exists
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda k: s.raw("GET", path(ids[k // 2], "thumbnail")), range(4)))
    assert [a[0] for a in answers] == [200] * 4 and answers[0][2] == answers[1][2] != answers[2][2] == answers[3][2]
    _, head, small = answers[0]
    assert (head["Content-Type"], small[8:12]) == ("image/webp", b"WEBP") or (head["Content-Type"], small[:2]) == ("image/jpeg", b"\xff\xd8"), head
    status, head, sheet = s.raw("GET", path(ids[0], "spritesheet"))
    assert status == 200 and head["Content-Type"] == "image/jpeg" and sheet[:2] == b"\xff\xd8", head
    assert head["X-Content-Type-Options"] == "nosniff" and int(head["Content-Length"]) == len(sheet)
    # 17 frames: the middle one is 8; the 16 cells are frames 0, 1 .. 14, 16 in rows of four
    width, height, frames = image_of("video.mp4", s.content(ids[0])[1])
    assert (width, height) == (48, 32)
    frame = lambda i: frames[i * 48 * 32 * 3:(i + 1) * 48 * 32 * 3]
    apart = lambda a, b: sum(abs(x - y) for x, y in zip(a, b)) / len(a)
    width, height, pixels = image_of("thumbnail", small)
    assert (width, height) == (48, 32) and apart(pixels, frame(8)) < 10
    nearest = lambda pixels: min(range(17), key=lambda i: apart(pixels, frame(i)))
    assert nearest(pixels) == 8
    width, height, pixels = image_of("sheet.jpg", sheet)
    assert (width, height) == (4 * 48, 4 * 32)
    cell = lambda i: b"".join(pixels[((i // 4 * 32 + y) * width + i % 4 * 48) * 3:][:48 * 3] for y in range(32))
    assert [nearest(cell(i)) for i in range(16)] == [i * 16 // 15 for i in range(16)], [nearest(cell(i)) for i in range(16)]
    assert apart(cell(15), frame(16)) < 10
    # ranges, and the names of the variants
    status, head, part = s.raw("GET", path(ids[0], "spritesheet"), headers={"Range": "bytes=2-9"})
    assert status == 206 and part == sheet[2:10] and head["Content-Range"] == f"bytes 2-9/{len(sheet)}", head
    s.error(416, "invalid_range", "GET", path(ids[0], "thumbnail"), headers={"Range": f"bytes={len(small)}-"})
    assert s.raw("GET", path(ids[0], "video"))[2] == s.content(ids[0])[1]
    # an image that cannot be made is an error, and the server serves others
    for file in glob.glob(f"state/jobs/{ids[1]}/video.*"):
        os.remove(file)
    s.error(500, "file-io", "GET", path(ids[1], "thumbnail"))
    assert s.raw("GET", path(ids[0], "thumbnail"))[2] == small
    s.call("DELETE", f"/v1/videos/{ids[0]}")
    assert not os.path.exists(f"state/jobs/{ids[0]}")
    s.error(404, "not_found", "GET", path(ids[0], "thumbnail"))
    s.stop()


def a_video_is_varied():
    s = Server()
    id = s.call("POST", "/v1/videos", dict(VIDEO, steps=3, seed=5))["id"]
    other = s.call("POST", f"/v1/videos/{id}/remix", {"prompt": "a blue dog"})
    assert other["remixed_from_video_id"] == id and other["prompt"] == "a blue dog"
    s.finish(other["id"])
    assert s.content(other["id"])[1] == undisturbed("other", dict(VIDEO, steps=3, seed=5, prompt="a blue dog"))
    s.error(404, "not_found", "POST", "/v1/videos/video_0/remix", {"prompt": "x"})
    s.stop()


def precision_and_weights():
    """Each value is the option of `weft generate`; the server's options are the defaults. Bitwise: the same program computes."""
    s = Server("state", "--precision", "bf16")
    model, = s.call("GET", "/capabilities")["models"]
    assert model["precision"] == {"values": ["f32", "tf32", "bf16", "auto"], "default": "bf16"} and model["vae_precision"]["default"] == "f32", model
    assert model["weights"]["default"] == "stored" and "int8" in model["weights"]["values"], model
    small, names = dict(VIDEO, frames=5, steps=2), ("precision", "vae_precision", "weights")
    def made(values, stored, *options):
        job = s.call("POST", "/v1/jobs", {**small, **values})
        assert {name: job["request"][name] for name in names if name in job["request"]} == stored, job
        s.finish(job["id"])
        assert s.content(job["id"])[1] == undisturbed("x", small, *options), values
        return job
    int8 = {"weights": "int8"}
    plain = made({"precision": "f32"}, {})
    bf16 = made({}, {"precision": "bf16"}, "--precision", "bf16")
    made({"precision": "tf32"}, {"precision": "tf32"}, "--precision", "tf32")
    made({"precision": "f32", "vae_precision": "bf16"}, {"vae_precision": "bf16"}, "--vae-precision", "bf16")
    made({"precision": "f32", "vae_precision": "tf32"}, {"vae_precision": "tf32"}, "--vae-precision", "tf32")
    made({"precision": "f32", **int8}, int8, "--weights", "int8")
    made({"precision": "f32", "weights": "stored"}, {})  # after the same model in int8
    assert len({s.content(job["id"])[1] for job in (plain, bf16)}) == 2
    # measured at the start of the job, so either precision
    auto = s.call("POST", "/v1/jobs", {**small, "precision": "auto"})
    assert auto["request"]["precision"] == "auto", auto
    s.finish(auto["id"])
    assert s.content(auto["id"])[1] in [s.content(job["id"])[1] for job in (plain, bf16)]
    # a variant keeps the values of its job, and ignores the defaults of the server
    assert "precision" not in s.call("POST", f"/v1/jobs/{plain['id']}/duplicate", {"seed": 3})["request"]
    # prices differ, and illegal values are refused with the legal ones
    price = lambda **values: s.call("POST", "/v1/jobs/price", {**small, **values})["bytes"]
    assert price(precision="f32") != price(precision="f32", weights="bf16")
    assert price(frames=17, size="96x96") != price(frames=17, size="96x96", vae_precision="bf16")
    for field, value in ("precision", "f16"), ("vae_precision", "int8"), ("weights", "int4"), ("weights", 8):
        answer = s.error(400, "request-invalid", "POST", "/v1/jobs", {**small, field: value})
        assert answer["param"] == field, answer
    s.stop()
    s = Server("other", "--weights", "int7", ready=False)
    assert s.drain() != 0 and s.messages[-1]["id"] == "option-invalid" and s.messages[-1]["key"] == "--weights", s.messages


def state_of_the_server():
    s = Server(models=("b=" + MODEL, "image=" + IMAGE_MODEL))
    assert s.call("GET", "/health")["status"] == "ok" and s.call("GET", "/ready")["status"] == "ready"
    assert [m["id"] for m in s.call("GET", "/v1/models")["data"]] == ["b", "image"]
    model, image = s.call("GET", "/capabilities")["models"]
    assert model["height"]["multiple_of"] == 16 and "unipc" in model["samplers"], model
    assert not model["input_reference"] and image["input_reference"]
    assert model["frames"]["least"] == 1 and model["frames"]["step"] == 4, model
    assert not model["needs_input_reference"] and image["needs_input_reference"]
    id = s.call("POST", "/v1/videos", dict(VIDEO, steps=2))["id"]
    s.finish(id)
    # the page is one document that loads nothing, and runs its own script only
    status, head, page = s.raw("GET", "/")
    assert status == 200 and head["Content-Type"].startswith("text/html"), head
    policy = dict(part.split(" ", 1) for part in head["Content-Security-Policy"].split("; "))
    for name, directive in (("script", "script-src"), ("style", "style-src")):
        text, = re.findall(f"<{name}>(.*?)</{name}>".encode(), page, re.S)
        digest = base64.b64encode(hashlib.sha256(text).digest()).decode()
        assert policy[directive] == f"'sha256-{digest}'" and len(text) > 4000, (policy, digest)
    assert policy["default-src"] == "'none'" and policy["connect-src"] == "'self'", policy
    assert not re.search(rb"https?://|innerHTML|insertAdjacentHTML|eval\(|document\.write", page)
    machine = s.call("GET", "/v1/machine")
    assert machine["processors"] >= 1 and 0 < machine["available_bytes"] <= machine["memory_bytes"] and machine["workers_started"] == 1
    status, head, data = s.raw("GET", "/metrics")
    assert status == 200 and head["Content-Type"].startswith("text/plain")
    lines = data.decode().splitlines()
    assert 'weft_serve_jobs{state="completed"} 1' in lines and "weft_serve_workers_started_total 1" in lines, lines
    names = {line.split("{")[0].split(" ")[0] for line in lines if not line.startswith("#")}
    for name in names:
        assert any(line.startswith(f"# TYPE {name} ") for line in lines), name
    with open(os.environ["SRC"] + "/packaging/grafana/weft.json") as board:
        wanted = set(re.findall(r"weft_serve_\w+", board.read()))
    assert wanted and wanted <= names, wanted - names
    s.stop()


def the_openai_client():
    python = os.environ.get("WEFT_OPENAI_PYTHON", sys.executable)
    found = subprocess.run([python, "-c", "import openai; openai.OpenAI.videos"], capture_output=True, text=True)
    if found.returncode != 0:
        with open("skipped", "w") as f:
            f.write("no Python client openai (WEFT_OPENAI_PYTHON names a python that has the package)")
        return
    s = Server(models=("image=" + IMAGE_MODEL, "wan=" + MODEL))
    script = f"""
import openai
client = openai.OpenAI(base_url="http://127.0.0.1:{s.port}/v1", api_key="k")
more = dict(frames=17, num_inference_steps=4, seed=9)
video = client.videos.create_and_poll(prompt="a red cat", model="wan", size="32x32", extra_body=more)
assert video.status == "completed" and video.size == "32x32", video
client.videos.download_content(video.id).write_to_file("client.mp4")
client.videos.download_content(video.id, variant="thumbnail").write_to_file("client.thumbnail")
client.videos.download_content(video.id, variant="spritesheet").write_to_file("client.jpg")
first = client.videos.create(prompt="a red cat", model="image", size="32x32", extra_body=more, input_reference=open({os.path.join(MODEL, "video.png")!r}, "rb"))
assert client.videos.poll(first.id).status == "completed"
second = client.videos.remix(video.id, prompt="a dog")
assert client.videos.retrieve(second.id).remixed_from_video_id == video.id
client.videos.poll(second.id)
assert [v.id for v in client.videos.list(limit=2, order="asc")] == [video.id, first.id, second.id]
assert client.videos.delete(first.id).deleted
for call, error in ((lambda: client.videos.retrieve(first.id), openai.NotFoundError),
                    (lambda: client.videos.create(prompt="x", size="33x33", extra_body=more), openai.BadRequestError)):
    try:
        call()
    except error as e:
        assert e.code in ("not_found", "video-size"), e.code
    else:
        raise AssertionError("no " + error.__name__)
"""
    subprocess.run([python, "-W", "ignore", "-c", script], check=True, timeout=600)
    assert open("client.mp4", "rb").read() == undisturbed("own", dict(VIDEO, steps=4, seed=9))
    assert open("client.jpg", "rb").read(2) == b"\xff\xd8" and os.path.getsize("client.thumbnail") > 100
    s.stop()


def weight_bytes(part):
    """Bytes of the tensors of a part of the model, each in lines of 64 bytes: what the server must report."""
    import glob, json, struct
    total = 0
    for path in glob.glob(f"{MODEL}/{part}/*.safetensors"):
        with open(path, "rb") as f:
            header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        for name, tensor in header.items():
            if name != "__metadata__":
                first, end = tensor["data_offsets"]
                total += (end - first + 63) // 64 * 64
    return total


def peak_bytes(request):
    """Memory of a video by `weft estimate`."""
    width, height = request["size"].split("x")
    return json.loads(subprocess.check_output([os.environ["WEFT"], "estimate", "--model", MODEL, "--frames", str(request["frames"]),
                                               "--height", height, "--width", width, "--steps", str(request["steps"]), "--json"]))["peak_bytes"]


def loras_are_chosen():
    """One worker generates all videos, and keeps what fits into the limit beside the running video."""
    write_lora("style.safetensors")
    room = weight_bytes("transformer")
    s = Server("state", "--lora", "style=style.safetensors", "--lora", "other=style.safetensors",
               "--memory-limit", str(peak_bytes(dict(VIDEO, steps=2)) + room))
    assert [lora["id"] for lora in s.call("GET", "/v1/loras")["data"]] == ["style", "other"]
    small = dict(VIDEO, steps=2)
    job = s.call("POST", "/v1/jobs", dict(small, lora="style:0.5"))
    assert job["request"]["lora"] == "style:0.5"
    for lora in "none", "style:x", "style,", "style:99", "style,style", "a b", "../style":
        s.error(400, "request-invalid", "POST", "/v1/jobs", dict(small, lora=lora))
    plain = s.call("POST", f"/v1/jobs/{job['id']}/duplicate", {"lora": ""})
    assert "lora" not in plain["request"]
    varied = s.call("POST", f"/v1/jobs/{job['id']}/duplicate", {"lora": "other:0.25,style:0.25"})
    s.finish(job["id"], plain["id"], varied["id"])
    files = [s.content(x["id"])[1] for x in (job, plain, varied)]
    assert files[0] == undisturbed("half", small, "--lora", "style.safetensors:0.5") == files[2]
    assert files[1] == undisturbed("plain", small) != files[0]
    machine = s.call("GET", "/v1/machine")
    loaded = {(x["part"], x["adapters"]): x["bytes"] for x in machine["loaded"] if x["model"] == "wan"}
    assert machine["workers_started"] == 1 and (machine["loads"], machine["unloads"]) == (5, 1), machine
    assert set(loaded) == {("text_encoder", ""), ("vae", ""), ("transformer", ""), ("transformer", "other:0.25,style:0.25")}, loaded
    assert loaded["transformer", ""] == loaded["transformer", "other:0.25,style:0.25"] == room, (loaded, room)
    assert machine["loaded_bytes"] == sum(loaded.values())
    paused = s.call("POST", "/v1/jobs", dict(small, lora="style", seed=3))
    s.stop()
    s = Server("state", "--idle-unload", "0.001")  # without the adapter
    end, = s.finish(paused["id"])
    assert end["status"] == "completed" or end["error"]["code"] == "model-not-found", end
    s.finish(s.call("POST", "/v1/jobs", small)["id"])
    machine = s.call("GET", "/v1/machine")
    while machine["loaded"]:
        time.sleep(0.01)
        machine = s.call("GET", "/v1/machine")
    assert machine["unloads"] == machine["loads"] > 0 and machine["workers_crashed"] == 0, machine
    assert "weft_serve_loads_total %d" % machine["loads"] in s.raw("GET", "/metrics")[2].decode().splitlines()
    s.stop()


def previews_fit_the_steps_that_run():
    """A number of steps between previews that shows none is refused, or reduced where the steps that run are few."""
    here = os.path.join(SRC, "tests/golden/pipelines")
    write_lora("dist.safetensors", steps=3, guidance_scale=1)
    s = Server("state", "--lora", "dist=dist.safetensors", models=("wan=" + MODEL, f"longcat={here}/longcat"))
    small = {k: v for k, v in VIDEO.items() if k != "steps"} | {"frames": 5}
    assert s.error(400, "request-invalid", "POST", "/v1/jobs", dict(small, lora="dist", preview=4))["param"] == "preview"
    assert s.error(400, "request-invalid", "POST", "/v1/jobs", dict(small, sigmas="1,0.5,0", preview=3))["param"] == "preview"
    assert s.call("GET", "/v1/jobs")["data"] == []
    image = open(MODEL + "/video.png", "rb").read()
    changed = dict(small, model="wan", steps=5, strength=0.5, preview=4)
    refined = dict(small, model="longcat", size="48x32", frames=10, steps=20, preview=9)
    jobs = [(s.call("POST", "/v1/jobs", dict(small, lora="dist", preview=3)), 3),
            (s.call("POST", "/v1/jobs", *form(changed, more={"video": image})), 2),
            (s.call("POST", "/v1/jobs", *form(refined, more={"refine": open(f"{here}/longcat/refine_refine.png", "rb").read()})), 1)]
    plain = s.call("POST", "/v1/jobs", dict(small, steps=9, preview=8))
    jobs.append((s.call("POST", f"/v1/jobs/{plain['id']}/duplicate", {"steps": 2}), 2))  # the job to vary has more steps
    for job, preview in jobs:
        assert job["request"]["preview"] == preview, job
        assert s.finish(job["id"])[0]["status"] == "completed", s.call("GET", "/v1/jobs/" + job["id"])
    s.stop()


def distilled_loras_bring_their_settings():
    """A distilled adapter sets steps and guidance that a request does not give, also of a job to vary, which loses them with it."""
    for name, steps, guidance in ("dist", 3, 1), ("other", 5, 2):
        write_lora(name + ".safetensors", steps=steps, guidance_scale=guidance)
    write_lora("style.safetensors")
    s = Server("state", *(word for name in ("dist", "other", "style") for word in ("--lora", f"{name}={name}.safetensors")))
    own = [{"id": "dist", "object": "lora", "steps": 3, "guidance_scale": 1}, {"id": "other", "object": "lora", "steps": 5, "guidance_scale": 2},
           {"id": "style", "object": "lora"}]
    assert s.call("GET", "/v1/loras")["data"] == s.call("GET", "/capabilities")["loras"] == own
    model, = s.call("GET", "/capabilities")["models"]
    usual = model["steps"], model["guidance_scale"]
    assert usual == (30, 4), usual
    small = {k: v for k, v in VIDEO.items() if k != "steps"} | {"frames": 5}
    def made(expected, base=None, **fields):
        path = f"/v1/jobs/{base['id']}/duplicate" if base else "/v1/jobs"
        job = s.call("POST", path, fields if base else dict(small, **fields))
        assert (job["request"]["steps"], job["request"]["guidance_scale"]) == expected, job
        return job
    plain = made(usual)
    distilled = made((3, 1), lora="style,dist")
    made((3, 1), plain, lora="dist:1")
    made((9, 1), plain, lora="dist:1", num_inference_steps=9)
    made((2, 1), plain, lora="dist:1", sigmas="1,0.5,0")
    made(usual, distilled, lora="")
    made((30, 7), distilled, lora="style", guidance_scale=7)
    made((5, 2), distilled, lora="other")
    made((3, 1), distilled, prompt="a dog")
    chosen = made((6, 1), lora="dist", steps=6)
    made((6, 1), chosen, lora="dist:0.5,style")  # the same distilled adapter
    made((6, 1), chosen, seed=4)
    made((8, 4), made((8, 4), steps=8), lora="style")
    s.stop()


main(globals())
