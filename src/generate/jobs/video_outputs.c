#include "generate/jobs/video_outputs.h"

#include "base/fs.h"
#include "base/json.h"
#include "format/tensors/npy.h"
#include "video/image.h"
#include "video/reader.h"
#include "video/writer.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

enum { SHEET_COLUMNS = 8 };

struct weft_video_outputs {
    weft_video_outputs_options o;
    char *out, *sheet;
    bool folder;
    weft_video_writer *writer;
    weft_file_writer array; /* array of `raw`, open while `writer` is open */
    int64_t writing;        /* item of `writer`; -1: none */
    uint8_t *rgb;           /* one frame */
    uint8_t **cells;        /* [count]: SHEET_COLUMNS frames each */
    weft_sound sound;       /* of item `sounding`, in `samples` */
    float *samples;
    int64_t sounding;
    json_t *facts; /* additional members of the line of `writing`; NULL: none */
};

weft_status weft_video_outputs_check_sheet(const char *sheet)
{
    if (weft_path_is_dir(sheet) || strcmp(weft_path_extension(sheet), "png"))
        return weft_error(WEFT_MSG_FILE_NAME, WEFT_AT(.file = sheet),
                          "a contact sheet is written as .png");
    return WEFT_OK;
}

/* Appends the path without its extension: "dog." of dog.mp4. */
static void add_stem(weft_buf *to, const char *path)
{
    weft_buf_append(to, path, (int64_t)(strlen(path) - strlen(weft_path_extension(path))));
}

/* Removes temporary files that a killed run left under this run's names. */
static weft_status remove_leftovers(const weft_video_outputs *g)
{
    if (g->sheet)
        WEFT_TRY(weft_remove_leftovers_of(g->sheet));
    return g->folder ? weft_remove_leftovers(g->out, true)
                     : weft_remove_leftovers_named_after(g->out);
}

static weft_status check_paths(const weft_video_outputs *g)
{
    char *path = g->folder ? weft_path_join(g->out, "prompts.jsonl") : weft_strdup(g->out);
    WEFT_TRY(WEFT_ALLOCATED(path, "the list of videos"));
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_file_try(path));
    if (g->sheet)
        WEFT_GO(weft_file_try(g->sheet));
out:
    weft_free(path);
    return status;
}

const char *weft_video_outputs_name(const char *file, int64_t number, char own[32])
{
    snprintf(own, 32, "%04" PRId64 ".mp4", number);
    return file ? file : own;
}

bool weft_video_outputs_is_file(const char *out)
{
    return weft_video_writer_knows(out);
}

weft_status weft_video_outputs_sibling(const char *out, const weft_video_outputs_item *item,
                                       int64_t number, const char *ending, weft_buf *path)
{
    char own[32];
    weft_buf_free(path);
    if (!weft_video_outputs_is_file(out))
        weft_buf_printf(path, "%s/", out);
    add_stem(path, weft_video_outputs_is_file(out)
                       ? out
                       : weft_video_outputs_name(item->file, number, own));
    weft_buf_printf(path, "%s", ending);
    return weft_buf_check(path);
}

/* Whether `out` looks like a file: true for "dog.avi", false for "runs/v1.5". */
static bool has_file_ending(const char *out)
{
    const char *ending = weft_path_extension(out);
    bool letter = false;
    for (const char *c = ending; *c; c++) {
        if (!isalnum((unsigned char)*c))
            return false;
        letter |= isalpha((unsigned char)*c) != 0;
    }
    return letter && strlen(ending) <= 4 && !weft_path_is_dir(out);
}

static weft_status check_sheets(const weft_video_outputs_options *o)
{
    WEFT_TRY(weft_video_outputs_check_sheet(o->sheet));
    for (int64_t i = 1; i < o->count; i++)
        if (o->items[i].height != o->items->height || o->items[i].width != o->items->width)
            return weft_error(WEFT_MSG_OPTION_CONFLICT, WEFT_AT(.file = o->sheet, WEFT_NUMBER(i)),
                              "a contact sheet needs videos of one size, and video %" PRId64 " has "
                              "another size than the first",
                              i);
    return WEFT_OK;
}

weft_status weft_video_outputs_check_out(const char *out)
{
    if (!weft_video_outputs_is_file(out))
        return has_file_ending(out) ? weft_error_add(weft_video_writer_check(out, 0, 0),
                                                     "For a folder of this name write %s/", out)
                                    : WEFT_OK;
    if (weft_path_is_dir(out))
        return weft_error(
            WEFT_MSG_FILE_EXISTS, WEFT_AT(.file = out),
            "a folder has this name. Give the video another name, or remove the folder.");
    return weft_video_writer_check(out, 0, 0);
}

weft_status weft_video_outputs_check(const weft_video_outputs_options *o)
{
    const bool file = weft_video_outputs_is_file(o->out);
    WEFT_TRY(weft_video_outputs_check_out(o->out));
    if (o->sheet)
        WEFT_TRY(check_sheets(o));
    if (file && o->count != 1)
        return weft_error(WEFT_MSG_OPTION_CONFLICT, WEFT_AT(.file = o->out, WEFT_NUMBER(o->count)),
                          "one file cannot hold the videos of %" PRId64 " prompts. Name a folder.",
                          o->count);
    for (int64_t i = 0; i < o->count; i++) {
        char own[32];
        const weft_video_outputs_item *item = &o->items[i];
        WEFT_TRY(weft_video_writer_check(
            file ? o->out : weft_video_outputs_name(item->file, i, own), item->frames, item->fps));
    }
    return WEFT_OK;
}

/* Creates folders, removes leftovers of killed runs and prepares the list; called on one rank. */
static weft_status prepare(const weft_video_outputs *g)
{
    WEFT_TRY(g->folder ? weft_make_dirs(g->out) : weft_make_parent(g->out));
    if (g->sheet)
        WEFT_TRY(weft_make_parent(g->sheet));
    WEFT_TRY(remove_leftovers(g));
    WEFT_TRY(check_paths(g));
    if (!g->folder || g->o.goes_on)
        return WEFT_OK;
    char *path = weft_path_join(g->out, "prompts.jsonl");
    const weft_status_code status =
        path ? weft_file_write_atomic(path, "", 0) : weft_no_memory("the list of videos");
    weft_free(path);
    return status;
}

static int64_t frame_bytes(const weft_video_outputs_item *item)
{
    return item->height * item->width * 3;
}

weft_status weft_video_outputs_open(const weft_video_outputs_options *o,
                                    weft_video_outputs **outputs)
{
    WEFT_TRY(weft_video_outputs_check(o));
    weft_video_outputs *g;
    WEFT_TRY(WEFT_NEW(g, 1, "the list of videos"));
    *g = (weft_video_outputs){
        .o = *o, .folder = !weft_video_outputs_is_file(o->out), .writing = -1, .sounding = -1};
    int64_t largest = 0;
    for (int64_t i = 0; i < o->count; i++)
        largest = frame_bytes(&o->items[i]) > largest ? frame_bytes(&o->items[i]) : largest;
    g->out = weft_strdup(o->out);
    g->sheet = o->sheet ? weft_strdup(o->sheet) : NULL;
    g->rgb = weft_alloc(largest);
    g->cells = weft_calloc(o->count, sizeof *g->cells);
    bool ok = g->out && g->rgb && g->cells && (!o->sheet || g->sheet);
    for (int64_t i = 0; ok && o->sheet && i < o->count; i++) {
        g->cells[i] = weft_alloc(SHEET_COLUMNS * frame_bytes(&o->items[i]));
        ok = g->cells[i] != NULL;
    }
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(ok, "%" PRId64 " videos", o->count));
    if (!o->second)
        WEFT_GO(prepare(g));
out:
    if (status != WEFT_OK) {
        weft_video_outputs_free(g);
        return status;
    }
    *outputs = g;
    return WEFT_OK;
}

void weft_video_outputs_facts(weft_video_outputs *g, json_t *facts)
{
    json_decref(g->facts);
    g->facts = facts;
}

/* Begins the array next to the video; frames are appended as to the video. */
static weft_status begin_array(weft_video_outputs *g, const char *video)
{
    weft_buf path = {0}, header = {0};
    const weft_video_outputs_item *item = &g->o.items[g->writing];
    weft_npy_format(WEFT_F32, 4, (const int64_t[]){item->frames, item->height, item->width, 3},
                    NULL, &header);
    add_stem(&path, video);
    weft_buf_printf(&path, "npy");
    weft_status_code status;
    WEFT_GO(weft_buf_check(&path));
    WEFT_GO(weft_buf_check(&header));
    WEFT_GO(weft_file_begin(&g->array, path.data));
    WEFT_GO(weft_file_write(&g->array, header.data, header.len));
out:
    weft_buf_free(&path);
    weft_buf_free(&header);
    return status;
}

/* Writes the sound next to the video. */
static weft_status write_sound(const weft_sound *sound, const char *video)
{
    weft_buf path = {0}, data = {0};
    weft_npy_format(WEFT_F32, 2, (const int64_t[]){sound->channels, sound->count}, sound->samples,
                    &data);
    add_stem(&path, video);
    weft_buf_printf(&path, "sound.npy");
    weft_status_code status;
    WEFT_GO(weft_buf_check(&path));
    WEFT_GO(weft_buf_check(&data));
    WEFT_GO(weft_file_write_atomic(path.data, data.data, data.len));
out:
    weft_buf_free(&path);
    weft_buf_free(&data);
    return status;
}

/* Discards an unfinished video: another one begins, or decoding restarts. */
static void drop(weft_video_outputs *g)
{
    weft_video_writer_close(g->writer);
    if (g->writer && g->o.raw)
        weft_file_abort(&g->array);
    g->writer = NULL;
    g->writing = -1;
}

/* Tags of a video file. The file is an item's video if the first SAME tags, the negative prompt and
 * the size match. */
enum { SAME = 4 };
typedef struct said {
    char seed[32], steps[32], guidance[32], frames[32];
    weft_video_tag tag[8];
    int count;
} said;

static void say(const weft_video_outputs_item *item, said *s)
{
    snprintf(s->seed, sizeof s->seed, "%" PRIu64, item->seed);
    snprintf(s->steps, sizeof s->steps, "%" PRId64, item->steps);
    snprintf(s->guidance, sizeof s->guidance, "%g", item->guidance);
    snprintf(s->frames, sizeof s->frames, "%" PRId64, item->frames);
    const weft_video_tag tags[] = {{"title", item->prompt},    {"seed", s->seed},
                                   {"steps", s->steps},        {"guidance", s->guidance},
                                   {"sampler", item->sampler}, {"encoder", "weft"},
                                   {"frames", s->frames},      {"negative", item->negative}};
    memcpy(s->tag, tags, sizeof tags);
    s->count = WEFT_COUNT(tags) - !(item->negative && item->negative[0]);
}

static weft_status begin(weft_video_outputs *g, int64_t number)
{
    char own[32];
    said s;
    const weft_video_outputs_item *item = &g->o.items[number];
    const char *name = weft_video_outputs_name(item->file, number, own);
    drop(g);
    say(item, &s);
    const weft_video_writer_options options = {.width = item->width,
                                               .height = item->height,
                                               .fps = item->fps,
                                               .crf = 12,
                                               .tags = s.tag,
                                               .tag_count = s.count,
                                               .sound = number == g->sounding ? &g->sound : NULL};
    char *path = g->folder ? weft_path_join(g->out, name) : weft_strdup(g->out);
    weft_status_code status = WEFT_OK;
    g->writing = number;
    WEFT_TRY(WEFT_ALLOCATED(path, "the list of videos"));
    WEFT_GO(weft_make_parent(path));
    WEFT_GO(weft_video_writer_open(path, &options, &g->writer));
    if (g->o.raw)
        WEFT_GO(begin_array(g, path));
    if (g->o.raw && options.sound)
        WEFT_GO(write_sound(options.sound, path));
out:
    weft_free(path);
    return status;
}

static bool says(const char *path, const char *key, const char *value)
{
    char *tag = weft_video_writer_tag(path, key);
    const bool same = !strcmp(tag ? tag : "", value ? value : "");
    weft_free(tag);
    return same;
}

bool weft_video_outputs_exists(const char *path, const weft_video_outputs_item *item)
{
    weft_video_info info;
    said s;
    if (!weft_path_exists(path) || weft_video_probe(path, &info) != WEFT_OK)
        return false; /* not a video, or damaged */
    say(item, &s);
    /* only mp4 containers store their frame count */
    bool same = (info.frames == item->frames || says(path, "frames", s.frames)) &&
                info.width == item->width && info.height == item->height &&
                says(path, "negative", item->negative);
    for (int i = 0; i < SAME; i++)
        same = same && says(path, s.tag[i].key, s.tag[i].value);
    return same;
}

/* Appends a complete line under a file lock, since several ranks append to the file. A failed write
 * leaves no partial line. */
static weft_status append(const char *path, const weft_buf *line)
{
    weft_status_code status = WEFT_OK;
    const int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0)
        return weft_error_errno(WEFT_AT(.file = path), "cannot write the file");
    (void)flock(fd, LOCK_EX);
    const off_t before = lseek(fd, 0, SEEK_END);
    for (int64_t done = 0; done < line->len;) {
        const ssize_t n = write(fd, line->data + done, (size_t)(line->len - done));
        if (n >= 0)
            done += n;
        else if (errno != EINTR)
            WEFT_GO(weft_error_errno(WEFT_AT(.file = path), "cannot write the file"));
    }
out:
    if (status != WEFT_OK && before >= 0)
        (void)!ftruncate(fd, before);
    close(fd);
    return status;
}

static weft_status add_line(weft_video_outputs *g, const weft_video_outputs_item *item)
{
    char own[32];
    json_t *line =
        json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:f, s:s, s:f}", "file",
                  weft_video_outputs_name(item->file, g->writing, own), "prompt", item->prompt,
                  "negative", item->negative ? item->negative : "", "seed", (json_int_t)item->seed,
                  "frames", (json_int_t)item->frames, "height", (json_int_t)item->height, "width",
                  (json_int_t)item->width, "steps", (json_int_t)item->steps, "guidance",
                  item->guidance, "sampler", item->sampler, "fps", item->fps);
    if (line && g->facts)
        json_object_update(line, g->facts);
    char *text = line ? weft_json_line(line) : NULL,
         *path = weft_path_join(g->out, "prompts.jsonl");
    weft_buf out = {0};
    json_decref(line);
    if (text && path)
        weft_buf_printf(&out, "%s\n", text);
    const weft_status_code status = text && path && weft_buf_check(&out) == WEFT_OK
                                        ? append(path, &out)
                                        : weft_no_memory("the list of videos");
    weft_buf_free(&out);
    weft_free(text);
    weft_free(path);
    return status;
}

/* Finishes the video and its array, if any. */
static weft_status finish_files(weft_video_outputs *g)
{
    weft_status_code status = weft_video_writer_finish(g->writer);
    weft_video_writer_close(g->writer);
    g->writer = NULL;
    if (!g->o.raw)
        return status;
    WEFT_GO(status);
    WEFT_GO(weft_file_commit(&g->array));
out:
    if (status != WEFT_OK)
        weft_file_abort(&g->array);
    return status;
}

static weft_status end(weft_video_outputs *g)
{
    weft_status_code status = WEFT_OK;
    WEFT_GO(finish_files(g));
    if (g->folder)
        WEFT_GO(add_line(g, &g->o.items[g->writing]));
out:
    weft_video_outputs_facts(g, NULL);
    g->writing = -1;
    return status;
}

/* Columns are spaced evenly from the first to the last frame; short videos repeat frames. */
static void add_to_sheet(weft_video_outputs *g, const weft_video_outputs_item *item, int64_t frame)
{
    const int64_t bytes = frame_bytes(item), last = item->frames - 1;
    for (int c = 0; c < SHEET_COLUMNS; c++)
        if ((last * c + (SHEET_COLUMNS - 1) / 2) / (SHEET_COLUMNS - 1) == frame)
            memcpy(g->cells[g->writing] + c * bytes, g->rgb, (size_t)bytes);
}

weft_status weft_video_outputs_sound(weft_video_outputs *g, int64_t number, const weft_sound *sound)
{
    const int64_t floats = sound->channels * sound->count;
    weft_free(g->samples);
    g->sounding = -1;
    WEFT_TRY(WEFT_NEW(g->samples, floats, "the sound of a video"));
    memcpy(g->samples, sound->samples, (size_t)floats * sizeof *g->samples);
    g->sound = *sound;
    g->sound.samples = g->samples;
    g->sounding = number;
    return WEFT_OK;
}

weft_status weft_video_outputs_frames(weft_video_outputs *g, int64_t number, int64_t first_frame,
                                      int64_t count, const float *frames)
{
    const weft_video_outputs_item *item = &g->o.items[number];
    const int64_t values = frame_bytes(item);
    if (number != g->writing || first_frame == 0)
        WEFT_TRY(begin(g, number));
    if (g->o.raw)
        WEFT_TRY(weft_file_write(&g->array, frames, count * values * (int64_t)sizeof *frames));
    for (int64_t f = 0; f < count; f++) {
        weft_clip_to_u8(frames + f * values, 1, item->height, item->width, false, g->rgb);
        WEFT_TRY(weft_video_writer_rgb(g->writer, g->rgb, item->width * 3));
        if (g->sheet)
            add_to_sheet(g, item, first_frame + f);
    }
    return first_frame + count == item->frames ? end(g) : WEFT_OK;
}

static weft_status write_sheet(weft_video_outputs *g)
{
    const weft_video_outputs_item *item = g->o.items;
    int64_t *frames;
    WEFT_TRY(WEFT_NEW(frames, g->o.count, "the contact sheet"));
    for (int64_t i = 0; i < g->o.count; i++)
        frames[i] = SHEET_COLUMNS;
    const weft_status_code status =
        weft_sheet_write(&(weft_sheet){.rgb = (const uint8_t *const *)g->cells,
                                       .frames = frames,
                                       .videos = g->o.count,
                                       .width = item->width,
                                       .height = item->height,
                                       .columns = SHEET_COLUMNS,
                                       .gap = 4},
                         g->sheet);
    weft_free(frames);
    return status;
}

weft_status weft_video_outputs_finish(weft_video_outputs *g)
{
    return g->sheet ? write_sheet(g) : WEFT_OK;
}

void weft_video_outputs_free(weft_video_outputs *g)
{
    if (!g)
        return;
    drop(g);
    json_decref(g->facts);
    for (int64_t i = 0; g->cells && i < g->o.count; i++)
        weft_free(g->cells[i]);
    weft_free(g->cells);
    weft_free(g->rgb);
    weft_free(g->samples);
    weft_free(g->out);
    weft_free(g->sheet);
    weft_free(g);
}
