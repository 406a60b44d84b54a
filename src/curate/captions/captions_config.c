#include "curate/captions/captions_config.h"

#define AT(member) offsetof(weft_captions_config, member)

static const char *const formats[] = {"structured", "text", NULL};

static const char *const requests[] = {"images", "video", NULL};

static const weft_key captions_keys[] = {
    {"url", WEFT_KEY_STRING, AT(url), "", "",
     "OpenAI-compatible server, e.g. http://127.0.0.1:8000/v1; requests go to "
     "URL/chat/completions. "
     "Clips without a caption file get its captions. \"\": none"},
    {"model", WEFT_KEY_STRING, AT(model), "", "", "name of the model at the server"},
    {"prompt", WEFT_KEY_STRING, AT(prompt), "", "",
     "text after the frames; \"\": a prompt for the format"},
    {"format", WEFT_KEY_ENUM, AT(format), "structured", "",
     "structured: a JSON object with summary, scene, subject, motion, background, style, camera "
     "and light, of which the summary is the caption; text: the reply as it is",
     .choices = formats},
    {"request", WEFT_KEY_ENUM, AT(request), "images", "",
     "form of the frames. images: JPEG data URLs (image_url) with their times; video: an mp4 data "
     "URL (video_url) of the frames",
     .choices = requests},
    {"append", WEFT_KEY_STRING_LIST, AT(append), "[]", "",
     "texts after the caption, with values in braces: a field of a structured reply, motion_score, "
     "sharpness_score, brightness_score or an operator, {NAME:2} with two decimals; e.g. "
     "[\"Camera: {camera}\", \"Beauty {beauty:1}.\"]. A text without all values is omitted"},
    {"frames", WEFT_KEY_I64, AT(frames), "8", "", "frames of a window, evenly spread", .min = 1,
     .max = 64},
    {"side", WEFT_KEY_I64, AT(side), "448", "pixels",
     "shorter side of the frames, sent as JPEG; 0 keeps the size of the clip", .min = 0,
     .max = 8192},
    {"window_seconds", WEFT_KEY_F64, AT(window_seconds), "0", "s",
     "a longer clip has windows of this length, with a request each; 0: one window", .min = 0,
     .max = 1e6},
    {"key_variable", WEFT_KEY_STRING, AT(key_variable), "", "",
     "environment variable that contains the key of the server; \"\": no key"},
    {"max_tokens", WEFT_KEY_I64, AT(max_tokens), "1024", "", "longest reply", .min = 1, .max = 1e6},
    {"temperature", WEFT_KEY_F64, AT(temperature), "0", "", "randomness of replies", .min = 0,
     .max = 2},
    {"json_schema", WEFT_KEY_BOOL, AT(json_schema), "true", "",
     "request the structured form with response_format; a server may ignore it"},
    {"strip_openings", WEFT_KEY_BOOL, AT(strip_openings), "true", "",
     "remove stock openings of captions, such as \"The video shows\""},
    {"concurrency", WEFT_KEY_I64, AT(concurrency), "4", "", "requests at a time", .min = 1,
     .max = 256},
    {"attempts", WEFT_KEY_I64, AT(attempts), "5", "",
     "attempts of a request that fails transiently (429, 5xx, no reply)", .min = 1, .max = 100},
    {"timeout_seconds", WEFT_KEY_F64, AT(timeout_seconds), "120", "s", "longest time of an attempt",
     .min = 1, .max = 1e5},
    {"budget_requests", WEFT_KEY_I64, AT(budget_requests), "0", "",
     "most requests of a run; the rest is left for the next run. 0: no limit", .min = 0,
     .max = 1e15},
    {"budget_tokens", WEFT_KEY_I64, AT(budget_tokens), "0", "",
     "tokens (as reported by the server) after which a run sends no further request. 0: no limit",
     .min = 0, .max = 1e15},
};
const weft_section weft_captions_section = {
    "captions", "captions of clips from a vision-language model on a server",
    sizeof(weft_captions_config), captions_keys, WEFT_COUNT(captions_keys)};
