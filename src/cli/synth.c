#include "curate/synth.h"
#include "cli/verb.h"

#include <stdio.h>

static const weft_option options[] = {
    {"--out", "DIR", NULL, "folder to write; must not hold an earlier set", .required = true},
    {"--shots", "N", "480", "shots in the training set"},
    {"--size", "PIXELS", "64", "width and height, even"},
    {"--min-frames", "N", "26", "shortest shot"},
    {"--max-frames", "N", "40", "longest shot"},
    {"--fps", "RATE", "24", "frames per second"},
    {"--per-video", "N", "8", "most shots cut together into one video"},
    {"--single-share", "SHARE", "0.15", "share of the shots that get a file of their own"},
    {"--radius", "R", "10", "mean radius of the shapes, in 64ths of the side"},
    {"--gradual-share", "SHARE", "0.2", "share of the boundaries that are dissolves or fades"},
    {"--colour", "NAME", "",
     "shapes of this colour only (red, green, blue, yellow, or purple, which other sets do not "
     "have); empty: the first four"},
    {"--nameless", "SHARE", "0", "share of the captions that do not name the colour"},
    {"--held-out", "N", "8", "combinations of colour, shape and direction kept out of training"},
    {"--held-out-clips", "N", "2", "clips of each held-out combination"},
    {"--seed", "N", "1", "the same seed and options give the same files"},
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
    WEFT_TRY(weft_args_f64(args, "--nameless", 0, 1, &o.nameless));
    WEFT_TRY(weft_args_i64(args, "--held-out", 0, 40, &o.held_out));
    WEFT_TRY(weft_args_i64(args, "--held-out-clips", 0, 1000, &o.held_out_clips));
    WEFT_TRY(weft_args_i64(args, "--seed", 0, INT64_MAX, &seed));
    const char *colour = weft_args_string(args, "--colour");
    o.colour = *colour ? colour : NULL;
    o.seed = (uint64_t)seed;
    weft_synth_report r;
    const char *dir = weft_args_string(args, "--out");
    WEFT_TRY(weft_synth_write(dir, &o, &r));
    printf("%s: %lld videos, %lld shots, %lld frames, %lld hard cuts, %lld gradual transitions, "
           "%lld held-out clips\n",
           dir, (long long)r.videos, (long long)r.shots, (long long)r.frames, (long long)r.cuts,
           (long long)r.graduals, (long long)r.held_out_clips);
    return WEFT_OK;
}

const weft_verb weft_verb_synth = {
    .name = "synth",
    .summary = "write a captioned set of moving shapes with known cuts",
    .usage = "--out DIR [options]",
    .details =
        "Writes H.264 videos of one coloured shape (red, green, blue, yellow; circle, square,\n"
        "triangle) that moves left, right, up or down over plain and shaded backgrounds. Most\n"
        "shots are cut together into longer videos, with hard cuts, dissolves and fades, so that\n"
        "curation has real work to do on material whose answers are known.\n"
        "\n"
        "train/v0000.mp4 with v0000.json: several shots; the JSON gives each shot's first and\n"
        "last frame (inclusive) and its caption, such as \"a red circle moving left\". Frames of\n"
        "a gradual transition belong to no shot. train/s0000.mp4 with s0000.txt: one shot and its\n"
        "caption. cuts.jsonl: the boundaries, in the form that `weft shots` prints. heldout.json:\n"
        "the combinations of words that training never shows, for the evaluation of composition,\n"
        "and those it does; heldout/ has clips of the former. Every word, and every pair of\n"
        "words, is shown in training.",
    .examples = "weft synth --out raw\nweft synth --out raw --shots 2000 --size 128 --seed 7",
    .options = options,
    .option_count = WEFT_COUNT(options),
    .run = run,
};
