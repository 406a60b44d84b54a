#include "curate/curate.h"

#define AT(member) offsetof(weft_curate_config, member)

static const char *const methods[] = {"structure", "content",    "adaptive",
                                      "fade",      "transnetv2", NULL};

static const weft_key video_keys[] = {
    {"min_side", WEFT_KEY_I64, AT(video.min_side) - AT(video), "48", "pixels",
     "shorter side of the video, at least", .min = 1, .max = 100000},
    {"min_fps", WEFT_KEY_F64, AT(video.min_fps) - AT(video), "5", "1/s", "frame rate, at least",
     .min = 0, .max = 1000},
    {"max_fps", WEFT_KEY_F64, AT(video.max_fps) - AT(video), "240", "1/s", "frame rate, at most",
     .min = 1, .max = 100000},
    {"min_seconds", WEFT_KEY_F64, AT(video.min_seconds) - AT(video), "0.5", "s",
     "duration of the video, at least", .min = 0, .max = 1e9},
    {"min_aspect", WEFT_KEY_F64, AT(video.min_aspect) - AT(video), "0.3", "",
     "width / height, at least", .min = 0, .max = 100},
    {"max_aspect", WEFT_KEY_F64, AT(video.max_aspect) - AT(video), "3.5", "",
     "width / height, at most", .min = 0, .max = 1000},
    {"max_damaged", WEFT_KEY_F64, AT(video.max_damaged) - AT(video), "0.2", "",
     "share of the packets that the decoder may refuse", .min = 0, .max = 1},
    {"max_concealed", WEFT_KEY_F64, AT(video.max_concealed) - AT(video), "0.5", "",
     "share of the frames that may be damaged; these are cut out", .min = 0, .max = 1},
    {"prove", WEFT_KEY_BOOL, AT(video.prove) - AT(video), "true", "",
     "decode pictures that leap once more, to see whether they take just the data that they have: "
     "damage of which the decoder says nothing is cut out too"},
};
static const weft_section video_section = {"video", "what a file must be to be looked at",
                                           sizeof(((weft_curate_config *)0)->video), video_keys,
                                           WEFT_COUNT(video_keys)};

static const weft_key shots_keys[] = {
    {"method", WEFT_KEY_ENUM, AT(shots.method) - AT(shots), "structure", "", "as in `weft shots`",
     .choices = methods},
    {"weights", WEFT_KEY_STRING, AT(shots.weights) - AT(shots), "", "",
     "of transnetv2: a PyTorch file (.pth) or safetensors"},
    {"threshold", WEFT_KEY_F64, AT(shots.threshold) - AT(shots), "0", "", "0: the method's own",
     .min = 0, .max = 1000},
    {"min_frames", WEFT_KEY_I64, AT(shots.min_frames) - AT(shots), "0", "frames",
     "shortest shot that is detected; 0: the method's own", .min = 0, .max = 100000},
    {"trim", WEFT_KEY_I64, AT(shots.trim) - AT(shots), "0", "frames",
     "cut off at each end of a shot that touches a boundary", .min = 0, .max = 1000},
    {"mix", WEFT_KEY_F64, AT(shots.mix) - AT(shots), "0", "levels",
     "as in `weft shots`: 20 halves the decoding of H.264, but hashes of mixed frames find fewer "
     "near-duplicates; 0: "
     "every frame is decoded",
     .min = 0, .max = 100},
};
static const weft_section shots_section = {"shots", "how videos are cut into shots",
                                           sizeof(((weft_curate_config *)0)->shots), shots_keys,
                                           WEFT_COUNT(shots_keys)};

static const weft_key clips_keys[] = {
    {"min_frames", WEFT_KEY_I64, AT(clips.min_frames) - AT(clips), "17", "frames", "shortest clip",
     .min = 1, .max = 1e9},
    {"min_seconds", WEFT_KEY_F64, AT(clips.min_seconds) - AT(clips), "0.5", "s", "shortest clip",
     .min = 0, .max = 1e9},
    {"max_seconds", WEFT_KEY_F64, AT(clips.max_seconds) - AT(clips), "20", "s",
     "longer shots become several clips of equal length", .min = 0.1, .max = 1e9},
    {"max_side", WEFT_KEY_I64, AT(clips.max_side) - AT(clips), "0", "pixels",
     "scale clips down to this longer side; 0: keep the size", .min = 0, .max = 16384},
    {"crf", WEFT_KEY_I64, AT(clips.crf) - AT(clips), "18", "", "H.264 quality, lower is better",
     .min = 1, .max = 51},
    {"key_interval", WEFT_KEY_I64, AT(clips.key_interval) - AT(clips), "24", "frames",
     "between key frames, at most: training reads random windows, each from the key frame before "
     "it",
     .min = 1, .max = 10000},
    {"preset", WEFT_KEY_STRING, AT(clips.preset) - AT(clips), "veryfast", "", "x264 preset"},
    {"crop_borders", WEFT_KEY_BOOL, AT(clips.crop_borders) - AT(clips), "true", "",
     "cut off bars of black or of another single colour"},
    {"require_caption", WEFT_KEY_BOOL, AT(clips.require_caption) - AT(clips), "false", "",
     "reject shots without a caption"},
};
static const weft_section clips_section = {"clips", "what is written",
                                           sizeof(((weft_curate_config *)0)->clips), clips_keys,
                                           WEFT_COUNT(clips_keys)};

static const weft_key quality_keys[] = {
    {"min_motion", WEFT_KEY_F64, AT(quality.min_motion) - AT(quality), "0.0015", "widths/s",
     "mean motion of a shot, at least: below it the picture rests", .min = 0, .max = 100},
    {"max_motion", WEFT_KEY_F64, AT(quality.max_motion) - AT(quality), "1.5", "widths/s",
     "mean motion of a shot, at most", .min = 0, .max = 1000},
    {"min_sharpness", WEFT_KEY_F64, AT(quality.min_sharpness) - AT(quality), "1", "levels",
     "sharpness of the sharpest edges (Laplacian at 256 x 144), at least", .min = 0, .max = 1000},
    {"min_brightness", WEFT_KEY_F64, AT(quality.min_brightness) - AT(quality), "12", "levels",
     "mean luma of a shot, at least", .min = 0, .max = 255},
    {"max_brightness", WEFT_KEY_F64, AT(quality.max_brightness) - AT(quality), "243", "levels",
     "mean luma of a shot, at most", .min = 0, .max = 255},
};
static const weft_section quality_section = {"quality", "what a shot must show",
                                             sizeof(((weft_curate_config *)0)->quality),
                                             quality_keys, WEFT_COUNT(quality_keys)};

static const weft_key duplicate_keys[] = {
    {"on", WEFT_KEY_BOOL, AT(duplicates.on) - AT(duplicates), "true", "", "reject near-duplicates"},
    {"distance", WEFT_KEY_F64, AT(duplicates.distance) - AT(duplicates), "0.125", "",
     "share of the bits in which the hashes of two equal frames may differ", .min = 0, .max = 0.5},
    {"colour", WEFT_KEY_I64, AT(duplicates.colour) - AT(duplicates), "10", "levels",
     "by which the mean chroma of a sixteenth of two equal frames may differ; 255: colours do not "
     "matter",
     .min = 0, .max = 255},
    {"share", WEFT_KEY_F64, AT(duplicates.share) - AT(duplicates), "0.7", "",
     "share of the shorter shot's key frames that must be in the other, and of a shot's that kept "
     "ones show",
     .min = 0.01, .max = 1},
    {"mirrored", WEFT_KEY_BOOL, AT(duplicates.mirrored) - AT(duplicates), "true", "",
     "also reject near-duplicates that are mirrored left to right"},
    {"parts", WEFT_KEY_F64, AT(duplicates.parts) - AT(duplicates), "0.6", "",
     "share of the smaller picture, and of what moves in it, that the other must show to be taken "
     "for the same: finds crops, overlays, captions, grades and copies without colours; 0: these "
     "are not looked for",
     .min = 0, .max = 1},
};
static const weft_section duplicate_section = {"duplicates", "which shots show the same",
                                               sizeof(((weft_curate_config *)0)->duplicates),
                                               duplicate_keys, WEFT_COUNT(duplicate_keys)};

static const weft_key keys[] = {
    {"workers", WEFT_KEY_I64, AT(workers), "0", "",
     "videos worked on at once; 0: one per processor", .min = 0, .max = 256},
    {"stall_seconds", WEFT_KEY_F64, AT(stall_seconds), "60", "s",
     "a video whose decoder shows no progress for so long is given up", .min = 0.1, .max = 1e6},
    {"worker_memory", WEFT_KEY_I64, AT(worker_memory), "0", "bytes",
     "memory that the process of one video may reserve, e.g. 4GiB; a video that needs more is "
     "rejected. 0: 80 % of the machine's memory divided by the workers, at least 2 GiB",
     .min = 0, .max = 1e15},
    {"video", WEFT_KEY_SECTION, AT(video), .section = &video_section},
    {"shots", WEFT_KEY_SECTION, AT(shots), .section = &shots_section},
    {"quality", WEFT_KEY_SECTION, AT(quality), .section = &quality_section},
    {"duplicates", WEFT_KEY_SECTION, AT(duplicates), .section = &duplicate_section},
    {"clips", WEFT_KEY_SECTION, AT(clips), .section = &clips_section},
};
const weft_section weft_curate_section = {"curate", "from raw footage to clips",
                                          sizeof(weft_curate_config), keys, WEFT_COUNT(keys)};
