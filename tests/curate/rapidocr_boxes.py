"""Boxes of text by RapidOCR (package rapidocr-onnxruntime), for tests.

usage: rapidocr_boxes.py draw           writes text/a.mp4, frames with lines of text
       rapidocr_boxes.py model          prints the path of the detection network
       rapidocr_boxes.py compare OUT    compares the boxes of a curation of text/ with RapidOCR's
"""
import glob, json, os, subprocess, sys

import cv2
import numpy
import rapidocr_onnxruntime

WIDTH, HEIGHT = 1280, 736  # multiples of 32: neither side resizes the frames
FOLDER = os.path.dirname(rapidocr_onnxruntime.__file__)


def draw():
    os.makedirs("text", exist_ok=True)
    frame = numpy.full((HEIGHT, WIDTH, 3), 40, numpy.uint8)
    frame[::8] = 60
    for x, y, scale, words in (80, 120, 2, "Opening title"), (300, 400, 1.2, "a sign on a wall"), (420, 690, 1.5, "subtitles of a line"):
        cv2.putText(frame, words, (x, y), cv2.FONT_HERSHEY_SIMPLEX, scale, (255, 255, 255), 3, cv2.LINE_AA)
    turn = cv2.getRotationMatrix2D((950, 250), 20, 1)
    tilted = cv2.putText(numpy.zeros_like(frame), "tilted words", (820, 250), cv2.FONT_HERSHEY_SIMPLEX, 1.6, (255, 255, 255), 3, cv2.LINE_AA)
    frame = numpy.maximum(frame, cv2.warpAffine(tilted, turn, (WIDTH, HEIGHT)))
    cv2.imwrite("frame.png", frame)
    subprocess.run("ffmpeg -v error -nostdin -y -loop 1 -i frame.png -t 1 -r 24 -c:v libx264 -preset ultrafast -crf 8 "
                   "-pix_fmt yuv420p text/a.mp4".split(), check=True)


def compare(out):
    raw = subprocess.run("ffmpeg -v error -nostdin -i text/a.mp4 -frames:v 1 -f rawvideo -pix_fmt bgr24 -".split(),
                         check=True, capture_output=True).stdout
    frame = numpy.frombuffer(raw, numpy.uint8).reshape(HEIGHT, WIDTH, 3)
    wanted, _ = rapidocr_onnxruntime.RapidOCR().text_det(frame)
    record = json.load(open(glob.glob(out + "/state/*.scores.json")[0]))
    (shot,) = record["shots"].values()
    own = [numpy.array(b[1:]).reshape(4, 2) * (WIDTH, HEIGHT) for b in shot["letters.boxes"]]
    mask = numpy.zeros((HEIGHT, WIDTH), numpy.uint8)
    assert len(own) == len(wanted) >= 4, (own, wanted)
    for box in wanted:
        cv2.fillPoly(mask, [numpy.array(box, numpy.int32)], 1)
        near = [max(min(numpy.hypot(*(p - q)) for q in b) for p in numpy.array(box, float)) for b in own]
        assert min(near) <= 4, (box, own)  # pixels; RapidOCR rounds twice
    assert abs(mask.mean() - shot["letters"]) < 0.002, (mask.mean(), shot["letters"])


if sys.argv[1] == "draw":
    draw()
elif sys.argv[1] == "model":
    print(glob.glob(FOLDER + "/models/*det*.onnx")[0])
else:
    compare(sys.argv[2])
