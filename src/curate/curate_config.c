#include "curate/curate_config.h"

#include "curate/curate.h"
#include "curate/operators/operators_config.h"

#define AT(member) offsetof(weft_curate_config, member)

static const char *const cuts[] = {"exact", "key_frames", NULL};
static const char *const orders[] = {"price", "fixed", NULL};
static const char *const methods[] = {"structure", "content",    "adaptive",
                                      "fade",      "transnetv2", NULL};

static const weft_key video_keys[] = {
    {"min_side", WEFT_KEY_I64, AT(video.min_side) - AT(video), "48", "pixels",
     "minimum shorter side of the video", .min = 1, .max = 100000},
    {"min_fps", WEFT_KEY_F64, AT(video.min_fps) - AT(video), "5", "1/s", "minimum frame rate",
     .min = 0, .max = 1000},
    {"max_fps", WEFT_KEY_F64, AT(video.max_fps) - AT(video), "240", "1/s", "maximum frame rate",
     .min = 1, .max = 100000},
    {"min_seconds", WEFT_KEY_F64, AT(video.min_seconds) - AT(video), "0.5", "s",
     "minimum duration of the video", .min = 0, .max = 1e9},
    {"min_aspect", WEFT_KEY_F64, AT(video.min_aspect) - AT(video), "0.3", "",
     "minimum width / height", .min = 0, .max = 100},
    {"max_aspect", WEFT_KEY_F64, AT(video.max_aspect) - AT(video), "3.5", "",
     "maximum width / height", .min = 0, .max = 1000},
    {"max_damaged", WEFT_KEY_F64, AT(video.max_damaged) - AT(video), "0.2", "",
     "maximum share of packets that the decoder rejects", .min = 0, .max = 1},
    {"max_concealed", WEFT_KEY_F64, AT(video.max_concealed) - AT(video), "0.5", "",
     "maximum share of damaged frames, which are cut out", .min = 0, .max = 1},
    {"check_corruption", WEFT_KEY_BOOL, AT(video.prove) - AT(video), "true", "",
     "decode frames with a jump again and check that they use exactly their data; damage "
     "that the decoder does not report is cut out, too",
     .earlier = "prove"},
};
static const weft_section video_section = {
    "video", "size, rate, duration and damage of accepted videos",
    sizeof(((weft_curate_config *)0)->video), video_keys, WEFT_COUNT(video_keys)};

static const weft_key shots_keys[] = {
    {"method", WEFT_KEY_ENUM, AT(shots.method) - AT(shots), "structure", "",
     "detection method, as in `weft shots`", .choices = methods},
    {"weights", WEFT_KEY_STRING, AT(shots.weights) - AT(shots), "", "",
     "weights of transnetv2; PyTorch file (.pth) or safetensors"},
    {"threshold", WEFT_KEY_F64, AT(shots.threshold) - AT(shots), "0", "",
     "threshold of the method; 0: the method's own", .min = 0, .max = 1000},
    {"min_frames", WEFT_KEY_I64, AT(shots.min_frames) - AT(shots), "0", "frames",
     "frames of the shortest shot; 0: the method's own", .min = 0, .max = 100000},
    {"trim", WEFT_KEY_I64, AT(shots.trim) - AT(shots), "0", "frames",
     "frames removed at each end of a shot that has a transition", .min = 0, .max = 1000},
    {"mix", WEFT_KEY_F64, AT(shots.mix) - AT(shots), "0", "levels",
     "difference in levels below which H.264 frames are interpolated, as in `weft shots`; "
     "20 halves decoding, but hashes of interpolated frames find fewer near-duplicates. 0: "
     "decode every frame",
     .min = 0, .max = 100},
};
static const weft_section shots_section = {"shots", "method and threshold of shot detection",
                                           sizeof(((weft_curate_config *)0)->shots), shots_keys,
                                           WEFT_COUNT(shots_keys)};

static const weft_key clips_keys[] = {
    {"min_frames", WEFT_KEY_I64, AT(clips.min_frames) - AT(clips), "17", "frames", "shortest clip",
     .min = 1, .max = 1e9},
    {"min_seconds", WEFT_KEY_F64, AT(clips.min_seconds) - AT(clips), "0.5", "s", "shortest clip",
     .min = 0, .max = 1e9},
    {"max_seconds", WEFT_KEY_F64, AT(clips.max_seconds) - AT(clips), "20", "s",
     "maximum duration; longer shots are split into clips of equal length", .min = 0.1, .max = 1e9},
    {"sharpest_within", WEFT_KEY_F64, AT(clips.sharpest_within) - AT(clips), "0", "s",
     "start each clip at the sharpest frame of its first seconds, at most half of the clip; the "
     "frames before it are rejected (start). 0: start at the first frame",
     .min = 0, .max = 1e6},
    {"cut", WEFT_KEY_ENUM, AT(clips.cut) - AT(clips), "exact", "",
     "exact: clips have all frames of their shots, and are encoded; key_frames: clips begin at a "
     "key frame and are copied without encoding, the frames outside are rejected (key_frame), and "
     "a clip that cannot be copied is encoded",
     .choices = cuts},
    {"max_side", WEFT_KEY_I64, AT(clips.max_side) - AT(clips), "0", "pixels",
     "maximum longer side; larger clips are scaled down. 0: keep the size", .min = 0, .max = 16384},
    {"max_fps", WEFT_KEY_F64, AT(clips.fps) - AT(clips), "0", "1/s",
     "maximum frame rate; clips with a higher one keep the frames nearest to this rate. 0: keep "
     "all frames",
     .min = 0, .max = 1000},
    {"encoder", WEFT_KEY_STRING, AT(clips.encoder) - AT(clips), "libx264", "",
     "encoder of FFmpeg: libx264, libx265, libaom-av1, libvpx-vp9, or a hardware "
     "encoder: h264, hevc or av1 with _nvenc, _vaapi or _qsv"},
    {"crf", WEFT_KEY_I64, AT(clips.crf) - AT(clips), "18", "",
     "quality, lower is better; of the scale of the encoder", .min = 1, .max = 63},
    {"keyframe_interval", WEFT_KEY_I64, AT(clips.key_interval) - AT(clips), "24", "frames",
     "maximum distance of key frames; training decodes random windows from the key frame "
     "before them",
     .min = 1, .max = 10000, .earlier = "key_interval"},
    {"preset", WEFT_KEY_STRING, AT(clips.preset) - AT(clips), "veryfast", "",
     "speed of the encoder; encoders without x264's presets (NVENC: p1 to p7, VAAPI: numbers of "
     "the driver) "
     "have a standard for veryfast"},
    {"crop_borders", WEFT_KEY_BOOL, AT(clips.crop_borders) - AT(clips), "true", "",
     "crop borders of black or another single colour"},
    {"sound", WEFT_KEY_BOOL, AT(clips.sound) - AT(clips), "false", "",
     "clips have the sound of their source, encoded as AAC with the rate of the source and one or "
     "two channels"},
    {"require_caption", WEFT_KEY_BOOL, AT(clips.require_caption) - AT(clips), "false", "",
     "reject shots without a caption"},
};
static const weft_section clips_section = {"clips", "length, size and encoding of the clips",
                                           sizeof(((weft_curate_config *)0)->clips), clips_keys,
                                           WEFT_COUNT(clips_keys)};

#define TIER_AT(member) offsetof(weft_curate_quality_tier, member)

static const weft_key quality_tier_keys[] = {
    {"min_side", WEFT_KEY_I64, TIER_AT(min_side), NULL, "pixels",
     "shorter side of a shot, without borders, from which the limits apply", .min = 0, .max = 1e6},
    {"min_motion", WEFT_KEY_F64, TIER_AT(min_motion), "-1", "widths/s", "-1: as in quality",
     .min = -1, .max = 100},
    {"max_motion", WEFT_KEY_F64, TIER_AT(max_motion), "-1", "widths/s", "-1: as in quality",
     .min = -1, .max = 1000},
    {"min_sharpness", WEFT_KEY_F64, TIER_AT(min_sharpness), "-1", "levels", "-1: as in quality",
     .min = -1, .max = 1000},
    {"min_brightness", WEFT_KEY_F64, TIER_AT(min_brightness), "-1", "levels", "-1: as in quality",
     .min = -1, .max = 255},
    {"max_brightness", WEFT_KEY_F64, TIER_AT(max_brightness), "-1", "levels", "-1: as in quality",
     .min = -1, .max = 255},
};
static const weft_section quality_tier_section = {
    "tiers", "limits by resolution; the tier with the largest min_side that fits applies",
    sizeof(weft_curate_quality_tier), quality_tier_keys, WEFT_COUNT(quality_tier_keys)};

static const weft_key quality_keys[] = {
    {"min_motion", WEFT_KEY_F64, AT(quality.min_motion) - AT(quality), "0.0015", "widths/s",
     "minimum mean motion of a shot", .min = 0, .max = 100},
    {"max_motion", WEFT_KEY_F64, AT(quality.max_motion) - AT(quality), "1.5", "widths/s",
     "maximum mean motion of a shot", .min = 0, .max = 1000},
    {"min_sharpness", WEFT_KEY_F64, AT(quality.min_sharpness) - AT(quality), "1", "levels",
     "minimum sharpness of the sharpest edges (Laplacian at 256 x 144)", .min = 0, .max = 1000},
    {"min_brightness", WEFT_KEY_F64, AT(quality.min_brightness) - AT(quality), "12", "levels",
     "minimum mean luma of a shot", .min = 0, .max = 255},
    {"max_brightness", WEFT_KEY_F64, AT(quality.max_brightness) - AT(quality), "243", "levels",
     "maximum mean luma of a shot", .min = 0, .max = 255},
    {"tiers", WEFT_KEY_SECTION_LIST, AT(quality.tiers) - AT(quality),
     .section = &quality_tier_section},
};
static const weft_section quality_section = {
    "quality", "motion, sharpness and brightness of accepted shots",
    sizeof(((weft_curate_config *)0)->quality), quality_keys, WEFT_COUNT(quality_keys)};

static const weft_key duplicate_keys[] = {
    {"on", WEFT_KEY_BOOL, AT(duplicates.on) - AT(duplicates), "true", "", "reject near-duplicates"},
    {"distance", WEFT_KEY_F64, AT(duplicates.distance) - AT(duplicates), "0.125", "",
     "maximum share of different bits in the hashes of two equal frames", .min = 0, .max = 0.5},
    {"colour", WEFT_KEY_I64, AT(duplicates.colour) - AT(duplicates), "10", "levels",
     "maximum difference of the mean chroma in each sixteenth of two equal frames; 255: "
     "ignore colours",
     .min = 0, .max = 255},
    {"share", WEFT_KEY_F64, AT(duplicates.share) - AT(duplicates), "0.7", "",
     "minimum share of the shorter shot's key frames that the other shot has, and of a "
     "shot's that kept ones have",
     .min = 0.01, .max = 1},
    {"mirrored", WEFT_KEY_BOOL, AT(duplicates.mirrored) - AT(duplicates), "true", "",
     "also reject near-duplicates that are mirrored left to right"},
    {"partial_share", WEFT_KEY_F64, AT(duplicates.parts) - AT(duplicates), "0.6", "",
     "minimum share of the smaller frame, and of its moving area, that the other frame "
     "shows; finds crops, overlays, captions, colour grades and grayscale copies. 0: no "
     "search for partial duplicates",
     .min = 0, .max = 1, .earlier = "parts"},
};
static const weft_section duplicate_section = {
    "duplicates", "near-duplicates and partial duplicates",
    sizeof(((weft_curate_config *)0)->duplicates), duplicate_keys, WEFT_COUNT(duplicate_keys)};

static const weft_key keys[] = {
    {"workers", WEFT_KEY_I64, AT(workers), "0", "",
     "videos processed at a time; 0: one per processor", .min = 0, .max = 256},
    {"stall_seconds", WEFT_KEY_F64, AT(stall_seconds), "60", "s",
     "time without progress of the decoder after which a video is abandoned", .min = 0.1,
     .max = 1e6},
    {"worker_memory", WEFT_KEY_I64, AT(worker_memory), "0", "bytes",
     "memory limit of the process of one video, e.g. 4GiB; a video that needs more is "
     "rejected. 0: 80 % of the machine's memory divided by the workers, at least 2 GiB",
     .min = 0, .max = 1e15},
    {"video", WEFT_KEY_SECTION, AT(video), .section = &video_section},
    {"shots", WEFT_KEY_SECTION, AT(shots), .section = &shots_section},
    {"quality", WEFT_KEY_SECTION, AT(quality), .section = &quality_section},
    {"duplicates", WEFT_KEY_SECTION, AT(duplicates), .section = &duplicate_section},
    {"clips", WEFT_KEY_SECTION, AT(clips), .section = &clips_section},
    {"operator_order", WEFT_KEY_ENUM, AT(operator_order), "price", "",
     "order of `operators`: price (by measured seconds per rejected shot, lowest first) or fixed "
     "(as in the list)",
     .choices = orders},
    {"captions", WEFT_KEY_SECTION, AT(captions), .section = &weft_captions_section},
    {"embeddings", WEFT_KEY_SECTION, AT(embeddings), .section = &weft_embeddings_section},
    {"operators", WEFT_KEY_SECTION_LIST, AT(operators), .section = &weft_operator_section},
};
const weft_section weft_curate_section = {"curate", "from source videos to clips",
                                          sizeof(weft_curate_config), keys, WEFT_COUNT(keys)};
