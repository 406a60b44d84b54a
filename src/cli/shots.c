#include "curate/shots.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/memory.h"
#include "cli/verb.h"

#include <stdio.h>
#include <string.h>

static const weft_option options[] = {
    {"--method", "NAME", "structure", "structure, content, adaptive or fade"},
    {"--threshold", "X", "0",
     "0: the method's own (structure 1, a factor: lower finds more; content 27, adaptive 3, fade "
     "12)"},
    {"--min-frames", "N", "0", "shortest shot; 0: the method's own (structure 4, others 15)"},
    {"--mix", "LEVELS", "20",
     "frames of H.264 between two that differ by less are mixed of these, not decoded; 0: every "
     "frame is decoded"},
    {"--csv", NULL, NULL, "a scene list in the form of PySceneDetect instead of JSON lines"},
    {"--threads", "N", "2", "decoder threads; their number does not change the result"},
};

static const char *const method_names[] = {"structure", "content", "adaptive", "fade", NULL};

/* A file name as a JSON string without its quotes. */
static void print_escaped(const char *text)
{
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            printf("\\%c", *text);
        else if ((unsigned char)*text < 32)
            printf("\\u%04x", (unsigned)*text);
        else
            putchar(*text);
    }
}

static void print_json(const char *path, const weft_shot_list *list)
{
    for (int64_t i = 0; i < list->count; i++) {
        const weft_boundary *b = &list->boundary[i];
        printf("{\"file\":\"");
        print_escaped(path);
        if (b->gradual)
            printf("\",\"type\":\"gradual\",\"start\":%lld,\"end\":%lld,\"score\":%.2f}\n",
                   (long long)b->start, (long long)b->end, b->score);
        else
            printf("\",\"type\":\"cut\",\"frame\":%lld,\"score\":%.2f}\n", (long long)b->start,
                   b->score);
    }
}

static const char *timecode(int64_t frame, double fps, char text[32])
{
    const double seconds = (double)frame / fps;
    const int64_t ms = (int64_t)(seconds * 1000 + 0.5);
    snprintf(text, 32, "%02lld:%02lld:%02lld.%03lld", (long long)(ms / 3600000),
             (long long)(ms / 60000 % 60), (long long)(ms / 1000 % 60), (long long)(ms % 1000));
    return text;
}

/* A gradual transition becomes a cut in its middle. */
static int64_t cut_frame(const weft_boundary *b)
{
    return b->gradual ? (b->start + b->end + 1) / 2 : b->start;
}

static void print_csv(const weft_shot_list *list)
{
    const double fps = list->fps > 0 ? list->fps : 25;
    char a[32], b[32], c[32];
    printf("Timecode List:");
    for (int64_t i = 0; i < list->count; i++)
        printf(",%s", timecode(cut_frame(&list->boundary[i]), fps, a));
    printf("\nScene Number,Start Frame,Start Timecode,Start Time (seconds),End Frame,End Timecode,"
           "End Time (seconds),Length (frames),Length (timecode),Length (seconds)\n");
    for (int64_t i = 0; i <= list->count; i++) {
        const int64_t start = i ? cut_frame(&list->boundary[i - 1]) : 0;
        const int64_t end = i < list->count ? cut_frame(&list->boundary[i]) : list->frames;
        printf("%lld,%lld,%s,%.3f,%lld,%s,%.3f,%lld,%s,%.3f\n", (long long)i + 1,
               (long long)start + 1, timecode(start, fps, a), (double)start / fps, (long long)end,
               timecode(end, fps, b), (double)end / fps, (long long)(end - start),
               timecode(end - start, fps, c), (double)(end - start) / fps);
    }
}

static weft_status run(const weft_args *args)
{
    weft_shot_options o = {0};
    int64_t threads;
    int count, method = -1;
    WEFT_TRY(weft_args_f64(args, "--threshold", 0, 1000, &o.threshold));
    WEFT_TRY(weft_args_i64(args, "--min-frames", 0, 100000, &o.min_frames));
    WEFT_TRY(weft_args_f64(args, "--mix", 0, 100, &o.mix));
    WEFT_TRY(weft_args_i64(args, "--threads", 1, 64, &threads));
    const char *name = weft_args_string(args, "--method");
    for (int i = 0; method_names[i]; i++)
        if (strcmp(method_names[i], name) == 0)
            method = i;
    if (method < 0) {
        const char *near = weft_nearest_name(name, method_names, WEFT_SHOTS_METHODS);
        return weft_fail(WEFT_E_ARG, "--method %s: no such method%s%s%s", name,
                         near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
    }
    o.method = (weft_shot_method)method;
    const bool csv = weft_args_flag(args, "--csv");
    const char *const *paths = weft_args_positional(args, &count);
    int failed = 0;
    weft_status_code first = WEFT_OK;
    for (int i = 0; i < count; i++) {
        weft_shot_list list;
        const weft_status_code status = weft_shots_find(paths[i], &o, (int)threads, &list);
        if (status != WEFT_OK) {
            /* One bad file costs itself only; the exit status tells. */
            if (count > 1)
                weft_log(WEFT_LOG_ERROR, "%s", weft_error_message());
            first = first == WEFT_OK ? status : first;
            failed++;
            continue;
        }
        if (list.errors)
            weft_warn("%s: %lld damaged packets were passed over", paths[i],
                      (long long)list.errors);
        weft_debug("%s: %lld of %lld frames decoded", paths[i], (long long)list.decoded,
                   (long long)list.frames);
        if (csv)
            print_csv(&list);
        else
            print_json(paths[i], &list);
        weft_shot_list_free(&list);
    }
    if (failed && count > 1)
        return weft_fail(first, "%d of %d files could not be read", failed, count);
    return first;
}

const weft_verb weft_verb_shots = {
    .name = "shots",
    .summary = "find the shot boundaries of videos",
    .usage = "FILE... [options]",
    .details =
        "Prints the boundaries of each file as JSON lines:\n"
        "  {\"file\":\"a.mp4\",\"type\":\"cut\",\"frame\":95,\"score\":1.62}\n"
        "  {\"file\":\"a.mp4\",\"type\":\"gradual\",\"start\":120,\"end\":143,\"score\":2.10}\n"
        "`frame` is the first frame of the new shot; start .. end (inclusive) are the frames that "
        "are\n"
        "mixed, dimmed or a held colour. Frames count every decoded frame from 0. A file without "
        "a\n"
        "boundary prints nothing. Fades at the very start or end are no boundaries.\n"
        "\n"
        "The method `structure` is ours: it compares the structure of frames after motion "
        "compensation,\n"
        "so that camera motion, flashes, steps of exposure and captions are not taken for cuts, "
        "and\n"
        "finds dissolves, wipes, irises, pushes and fades through a colour. `content` (mean HSV\n"
        "difference), `adaptive` (the same, against its neighbourhood) and `fade` (mean luma) are "
        "the\n"
        "usual methods of that name.\n"
        "\n"
        "Of H.264, frames between two that are alike are not decoded but mixed of these: at most "
        "five in a\n"
        "row, and none where a cut could hide; ends of transitions may move by a few frames. --mix "
        "0 decodes\n"
        "all frames, in about twice the time, as `weft curate` does (shots.mix), because it hashes "
        "frames, too.\n"
        "With the same value both find the same boundaries. The usual methods decode every frame.\n"
        "\n"
        "With several files, one that cannot be read is reported and passed over; the exit status "
        "is\n"
        "then not 0.",
    .examples = "weft shots film.mp4\nweft shots --csv film.mp4 > film-Scenes.csv\n"
                "weft shots --method content --threshold 30 *.mp4",
    .options = options,
    .option_count = WEFT_COUNT(options),
    .min_positional = 1,
    .max_positional = -1,
    .run = run,
};
