#include "curate/operators/operators_config.h"

#define AT(member)      offsetof(weft_operator_config, member)
#define TIER_AT(member) offsetof(weft_operator_tier, member)

static const char *const measures[] = {"none",  "blur",       "exposure", "blockiness",
                                       "noise", "difference", NULL};

static const weft_key tier_keys[] = {
    {"min_side", WEFT_KEY_I64, TIER_AT(min_side), NULL, "pixels",
     "shorter side of a shot, without borders, from which the limits apply", .min = 0, .max = 1e6},
    {"min", WEFT_KEY_F64, TIER_AT(min), "-1e300", "", "minimum score"},
    {"max", WEFT_KEY_F64, TIER_AT(max), "1e300", "", "maximum score"},
};
static const weft_section tier_section = {
    "tiers", "limits by resolution; the tier with the largest min_side that fits replaces min, max",
    sizeof(weft_operator_tier), tier_keys, WEFT_COUNT(tier_keys)};

static const weft_key operator_keys[] = {
    {"name", WEFT_KEY_STRING, AT(name), NULL, "",
     "name of the operator and of its score: letters, digits and _"},
    {"expression", WEFT_KEY_STRING, AT(expression), "", "",
     "condition or number over scores: motion, sharpness, brightness, frames, seconds, fps, "
     "width, height, and the names of earlier operators; e.g. \"motion > 0.1 or seconds < 2\""},
    {"measure", WEFT_KEY_ENUM, AT(measure), "none", "",
     "technical quality of frames: blur (width of edges, pixels), exposure (share of pixels "
     "that are black or white), blockiness (0: none), noise (levels), or difference (mean levels "
     "between successive frames of `frames`: motion, also after a crop)",
     .choices = measures},
    {"process", WEFT_KEY_STRING_LIST, AT(process), "[]", "",
     "program and arguments; it reads frames from standard input and prints a score per shot as "
     "JSON (docs/how-to/curate.md)"},
    {"onnx", WEFT_KEY_STRING, AT(onnx), "", "", "ONNX file with an input [N, 3, H, W]"},
    {"aesthetics", WEFT_KEY_STRING, AT(aesthetics), "", "",
     "LAION's linear or MLP head (safetensors, .pth) on the embedding of the shot; needs "
     "`embeddings`"},
    {"text", WEFT_KEY_STRING, AT(text), "", "",
     "ONNX file of PP-OCR's text detection; the score is the share of the frame that text "
     "covers. Small text needs a `side` of 736 or more"},
    {"crop", WEFT_KEY_F64, AT(crop), "0", "",
     "with `text`: crop bands of text at the top and bottom of the clip, each up to this share of "
     "the height, and score the rest; 0.2 removes most subtitles. 0: no crop",
     .min = 0, .max = 0.4},
    {"after_crop", WEFT_KEY_BOOL, AT(after_crop), "false", "",
     "measure, process and onnx: score frames without the bands that an earlier operator `text` "
     "crops"},
    {"frames", WEFT_KEY_I64, AT(frames), "4", "",
     "frames of a shot that a process, a model or a measure sees, evenly spread", .min = 1,
     .max = 256},
    {"side", WEFT_KEY_I64, AT(side), "256", "pixels",
     "shorter side of the frames; 0 keeps the size of the video. A measure always has the size of "
     "the video",
     .min = 0, .max = 8192},
    {"min", WEFT_KEY_F64, AT(min), "-1e300", "", "minimum score; -1e300: no limit"},
    {"max", WEFT_KEY_F64, AT(max), "1e300", "", "maximum score; 1e300: no limit"},
    {"tiers", WEFT_KEY_SECTION_LIST, AT(tiers), .section = &tier_section},
    {"timeout_seconds", WEFT_KEY_F64, AT(timeout_seconds), "60", "s",
     "longest time of a process for one shot", .min = 0.01, .max = 1e5},
    {"keep_failed", WEFT_KEY_BOOL, AT(keep_failed), "false", "",
     "keep shots for which the operator gives no score; false: reject them with the reason"},
    {"mean", WEFT_KEY_F64_LIST, AT(mean), "[0.48145466, 0.4578275, 0.40821073]", "",
     "mean of red, green and blue (0 to 1) that an ONNX model expects"},
    {"std", WEFT_KEY_F64_LIST, AT(std), "[0.26862954, 0.26130258, 0.27577711]", "",
     "standard deviation of red, green and blue that an ONNX model expects", .min = 1e-6,
     .max = 1e6},
    {"output", WEFT_KEY_I64, AT(output), "0", "",
     "element of the first output of an ONNX model that is the score", .min = 0, .max = 1e9},
};
const weft_section weft_operator_section = {
    "operators",
    "further scores and limits of shots; each has one of expression, measure, "
    "process, onnx, aesthetics and text",
    sizeof(weft_operator_config), operator_keys, WEFT_COUNT(operator_keys)};
