#include "curate/synth.h"
#include "base/memory.h"
#include "cli/options/args.h"
#include "cli/options/verb.h"

#include <stdio.h>

static const weft_option options[] = {
    {"--out", "DIR", NULL, "folder to write; must not contain an earlier set", .required = true,
     .result = WEFT_RESULT_NEW},
    {"--shots", "N", "480", "shots of the training set"},
    {"--size", "PIXELS", "64", "width and height; even, 32 to 1024"},
    {"--min-frames", "N", "26", "frames of the shortest shot"},
    {"--max-frames", "N", "40", "frames of the longest shot"},
    {"--fps", "RATE", "24", "frames per second"},
    {"--per-video", "N", "8", "largest number of shots in one video"},
    {"--single-share", "SHARE", "0.15", "share of the shots that are a file of their own, 0 to 1"},
    {"--radius", "R", "10", "mean radius of the shapes in 64ths of the side, 4 to 20"},
    {"--gradual-share", "SHARE", "0.2", "share of the transitions that are dissolves or fades"},
    {"--colour", "NAME", "",
     "only shapes of this colour; red, green, blue, yellow, or purple, which other sets do not "
     "have. Empty: the first four"},
    {"--unnamed-colour-share", "SHARE", "0", "share of the captions that omit the colour, 0 to 1",
     WEFT_ALSO("--nameless")},
    {"--held-out", "N", "8", "combinations of colour, shape and direction that training lacks"},
    {"--held-out-clips", "N", "2", "clips of each held-out combination"},
    {"--seed", "N", "1", "random seed; equal seeds and options give equal files"},
};

static weft_status run(const weft_args *args)
{
    weft_synth_options o = {0};
    int64_t seed;
    WEFT_TRY(weft_args_i64(args, "--shots", 1, 1000000, &o.shots));
    WEFT_TRY(weft_args_i64(args, "--size", 32, 1024, &o.size));
    WEFT_TRY(weft_args_i64(args, "--min-frames", 5, 10000, &o.min_frames));
    WEFT_TRY(weft_args_i64(args, "--max-frames", 5, 10000, &o.max_frames));
    WEFT_TRY(weft_args_f64(args, "--fps", 1, 240, &o.fps));
    WEFT_TRY(weft_args_i64(args, "--per-video", 1, 1000, &o.max_per_video));
    WEFT_TRY(weft_args_f64(args, "--single-share", 0, 1, &o.single_share));
    WEFT_TRY(weft_args_f64(args, "--radius", 4, 20, &o.radius));
    WEFT_TRY(weft_args_f64(args, "--gradual-share", 0, 1, &o.gradual_share));
    WEFT_TRY(weft_args_f64(args, "--unnamed-colour-share", 0, 1, &o.nameless));
    WEFT_TRY(weft_args_i64(args, "--held-out", 0, 40, &o.held_out));
    WEFT_TRY(weft_args_i64(args, "--held-out-clips", 0, 1000, &o.held_out_clips));
    WEFT_TRY(weft_args_i64(args, "--seed", 0, INT64_MAX, &seed));
    const char *colour = weft_args_string(args, "--colour");
    o.colour = *colour ? colour : NULL;
    o.seed = (uint64_t)seed;
    weft_synth_report r;
    WEFT_TRY(weft_synth_write(weft_args_string(args, "--out"), &o, &r));
    printf("%s: %" PRId64 " video%s, %" PRId64 " shot%s, %" PRId64 " frame%s, %" PRId64
           " hard cut%s, %" PRId64 " gradual transition%s, "
           "%" PRId64 " held-out clip%s\n",
           weft_args_given(args, "--out"), r.videos, weft_plural(r.videos), r.shots,
           weft_plural(r.shots), r.frames, weft_plural(r.frames), r.cuts, weft_plural(r.cuts),
           r.graduals, weft_plural(r.graduals), r.held_out_clips, weft_plural(r.held_out_clips));
    return WEFT_OK;
}

const weft_verb weft_verb_synth = {
    .name = "synth",
    .summary = "write a captioned data set of moving shapes with known cuts",
    .usage = "--out DIR [options]",
    .details = "Writes H.264 videos of one coloured shape that moves over a background.\n"
               "The cuts and the captions are known, so that curation, training and evaluation\n"
               "can be checked.\n"
               "\n"
               "A shape is red, green, blue or yellow; a circle, square or triangle. It moves\n"
               "left, right, up or down over a plain or shaded background. Most shots are joined\n"
               "to longer videos with hard cuts, dissolves and fades.\n"
               "\n"
               "train/v0000.mp4 with v0000.json has several shots. The JSON gives the first and\n"
               "last frame (inclusive) and the caption of each shot, e.g. \"a red circle moving\n"
               "left\". Frames of a gradual transition belong to no shot. train/s0000.mp4 with\n"
               "s0000.txt has one shot and its caption. cuts.jsonl has the transitions in the\n"
               "format of `weft shots`. heldout.json lists the combinations of words that\n"
               "training lacks and those that it has. heldout/ has clips of the first. Training\n"
               "has every word and every pair of words.\n",
    .files = "DIR/train/, DIR/heldout/, DIR/cuts.jsonl, DIR/heldout.json",
    .examples = "weft synth --out raw\nweft synth --out raw --shots 2000 --size 128 --seed 7\n",
    .options = options,
    .option_count = WEFT_COUNT(options),
    .run = run,
};
